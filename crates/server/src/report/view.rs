//! The data of a report, collected from the event log, the measurements and the operations log of one run.

use std::collections::{BTreeMap, BTreeSet};

use control::OperationNote;
use domain::event::{RunEnd, Submitted};
use domain::rank::{Environment, Ready, Report};
use domain::run::{AttemptEnd, Bill, Outcome, StopBy};
use domain::series::Point;
use domain::subject::EventSubject;
use domain::sweep::Setting;
use domain::{AttemptId, Event, Finding, InstanceId, Money, Offer, Record, RunId, Timestamp};

use plan::{Goodput, StepTotals};

use super::curves::Curves;
use super::origin::RunOrigin;
use super::words;

/// The data of a report.
#[derive(Debug)]
pub struct View {
    pub run: RunId,
    pub submitted: Submitted,
    pub submitted_at: Timestamp,
    pub end: Option<(Timestamp, RunEnd)>,
    pub bill: Option<Bill>,
    pub offers: Vec<(InstanceId, Offer)>,
    pub attempts: usize,
    pub environment: Option<Environment>,
    pub ready: Option<Ready>,
    pub moments: Vec<Moment>,
    pub curves: Curves,
    pub goodput: Goodput,
    pub origin: RunOrigin,
}

/// One line of the timeline.
#[derive(Debug)]
pub struct Moment {
    pub at: Timestamp,
    pub tone: Tone,
    pub text: String,
    pub detail: Option<String>,
}

/// How a line of the timeline is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Neutral,
    Success,
    Failure,
}

impl View {
    /// Collects the data of `run`; `None` if it was never submitted.
    pub fn of(
        run: &RunId,
        records: &[Record],
        points: &[Point],
        operations: &[(Timestamp, OperationNote)],
    ) -> Option<View> {
        let (submitted_at, submitted) = records.iter().find_map(|record| match &record.event {
            Event::Submitted(submitted) if submitted.run == *run => Some((record.at, submitted.as_ref())),
            _ => None,
        })?;
        let mut view = View {
            run: run.clone(),
            submitted: submitted.clone(),
            submitted_at,
            end: None,
            bill: None,
            offers: Vec::new(),
            attempts: 0,
            environment: None,
            ready: None,
            moments: Vec::new(),
            curves: Curves::of(points),
            goodput: Goodput::default(),
            origin: RunOrigin::default(),
        };
        let mut ours = Ours::default();
        for record in records {
            view.fold(record, &mut ours);
        }
        for point in points {
            view.measured(point);
        }
        view.goodput = goodput(run, records, points, &ours);
        for (at, note) in operations {
            view.operated(*at, note, &ours);
        }
        // Stable, so that events of the same microsecond stay in the order of the log.
        view.moments.sort_by_key(|moment| moment.at);
        Some(view)
    }

