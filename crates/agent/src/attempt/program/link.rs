//! The socket between the agent and the processes of a user's program that use the package `gradus`.
//!
//! Any number of them connect, each over its own connection; most programs never do. Each sends its rank first. Rank 0
//! reports for all, as with the built-in trainer. A process that [listens](SignOfLife::listens) is told to stop over
//! the socket; SIGTERM would also end its data loader's workers, and with them the step that it is about to save.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::Duration;

use domain::AttemptId;
use domain::rank::{RankCommand, Report, SignOfLife};
use rustix::net::Shutdown;

use super::super::link::short;
use crate::event::{AttemptEvent, Wakeup};

/// A process reads its orders at once; one that does not will be killed anyway.
const WRITE: Duration = Duration::from_millis(100);

/// A program that was quiet for some time before may be quiet for so many times as long.
const QUIET: u32 = 3;

/// The id of the listener; ids of connections begin with 1.
const LISTENER: u32 = 0;

/// The file of the socket for programs of an attempt, in the folder of its instance.
pub fn socket_file(folder: &Path, attempt: &AttemptId) -> PathBuf {
    folder.join(format!("{attempt}-program.sock"))
}

/// The socket, and who is connected.
pub struct ProgramLink {
    listener: UnixListener,
    path: PathBuf,
    file: PathBuf,
    /// Keeps the short path valid.
    _folder: File,
    members: BTreeMap<u32, Member>,
    is_asked_to_stop: bool,
    /// A process has reported for all.
    has_reported: bool,
    /// No further process will connect.
    is_closed: bool,
}

/// A connected process.
struct Member {
    stream: UnixStream,
    /// Its rank, once it has sent it.
    rank: Option<u32>,
    life: SignOfLife,
    /// When the program itself last made a call.
    moved: Duration,
    /// The longest interval between two heartbeats with progress.
    longest: Duration,
}

impl ProgramLink {
    /// Listens in `folder` for processes of `attempt`; their messages go to `events`.
    pub fn listen(folder: &Path, attempt: &AttemptId, events: Sender<Wakeup>) -> io::Result<ProgramLink> {
        let file = socket_file(folder, attempt);
        let (path, handle) = short(&file)?;
        let listener = store::listen(&path)?;
        let accepting = listener.try_clone()?;
        let attempt = attempt.clone();
        std::thread::spawn(move || {
            let mut number = LISTENER;
            // Ends when the listener is shut down; earlier connections are still accepted.
            while let Ok((stream, _)) = accepting.accept() {
                number += 1;
                let (events, attempt, number) = (events.clone(), attempt.clone(), number);
                let send = move |event| events.send(Wakeup::Attempt(attempt.clone(), event)).is_ok();
                let Ok(writing) = stream.try_clone() else { continue };
                // Sent here, so that the listener's end comes after it.
                send(AttemptEvent::Connected(number, writing));
                std::thread::spawn(move || {
                    read(stream, number, &send);
                    send(AttemptEvent::Silent(number));
                });
            }
            let _ = events.send(Wakeup::Attempt(attempt, AttemptEvent::Silent(LISTENER)));
        });
        let (members, is_asked_to_stop, has_reported, is_closed) = (BTreeMap::new(), false, false, false);
        Ok(ProgramLink { listener, path, file, _folder: handle, members, is_asked_to_stop, has_reported, is_closed })
    }

    /// The path that processes connect to.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A process has connected.
    pub fn connected(&mut self, number: u32, stream: UnixStream, now: Duration) {
        let _ = stream.set_write_timeout(Some(WRITE));
        let life = SignOfLife { alive: 0, listens: false, hang_after_s: None, quiet_ms: None, longest_ms: None };
        let mut member = Member { stream, rank: None, life, moved: now, longest: Duration::ZERO };
        if self.is_asked_to_stop {
            member.order(RankCommand::Stop);
        }
        self.members.insert(number, member);
    }

    /// Takes in a report; whether it is one that is passed on.
    pub fn hear(&mut self, number: u32, report: &Report, now: Duration) -> bool {
        let Some(member) = self.members.get_mut(&number) else { return false };
        if let Report::Hello { rank, .. } = report {
            member.rank = Some(*rank);
        }
        member.moves(now);
        self.has_reported |= member.rank == Some(0);
        member.rank == Some(0) || matches!(report, Report::Note { .. })
    }

