//! How an attempt handles events.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use control::StopReason;
use domain::rank::Report;
use domain::run::AttemptEnd;
use domain::wire::AgentEvent;
use node::{processes, terminals};

use super::masking::{mask_report, masked};
use super::process::Exit;
use super::program::{ProgramLink, SetupKey, forget_setup};
use super::staging::first_rank;
use super::verdict::{Role, may_lack_setup};
use super::{Attempt, LATE, Stage, Working};
use crate::event::AttemptEvent;

/// A GPU that is busy for less of the time, in percent, only shows a desktop.
const GPU_IN_USE: u32 = 3;

/// For how long the rest of what an ended program has printed is read.
const READ_WITHIN: Duration = Duration::from_secs(20);

/// How long to wait until its output and its files were looked at for the last time: a file system may not answer.
const OBSERVED_WITHIN: Duration = Duration::from_secs(60);

/// Letters that are quoted of a line that is no report.
const QUOTED: usize = 200;

impl Attempt {
    /// Handles an event, and returns the reports about it.
    pub fn hear(&mut self, event: AttemptEvent, now: Duration) -> Vec<AgentEvent> {
        match event {
            AttemptEvent::Staged(Ok(input)) => self.staged(*input, now),
            AttemptEvent::Staged(Err(finding)) => {
                self.sweep(AttemptEnd::Failed { finding: *finding, exit_code: None }, now);
                Vec::new()
            }
            AttemptEvent::Connected(rank, stream) => {
                self.connected(rank, stream, now);
                Vec::new()
            }
            AttemptEvent::Reported(rank, report) => match &mut self.work {
                Working::Train { .. } if rank == 0 => self.reported(*report, now),
                Working::Train { peers, .. } => {
                    peers.hear(rank, &report);
                    Vec::new()
                }
                Working::Command { link, .. } => {
                    let is_passed_on = link.as_mut().is_some_and(|link| link.hear(rank, &report, now));
                    if is_passed_on { self.program_reported(*report, now) } else { Vec::new() }
                }
            },
            AttemptEvent::Observed(report) => self.observed(*report, now),
            AttemptEvent::ObservedAll => self.observed_all(),
            AttemptEvent::Lives(number, life) => {
                if let Working::Command { link: Some(link), .. } = &mut self.work {
                    link.lives(number, life, now);
                }
                Vec::new()
            }
            AttemptEvent::Garbled(rank, line) => vec![garbled(rank, &line, &self.start.job.secret_values())],
            AttemptEvent::Reached(handled) => {
                drop(handled);
                Vec::new()
            }
            AttemptEvent::Silent(rank) => {
                self.silent(rank, now);
                Vec::new()
            }
            AttemptEvent::Exited(pid) => self.exited(pid, now),
            AttemptEvent::StacksRecorded => self.stacks_recorded(now),
            AttemptEvent::UploadMoved => self.upload_moved(now),
            AttemptEvent::UploadLeft(left) => self.upload_left(left),
            AttemptEvent::UploadWaits(why) => self.upload_waits(&why, now),
            AttemptEvent::Uploaded(result) => self.sent(result, now),
        }
    }

    /// A process has connected.
    fn connected(&mut self, rank: u32, stream: UnixStream, now: Duration) {
        match &mut self.work {
            Working::Train { link, .. } if rank == 0 => link.connected(stream),
            Working::Train { peers, .. } => peers.connected(rank, stream),
            Working::Command { link, .. } => {
                if let Some(link) = link {
                    link.connected(rank, stream, now);
                }
            }
        }
    }

    /// A process has disconnected.
    fn silent(&mut self, rank: u32, now: Duration) {
        match &mut self.work {
            Working::Train { link, .. } if rank == 0 => link.silent(),
            Working::Train { peers, .. } => peers.silent(rank),
            Working::Command { link, .. } => {
                if let Some(link) = link {
                    link.silent(rank, now);
                }
            }
        }
    }

