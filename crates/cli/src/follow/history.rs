//! The event log as text: the run or sweep of an event, and a sentence.

use domain::event::{RentIntended, RunEnd};
use domain::pipeline::PipelineEnd;
use domain::rank::Ready;
use domain::rental::MachineHandle;
use domain::run::{AttemptEnd, Bill, BillAdjustment, Keeper, Outcome, StopBy};
use domain::schedule::{ScheduleChange, SkipReason};
use domain::sweep::{Setting, SweepEnd};
use domain::{AttemptId, Event, InstanceId, Money, RunId};
use plan::World;

use super::narrator::{peer_copy_failed, stopping, straggler};
use crate::figures::{accuracy, counted};

/// The run or sweep that an event is about; empty where its run is not known.
pub fn subject(world: &World, event: &Event) -> String {
    let of_instance = |id: &InstanceId| world.instances.get(id).map(|instance| &instance.run);
    let of_attempt = |id: &AttemptId| world.attempts.get(id).map(|attempt| &attempt.run);
    let run: Option<&RunId> = match event {
        Event::Submitted(submitted) => Some(&submitted.run),
        Event::RentIntended(intent) => Some(&intent.run),
        Event::MachineTaken(taken) => Some(&taken.run),
        Event::StopRequested { run, .. } | Event::ResumeRequested { run, .. } | Event::Ended { run, .. } => Some(run),
        Event::AttemptIntended { run, .. } | Event::BudgetAlert { run, .. } | Event::Billed { run, .. } => Some(run),
        Event::Launched { instance, .. } | Event::RentFailed { instance, .. } | Event::AgentUp { instance, .. } => {
            of_instance(instance)
        }
        Event::ReleaseIntended { instance, .. }
        | Event::ReclaimNoticed { instance, .. }
        | Event::PeerCopyFailed { instance, .. }
        | Event::Released { instance, .. }
        | Event::DoubleEnded { instance, .. } => of_instance(instance),
        Event::AttemptReady { attempt, .. } | Event::AttemptEnded { attempt, .. } => of_attempt(attempt),
        Event::MemberPrepared { attempt, .. } | Event::MemberEnded { attempt, .. } => of_attempt(attempt),
        Event::AttemptResizing { attempt } | Event::StragglerFound { attempt, .. } => of_attempt(attempt),
        Event::MicroBatchHalved { run, .. } | Event::KeeperChanged { run, .. } => Some(run),
        Event::BillAdjusted { run, .. } | Event::TrialMeasured { run, .. } => Some(run),
        Event::SweepSubmitted(submitted) => return submitted.sweep.to_string(),
        Event::SweepStopRequested { sweep, .. } | Event::SweepResumeRequested { sweep, .. } => {
            return sweep.to_string();
        }
        Event::SweepBudgetAlert { sweep, .. } | Event::SweepEnded { sweep, .. } => return sweep.to_string(),
        Event::PipelineSubmitted(submitted) => return submitted.pipeline.to_string(),
        Event::PipelineAdvanced { pipeline, .. }
        | Event::PipelineStopRequested { pipeline }
        | Event::PipelineResumeRequested { pipeline }
        | Event::PipelineEnded { pipeline, .. } => return pipeline.to_string(),
        Event::ScheduleAdded(added) => return added.schedule.to_string(),
        Event::ScheduleChanged { schedule, .. }
        | Event::ScheduleFired { schedule, .. }
        | Event::ScheduleSkipped { schedule, .. } => return schedule.to_string(),
    };
    run.map_or(String::new(), ToString::to_string)
}