    fn fold(&mut self, record: &Record, ours: &mut Ours) {
        let at = record.at;
        match &record.event {
            Event::Submitted(submitted) if submitted.run == self.run => {
                let trial = submitted.trial.as_ref();
                let of =
                    trial.map(|trial| format!(" as trial {} of {}", trial.number, trial.sweep)).unwrap_or_default();
                self.plain(at, format!("submitted from {}{of}", submitted.file));
            }
            Event::StopRequested { run, by } if *run == self.run => {
                self.plain(at, format!("stop requested by {}", stopper(*by)));
            }
            Event::ResumeRequested { run, epochs, set, .. } if *run == self.run => {
                self.end = None;
                let mut to = epochs.map(|epochs| format!(" to {epochs} epochs")).unwrap_or_default();
                to += &Setting::said(set);
                self.plain(at, format!("resume requested{to}"));
            }
            Event::RentIntended(intended) if intended.run == self.run => {
                ours.instances.insert(intended.instance.clone());
                self.offers.push((intended.instance.clone(), intended.offer.clone()));
                let offer = &intended.offer;
                let (kind, provider, rate) = (&offer.kind, &offer.provider, offer.rate);
                self.plain(at, format!("rents {} ({kind} at {provider}, {rate})", intended.instance));
            }
            Event::MachineTaken(taken) if taken.run == self.run => {
                ours.instances.insert(taken.instance.clone());
                self.offers.push((taken.instance.clone(), taken.offer.clone()));
                self.plain(at, format!("takes over {} as {}", taken.machine, taken.instance));
            }
            Event::RentFailed { instance, finding } if ours.instances.contains(instance) => {
                self.bad(at, format!("{instance} could not be rented"), finding);
            }
            Event::PeerCopyFailed { instance, peer, why, sent } if ours.instances.contains(instance) => {
                let text = format!("{peer} could not send all programs and libraries to {instance}: {why}");
                self.plain(at, format!("{text}; {} came from here", words::size(sent.0)));
            }
            Event::AgentUp { instance, .. } if ours.instances.contains(instance) => {
                self.plain(at, format!("{instance} is up"));
            }
            Event::AttemptIntended { run, attempt, instance, others, .. } if *run == self.run => {
                ours.attempts.insert(attempt.clone());
                self.attempts += 1;
                let machines: Vec<&str> = std::iter::once(instance).chain(others).map(|one| one.as_str()).collect();
                self.plain(at, format!("{attempt} begins on {}", machines.join(", ")));
            }
            Event::AttemptReady { attempt, ready } if ours.attempts.contains(attempt) => {
                self.ready_to_train(at, attempt, ready.as_ref());
            }
            Event::AttemptEnded { attempt, end } if ours.attempts.contains(attempt) => {
                self.attempt_ended(at, attempt, end);
            }
            Event::Ended { run, end } if *run == self.run => {
                self.end = Some((at, end.clone()));
            }
            event => self.fold_cost(at, event, ours),
        }
    }

    /// Folds the events that the bill rests on; the others are folded by [`View::fold`].
    fn fold_cost(&mut self, at: Timestamp, event: &Event, ours: &Ours) {
        match event {
            Event::BudgetAlert { run, spent } if *run == self.run => {
                self.plain(at, format!("budget alert: {spent} spent"));
            }
            Event::ReclaimNoticed { instance, .. } if ours.instances.contains(instance) => {
                self.plain(at, format!("the provider takes {instance} back"));
            }
            Event::Released { instance, usage } if ours.instances.contains(instance) => {
                self.plain(at, format!("{instance} is released after {}", words::length(usage.elapsed)));
            }
            Event::Billed { run, bill } if *run == self.run => {
                self.plain(at, format!("billed {}", bill.total));
                if !bill.adjustment.is_zero() {
                    self.plain(at, format!("{} of it is beyond the budget", bill.adjustment));
                }
                self.bill = Some(bill.clone());
            }
            Event::BillAdjusted { run, adjustments, .. } if *run == self.run => {
                let sum: Money = adjustments.iter().map(|adjustment| adjustment.amount).sum();
                self.plain(at, format!("adjusted by {sum} to the provider's bill"));
            }
            // Of another run, or followed by an event that is shown instead.
            Event::Submitted(_) | Event::StopRequested { .. } | Event::ResumeRequested { .. } => {}
            Event::MachineTaken(_) => {}
            Event::RentIntended(_) | Event::Launched { .. } | Event::RentFailed { .. } | Event::AgentUp { .. } => {}
            Event::AttemptIntended { .. } | Event::AttemptReady { .. } | Event::AttemptEnded { .. } => {}
            Event::MemberPrepared { .. } | Event::MemberEnded { .. } | Event::ReclaimNoticed { .. } => {}
            Event::MicroBatchHalved { run, accumulate } if *run == self.run => {
                self.plain(
                    at,
                    format!("memory ran out: a step is divided into {accumulate} micro-batches from now on"),
                );
            }
            Event::StragglerFound { attempt, instance, step, median, is_replaced }
                if ours.attempts.contains(attempt) =>
            {
                let (step, median) = (step.as_secs_f64(), median.as_secs_f64());
                let then = if *is_replaced { "; another takes its place" } else { "" };
                self.plain(at, format!("{instance} is slow: {step:.3} s per step, the median is {median:.3} s{then}"));
            }
            Event::AttemptResizing { attempt } if ours.attempts.contains(attempt) => {
                self.plain(at, "more machines are there: saving, then resuming on all of them".to_owned());
            }
            Event::AttemptResizing { .. } | Event::MicroBatchHalved { .. } | Event::KeeperChanged { .. } => {}
            Event::BudgetAlert { .. } | Event::Ended { .. } | Event::ReleaseIntended { .. } => {}
            Event::StragglerFound { .. } | Event::PeerCopyFailed { .. } => {}
            Event::Released { .. } | Event::DoubleEnded { .. } | Event::Billed { .. } => {}
            Event::BillAdjusted { .. } | Event::TrialMeasured { .. } => {}
            Event::SweepSubmitted(_) | Event::SweepStopRequested { .. } | Event::SweepResumeRequested { .. } => {}
            Event::SweepBudgetAlert { .. } | Event::SweepEnded { .. } => {}
            Event::PipelineSubmitted(_) | Event::PipelineAdvanced { .. } => {}
            Event::PipelineStopRequested { .. } | Event::PipelineResumeRequested { .. } => {}
            Event::PipelineEnded { .. } => {}
            Event::ScheduleAdded(_) | Event::ScheduleChanged { .. } => {}
            Event::ScheduleFired { .. } | Event::ScheduleSkipped { .. } => {}
        }
    }