    fn exited(&mut self, pid: u32, now: Duration) -> Vec<AgentEvent> {
        if let Working::Train { peers, .. } = &mut self.work {
            peers.exited(pid, now);
        }
        let counters = self.kill_counters();
        let Stage::Running { process, role, kills } = &mut self.stage else { return Vec::new() };
        if process.pid() != pid {
            return Vec::new();
        }
        let (exit, role, memory) = (process.reap(), *role, counters.since(*kills));
        if role == Role::Setup && exit == Exit::Code(0) && self.ending.is_none() {
            self.note_setup();
            return self.prepared(PathBuf::new(), now);
        }
        if role == Role::Program && self.must_set_up_again(exit) {
            forget_setup(&self.tools.root);
        }
        let mut is_read = true;
        match &mut self.work {
            Working::Train { link, .. } => link.stop_listening(),
            Working::Command { link, observer, .. } => {
                link.iter().for_each(ProgramLink::stop_listening);
                if let Some(observer) = observer {
                    // One that was asked to stop has little time.
                    observer.finish(if self.ending.is_some() { LATE } else { READ_WITHIN });
                    is_read = false;
                }
            }
        }
        self.stage = Stage::Ended { exit, role, memory, since: now };
        self.result().filter(|_| is_read).into_iter().collect()
    }

    /// All that can be seen of a program that has ended was passed on: its result is complete.
    fn observed_all(&mut self) -> Vec<AgentEvent> {
        if let Working::Command { observer, .. } = &mut self.work {
            *observer = None;
        }
        self.result().into_iter().collect()
    }

    /// Gives up on what can be seen of an ended program if it has not been read in time, as where a file system does not
    /// answer: its result is that of what was read.
    pub fn stop_observing(&mut self, now: Duration) -> Option<AgentEvent> {
        let Stage::Ended { since, .. } = self.stage else { return None };
        let Working::Command { observer, .. } = &mut self.work else { return None };
        if now < since + OBSERVED_WITHIN {
            return None;
        }
        observer.take()?;
        self.result()
    }

    /// Until when an attempt waits for the last reports of processes that have ended at `since`, and for what its
    /// program has printed.
    pub(super) fn waits_until(&self, since: Duration) -> Duration {
        let (is_silent, is_read) = match &self.work {
            Working::Train { link, peers, .. } => (link.is_silent() && peers.are_done(), true),
            Working::Command { link, observer, .. } => {
                (link.as_ref().is_none_or(ProgramLink::is_silent), observer.is_none())
            }
        };
        let silent = if is_silent { since } else { since + self.late() };
        if is_read { silent } else { silent.max(since + OBSERVED_WITHIN) }
    }

    /// Passes on what a program has reported. What was still on its way when it ended counts for its result as well.
    fn program_reported(&mut self, report: Report, now: Duration) -> Vec<AgentEvent> {
        let is_measured = matches!(report, Report::Step(_) | Report::Metrics(_));
        let mut events = self.reported(report, now);
        events.extend(self.result().filter(|_| is_measured));
        events
    }

    /// What a program that has succeeded has measured last.
    fn result(&self) -> Option<AgentEvent> {
        let is_success = matches!(self.stage, Stage::Ended { exit: Exit::Code(0), role: Role::Program, .. });
        match &self.work {
            Working::Command { reports, .. } if is_success && self.ending.is_none() => {
                Some(AgentEvent::Reported { rank: first_rank(&self.start), report: reports.result()? })
            }
            Working::Command { .. } | Working::Train { .. } => None,
        }
    }

    /// Whether the next attempt here repeats the set-up: its program may have ended for want of it, or has hung, or the user
    /// has stopped the run and may change the machine before it is resumed.
    fn must_set_up_again(&self, exit: Exit) -> bool {
        match &self.ending {
            Some(ending) => matches!(ending.why, StopReason::Stop | StopReason::Hang(_)),
            None => may_lack_setup(exit),
        }
    }

    /// The set-up is done: the next attempt here may leave it out, if it has changed nothing that is gone with this one.
    fn note_setup(&self) {
        let Working::Command { command, folder, setup, .. } = &self.work else { return };
        let Some(key) = &setup.key else { return };
        let is_over = processes::family(&self.tools.tags(&self.start.attempt)).is_ok_and(|left| left.is_empty());
        // Each attempt has a working folder of its own.
        if is_over && SetupKey::of(&self.start, command, &folder.join("workdir")).as_ref() == Some(key) {
            key.note(&self.tools.root);
        }
    }