/// Describes an event in one line.
pub fn sentence(event: &Event) -> String {
    match event {
        Event::Submitted(submitted) => format!("submitted from {}", submitted.file),
        Event::StopRequested { by, .. } | Event::SweepStopRequested { by, .. } => stopping(*by).to_owned(),
        Event::ResumeRequested { set, .. } => format!("resume requested{}", Setting::said(set)),
        Event::SweepResumeRequested { .. } | Event::PipelineResumeRequested { .. } => "resume requested".to_owned(),
        Event::RentIntended(intent) => renting(intent),
        Event::MachineTaken(taken) => {
            format!("machine {} of a run that has ended taken over as {}", taken.machine, taken.instance)
        }
        Event::Launched { instance, handle, account } => launched(instance, handle.as_ref(), account.as_deref()),
        Event::PeerCopyFailed { .. } => peer_copy_failed(event),
        Event::RentFailed { instance, finding } => {
            format!("machine {instance} could not be rented: {}", first_line(&finding.message))
        }
        Event::AgentUp { instance, .. } => format!("machine {instance} is up"),
        Event::ReclaimNoticed { instance, .. } => {
            format!("the provider takes machine {instance} back; what runs on it saves its state")
        }
        Event::AttemptIntended { attempt, instance, others, .. } => {
            format!("attempt {attempt} starts on {}", names(instance, others))
        }
        Event::MemberPrepared { attempt, instance, .. } => {
            format!("machine {instance} is prepared for attempt {attempt}")
        }
        Event::MemberEnded { attempt, instance, end } => {
            format!("attempt {attempt} {} on machine {instance}", attempt_end(end))
        }
        Event::AttemptReady { attempt, ready } => format!("attempt {attempt} {}", attempt_ready(ready.as_ref())),
        Event::AttemptResizing { attempt } => {
            format!("attempt {attempt} saves and ends: more machines are there for the next one")
        }
        Event::StragglerFound { .. } => straggler(event),
        Event::MicroBatchHalved { accumulate, .. } => {
            format!("memory ran out: a step is divided into {accumulate} micro-batches from now on")
        }
        Event::KeeperChanged { keeper, .. } => format!("kept going by {}", keeper_name(*keeper)),
        Event::AttemptEnded { attempt, end } => format!("attempt {attempt} {}", attempt_end(end)),
        Event::BudgetAlert { spent, .. } | Event::SweepBudgetAlert { spent, .. } => {
            format!("budget alert: {spent} spent")
        }
        Event::Ended { end, .. } => run_end(end),
        Event::ReleaseIntended { instance, lost_race } => releasing(instance, *lost_race),
        Event::DoubleEnded { instance, handle, .. } => {
            format!("machine {}, rented a second time as {instance}, is gone", handle.0)
        }
        Event::Released { instance, usage } => {
            format!("machine {instance} released after {:.1} s", usage.elapsed.as_secs_f64())
        }
        Event::Billed { bill, .. } => billed(bill),
        Event::BillAdjusted { source, adjustments, .. } => adjusted(source, adjustments),
        Event::SweepSubmitted(submitted) => format!("sweep submitted from {}", submitted.file),
        Event::SweepEnded { end, total, .. } => format!("sweep {}; {total} in all", sweep_end(end)),
        Event::PipelineSubmitted(_) | Event::PipelineAdvanced { .. } | Event::PipelineEnded { .. } => served(event),
        Event::PipelineStopRequested { .. } | Event::ScheduleAdded(_) | Event::ScheduleFired { .. } => served(event),
        Event::ScheduleChanged { .. } | Event::ScheduleSkipped { .. } | Event::TrialMeasured { .. } => served(event),
    }
}

fn renting(intent: &RentIntended) -> String {
    let machines = names(&intent.instance, &intent.others);
    format!("renting {} at {} as {machines}", intent.offer.kind, intent.offer.rate)
}

/// Describes the release of a machine that begins, and why where the reason is not the end of its run.
fn releasing(instance: &InstanceId, lost_race: bool) -> String {
    let why = if lost_race { ": another one was had first" } else { "" };
    format!("releasing machine {instance}{why}")
}

/// Describes an event of a pipeline or schedule, or the measurement of a trial; nothing of others.
fn served(event: &Event) -> String {
    match event {
        Event::PipelineSubmitted(submitted) => {
            format!("pipeline of {} submitted from {}", counted(submitted.tasks.len() as u64, "task"), submitted.file)
        }
        Event::PipelineAdvanced { run, .. } => format!("submitted run {run}"),
        // It is a run, a sweep or a pipeline.
        Event::ScheduleFired { run, .. } => format!("submitted {run}"),
        Event::PipelineStopRequested { .. } => stopping(StopBy::User).to_owned(),
        Event::PipelineEnded { end, .. } => match end {
            PipelineEnd::Done => "pipeline done".to_owned(),
            PipelineEnd::Stopped { .. } => "pipeline stopped".to_owned(),
            PipelineEnd::Failed { task, message } => format!("task {task} failed: {}", first_line(message)),
        },
        Event::ScheduleAdded(added) => {
            let (work, times) = (added.work.word(), &added.times);
            format!("schedule of {} added: a {work} at `{}` in {}", added.file, times.cron, times.timezone)
        }
        Event::ScheduleChanged { change, .. } => match change {
            ScheduleChange::Pause => "paused".to_owned(),
            ScheduleChange::Resume => "resumed".to_owned(),
            ScheduleChange::Remove => "removed".to_owned(),
        },
        Event::TrialMeasured { value: Some(value), .. } => format!("measured {value}"),
        Event::TrialMeasured { value: None, .. } => "measured a value that is not finite".to_owned(),
        Event::ScheduleSkipped { count, why, .. } => format!("{count} skipped: {}", skipped(why)),
        _ => String::new(),
    }
}

