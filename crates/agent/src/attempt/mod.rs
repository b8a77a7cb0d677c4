//! One attempt, from its start order to its end.
//!
//! It goes through stages: staging (the working folder is copied, or remote data is fetched); running (for a user's
//! program the set-up first); reading the last reports; ending remaining processes; and uploading outputs to a loop on
//! another machine. `verdict` determines what ended it. It can be stopped at any stage; `StopReason` says by whom, and
//! so how long it may take.

mod events;
pub(crate) mod library;
mod link;
mod masking;
mod peers;
mod process;
pub(crate) mod program;
mod staging;
mod sweeping;
mod trainer;
mod uploading;
mod verdict;
mod watchdog;
pub mod workdir;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use control::StopReason;
use domain::rank;
use domain::run::AttemptEnd;
use domain::wire::{AgentEvent, NodeAddress, Start};
use domain::{AttemptId, Command, Finding, Train, Work};
use node::oom::limits::LimitedGroup;
use node::oom::{KillCounters, MemoryKill};
use rustix::process::Signal;

use crate::event::Serving;
use crate::tools::Tools;
use crate::travel::Uploader;
use link::RankSocket;
use peers::Peers;
use process::{Exit, FailedFirst, Process};
use program::{Container, Idleness, Observer, ProgramLink, SetupKey, StopScope};
use sweeping::{SaveTime, time_to_save};
use verdict::{RankReports, Role};
pub use watchdog::{HangLimitInForce, hang_limits};
use watchdog::{SilenceLimits, Watchdog};

/// How long an ended rank's socket may stay open; a process that holds it then is not the rank.
const LATE: Duration = Duration::from_secs(1);

/// One attempt.
pub struct Attempt {
    start: Start,
    tools: Tools,
    work: Working,
    stage: Stage,
    ending: Option<Ending>,
    /// How long the end of a hang waits for stack traces; `None` without a hang.
    stacks_until: Option<Duration>,
    log: PathBuf,
    /// The server of remote data, for the duration of the attempt.
    served: Option<Serving>,
    /// The uploader of outputs, if they are kept elsewhere.
    uploader: Option<Uploader>,
    /// The machines of the attempt by node rank, once all are prepared; empty for a single one.
    nodes: Vec<NodeAddress>,
    /// What `file_mounts` has put on this machine.
    placed: Option<workdir::Placed>,
    /// The container that its program runs in.
    container: Option<Container>,
    /// The control group that its program runs in.
    limited: Option<LimitedGroup>,
    /// Paths of local copies, each with its original on the loop's machine.
    copies: Vec<(String, String)>,
    /// Since when the program is idle, where that matters.
    idle: Option<Idleness>,
}

enum Working {
    Train {
        train: Box<Train>,
        folder: PathBuf,
        link: RankSocket,
        watchdog: Watchdog,
        reports: Box<RankReports>,
        peers: Peers,
    },
    Command {
        command: Command,
        folder: PathBuf,
        /// Of processes that use the package `gradus`, if there are any.
        link: Option<ProgramLink>,
        /// Looks at a program that does not use it, until all that it has printed is read.
        observer: Option<Observer>,
        setup: ProgramSetup,
        reports: Box<RankReports>,
    },
}

/// The set-up of a program.
#[derive(Default)]
struct ProgramSetup {
    /// What it starts from, where an equal one need not be repeated.
    key: Option<SetupKey>,
    /// It was done by an attempt before.
    is_left_out: bool,
}

enum Stage {
    /// The working folder is being copied, or data is being fetched.
    Staging,
    /// All that the ranks need is here; they start once the other machines are prepared too.
    Prepared { data: PathBuf },
    /// A process runs.
    Running { process: Process, role: Role, kills: KillCounters },
    /// It has ended; its last reports may still be on their way.
    Ended { exit: Exit, role: Role, memory: MemoryKill, since: Duration },
    /// Its outcome is known; remaining processes are being ended.
    Sweeping { end: AttemptEnd, kill_at: Duration, next: Duration, is_told: bool, seen: Option<i32> },
    /// All its processes have ended; its outputs are being uploaded.
    Uploading { end: AttemptEnd, since: Duration, give_up: Duration, is_done: bool },
}

