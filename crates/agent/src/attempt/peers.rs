//! The ranks besides rank 0. Rank 0 reports for all; of the others the agent knows process ids and exit statuses.
//!
//! Ranks compute together, so one that ends takes all others down: they notice within seconds and report it. The
//! attempt's outcome is that of the first rank that does not merely report the loss of another.

use std::path::{Path, PathBuf};
use std::time::Duration;

use domain::AttemptId;
use domain::rank::Report;
use domain::run::AttemptEnd;
use node::oom::MemoryKill;
use rustix::process::Signal;

use super::link::RankSocket;
use super::process::{Exit, FailedFirst, Process};
use super::verdict::{self, Facts, RankReports, Role};

/// How long ranks may take to notice that another is gone; they spend 3 s to identify it.
pub const NOTICE: Duration = Duration::from_secs(10);

/// The ranks of an attempt from rank 1 on.
#[derive(Default)]
pub struct Peers {
    /// The first rank of this machine among all; the others are numbered from it.
    first: u32,
    list: Vec<Peer>,
}

struct Peer {
    rank: u32,
    link: RankSocket,
    log: PathBuf,
    reports: RankReports,
    is_silent: bool,
    process: Option<Process>,
    /// How its process ended, and when.
    exit: Option<(Exit, Duration)>,
}

impl Peer {
    /// When it ended without having trained. What a process ends by after its last report costs the others nothing: rank 0 may
    /// be exporting the model.
    fn failed_at(&self) -> Option<Duration> {
        self.exit.filter(|(exit, _)| *exit != Exit::Code(0) && !self.reports.has_trained()).map(|(_, at)| at)
    }
}

impl Peers {
    /// No ranks yet, on a machine whose first rank has this number among all.
    pub fn from(first: u32) -> Peers {
        Peers { first, ..Peers::default() }
    }

    /// One more, which listens already and is not started yet.
    pub fn add(&mut self, rank: u32, link: RankSocket, log: PathBuf) {
        let (reports, is_silent, process, exit) = (RankReports::default(), false, None, None);
        self.list.push(Peer { rank, link, log, reports, is_silent, process, exit });
    }

    /// Each one's number, socket and log.
    pub fn seats(&self) -> Vec<(u32, PathBuf, PathBuf)> {
        self.list.iter().map(|peer| (peer.rank, peer.link.path().to_owned(), peer.log.clone())).collect()
    }

    /// It runs.
    pub fn started(&mut self, rank: u32, process: Process) {
        if let Some(peer) = self.find(rank) {
            peer.process = Some(process);
        }
    }

    /// It has opened its socket.
    pub fn connected(&mut self, rank: u32, stream: std::os::unix::net::UnixStream) {
        if let Some(peer) = self.find(rank) {
            peer.link.connected(stream);
        }
    }

    /// It sent a report.
    pub fn hear(&mut self, rank: u32, report: &Report) {
        if let Some(peer) = self.find(rank) {
            peer.reports.hear(report);
        }
    }

    /// All its reports were read.
    pub fn silent(&mut self, rank: u32) {
        if let Some(peer) = self.find(rank) {
            peer.is_silent = true;
        }
    }

    /// Takes note of an end, if the process was one of these.
    pub fn exited(&mut self, pid: u32, now: Duration) {
        let is_it = |peer: &Peer| peer.process.as_ref().is_some_and(|process| process.pid() == pid);
        let Some(place) = self.list.iter().position(is_it) else { return };
        let peer = &mut self.list[place];
        peer.link.stop_listening();
        let exit = peer.process.as_mut().map_or(Exit::Never, Process::reap);
        peer.exit = Some((exit, now));
    }

    /// Whether one of them ended without having trained.
    pub fn have_failed(&self) -> bool {
        self.list.iter().any(|peer| peer.failed_at().is_some())
    }

