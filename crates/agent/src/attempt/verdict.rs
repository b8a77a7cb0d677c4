//! Determines the outcome of an attempt: a pure function of its reports, its exit status, and stop requests.

mod reports;

use std::path::{Path, PathBuf};
use std::time::Duration;

use domain::run::AttemptEnd;
use domain::{Cause, Finding};
use node::oom::MemoryKill;

use self::reports::FinalReport;
pub use self::reports::RankReports;
use super::process::{Exit, FailedFirst};
use control::StopReason;

/// What bash gives as the code of a command that SIGKILL has ended.
const KILLED_IN_BASH: i32 = 128 + libc::SIGKILL;

/// What such an end means when memory ran out in another control group meanwhile, such as a container's.
const KILLED_BESIDE: &str = ": a process in it got SIGKILL, while the kernel killed one of another control group because \
                             memory ran out";

/// What is known of programs that hang at their exit.
const AT_EXIT: &str = "with PyTorch's DDP, `del model` before `destroy_process_group()`; ";

/// What helps ranks that were only slow.
const LONGER: &str = "; if it was only slow, write a longer limit under `hang_after` in the job, such as `{step: 1h}`";

/// The role of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Our own trainer.
    Rank,
    /// The user's set-up commands.
    Setup,
    /// The user's program.
    Program,
}

/// The facts about the end.
#[derive(Debug)]
pub struct Facts<'a> {
    /// The rank that it is about.
    pub rank: u32,
    /// Which process ended.
    pub role: Role,
    /// Whether another rank reports the end of training for it.
    pub is_follower: bool,
    /// How.
    pub exit: Exit,
    /// What the kernel has killed for memory while it ran.
    pub memory: MemoryKill,
    /// Its reports.
    pub reports: RankReports,
    /// The rank of a process that hangs although its program is over.
    pub hung_at_exit: Option<u32>,
    /// Who requested the end, and whether it had to be killed.
    pub ending: Option<(StopReason, bool)>,
    /// The lease that the loop granted.
    pub lease: Duration,
    /// Where its output is.
    pub log: &'a Path,
    /// Where its threads' stacks are, if they were written down.
    pub stacks: Option<PathBuf>,
    /// The end of that output.
    pub tail: String,
    /// What it says of the processes of a program on several machines.
    pub failed: FailedFirst,
}

/// Signals caused by a program's own bugs, rather than sent from outside.
const FAULTS: [i32; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT];

/// Determines how an attempt ended.
pub fn verdict(facts: Facts) -> AttemptEnd {
    match facts.role {
        Role::Rank => of_rank(facts),
        Role::Setup | Role::Program => of_program(facts),
    }
}

fn of_rank(facts: Facts) -> AttemptEnd {
    let why = facts.ending.map(|(why, _)| why);
    match (&facts.reports.last, &facts.reports.exported) {
        // Whatever came after it, the model is complete.
        (Some(FinalReport::Trained), Some(model)) => AttemptEnd::Trained { model: model.clone() },
        // Nor is anything missing where rank 0, on another machine, exports it.
        (Some(FinalReport::Trained), None) if facts.is_follower => AttemptEnd::Succeeded,
        (Some(FinalReport::Trained), None) => {
            let message = format!("rank {} reported the end of training and no exported model", facts.rank);
            failed(Finding::new(Cause::Internal, message))
        }
        (Some(FinalReport::Failed(finding)), _) => failed(finding.clone()),
        (Some(FinalReport::Stopped(step)), _) => match why {
            Some(StopReason::Stop) => AttemptEnd::Stopped { step: Some(*step) },
            Some(StopReason::Reclaim) => failed(reclaimed(Some(*step))),
            Some(why) => failed(reason(why, &facts)),
            None => {
                let message = format!(
                    "rank {} was stopped by something other than gradus; the state of step {step} is saved",
                    facts.rank
                );
                failed(Finding::new(Cause::Killed, message))
            }
        },
        (None, _) => match facts.ending {
            None if facts.is_follower && facts.exit == Exit::Code(0) => AttemptEnd::Succeeded,
            Some((StopReason::Stop, false)) if facts.is_follower && facts.exit == Exit::Code(0) => {
                AttemptEnd::Stopped { step: None }
            }
            Some((StopReason::Stop, false)) => failed(without_report(&facts)),
            Some((why, _)) => failed(reason(why, &facts)),
            None => failed(without_report(&facts)),
        },
    }
}