struct Ending {
    why: StopReason,
    kill_at: Duration,
    /// When the provider reclaims the machine, if announced.
    gone_at: Option<Duration>,
    /// Its processes were asked to end; asking again would end what they have started to save with.
    is_told: bool,
    is_killed: bool,
    /// A process that stood still when the others were told to have failed: it may be what they have missed.
    stopped: Option<i32>,
}

impl Attempt {
    /// Begins an attempt: claims the folder, then starts what it can. Returns the first reports.
    pub fn begin(start: Start, tools: Tools, now: Duration) -> Result<(Attempt, Vec<AgentEvent>), Box<Finding>> {
        let run = PathBuf::from(&start.folder);
        let folder = run.join("attempts").join(start.attempt.as_str());
        for folder in [&folder, &run.join("logs"), &run.join("export")] {
            fs::create_dir_all(folder).map_err(|error| node::folder::not_written("make", folder, &error))?;
        }
        checkpoint::claim(&run.join("checkpoints"), start.fence).map_err(|error| error.finding())?;
        let log = peers::log(&run, &start.attempt, staging::first_rank(&start));
        let uploader = tools.uploader(&start, &run);
        match start.job.work.clone() {
            Work::Train(train) => Attempt::begin_train(start, tools, train, &folder, (log, uploader), now),
            Work::Command(command) => {
                // A program works without it, too. A container is given it when it is made.
                let link = ProgramLink::listen(&tools.folder, &start.attempt, tools.events.clone()).ok();
                let link = link.map(|link| link.held_to(start.job.hang_after.step));
                staging::program(&start, &tools, &command, &folder);
                let (setup, reports) = (ProgramSetup::default(), Box::default());
                let work = Working::Command { command, folder, link, observer: None, setup, reports };
                Ok((Attempt::new(start, tools, work, (log, uploader), now), Vec::new()))
            }
        }
    }

    fn new(
        start: Start,
        tools: Tools,
        work: Working,
        (log, uploader): (PathBuf, Option<Uploader>),
        now: Duration,
    ) -> Attempt {
        let timeout = start.job.idle_timeout.map(|timeout| Duration::from_micros(timeout.micros()));
        Attempt {
            start,
            tools,
            work,
            stage: Stage::Staging,
            ending: None,
            stacks_until: None,
            log,
            served: None,
            uploader,
            nodes: Vec::new(),
            placed: None,
            container: None,
            limited: None,
            copies: Vec::new(),
            idle: timeout.map(|timeout| Idleness::new(timeout, now)),
        }
    }

    fn begin_train(
        start: Start,
        tools: Tools,
        train: Train,
        folder: &Path,
        (log, uploader): (PathBuf, Option<Uploader>),
        now: Duration,
    ) -> Result<(Attempt, Vec<AgentEvent>), Box<Finding>> {
        let listen = |rank: u32| {
            let link = RankSocket::listen(&tools.folder, &start.attempt, rank, tools.events.clone());
            link.map_err(|error| node::folder::not_written("listen in", &tools.folder, &error))
        };
        let link = listen(0)?;
        let first = staging::first_rank(&start);
        let mut peers = Peers::from(first);
        for rank in 1..train.processes {
            peers.add(rank, listen(rank)?, peers::log(Path::new(&start.folder), &start.attempt, first + rank));
        }
        let limits = SilenceLimits::of(&tools.patience, start.job.hang_after, Duration::ZERO);
        let watchdog = Watchdog::new(now, limits);
        let data = train.data.clone();
        let (train, folder, reports) = (Box::new(train), folder.to_owned(), Box::default());
        let work = Working::Train { train, folder, link, watchdog, reports, peers };
        let mut attempt = Attempt::new(start, tools, work, (log, uploader), now);
        let is_here = attempt.tools.remote.is_none() && attempt.start.job.checkpoint_store.is_none();
        let events = match staging::place(&data.path)? {
            Some(path) if is_here && attempt.start.member.is_none() => attempt.start_rank(&path, now)?,
            _ => {
                staging::data(&data, &attempt.start, &attempt.tools);
                Vec::new()
            }
        };
        Ok((attempt, events))
    }

