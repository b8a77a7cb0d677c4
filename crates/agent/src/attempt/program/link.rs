//! The socket between the agent and the processes of a user's program that use the package `gradus`.
//!
//! Any number of them connect, each over its own connection; most programs never do. Each sends its rank first. Rank 0
//! reports for all, as with the built-in trainer. A process that [listens](SignOfLife::listens) is told to stop over
//! the socket; SIGTERM would also end its data loader's workers, and with them the step that it is about to save.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::Duration;

use domain::AttemptId;
use domain::hang::HangLimit;
use domain::rank::{RankCommand, Report, SignOfLife};
use rustix::net::Shutdown;

use super::super::link::{pass_on, short};
use super::super::watchdog::time_of;
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
    /// What the job states in place of the limits that processes have by themselves.
    stated: Option<HangLimit>,
    is_asked_to_stop: bool,
    /// A process has reported for all.
    has_reported: bool,
    /// No further process will connect.
    is_closed: bool,
    /// The rank of a process that hangs although its program is over.
    hung_at_exit: Option<u32>,
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
        Ok(ProgramLink {
            listener,
            path,
            file,
            _folder: handle,
            members: BTreeMap::new(),
            stated: None,
            is_asked_to_stop: false,
            has_reported: false,
            is_closed: false,
            hung_at_exit: None,
        })
    }

    /// The same for a job that states for how long its program may make no call.
    pub fn held_to(mut self, stated: Option<HangLimit>) -> ProgramLink {
        self.stated = stated;
        self
    }

    /// The path that processes connect to.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A process has connected.
    pub fn connected(&mut self, number: u32, stream: UnixStream, now: Duration) {
        let _ = stream.set_write_timeout(Some(WRITE));
        let life = SignOfLife {
            alive: 0,
            listens: false,
            hang_after_s: None,
            quiet_ms: None,
            longest_ms: None,
            is_ending: false,
        };
        let mut member = Member { stream, rank: None, life, moved: now, longest: Duration::ZERO };
        if self.is_asked_to_stop {
            member.order(RankCommand::Stop { within_us: None });
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
        let is_ending = life.is_ending;
        member.life = life;
        if is_ending {
            self.one_less(now);
        }
    }

    /// A connection has ended, or no more will come.
    pub fn silent(&mut self, number: u32, now: Duration) {
        self.is_closed |= number == LISTENER;
        if self.members.remove(&number).is_some() {
            self.one_less(now);
        }
    }

    /// A program is over: those at their exits, which may have waited for it, have their whole limit from now on.
    fn one_less(&mut self, now: Duration) {
        for member in self.members.values_mut().filter(|member| member.life.is_ending) {
            member.moved = member.moved.max(now);
        }
    }

    /// Tells all connected processes, and later ones, to stop. Returns whether one listens, so that SIGTERM is not
    /// needed.
    pub fn stop(&mut self) -> bool {
        self.is_asked_to_stop = true;
        self.members.values_mut().for_each(|member| member.order(RankCommand::Stop { within_us: None }));
        // One that is about to end does not ask any more, and what its script starts next may not ask either.
        self.members.values().any(|member| member.life.listens && !member.life.is_ending)
    }

    /// When a process counts as hung, unless it makes a call before then.
    pub fn hangs_at(&self) -> Duration {
        self.watched().filter_map(|member| member.hangs_at(self.stated)).min().unwrap_or(Duration::MAX)
    }

    /// For how long the process that has been quiet for longest has made no call, if one hangs. Remembers its rank if its
    /// program is over.
    pub fn silence(&mut self, now: Duration) -> Option<Duration> {
        let hangs = |member: &&Member| member.hangs_at(self.stated).is_some_and(|at| now >= at);
        let hung = self.watched().filter(hangs).max_by_key(|member| now.saturating_sub(member.moved))?;
        let (silence, rank, is_ending) = (now.saturating_sub(hung.moved), hung.rank, hung.life.is_ending);
        self.hung_at_exit = rank.filter(|_| is_ending);
        Some(silence)
    }

    /// The processes that may hang. One whose program is over may wait at its exit for another that still computes; where the
    /// programs of all are over, it waits for nothing but its own end.
    fn watched(&self) -> impl Iterator<Item = &Member> {
        let are_ending = self.members.values().all(|member| member.life.is_ending);
        self.members.values().filter(move |member| are_ending || !member.life.is_ending)
    }

    /// The rank of a process that hangs although its program is over.
    pub fn hung_at_exit(&self) -> Option<u32> {
        self.hung_at_exit
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
    fn hangs_at(&self, stated: Option<HangLimit>) -> Option<Duration> {
        let patience = match stated {
            Some(limit) => time_of(limit),
            None => Duration::from_secs(self.life.hang_after_s?).max(self.longest * QUIET),
        };
        (self.life.alive > 0).then(|| self.moved.saturating_add(patience))
    }

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
    let event = |line: String| match serde_json::from_str(&line) {
        Ok(report) => AttemptEvent::Reported(number, Box::new(report)),
        Err(_) => match serde_json::from_str(&line) {
            Ok(life) => AttemptEvent::Lives(number, life),
            Err(_) => AttemptEvent::Garbled(number, line),
        },
    };
    pass_on(stream, event, send);
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
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
        link.silent(1, SECOND * 2);
        assert!(!link.is_silent());
        link.stop_listening();
        assert!(matches!(next(&inbox), AttemptEvent::Silent(LISTENER)));
        link.silent(LISTENER, SECOND * 2);
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
            is_ending: false,
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

    #[test]
    fn what_the_job_states_holds_in_place_of_the_program_s_limit() {
        let hangs_at = |stated, alive, hang_after_s| {
            let (link, _inbox, _folder) = link();
            let mut link = link.held_to(stated);
            let (stream, _other) = UnixStream::pair().unwrap();
            link.connected(1, stream, SECOND);
            let (quiet_ms, longest_ms) = (Some(0), Some(50_000));
            let life = SignOfLife { alive, listens: false, hang_after_s, quiet_ms, longest_ms, is_ending: false };
            link.lives(1, life, SECOND * 2);
            link.hangs_at()
        };
        let stated = Some(HangLimit::After(domain::Duration::from_secs(90)));
        assert_eq!(hangs_at(None, 1, Some(60)), SECOND * 152);
        assert_eq!(hangs_at(stated, 1, Some(60)), SECOND * 92);
        assert_eq!(hangs_at(stated, 1, None), SECOND * 92);
        assert_eq!(hangs_at(Some(HangLimit::Off), 1, Some(60)), Duration::MAX);
        assert_eq!(hangs_at(stated, 0, Some(60)), Duration::MAX, "it has made no call yet");
    }

    /// Connects a process with a limit of 9 s that has moved until `now`; returns its end of the connection.
    fn moves(link: &mut ProgramLink, number: u32, is_ending: bool, now: Duration) -> UnixStream {
        let (stream, other) = UnixStream::pair().unwrap();
        link.connected(number, stream, SECOND);
        link.hear(number, &hello(number - 1), SECOND);
        let (quiet_ms, longest_ms) = (Some(0), Some(0));
        let life = SignOfLife { alive: 4, listens: true, hang_after_s: Some(9), quiet_ms, longest_ms, is_ending };
        link.lives(number, life, now);
        other
    }

    /// When one of two ranks counts as hung that have moved until 2 s and 1 s, its silence after that, and which is said to
    /// hang at its exit.
    fn hung(is_ending: [bool; 2]) -> (Duration, Option<Duration>, Option<u32>) {
        let (mut link, _inbox, _folder) = link();
        let _first = moves(&mut link, 1, is_ending[0], SECOND * 2);
        let _second = moves(&mut link, 2, is_ending[1], SECOND);
        assert_eq!(link.stop(), is_ending != [true; 2], "who is about to end does not listen");
        assert_eq!((link.silence(SECOND * 9), link.hung_at_exit()), (None, None));
        (link.hangs_at(), link.silence(SECOND * 12), link.hung_at_exit())
    }

    #[test]
    fn a_process_that_does_not_exit_is_told_from_a_program_that_hangs() {
        assert_eq!(hung([true; 2]), (SECOND * 10, Some(SECOND * 11), Some(1)));
        // The second one may wait for the first one, which still computes, until that one hangs itself.
        assert_eq!(hung([false, true]), (SECOND * 11, Some(SECOND * 10), None));
        assert_eq!(hung([false; 2]), (SECOND * 10, Some(SECOND * 11), None));
    }

    #[test]
    fn a_process_at_its_exit_has_its_whole_limit_once_all_others_have_ended() {
        let (mut link, _inbox, _folder) = link();
        let _waits = moves(&mut link, 2, true, SECOND);
        let _computes = moves(&mut link, 1, false, SECOND * 99);
        assert_eq!(link.hangs_at(), SECOND * 108);
        link.silent(1, SECOND * 100);
        assert_eq!(link.hangs_at(), SECOND * 109);
        let _ends = moves(&mut link, 1, true, SECOND * 200);
        assert_eq!(link.hangs_at(), SECOND * 209);
    }
}