fn of_program(facts: Facts) -> AttemptEnd {
    match facts.ending {
        Some((StopReason::Stop, false)) => return program_stopped(&facts.reports, None, facts.log),
        // It had failed before it was told that other machines have.
        Some((StopReason::NodeLost, _)) if facts.failed.is_by_itself => {
            let message = with_tail("a process of `run` has failed".to_owned(), &facts);
            let finding = Finding::new(Cause::ExitCode, message).hint(see(&facts));
            return AttemptEnd::Failed { finding, exit_code: Some(1) };
        }
        Some((why, _)) => return failed(reason(why, &facts)),
        None => {}
    }
    let killed_for_memory = facts.memory == MemoryKill::Here && facts.exit == Exit::Code(KILLED_IN_BASH);
    if let Some(finding) = unsaved(&facts).filter(|_| !killed_for_memory) {
        return failed(finding);
    }
    let what = if facts.role == Role::Setup { "`setup`" } else { "`run`" };
    let cause = match facts.role {
        Role::Setup => Cause::Setup,
        // The job's rules for codes hold, but the machine is not to be named before the one that it misses.
        Role::Program if facts.failed.has_lost_another => Cause::RankLost,
        Role::Program | Role::Rank => Cause::ExitCode,
    };
    match facts.exit {
        Exit::Code(_) if killed_for_memory => failed(out_of_memory(what)),
        Exit::Code(0) if facts.role == Role::Program => AttemptEnd::Succeeded,
        Exit::Code(code) => {
            let killed = match (code, facts.memory) {
                (KILLED_IN_BASH, MemoryKill::Elsewhere) => KILLED_BESIDE,
                (KILLED_IN_BASH, _) => ": a process in it got SIGKILL",
                // Such as torchrun, whose own code says nothing of what ended its workers.
                (1.., MemoryKill::Here) => "; meanwhile the kernel killed a process because memory ran out",
                _ => "",
            };
            let message = with_tail(format!("{what} ended with code {code}{killed}"), &facts);
            let hint = if killed.is_empty() { see_script(&facts) } else { killed_hint(&facts) };
            let finding = Finding::new(cause, message).hint(hint);
            // The plan applies the job's rules to this code, so it is passed on only for `run` itself.
            let exit_code = (facts.role == Role::Program).then_some(code);
            AttemptEnd::Failed { finding, exit_code }
        }
        // A fault of the program itself comes again; it counts as the code that a shell gives it.
        Exit::Signal(signal) if facts.role == Role::Program && FAULTS.contains(&signal) => {
            let finding = Finding { cause, ..of_signal(what, signal, &facts) };
            AttemptEnd::Failed { finding: finding.hint(see(&facts)), exit_code: Some(128 + signal) }
        }
        Exit::Signal(signal) => failed(of_signal(what, signal, &facts)),
        Exit::Never => failed(Finding::new(Cause::Internal, format!("the end of {what} was not seen"))),
    }
}

/// The finding for a program that has failed because its last state could not be saved: another attempt trains the same steps,
/// and fails in the same way, until what stands in the way is gone.
fn unsaved(facts: &Facts) -> Option<Finding> {
    let (Some(FinalReport::Failed(finding)), Exit::Code(code @ 1..)) = (&facts.reports.last, facts.exit) else {
        return None;
    };
    // An exception is in the log, and counts by the program's code.
    let is_unsaved = facts.role == Role::Program && finding.cause != Cause::ExitCode;
    let message = format!("`run` ended with code {code}: {}", finding.message);
    is_unsaved.then(|| Finding { message, ..finding.clone() })
}