    /// Its name.
    pub fn id(&self) -> &AttemptId {
        &self.start.attempt
    }

    /// Ends it, within a time if one is given. Repeated calls can only shorten the time.
    pub fn end(&mut self, why: StopReason, within: Option<Duration>, now: Duration) {
        let patience = &self.tools.patience;
        let usual = match self.work {
            Working::Train { .. } => patience.save,
            Working::Command { .. } => patience.program,
        };
        let of_job = self.start.job.stop_grace.map(|grace| Duration::from_micros(grace.micros()));
        let grace = time_to_save(why, SaveTime { usual, of_job, is_remote: self.tools.remote.is_some() }, patience);
        // Saved state has to be uploaded before the machine is gone.
        let gone_at = within.filter(|_| why == StopReason::Reclaim).map(|within| now + within);
        let within = if gone_at.is_some() { within.map(|within| within - within / 4) } else { within };
        let grace = within.map_or(grace, |within| grace.min(within));
        let kill_at = now + grace;
        match &mut self.stage {
            // Its outputs are worth uploading although another machine is lost.
            Stage::Uploading { .. } if why == StopReason::NodeLost => {}
            Stage::Uploading { .. } => self.hurry_upload(kill_at, now),
            Stage::Sweeping { kill_at: before, .. } => *before = kill_at.min(*before),
            Stage::Staging | Stage::Prepared { .. } | Stage::Running { .. } | Stage::Ended { .. } => {}
        }
        if let Some(ending) = &mut self.ending {
            ending.kill_at = kill_at.min(ending.kill_at);
            ending.gone_at = ending.gone_at.or(gone_at);
            return;
        }
        let is_told = matches!((&self.work, &self.stage), (Working::Train { .. }, _) | (_, Stage::Running { .. }));
        let stopped = self.stopped(why);
        self.ending = Some(Ending { why, kill_at, gone_at, is_told, is_killed: false, stopped });
        if grace.is_zero() {
            return;
        }
        let ends_by_itself = why == StopReason::NodeLost || self.is_follower();
        match (&mut self.work, &self.stage) {
            // Ranks that cannot reach another end by themselves; rank 0 stops all.
            (Working::Train { .. }, _) if ends_by_itself => {}
            (Working::Train { link, .. }, _) => link.order(rank::RankCommand::stop_within(grace)),
            (Working::Command { link, .. }, Stage::Running { process, .. }) => {
                // A program that polls for stop requests saves and ends by itself; its shell must not continue after
                // it.
                let listens = link.as_mut().is_some_and(ProgramLink::stop);
                match &self.container {
                    Some(container) if listens => container.stop(StopScope::Script),
                    Some(container) => container.stop(StopScope::All),
                    None if listens => process.signal_leader(Signal::TERM),
                    None => process.terminate(&self.tools.tags(&self.start.attempt)),
                }
            }
            (
                Working::Command { .. },
                Stage::Staging
                | Stage::Prepared { .. }
                | Stage::Ended { .. }
                | Stage::Sweeping { .. }
                | Stage::Uploading { .. },
            ) => {}
        }
    }

    /// Runs due timers, and returns the outcome when the attempt is over.
    pub fn turn(&mut self, now: Duration) -> Option<AttemptEnd> {
        self.end_hanging(now);
        self.record_silent(now);
        if let (Stage::Running { process, .. }, Working::Train { peers, .. }, None) =
            (&self.stage, &self.work, &self.ending)
            && now >= peers.kill_at()
        {
            process.signal(Signal::KILL);
            peers.signal(Signal::KILL);
        }
        let is_due = self.ending.as_ref().is_some_and(|ending| !ending.is_killed && now >= self.kills_at(ending));
        if let (Stage::Running { process, .. }, Some(ending), true) = (&self.stage, &mut self.ending, is_due) {
            ending.is_killed = true;
            process.signal(Signal::KILL);
            self.signal_tagged(Signal::KILL);
        }
        if let (Stage::Staging | Stage::Prepared { .. }, Some(_)) = (&self.stage, &self.ending) {
            let end = self.verdict(Exit::Never, Role::Setup, MemoryKill::No);
            self.sweep(end, now);
        }
        if let Stage::Ended { exit, role, memory, since } = self.stage
            && now >= self.waits_until(since)
        {
            let end = self.verdict(exit, role, memory);
            self.sweep(end, now);
        }
        self.swept(now);
        self.uploaded(now)
    }