    /// When rank 0 is killed because it has not noticed that another is gone.
    pub fn kill_at(&self) -> Duration {
        let lost = self.list.iter().filter_map(Peer::failed_at).min();
        lost.map_or(Duration::MAX, |lost| lost.saturating_add(NOTICE))
    }

    /// Whether all have ended and their connections were read to the end.
    pub fn are_done(&self) -> bool {
        self.list.iter().all(|peer| peer.exit.is_some() && peer.is_silent)
    }

    /// Sends a signal to those that run.
    pub fn signal(&self, signal: Signal) {
        for peer in self.list.iter().filter(|peer| peer.exit.is_none()) {
            if let Some(process) = &peer.process {
                process.signal(signal);
            }
        }
    }

    /// The end of the rank that the others miss, if one of these is it.
    pub fn culprit(&self, memory: MemoryKill) -> Option<AttemptEnd> {
        let failed = |peer: &&Peer| peer.failed_at().is_some() && !peer.reports.blames_another();
        let peer = self.list.iter().find(failed)?;
        Some(verdict::verdict(Facts {
            rank: self.first + peer.rank,
            role: Role::Rank,
            is_follower: true,
            exit: peer.exit.map_or(Exit::Never, |(exit, _)| exit),
            hung_at_exit: None,
            memory,
            reports: peer.reports.clone(),
            ending: None,
            lease: Duration::ZERO,
            log: &peer.log,
            stacks: None,
            tail: node::log::tail(&peer.log),
            failed: FailedFirst::default(),
        }))
    }

    fn find(&mut self, rank: u32) -> Option<&mut Peer> {
        self.list.iter_mut().find(|peer| peer.rank == rank)
    }
}

/// The log of a rank, by its number among all.
pub fn log(run: &Path, attempt: &AttemptId, rank: u32) -> PathBuf {
    run.join("logs").join(format!("{attempt}-rank-{rank}.log"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use domain::{Cause, Finding};

    use super::*;

    const SEGFAULT: Exit = Exit::Signal(libc::SIGSEGV);

    /// The last report of each rank from rank 1 on, and how it ended at 7 s; whether rank 0 is killed for it, and whom the others
    /// miss.
    fn check(ended: &[(Option<Report>, Exit)], is_killed: bool, missed: Option<&str>) {
        let folder = tempfile::tempdir().unwrap();
        let (events, _) = channel();
        let mut peers = Peers::from(4);
        for (rank, (report, exit)) in (1..).zip(ended) {
            let link = RankSocket::listen(folder.path(), &AttemptId::new("r-a1"), rank, events.clone()).unwrap();
            peers.add(rank, link, folder.path().join("log"));
            report.iter().for_each(|report| peers.hear(rank, report));
            peers.find(rank).unwrap().exit = Some((*exit, Duration::from_secs(7)));
        }
        let kill_at = if is_killed { Duration::from_secs(17) } else { Duration::MAX };
        assert_eq!((peers.kill_at(), peers.have_failed()), (kill_at, is_killed), "{ended:?}");
        let found = peers.culprit(MemoryKill::No).map(|end| match end {
            AttemptEnd::Failed { finding, .. } => finding.message,
            end => panic!("{ended:?}: {end:?}"),
        });
        assert_eq!(found.as_deref(), missed, "{ended:?}");
    }

    #[test]
    fn a_rank_that_trained_is_not_missed_however_its_process_ends() {
        let blames = || Some(Report::Failed(Finding::new(Cause::RankLost, "rank 5 is gone")));
        let trained = || Some(Report::Trained);
        check(&[(trained(), Exit::Code(0)), (trained(), SEGFAULT)], false, None);
        let fault = "rank 6 was ended by SIGSEGV, a fault in its memory";
        check(&[(trained(), SEGFAULT), (None, SEGFAULT)], true, Some(fault));
        check(&[(blames(), Exit::Code(1)), (trained(), SEGFAULT)], true, None);
    }
}