/// The end of a program that was asked to stop, by what it has reported until now; it has saved `step` if it has reported no
/// later one. An exception on the way, as in its last save, is no stop: what was not saved is lost.
pub fn program_stopped(reports: &RankReports, step: Option<u64>, log: &Path) -> AttemptEnd {
    let step = reports.saved.or(step);
    let Some(FinalReport::Failed(finding)) = &reports.last else { return AttemptEnd::Stopped { step } };
    let saved = match step {
        Some(step) => format!("its last checkpoint is of step {step}"),
        None => "this attempt has saved no checkpoint".to_owned(),
    };
    let message = format!("the program failed after it was asked to stop, and {saved}: {}", finding.message);
    let hint = finding.hint.clone().unwrap_or_else(|| format!("read `{}`", log.display()));
    // Python's code after an exception, for the job's rules.
    let exit_code = (finding.cause == Cause::ExitCode).then_some(1);
    AttemptEnd::Failed { finding: Finding::new(finding.cause, message).hint(hint), exit_code }
}

/// A rank that ended without a final report.
fn without_report(facts: &Facts) -> Finding {
    match facts.exit {
        Exit::Signal(signal) => of_signal(&format!("rank {}", facts.rank), signal, facts),
        Exit::Code(_) if facts.tail.contains("error while loading shared libraries") => {
            let hint = "run `cargo xtask setup`, or name a folder of libtorch with `GRADUS_LIBTORCH`";
            Finding::new(Cause::Library, with_tail(format!("rank {} cannot load its libraries", facts.rank), facts))
                .hint(hint)
        }
        Exit::Code(code) => {
            let message =
                with_tail(format!("rank {} ended with code {code} without a final report", facts.rank), facts);
            Finding::new(Cause::Internal, message).hint(see(facts))
        }
        Exit::Never => Finding::new(Cause::Internal, format!("the end of rank {} was not seen", facts.rank)),
    }
}

fn of_signal(what: &str, signal: i32, facts: &Facts) -> Finding {
    if signal == libc::SIGKILL && facts.memory == MemoryKill::Here {
        return out_of_memory(what);
    }
    let name = match signal {
        libc::SIGKILL if facts.memory == MemoryKill::Elsewhere => {
            "SIGKILL, while the kernel killed a process of another control group because memory ran out".to_owned()
        }
        libc::SIGKILL => "SIGKILL".to_owned(),
        libc::SIGTERM => "SIGTERM".to_owned(),
        libc::SIGINT => "SIGINT".to_owned(),
        libc::SIGSEGV => "SIGSEGV, a fault in its memory".to_owned(),
        libc::SIGABRT => "SIGABRT, which it raised itself (`abort`)".to_owned(),
        libc::SIGBUS => "SIGBUS, often a full disk under a mapped file".to_owned(),
        libc::SIGILL => "SIGILL, often a processor older than the libraries".to_owned(),
        other => format!("signal {other}"),
    };
    let hint = if signal == libc::SIGKILL { killed_hint(facts) } else { see(facts) };
    Finding::new(Cause::Killed, with_tail(format!("{what} was ended by {name}"), facts)).hint(hint)
}

/// The hint for a SIGKILL that the kernel's OOM counter does not explain.
fn killed_hint(facts: &Facts) -> String {
    format!("often memory ran out: compare the peak with `free -h`, see `dmesg`; or someone killed it; {}", see(facts))
}

fn out_of_memory(what: &str) -> Finding {
    let hint = "choose a smaller `batch`, or `accumulate` gradients over smaller micro-batches; with `data.preload` each process \
                holds its own images: give it a smaller budget, or remove it";
    Finding::new(Cause::OutOfMemory, format!("the kernel killed {what} because memory ran out")).hint(hint)
}

/// The finding for an attempt on a machine that its provider takes back.
fn reclaimed(saved: Option<u64>) -> Finding {
    let saved = saved.map(|step| format!("; the state of step {step} is saved")).unwrap_or_default();
    Finding::new(Cause::InstanceLost, format!("the provider takes the machine back{saved}"))
}