    fn ready_to_train(&mut self, at: Timestamp, attempt: &AttemptId, ready: Option<&Ready>) {
        let Some(ready) = ready else {
            self.plain(at, format!("{attempt} runs"));
            return;
        };
        let text = match ready.step {
            0 => format!("{attempt} trains from the beginning"),
            step => format!("{attempt} resumes from the checkpoint of step {}", words::count(step)),
        };
        let passed_over = ready.passed_over.iter().map(|reason| format!("passed over: {reason}")).collect::<Vec<_>>();
        let detail = Some(passed_over.join("; ")).filter(|detail| !detail.is_empty());
        self.moments.push(Moment { at, tone: Tone::Neutral, text, detail });
        self.ready = Some(ready.clone());
    }

    fn attempt_ended(&mut self, at: Timestamp, attempt: &AttemptId, end: &AttemptEnd) {
        match end {
            AttemptEnd::Trained { model } => {
                let steps = words::count(model.steps);
                self.good(at, format!("{attempt} has trained {steps} steps; the model is exported"));
            }
            AttemptEnd::Succeeded => self.good(at, format!("{attempt} succeeded")),
            AttemptEnd::Stopped { step: Some(step) } => {
                self.plain(at, format!("{attempt} stopped; the state of step {} is saved", words::count(*step)));
            }
            AttemptEnd::Stopped { step: None } => self.plain(at, format!("{attempt} stopped")),
            AttemptEnd::Failed { finding, exit_code } => {
                let code = exit_code.map(|code| format!(" with exit code {code}")).unwrap_or_default();
                self.bad(at, format!("{attempt} failed{code}"), finding);
            }
        }
    }

    fn measured(&mut self, point: &Point) {
        match &point.report {
            Report::Hello { environment, .. } => self.environment = Some(environment.clone()),
            Report::Note { text } => self.plain(point.at, text.clone()),
            Report::Preparing { .. } | Report::Pausing { .. } => {}
            Report::Ready(_) | Report::Step(_) | Report::Evaluated(_) => {}
            Report::Metrics(_) | Report::Result(_) | Report::Devices { .. } | Report::Checkpointed(_) => {}
            Report::Exported(_) | Report::Trained | Report::Stopped { .. } | Report::Failed(_) => {}
        }
    }