    /// Passes on what was seen of a program, unless it reports itself. Rank 0's machine reports for all; another one its
    /// steps alone, because how long they take is compared.
    fn observed(&mut self, report: Report, now: Duration) -> Vec<AgentEvent> {
        let is_follower = self.is_follower();
        match &self.work {
            Working::Command { link, .. } if !link.as_ref().is_some_and(ProgramLink::has_reported) => match report {
                Report::Step(_) if is_follower => {
                    vec![AgentEvent::Reported { rank: first_rank(&self.start), report }]
                }
                _ if is_follower => Vec::new(),
                report => self.reported(report, now),
            },
            Working::Command { .. } | Working::Train { .. } => Vec::new(),
        }
    }

    fn reported(&mut self, mut report: Report, now: Duration) -> Vec<AgentEvent> {
        mask_report(&mut report, &self.start.job);
        if let (Report::Exported(exported), Some(remote)) = (&mut report, &self.tools.remote) {
            exported.model = remote.path_there(&self.start.folder, &exported.model);
        }
        if let Report::Failed(finding) = &mut report {
            *finding = self.finding_there(finding.clone());
        }
        if let Report::Note { text } = &mut report {
            *text = self.said_there(text);
        }
        if let (Report::Checkpointed(_), Some(uploader)) = (&report, &self.uploader) {
            uploader.saved();
        }
        if !matches!(report, Report::Note { .. }) {
            self.note_use();
        }
        match &mut self.work {
            Working::Train { watchdog, reports, .. } => {
                watchdog.hear(&report, now);
                reports.hear(&report);
            }
            Working::Command { reports, .. } => reports.hear(&report),
        }
        if matches!(report, Report::Pausing { .. }) {
            return Vec::new();
        }
        vec![AgentEvent::Reported { rank: first_rank(&self.start), report }]
    }

    /// What is to tell now of the origin of its data.
    pub fn look_at_origin(&mut self, now: Duration) -> Option<AgentEvent> {
        let serving = self.served.as_mut().filter(|serving| now >= serving.origin.due())?;
        let text = serving.origin.look(serving.served.silence(), now)?;
        Some(reported(Report::Note { text }))
    }

    /// Checks whether the program is idle, if that is due. Nothing is while the loop does not answer.
    pub fn check_idle(&mut self, is_heard: bool, now: Duration) -> Option<AgentEvent> {
        let is_running = matches!(self.stage, Stage::Running { role: Role::Program, .. }) && self.ending.is_none();
        let idle = self.idle.as_mut().filter(|idle| now >= idle.due())?;
        let has_called = match &self.work {
            Working::Command { link: Some(link), .. } => link.moved().is_some_and(|at| at + idle.pause() >= now),
            Working::Command { .. } | Working::Train { .. } => false,
        };
        // Whoever works on a rented machine does so over SSH, beside the program.
        let (pids, has_typed) = match self.tools.remote {
            Some(_) => (processes::all(), terminals::has_input(idle.pause())),
            None => (processes::family(&self.tools.tags(&self.start.attempt)), false),
        };
        if has_called || has_typed || !is_heard || !is_running {
            idle.note_use();
        }
        let used = pids.ok().map(|pids| processes::cpu_time(&pids));
        idle.check(used.filter(|_| is_heard && is_running), now).then_some(AgentEvent::Idle)
    }

    /// Takes in what the machine's GPUs do. What cannot be seen of one counts as use.
    pub fn note_devices(&mut self, report: &Report) {
        let Report::Devices { devices } = report else { return };
        if devices.iter().any(|device| device.busy_percent.is_none_or(|busy| busy >= GPU_IN_USE)) {
            self.note_use();
        }
    }

    fn note_use(&mut self) {
        if let Some(idle) = &mut self.idle {
            idle.note_use();
        }
    }
}