/// The finding for an attempt that gradus itself has ended.
fn reason(why: StopReason, facts: &Facts) -> Finding {
    match why {
        StopReason::Stop => {
            Finding::new(Cause::Killed, "it did not save its state in time after it was asked to stop, and was killed")
        }
        StopReason::NodeLost => Finding::new(Cause::RankLost, "the ranks on another node have failed"),
        StopReason::LeaseOver => {
            let message = format!(
                "the control loop did not answer for {} s, so the agent ended the attempt",
                facts.lease.as_secs()
            );
            Finding::new(Cause::InstanceLost, message)
        }
        StopReason::Reclaim => reclaimed(facts.reports.saved()),
        StopReason::Leave => Finding::new(Cause::InstanceLost, "the instance was released"),
        StopReason::Signalled => Finding::new(Cause::InstanceLost, "the agent was ended by a signal"),
        StopReason::Replaced => Finding::new(Cause::Fenced, "a later attempt has replaced it"),
        StopReason::Hang(silence) => {
            let seconds = silence.0 / 1_000_000;
            let saved = facts.reports.saved.map(|step| format!(" after its last save at step {step},"));
            let saved = saved.unwrap_or_default();
            let message = match (facts.hung_at_exit, facts.role) {
                (Some(rank), _) => format!("rank {rank} hung{saved} while it ended: it has not exited for {seconds} s"),
                (None, Role::Rank) => format!("rank 0 has reported no step for {seconds} s"),
                (None, Role::Setup | Role::Program) => {
                    format!("the program has made no call to gradus for {seconds} s")
                }
            };
            let message = with_tail(message, facts);
            let stacks = facts.stacks.as_ref();
            let stacks = stacks.map(|path| format!("; what its threads stood at is in `{}`", path.display()));
            let known = facts.hung_at_exit.map_or("", |_| AT_EXIT);
            let longer = if facts.hung_at_exit.is_none() { LONGER } else { "" };
            let hint = format!("{known}{}{}{longer}", see(facts), stacks.unwrap_or_default());
            Finding::new(Cause::Hang, message).hint(hint)
        }
    }
}

/// A failure outside the user's program: its cause alone decides whether another attempt is worthwhile.
fn failed(finding: Finding) -> AttemptEnd {
    AttemptEnd::Failed { finding, exit_code: None }
}

fn with_tail(message: String, facts: &Facts) -> String {
    if facts.tail.is_empty() { message } else { format!("{message}; its last lines were:\n{}", facts.tail) }
}

fn see(facts: &Facts) -> String {
    format!("read `{}`", facts.log.display())
}

/// The same of a script that ended with a code of its own, and may have written nothing.
fn see_script(facts: &Facts) -> String {
    match facts.tail.is_empty() {
        true => "it wrote no output; with `set -x` as its first line it shows each command".to_owned(),
        false => see(facts),
    }
}

/// Whether a program may have failed because of what `setup` has or has not done: unless it was killed.
pub fn may_lack_setup(exit: Exit) -> bool {
    match exit {
        Exit::Code(code) => !matches!(code, 0 | KILLED_IN_BASH),
        Exit::Signal(signal) => signal != libc::SIGKILL,
        Exit::Never => false,
    }
}

/// The same end for a program whose `setup` was left out. If it has failed by itself, that may be what it lacks, such as an
/// environment that is found by the path of the working folder: the run is tried again, with the set-up.
pub fn without_setup(end: AttemptEnd) -> AttemptEnd {
    match end {
        AttemptEnd::Failed { finding, .. } if finding.cause == Cause::ExitCode => {
            let message = format!("`setup` was left out, and {}", finding.message);
            failed(Finding { cause: Cause::Setup, message, ..finding })
        }
        end => end,
    }
}

#[cfg(test)]
mod tests {
    use domain::rank::{Checkpointed, Environment, Exported, Report};

    use super::*;

    const KILL: Exit = Exit::Signal(libc::SIGKILL);
    const STOP: Option<(StopReason, bool)> = Some((StopReason::Stop, false));