    /// When something is due next.
    pub fn due(&self) -> Duration {
        match (&self.stage, &self.ending, &self.work) {
            (Stage::Staging | Stage::Prepared { .. }, None, _) => Duration::MAX,
            (Stage::Staging | Stage::Prepared { .. }, Some(_), _) => Duration::ZERO,
            (Stage::Running { .. }, Some(ending), _) if ending.is_killed => Duration::MAX,
            (Stage::Running { .. }, Some(_), _) => self.ends_at(),
            (Stage::Running { .. }, None, _) if self.stacks_until.is_some() => {
                self.stacks_until.unwrap_or(Duration::MAX)
            }
            (Stage::Running { .. }, None, Working::Train { watchdog, peers, .. }) => {
                let look = self.served.as_ref().map_or(Duration::MAX, |serving| serving.origin.due());
                let hangs = if self.is_follower() { Duration::MAX } else { watchdog.hangs_at() };
                hangs.min(peers.kill_at()).min(look)
            }
            (Stage::Running { .. }, None, Working::Command { link, .. }) => {
                let idle = self.idle.as_ref().map_or(Duration::MAX, Idleness::due);
                link.as_ref().map_or(Duration::MAX, ProgramLink::hangs_at).min(idle)
            }
            (Stage::Ended { since, .. }, _, _) => self.waits_until(*since),
            (Stage::Sweeping { next, .. }, _, _) => *next,
            (Stage::Uploading { is_done: true, .. }, _, _) => Duration::ZERO,
            (Stage::Uploading { give_up, .. }, _, _) => *give_up,
        }
    }

    /// How long to wait for an ended rank's socket: other ranks, if there are any, are about to notice its end.
    fn late(&self) -> Duration {
        match (&self.work, &self.ending) {
            (Working::Train { peers, .. }, None) if !peers.are_done() => peers::NOTICE,
            (_, _) => LATE,
        }
    }

    fn verdict(&self, exit: Exit, role: Role, memory: MemoryKill) -> AttemptEnd {
        let reports = match &self.work {
            Working::Train { reports, .. } | Working::Command { reports, .. } => (**reports).clone(),
        };
        if let (Working::Train { reports, peers, .. }, None) = (&self.work, &self.ending)
            && (reports.blames_another() || peers.have_failed() && !reports.are_decisive(self.is_follower()))
            && let Some(end) = peers.culprit(memory)
        {
            return end;
        }
        let mut failed = match &self.work {
            Working::Command { .. } => program::of_first_failed(&self.log, staging::first_rank(&self.start), exit),
            Working::Train { .. } => FailedFirst::default(),
        };
        failed.has_lost_another &= self.start.member.is_some();
        let end = verdict::verdict(verdict::Facts {
            rank: staging::first_rank(&self.start),
            role,
            is_follower: self.is_follower(),
            exit,
            memory,
            reports,
            hung_at_exit: match &self.work {
                Working::Command { link, .. } => link.as_ref().and_then(ProgramLink::hung_at_exit),
                Working::Train { .. } => None,
            },
            ending: self.ending.as_ref().map(|ending| (ending.why, ending.is_killed)),
            lease: self.tools.lease,
            log: &self.log,
            stacks: Some(self.stacks()).filter(|path| path.is_file()),
            tail: failed.said.take().unwrap_or_else(|| node::log::tail(&self.log)),
            failed,
        });
        let end = self.of_stopped(self.of_container(self.at_limit(end, memory)));
        let is_own = role == Role::Program && self.ending.is_none();
        match &self.work {
            Working::Command { setup, .. } if is_own && setup.is_left_out => verdict::without_setup(end),
            Working::Command { .. } | Working::Train { .. } => end,
        }
    }
}