    /// When a process of the program last made a call; none where no process is connected.
    pub fn moved(&self) -> Option<Duration> {
        self.members.values().map(|member| member.moved).max()
    }

    /// Whether the program has reported anything itself.
    pub fn has_reported(&self) -> bool {
        self.has_reported
    }

    /// Handles a heartbeat.
    pub fn lives(&mut self, number: u32, life: SignOfLife, now: Duration) {
        let Some(member) = self.members.get_mut(&number) else { return };
        match life.quiet_ms {
            // Heartbeats are too rare to tell from them when it moved, or for how long it was quiet before.
            Some(quiet) => {
                member.moved = member.moved.max(now.saturating_sub(Duration::from_millis(quiet)));
                member.longest = member.longest.max(Duration::from_millis(life.longest_ms.unwrap_or(0)));
            }
            None if life.alive != member.life.alive => member.moves(now),
            None => {}
        }
        member.life = life;
    }

    /// A connection has ended, or no more will come.
    pub fn silent(&mut self, number: u32) {
        self.is_closed |= number == LISTENER;
        self.members.remove(&number);
    }

    /// Tells all connected processes, and later ones, to stop. Returns whether one listens, so that SIGTERM is not
    /// needed.
    pub fn stop(&mut self) -> bool {
        self.is_asked_to_stop = true;
        self.members.values_mut().for_each(|member| member.order(RankCommand::Stop));
        self.members.values().any(|member| member.life.listens)
    }

    /// When a process counts as hung, unless it makes a call before then.
    pub fn hangs_at(&self) -> Duration {
        let at = |member: &Member| {
            let patience = Duration::from_secs(member.life.hang_after_s.filter(|_| member.life.alive > 0)?);
            Some(member.moved.saturating_add(patience.max(member.longest * QUIET)))
        };
        self.members.values().filter_map(at).min().unwrap_or(Duration::MAX)
    }

    /// For how long the process that has been quiet for longest has made no call.
    pub fn silence(&self, now: Duration) -> Duration {
        let watched = self.members.values().filter(|member| member.life.hang_after_s.is_some());
        watched.map(|member| now.saturating_sub(member.moved)).max().unwrap_or_default()
    }

    /// No process will connect any more.
    pub fn stop_listening(&self) {
        let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
    }

    /// Whether all connections were read to their ends.
    pub fn is_silent(&self) -> bool {
        self.is_closed && self.members.is_empty()
    }
}

impl Member {
    fn moves(&mut self, now: Duration) {
        self.longest = self.longest.max(now.saturating_sub(self.moved));
        self.moved = now;
    }

    fn order(&mut self, order: RankCommand) {
        // A process that cannot be reached is killed at its deadline.
        let _ = serde_json::to_string(&order).map(|line| writeln!(self.stream, "{line}"));
    }
}

impl Drop for ProgramLink {
    fn drop(&mut self) {
        self.stop_listening();
        for member in self.members.values() {
            let _ = member.stream.shutdown(std::net::Shutdown::Both);
        }
        let _ = fs::remove_file(&self.file);
    }
}