    fn model() -> Exported {
        Exported {
            model: "/m".into(),
            model_sha256: "aa".into(),
            bytes: 1,
            step: 1,
            validation_accuracy: 0.9,
            test_accuracy: 0.9,
            steps: 1,
            peak_memory: 0,
            rank_memory: Vec::new(),
            processor_us: 0,
            figures: Box::default(),
            validation_loss: None,
            validation_figures: Box::default(),
            confusion: Vec::new(),
        }
    }

    /// The outcome as one word, with the cause and the code of a failure.
    fn end(
        role: Role,
        reports: &[Report],
        exit: Exit,
        ending: Option<(StopReason, bool)>,
        memory: bool,
        tail: &str,
    ) -> String {
        let memory = if memory { MemoryKill::Here } else { MemoryKill::No };
        ended(role, reports, exit, ending, memory, tail).0
    }

    /// The same with the message.
    fn ended(
        role: Role,
        reports: &[Report],
        exit: Exit,
        ending: Option<(StopReason, bool)>,
        memory: MemoryKill,
        tail: &str,
    ) -> (String, String) {
        let mut heard = RankReports::default();
        reports.iter().for_each(|report| heard.hear(report));
        let log = Path::new("/run/logs/a1-rank-0.log");
        let lease = Duration::from_secs(60);
        let facts = Facts {
            rank: 0,
            role,
            is_follower: false,
            exit,
            memory,
            reports: heard,
            hung_at_exit: None,
            ending,
            lease,
            log,
            stacks: None,
            tail: tail.into(),
            failed: FailedFirst::default(),
        };
        match verdict(facts) {
            AttemptEnd::Trained { .. } => ("trained".into(), String::new()),
            AttemptEnd::Succeeded => ("succeeded".into(), String::new()),
            AttemptEnd::Stopped { step: Some(step) } => (format!("stopped at {step}"), String::new()),
            AttemptEnd::Stopped { step: None } => ("stopped".into(), String::new()),
            AttemptEnd::Failed { finding, exit_code } => {
                assert!(finding.message.contains(tail.lines().last().unwrap_or("")), "{finding:?}");
                (format!("{:?} {exit_code:?}", finding.cause), finding.message)
            }
        }
    }

    #[test]
    fn a_rank_s_last_word_counts() {
        let trained = [Report::Exported(model()), Report::Trained];
        let stopped = [Report::Stopped { step: 7 }];
        let data = [Report::Failed(Finding::new(Cause::Data, "a file is missing"))];
        let check = |reports: &[Report], exit, ending, expected: &str| {
            assert_eq!(end(Role::Rank, reports, exit, ending, false, ""), expected, "{reports:?} {exit:?} {ending:?}");
        };
        check(&trained, Exit::Code(0), None, "trained");
        check(&trained, KILL, STOP, "trained");
        check(&trained[1..], Exit::Code(0), None, "Internal None");
        check(&stopped, Exit::Code(0), STOP, "stopped at 7");
        check(&stopped, Exit::Code(0), None, "Killed None");
        check(&stopped, Exit::Code(0), Some((StopReason::LeaseOver, false)), "InstanceLost None");
        check(&stopped, Exit::Code(0), Some((StopReason::Signalled, false)), "InstanceLost None");
        check(&data, Exit::Code(1), None, "Data None");
        check(&data, Exit::Code(1), STOP, "Data None");
        check(&[], KILL, Some((StopReason::Stop, true)), "Killed None");
        check(&[], Exit::Code(3), STOP, "Internal None");
        check(&[], KILL, Some((StopReason::Hang(domain::Elapsed(61_000_000)), true)), "Hang None");
        check(&[], KILL, Some((StopReason::Leave, true)), "InstanceLost None");
        check(&[], KILL, Some((StopReason::Replaced, true)), "Fenced None");
    }