/// The beginning of a line that is no report, without the values of secrets.
fn garbled(rank: u32, line: &str, secrets: &[String]) -> AgentEvent {
    // Masked first: of a value that is cut off, the rest would not be found.
    let line: String = masked(line, secrets).chars().take(QUOTED).collect();
    reported(Report::Note { text: format!("rank {rank} sent a line that is no report: `{line}`") })
}

/// A report of the agent itself.
pub(super) fn reported(report: Report) -> AgentEvent {
    AgentEvent::Reported { rank: 0, report }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::mpsc::channel;

    use domain::progress::Progress;
    use domain::rank::Metrics;
    use domain::wire::Start;
    use domain::{Fence, InstanceId, Job, RunId, Work};
    use node::oom::MemoryKill;

    use super::*;
    use crate::Patience;
    use crate::attempt::ProgramSetup;
    use crate::attempt::program::{Observer, PriorState, WatchedPlaces};
    use crate::tools::Tools;

    /// An attempt whose program has succeeded at 0 s, and whose output is still being read.
    fn succeeded(folder: &Path) -> Attempt {
        let job = Job::parse("run: 'true'", "job.yaml").unwrap().job;
        let Work::Command(command) = job.work.clone() else { panic!("it is a program") };
        let run = RunId::new("r");
        let start = Start {
            attempt: run.attempt(Fence(1)),
            run,
            fence: Fence(1),
            job,
            job_hash: String::new(),
            threads: 1,
            accept_data_change: false,
            member: None,
            folder: folder.to_string_lossy().into_owned(),
        };
        let (events, _) = channel();
        let (log, progress) = (folder.join("log"), Progress { regex: None, files: false });
        let places = WatchedPlaces::before_start(&log, folder.join("workdir"), folder.join("checkpoints"));
        let observer = Observer::start(&progress, places, PriorState::Nothing, &start.attempt, events.clone());
        let tools = Tools {
            rank_program: PathBuf::new(),
            libtorch: None,
            owner: "o".into(),
            instance: InstanceId::new("r-i1"),
            folder: folder.to_owned(),
            root: folder.to_owned(),
            remote: None,
            address: None,
            user_home: None,
            program_user: None,
            access: store::Access::default(),
            patience: Patience::default(),
            lease: Duration::ZERO,
            events,
        };
        let (setup, reports) = (ProgramSetup::default(), Box::default());
        let (observer, folder) = (Some(observer), folder.to_owned());
        let work = Working::Command { command, folder, link: None, observer, setup, reports };
        let mut attempt = Attempt::new(start, tools, work, (log, None), Duration::ZERO);
        let (exit, role, memory, since) = (Exit::Code(0), Role::Program, MemoryKill::No, Duration::ZERO);
        attempt.stage = Stage::Ended { exit, role, memory, since };
        attempt
    }

    #[test]
    fn the_result_of_a_program_is_sent_although_its_output_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut attempt = succeeded(folder.path());
        let metrics = Metrics { step: 7, values: BTreeMap::from([("f1".to_owned(), 0.5)]), ..Metrics::default() };
        let seen = Report::Metrics(metrics.clone());
        let events = attempt.hear(AttemptEvent::Observed(Box::new(seen.clone())), Duration::ZERO);
        assert_eq!(events, [reported(seen)]);
        assert_eq!(attempt.waits_until(Duration::ZERO), OBSERVED_WITHIN, "more may follow");
        assert_eq!(attempt.stop_observing(OBSERVED_WITHIN - Duration::from_micros(1)), None);
        assert_eq!(attempt.stop_observing(OBSERVED_WITHIN), Some(reported(Report::Result(metrics))));
        assert_eq!(attempt.waits_until(Duration::ZERO), Duration::ZERO);
        assert_eq!(attempt.stop_observing(OBSERVED_WITHIN), None, "the result is sent once");
    }

    #[test]
    fn of_a_line_that_is_no_report_the_beginning_is_quoted_without_secrets() {
        let line = format!("{}hunter2 and more", "x".repeat(QUOTED - 4));
        let text = format!("rank 3 sent a line that is no report: `{}*** `", "x".repeat(QUOTED - 4));
        assert_eq!(garbled(3, &line, &["hunter2".to_owned()]), reported(Report::Note { text }));
    }
}