/// Passes on messages of a process until it disconnects.
fn read(stream: UnixStream, number: u32, send: &impl Fn(AttemptEvent) -> bool) {
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        let event = match serde_json::from_str(&line) {
            Ok(report) => AttemptEvent::Reported(number, Box::new(report)),
            Err(_) => match serde_json::from_str(&line) {
                Ok(life) => AttemptEvent::Lives(number, life),
                Err(_) => AttemptEvent::Garbled(number, line),
            },
        };
        if !send(event) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use domain::rank::Environment;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn link() -> (ProgramLink, mpsc::Receiver<Wakeup>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let (events, inbox) = mpsc::channel();
        let link = ProgramLink::listen(folder.path(), &AttemptId::new("digits-1-a1"), events).unwrap();
        (link, inbox, folder)
    }

    fn hello(rank: u32) -> Report {
        Report::Hello { rank, pid: 7, environment: Environment::default() }
    }

    fn next(inbox: &mpsc::Receiver<Wakeup>) -> AttemptEvent {
        let Wakeup::Attempt(_, event) = inbox.recv().unwrap() else { panic!("an event of the attempt") };
        event
    }

    #[test]
    fn what_a_process_says_arrives_and_what_it_is_told_too() {
        let (mut link, inbox, _folder) = link();
        let mut process = UnixStream::connect(link.path()).unwrap();
        let AttemptEvent::Connected(1, stream) = next(&inbox) else { panic!("it connects first") };
        link.connected(1, stream, SECOND);
        let line = serde_json::to_string(&hello(0)).unwrap();
        writeln!(process, "{line}\n{{\"alive\":3,\"listens\":true,\"hang_after_s\":9}}\nnonsense").unwrap();
        let AttemptEvent::Reported(1, report) = next(&inbox) else { panic!("a report") };
        assert_eq!((*report).clone(), hello(0));
        assert!(link.hear(1, &report, SECOND));
        let AttemptEvent::Lives(1, life) = next(&inbox) else { panic!("a sign of life") };
        assert!(matches!(next(&inbox), AttemptEvent::Garbled(1, line) if line == "nonsense"));
        link.lives(1, life, SECOND * 2);
        assert_eq!(link.hangs_at(), SECOND * 11);
        assert!(link.stop());
        let mut order = String::new();
        BufReader::new(process.try_clone().unwrap()).read_line(&mut order).unwrap();
        assert_eq!(order, "{\"order\":\"stop\"}\n");
        drop(process);
        assert!(matches!(next(&inbox), AttemptEvent::Silent(1)));
        link.silent(1);
        assert!(!link.is_silent());
        link.stop_listening();
        assert!(matches!(next(&inbox), AttemptEvent::Silent(LISTENER)));
        link.silent(LISTENER);
        assert!(link.is_silent());
    }

    #[test]
    fn rank_0_reports_for_all_and_whoever_comes_late_is_told_to_stop() {
        let (mut link, inbox, _folder) = link();
        assert!(!link.stop(), "nobody listens");
        let process = UnixStream::connect(link.path()).unwrap();
        let AttemptEvent::Connected(1, stream) = next(&inbox) else { panic!("it connects first") };
        link.connected(1, stream, SECOND);
        let mut order = String::new();
        BufReader::new(process).read_line(&mut order).unwrap();
        assert_eq!(order, "{\"order\":\"stop\"}\n");
        let note = Report::Note { text: "n".into() };
        assert!(!link.hear(1, &hello(1), SECOND) && link.hear(1, &note, SECOND));
        assert!(!link.hear(1, &Report::Stopped { step: 1 }, SECOND));
        assert!(!link.hear(9, &note, SECOND), "nobody has this number");
    }

    /// When a process that sent `first` and, one second later, `second` as heartbeats counts as hung.
    fn check(first: SignOfLife, second: SignOfLife, expected: Duration) {
        let (mut link, _inbox, _folder) = link();
        let (stream, _other) = UnixStream::pair().unwrap();
        link.connected(1, stream, SECOND);
        link.lives(1, first, SECOND * 2);
        link.lives(1, second, SECOND * 3);
        assert_eq!(link.hangs_at(), expected);
    }

    #[test]
    fn only_a_program_that_moved_and_has_a_limit_hangs() {
        let said = |alive, hang_after_s, quiet_ms, longest_ms| SignOfLife {
            alive,
            listens: false,
            hang_after_s,
            quiet_ms,
            longest_ms,
        };
        let life = |alive, hang_after_s| said(alive, hang_after_s, None, None);
        check(life(1, Some(60)), life(1, Some(60)), SECOND * 62);
        check(life(1, Some(60)), life(2, Some(60)), SECOND * 63);
        check(life(0, Some(60)), life(0, Some(60)), Duration::MAX);
        check(life(1, None), life(1, None), Duration::MAX);
        // Two calls were a second apart, so three seconds of silence are fine.
        check(life(1, Some(2)), life(2, Some(2)), SECOND * 6);
        // One call, after the first heartbeat and 0.9 s before the second: that is when it moved, and no second was quiet.
        let [first, second] = [said(0, Some(2), Some(0), Some(0)), said(1, Some(2), Some(900), Some(100))];
        check(first, second, SECOND * 4 + Duration::from_millis(100));
        // It says itself that it was quiet for longer between two calls.
        check(first, said(2, Some(2), Some(0), Some(1_000)), SECOND * 6);
    }
}