    #[test]
    fn ranks_that_trained_for_another_machine_have_no_model_and_succeed() {
        let end = |is_follower, exit, ending| {
            let mut reports = RankReports::default();
            reports.hear(&Report::Trained);
            verdict(Facts {
                rank: 4,
                role: Role::Rank,
                is_follower,
                exit,
                memory: MemoryKill::No,
                reports,
                hung_at_exit: None,
                ending,
                lease: Duration::from_secs(60),
                log: Path::new("/run/logs/a1-rank-4.log"),
                stacks: None,
                tail: String::new(),
                failed: FailedFirst::default(),
            })
        };
        // Node rank 0 may have the model already, and the others are asked to end.
        let asked = Some((StopReason::NodeLost, true));
        for (exit, ending) in [(Exit::Code(0), None), (KILL, asked), (Exit::Signal(libc::SIGSEGV), None)] {
            assert_eq!(end(true, exit, ending), AttemptEnd::Succeeded, "{exit:?} {ending:?}");
            let AttemptEnd::Failed { finding, .. } = end(false, exit, ending) else { panic!("it has no model") };
            assert_eq!(finding.message, "rank 4 reported the end of training and no exported model");
        }
    }

    #[test]
    fn a_silent_end_is_told_by_its_exit() {
        let check = |exit, memory, tail: &str, expected: &str| {
            assert_eq!(end(Role::Rank, &[], exit, None, memory, tail), expected, "{exit:?} {memory} `{tail}`");
        };
        check(KILL, false, "", "Killed None");
        check(KILL, true, "", "OutOfMemory None");
        check(Exit::Signal(libc::SIGSEGV), true, "", "Killed None");
        check(Exit::Code(101), false, "thread panicked", "Internal None");
        check(Exit::Code(127), false, "rank: error while loading shared libraries: libc10.so", "Library None");
    }

    #[test]
    fn a_kill_says_what_is_known_of_memory() {
        let check = |exit, memory, end: &str, says: &str| {
            let said = ended(Role::Program, &[], exit, None, memory, "");
            assert_eq!(said, (end.to_owned(), says.to_owned()), "{exit:?} {memory:?}");
        };
        check(KILL, MemoryKill::Here, "OutOfMemory None", "the kernel killed `run` because memory ran out");
        check(KILL, MemoryKill::No, "Killed None", "`run` was ended by SIGKILL");
        let beside = "`run` was ended by SIGKILL, while the kernel killed a process of another control group because memory ran out";
        check(KILL, MemoryKill::Elsewhere, "Killed None", beside);
        let code = Exit::Code(KILLED_IN_BASH);
        check(code, MemoryKill::Here, "OutOfMemory None", "the kernel killed `run` because memory ran out");
        check(code, MemoryKill::No, "ExitCode Some(137)", "`run` ended with code 137: a process in it got SIGKILL");
        check(code, MemoryKill::Elsewhere, "ExitCode Some(137)", &format!("`run` ended with code 137{KILLED_BESIDE}"));
        // What happens elsewhere is no reason for a code of the program's own.
        check(Exit::Code(1), MemoryKill::Elsewhere, "ExitCode Some(1)", "`run` ended with code 1");
    }

    #[test]
    fn a_program_s_code_counts() {
        let check = |role, exit, ending, memory, expected: &str| {
            assert_eq!(end(role, &[], exit, ending, memory, ""), expected, "{role:?} {exit:?} {ending:?}");
        };
        check(Role::Program, Exit::Code(0), None, true, "succeeded");
        check(Role::Program, Exit::Code(3), None, true, "ExitCode Some(3)");
        check(Role::Setup, Exit::Code(3), None, false, "Setup None");
        check(Role::Program, Exit::Code(137), None, false, "ExitCode Some(137)");
        check(Role::Program, Exit::Code(137), None, true, "OutOfMemory None");
        check(Role::Program, KILL, None, false, "Killed None");
        check(Role::Setup, KILL, None, true, "OutOfMemory None");
        check(Role::Program, Exit::Signal(libc::SIGTERM), STOP, false, "stopped");
        check(Role::Program, Exit::Code(0), STOP, false, "stopped");
        check(Role::Setup, Exit::Never, STOP, false, "stopped");
        check(Role::Program, KILL, Some((StopReason::Stop, true)), false, "Killed None");
        check(Role::Program, Exit::Code(0), Some((StopReason::LeaseOver, false)), false, "InstanceLost None");
        check(Role::Program, Exit::Code(143), Some((StopReason::Signalled, false)), false, "InstanceLost None");
        check(Role::Setup, Exit::Code(143), Some((StopReason::Leave, true)), false, "InstanceLost None");
    }