/// Why a due time of a schedule has no run.
pub fn skipped(why: &SkipReason) -> String {
    match why {
        SkipReason::Missed => "no server was running".to_owned(),
        SkipReason::Overlap => "the run before had not ended".to_owned(),
        SkipReason::Refused { message } => first_line(message).to_owned(),
    }
}

fn billed(bill: &Bill) -> String {
    match bill.adjustment.is_zero() {
        true => format!("billed {}", bill.total),
        false => format!("billed {}, of which {} is beyond the budget", bill.total, bill.adjustment),
    }
}

fn adjusted(source: &str, adjustments: &[BillAdjustment]) -> String {
    let sum: Money = adjustments.iter().map(|adjustment| adjustment.amount).sum();
    format!("adjusted by {sum} to the provider's bill, {source}")
}

/// Machines by name, the first one first.
fn names(first: &InstanceId, others: &[InstanceId]) -> String {
    let machines: Vec<&str> = std::iter::once(first).chain(others).map(InstanceId::as_str).collect();
    machines.join(", ")
}

fn attempt_ready(ready: Option<&Ready>) -> String {
    match ready {
        None => "runs its program".to_owned(),
        Some(Ready { step: 0, steps, .. }) => format!("trains from step 0 of {steps}"),
        Some(Ready { step, steps, .. }) => format!("resumed at step {step} of {steps}"),
    }
}

fn keeper_name(keeper: Keeper) -> &'static str {
    match keeper {
        Keeper::Server => "`gradus serve`",
        Keeper::Foreground => "the commands that wait for it",
    }
}

fn sweep_end(end: &SweepEnd) -> String {
    match end {
        SweepEnd::Done { best: None } => "done".to_owned(),
        SweepEnd::Done { best: Some(best) } => format!("done, best is trial {}", best.number),
        SweepEnd::Stopped { .. } => "stopped".to_owned(),
        SweepEnd::Failed { finding, .. } => format!("failed: {}", first_line(&finding.message)),
    }
}

fn attempt_end(end: &AttemptEnd) -> String {
    match end {
        AttemptEnd::Trained { model } => format!("trained its model, {} steps", model.steps),
        AttemptEnd::Succeeded => "succeeded".to_owned(),
        AttemptEnd::Stopped { step: Some(step) } => format!("stopped with a checkpoint at step {step}"),
        AttemptEnd::Stopped { step: None } => "stopped".to_owned(),
        AttemptEnd::Failed { finding, .. } => format!("failed: {}", first_line(&finding.message)),
    }
}

fn run_end(end: &RunEnd) -> String {
    match end {
        RunEnd::Done { outcome: Outcome::Trained { model } } => {
            format!("trained: {} on validation", accuracy(model.figures.accuracy_name(), model.validation_accuracy))
        }
        RunEnd::Done { outcome: Outcome::Succeeded } => "succeeded".to_owned(),
        RunEnd::Done { outcome: Outcome::Failed { finding } } => format!("failed: {}", first_line(&finding.message)),
        RunEnd::Stopped { by } => match by {
            domain::run::StopBy::User => "stopped by request".to_owned(),
            domain::run::StopBy::Budget => "stopped by its budget".to_owned(),
            domain::run::StopBy::Deadline => "stopped by its deadline".to_owned(),
            domain::run::StopBy::Idle => "stopped because its program was idle".to_owned(),
        },
    }
}

fn launched(instance: &InstanceId, handle: Option<&MachineHandle>, account: Option<&str>) -> String {
    let name = handle.filter(|handle| handle.0 != instance.as_str());
    let name = name.map_or(String::new(), |handle| format!(": its provider names it {}", handle.0));
    let account = account.map(|account| format!(" in account {account}")).unwrap_or_default();
    format!("machine {instance} is rented{account}{name}")
}

/// A message may continue with a program's last lines.
fn first_line(message: &str) -> &str {
    message.lines().next().unwrap_or_default().trim_end_matches("; its last lines were:")
}

#[cfg(test)]
mod tests {
    use domain::Bytes;

    use super::*;
    use crate::follow::narrator;

    #[test]
    fn a_node_that_failed_to_send_its_files_is_named_with_the_reason_and_the_cost() {
        let check = |sent: u64, expected: &str| {
            let (peer, why) = ("west".to_owned(), "it did not answer within 20 s".to_owned());
            let event = Event::PeerCopyFailed { instance: InstanceId::new("r-i1"), peer, why, sent: Bytes(sent) };
            let start =
                "node `west` could not send all programs and libraries to machine r-i1: it did not answer within 20 s";
            let expected = format!("{start}; {expected}");
            assert_eq!(sentence(&event), expected);
            assert_eq!(narrator::sentence(&event), Some(expected), "`gradus run` prints it too");
        };
        check(500_000_000, "gradus sent the remaining 500 MB itself");
        check(0, "another node sent the rest");
    }
}