    /// Adds a line of the operations log that concerns the run: it names the run, its sweep, a machine or an attempt of it,
    /// or it is of the time of the run and names the provider or gradus itself.
    fn operated(&mut self, at: Timestamp, note: &OperationNote, ours: &Ours) {
        let subject = note.subject.as_str();
        let trial = self.submitted.trial.as_ref();
        let is_named = subject == self.run.as_str()
            || trial.is_some_and(|trial| trial.sweep.as_str() == subject)
            || ours.instances.iter().any(|instance| instance.as_str() == subject)
            || ours.attempts.iter().any(|attempt| attempt.as_str() == subject);
        let is_meanwhile = at >= self.submitted_at && self.end.as_ref().is_none_or(|(end, _)| at <= *end);
        let provider = subject.strip_prefix("provider ");
        let is_around = subject == "controller"
            || provider.is_some_and(|name| self.offers.iter().any(|(_, offer)| offer.provider == name));
        if !(is_named || is_meanwhile && is_around) {
            return;
        }
        let (tone, what) = if note.is_mistake { (Tone::Failure, "fault of gradus: ") } else { (Tone::Neutral, "") };
        let text = format!("{what}{subject}: {}", note.text);
        self.moments.push(Moment { at, tone, text, detail: None });
    }

    fn plain(&mut self, at: Timestamp, text: String) {
        self.moments.push(Moment { at, tone: Tone::Neutral, text, detail: None });
    }

    fn good(&mut self, at: Timestamp, text: String) {
        self.moments.push(Moment { at, tone: Tone::Success, text, detail: None });
    }

    fn bad(&mut self, at: Timestamp, text: String, finding: &Finding) {
        self.moments.push(Moment { at, tone: Tone::Failure, text, detail: Some(sentence(finding)) });
    }

    /// The state of the run: a word, its tone, and details.
    pub fn standing(&self) -> (&'static str, Tone, Option<String>) {
        match self.end.as_ref().map(|(_, end)| end) {
            None => ("not ended", Tone::Neutral, None),
            Some(RunEnd::Stopped { by }) => ("stopped", Tone::Neutral, Some(format!("by {}", stopper(*by)))),
            Some(RunEnd::Done { outcome }) => match outcome {
                Outcome::Trained { .. } => ("trained", Tone::Success, None),
                Outcome::Succeeded => ("succeeded", Tone::Success, None),
                Outcome::Failed { finding } => ("failed", Tone::Failure, Some(sentence(finding))),
            },
        }
    }
}

/// Names by which events without a run's name are known as this run's.
#[derive(Default)]
struct Ours {
    instances: BTreeSet<InstanceId>,
    attempts: BTreeSet<AttemptId>,
}

fn stopper(by: StopBy) -> &'static str {
    match by {
        StopBy::User => "the user",
        StopBy::Budget => "the budget",
        StopBy::Deadline => "the deadline",
        StopBy::Idle => "its idle timeout",
    }
}

fn sentence(finding: &Finding) -> String {
    match &finding.hint {
        Some(hint) => format!("{} (hint: {hint})", finding.message),
        None => finding.message.clone(),
    }
}

/// How the time of the run was spent, until its last known event.
fn goodput(run: &RunId, records: &[Record], points: &[Point], ours: &Ours) -> Goodput {
    let is_ours = |record: &&Record| match record.event.subject() {
        EventSubject::Run(of) => of == run,
        EventSubject::Instance(instance) => ours.instances.contains(instance),
        EventSubject::Attempt(attempt) => ours.attempts.contains(attempt),
        EventSubject::Sweep(_) | EventSubject::Schedule(_) | EventSubject::Pipeline(_) => false,
    };
    let records: Vec<Record> = records.iter().filter(is_ours).cloned().collect();
    let kept = plan::kept_steps(&records);
    let (mut steps, mut lost) = (BTreeMap::<_, StepTotals>::new(), BTreeMap::<_, StepTotals>::new());
    for point in points {
        let Report::Step(step) = &point.report else { continue };
        let totals = steps.entry(point.attempt.clone()).or_default();
        totals.begin(step, point.at);
        totals.add(step);
        if kept.get(&point.attempt).is_some_and(|last| step.step > *last) {
            lost.entry(point.attempt.clone()).or_default().add(step);
        }
    }
    let last = records.iter().map(|record| record.at).chain(points.iter().map(|point| point.at)).max();
    plan::goodput(&records, &steps, &lost, last.unwrap_or_default())
}