    #[test]
    fn a_program_that_misses_another_machine_is_told_from_one_that_failed_by_itself() {
        let check = |failed: &FailedFirst, exit, ending, expected: &str| {
            let facts = Facts {
                rank: 1,
                role: Role::Program,
                is_follower: true,
                exit,
                memory: MemoryKill::No,
                reports: RankReports::default(),
                hung_at_exit: None,
                ending,
                lease: Duration::from_secs(60),
                log: Path::new("/run/logs/a1-rank-1.log"),
                stacks: None,
                tail: "the last line".into(),
                failed: failed.clone(),
            };
            let AttemptEnd::Failed { finding, exit_code } = verdict(facts) else { panic!("{failed:?}") };
            assert!(exit_code.is_none() || finding.message.ends_with("the last line"), "{finding:?}");
            assert_eq!(format!("{:?} {exit_code:?}", finding.cause), expected, "{failed:?} {exit:?} {ending:?}");
        };
        let unknown = FailedFirst::default();
        let own = FailedFirst { is_by_itself: true, ..FailedFirst::default() };
        let lost = FailedFirst { has_lost_another: true, ..FailedFirst::default() };
        let told = Some((StopReason::NodeLost, false));
        let term = Exit::Signal(libc::SIGTERM);
        check(&own, Exit::Code(1), None, "ExitCode Some(1)");
        check(&unknown, Exit::Code(1), None, "ExitCode Some(1)");
        check(&lost, Exit::Code(1), None, "RankLost Some(1)");
        // The others were heard first, and this one was told to end.
        check(&own, term, told, "ExitCode Some(1)");
        check(&unknown, term, told, "RankLost None");
        check(&lost, term, told, "RankLost None");
        check(&own, term, Some((StopReason::Leave, false)), "InstanceLost None");
    }

    #[test]
    fn a_program_that_fails_instead_of_saving_does_not_end_well() {
        let full = Report::Failed(Finding::new(Cause::DiskFull, "the last checkpoint was not saved: no space left"));
        let raised = Report::Failed(Finding::new(Cause::ExitCode, "TypeError: `f` is a function"));
        let saved = Report::Checkpointed(Checkpointed { step: 5, bytes: 1, stall_us: 1, commit_us: 1 });
        let hello = Report::Hello { rank: 0, pid: 7, environment: Environment::default() };
        let check = |reports: &[&Report], exit, ending, expected: &str, says: &str| {
            let reports: Vec<Report> = reports.iter().copied().cloned().collect();
            let (end, message) = ended(Role::Program, &reports, exit, ending, MemoryKill::No, "");
            assert_eq!((end.as_str(), message.as_str()), (expected, says), "{reports:?} {exit:?} {ending:?}");
        };
        let says = "`run` ended with code 120: the last checkpoint was not saved: no space left";
        check(&[&saved, &full], Exit::Code(120), None, "DiskFull None", says);
        // The script has caught it, or has started the program again.
        check(&[&full], Exit::Code(0), None, "succeeded", "");
        check(&[&full, &hello], Exit::Code(3), None, "ExitCode Some(3)", "`run` ended with code 3");
        // An exception is in the log.
        check(&[&raised], Exit::Code(1), None, "ExitCode Some(1)", "`run` ended with code 1");
        // Its shell has got SIGTERM.
        let shell = Exit::Signal(libc::SIGTERM);
        let says = "the program failed after it was asked to stop, and this attempt has saved no checkpoint: TypeError: `f` is \
                    a function";
        check(&[&raised], shell, STOP, "ExitCode Some(1)", says);
        let says = "the program failed after it was asked to stop, and its last checkpoint is of step 5: the last checkpoint was \
                    not saved: no space left";
        check(&[&saved, &full], shell, STOP, "DiskFull None", says);
        check(&[&saved], shell, STOP, "stopped at 5", "");
    }

    #[test]
    fn a_log_without_a_line_is_not_to_be_read() {
        let hint = |tail: &str| {
            let facts = Facts {
                rank: 0,
                role: Role::Setup,
                is_follower: false,
                exit: Exit::Code(7),
                memory: MemoryKill::No,
                reports: RankReports::default(),
                hung_at_exit: None,
                ending: None,
                lease: Duration::from_secs(60),
                log: Path::new("/run/logs/a1-rank-0.log"),
                stacks: None,
                tail: tail.into(),
                failed: FailedFirst::default(),
            };
            match verdict(facts) {
                AttemptEnd::Failed { finding, .. } => finding.hint.unwrap_or_default(),
                other => panic!("{other:?}"),
            }
        };
        assert!(hint("").starts_with("it wrote no output; with `set -x`"));
        assert_eq!(hint("no such file"), "read `/run/logs/a1-rank-0.log`");
    }

    #[test]
    fn a_hang_at_exit_names_the_rank_and_its_last_save() {
        let found = |saved, hung_at_exit| {
            let facts = Facts {
                rank: 0,
                role: Role::Program,
                is_follower: false,
                exit: Exit::Signal(libc::SIGKILL),
                memory: MemoryKill::No,
                reports: RankReports { saved, ..RankReports::default() },
                hung_at_exit,
                ending: Some((StopReason::Hang(domain::Elapsed(61_000_000)), true)),
                lease: Duration::from_secs(60),
                log: Path::new("/run/logs/a1-rank-0.log"),
                stacks: None,
                tail: String::new(),
                failed: FailedFirst::default(),
            };
            match verdict(facts) {
                AttemptEnd::Failed { finding, .. } => (finding.message, finding.hint.unwrap_or_default()),
                other => panic!("{other:?}"),
            }
        };
        let (message, hint) = found(Some(70), Some(1));
        assert_eq!(message, "rank 1 hung after its last save at step 70, while it ended: it has not exited for 61 s");
        assert!(hint.starts_with("with PyTorch's DDP, `del model` before `destroy_process_group()`; read"), "{hint}");
        assert_eq!(found(None, Some(1)).0, "rank 1 hung while it ended: it has not exited for 61 s");
        let (message, hint) = found(Some(70), None);
        assert_eq!(message, "the program has made no call to gradus for 61 s");
        assert!(hint.starts_with("read"), "{hint}");
    }

    #[test]
    fn a_program_that_fails_without_its_set_up_is_tried_again() {
        let failed_by =
            |cause, exit_code| AttemptEnd::Failed { finding: Finding::new(cause, "`run` ended"), exit_code };
        let AttemptEnd::Failed { finding, exit_code } = without_setup(failed_by(Cause::ExitCode, Some(1))) else {
            panic!("it has failed")
        };
        assert_eq!((finding.cause, exit_code), (Cause::Setup, None));
        assert_eq!(finding.message, "`setup` was left out, and `run` ended");
        for end in [failed_by(Cause::Killed, None), failed_by(Cause::OutOfMemory, None), AttemptEnd::Succeeded] {
            assert_eq!(without_setup(end.clone()), end);
        }
    }

    #[test]
    fn a_program_that_was_killed_lacks_nothing() {
        for (exit, expected) in [
            (Exit::Code(0), false),
            (Exit::Code(1), true),
            (Exit::Code(127), true),
            (Exit::Code(137), false),
            (Exit::Signal(libc::SIGKILL), false),
            (Exit::Signal(libc::SIGSEGV), true),
        ] {
            assert_eq!(may_lack_setup(exit), expected, "{exit:?}");
        }
    }
}
