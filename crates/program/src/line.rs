//! The process's end of the agent's socket. The program never waits for it: reports go into a queue that one thread
//! writes, and another thread reads orders. Neither needs the program's own locks, so heartbeats are sent while Python
//! computes.
//!
//! There may be no listener: outside of gradus there is no socket, and an agent may end. Then reports are dropped.

use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use domain::rank::{RankCommand, Report, SignOfLife};

/// Interval of heartbeats, at most and at least.
const HEARTBEAT: Duration = Duration::from_secs(5);
const SHORTEST: Duration = Duration::from_millis(250);

/// Reports of steps are batched for this long, into one write instead of many: each write wakes the agent.
const BATCH: Duration = Duration::from_millis(100);

/// Reports of steps queued for an agent that does not read; about 20 MB as text. More are counted and dropped.
pub(crate) const STEPS_HELD: usize = 100_000;

/// An agent that reads nothing for this long is considered gone.
const WRITE: Duration = Duration::from_secs(30);

/// The line to the agent, if there is one.
#[derive(Debug)]
pub(crate) struct AgentLine {
    shared: Arc<Shared>,
    socket: Option<UnixStream>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    waiting: Mutex<Waiting>,
    filled: Condvar,
    began: Instant,
    calls: AtomicU64,
    /// When the newest call was made, and the longest time between two, in milliseconds since `began`.
    last_ms: AtomicU64,
    longest_ms: AtomicU64,
    listens: AtomicBool,
    stop: AtomicBool,
    save: AtomicBool,
    /// The process is about to end.
    is_ending: AtomicBool,
    hang_after_s: Option<u64>,
}

#[derive(Debug, Default)]
struct Waiting {
    reports: Vec<Report>,
    /// Reports dropped since the last write.
    omitted: u64,
    /// Something in it is more than a step.
    is_urgent: bool,
    /// No more reports will come.
    is_closed: bool,
    /// The peer has stopped reading.
    is_gone: bool,
}

impl AgentLine {
    /// Connects to the agent's socket; without one, or without a listener, everything works and nothing is sent.
    pub fn connect(socket: Option<&Path>, hang_after_s: Option<u64>) -> AgentLine {
        let shared = Arc::new(Shared::new(hang_after_s));
        let opened = socket.and_then(|path| UnixStream::connect(path).ok());
        let Some(stream) = opened else {
            shared.waiting().is_gone = true;
            return AgentLine { shared, socket: None, writer: None };
        };
        let _ = stream.set_write_timeout(Some(WRITE));
        let (reading, writing) = (stream.try_clone(), stream.try_clone());
        if let Ok(reading) = reading {
            let shared = Arc::clone(&shared);
            let _ = std::thread::Builder::new().name("gradus-orders".into()).spawn(move || listen(&shared, reading));
        }
        let writer = writing.ok().and_then(|writing| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name("gradus-reports".into()).spawn(move || speak(&shared, writing)).ok()
        });
        AgentLine { shared, socket: Some(stream), writer }
    }

    /// Whether an agent was found.
    pub fn is_connected(&self) -> bool {
        self.socket.is_some()
    }

    /// Queues a report and returns at once.
    pub fn send(&self, report: Report) {
        let mut waiting = self.shared.waiting();
        let is_step = matches!(report, Report::Step(_) | Report::Metrics(_));
        if waiting.is_gone || is_step && waiting.reports.len() >= STEPS_HELD {
            waiting.omitted += u64::from(!waiting.is_gone);
            return;
        }
        let is_first = waiting.reports.is_empty();
        waiting.is_urgent |= !is_step;
        waiting.reports.push(report);
        if is_first || !is_step {
            self.shared.filled.notify_one();
        }
    }

    /// The program has made a call: it moves.
    pub fn moved(&self) {
        self.shared.moved();
    }

    /// Announces that the program polls for stop and save requests, so it needs no signal.
    pub fn listens(&self) {
        if !self.shared.listens.swap(true, Ordering::AcqRel) {
            self.shared.waiting().is_urgent = true;
            self.shared.filled.notify_one();
        }
    }

    /// Notes that the program is to stop, by a signal for example.
    pub fn ask_to_stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
    }

    /// Whether it is to stop.
    pub fn is_to_stop(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }

    /// Whether a save was requested; true until [`AgentLine::saves`].
    pub fn is_to_save(&self) -> bool {
        self.shared.save.load(Ordering::Acquire)
    }

    /// It saves now.
    pub fn saves(&self) {
        self.shared.save.store(false, Ordering::Release);
    }

    /// Waits until every report is written, and hangs up.
    pub fn close(&mut self) {
        self.drain();
        if let Some(socket) = &self.socket {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Waits until every report is written, and says that the process ends. The system closes the connection with the
    /// process, so the agent notices one that does not end.
    pub fn end(&mut self) {
        self.shared.moved();
        self.shared.is_ending.store(true, Ordering::Release);
        self.drain();
        // The thread that reads orders has another handle of it.
        self.socket = None;
    }

    fn drain(&mut self) {
        self.shared.waiting().is_closed = true;
        self.shared.filled.notify_one();
        if let Some(writer) = self.writer.take() {
            // A panic there has printed its own message.
            let _ = writer.join();
        }
    }
}

impl Drop for AgentLine {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn new(hang_after_s: Option<u64>) -> Shared {
        Shared {
            waiting: Mutex::default(),
            filled: Condvar::new(),
            began: Instant::now(),
            calls: AtomicU64::new(0),
            last_ms: AtomicU64::new(0),
            longest_ms: AtomicU64::new(0),
            listens: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            save: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            hang_after_s,
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn moved(&self) {
        let now = self.now_ms();
        let last = self.last_ms.swap(now, Ordering::Relaxed);
        self.longest_ms.fetch_max(now.saturating_sub(last), Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// A thread that panicked leaves complete reports behind, so they are still valid.
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn life(&self) -> SignOfLife {
        SignOfLife {
            alive: self.calls.load(Ordering::Relaxed),
            listens: self.listens.load(Ordering::Acquire),
            hang_after_s: self.hang_after_s,
            quiet_ms: Some(self.now_ms().saturating_sub(self.last_ms.load(Ordering::Relaxed))),
            longest_ms: Some(self.longest_ms.load(Ordering::Relaxed)),
            is_ending: false,
        }
    }

    /// Waits for reports, or until the next heartbeat is due; `None` at the end.
    fn next(&self, due: Instant) -> Option<(Vec<Report>, u64)> {
        let mut waiting = self.waiting();
        let mut since = None;
        loop {
            if !waiting.reports.is_empty() {
                since.get_or_insert_with(Instant::now);
            }
            let until = since.map_or(due, |since| (since + BATCH).min(due));
            let left = until.saturating_duration_since(Instant::now());
            if waiting.is_closed && waiting.reports.is_empty() {
                return None;
            }
            if waiting.is_urgent || waiting.is_closed || left.is_zero() {
                waiting.is_urgent = false;
                return Some((std::mem::take(&mut waiting.reports), std::mem::take(&mut waiting.omitted)));
            }
            waiting = self.filled.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Time between two heartbeats: several within the time after which the program counts as hung.
fn heartbeat(hang_after_s: Option<u64>) -> Duration {
    hang_after_s.map_or(HEARTBEAT, |after| (Duration::from_secs(after) / 4).clamp(SHORTEST, HEARTBEAT))
}

/// Writes reports and heartbeats until the connection is closed.
fn speak(shared: &Shared, mut socket: UnixStream) {
    let mut due = Instant::now();
    let mut said = None;
    while let Some((reports, omitted)) = shared.next(due) {
        let mut text = Vec::new();
        for report in &reports {
            line(&mut text, report);
        }
        if omitted > 0 {
            let note = format!("{omitted} reports of steps were left out, as nobody read them in time");
            line(&mut text, &Report::Note { text: note });
        }
        let (life, now) = (shared.life(), Instant::now());
        if now >= due || said.is_none_or(|said: bool| said != life.listens) {
            line(&mut text, &life);
            (due, said) = (now + heartbeat(shared.hang_after_s), Some(life.listens));
        }
        if socket.write_all(&text).is_err() {
            let mut waiting = shared.waiting();
            (waiting.is_gone, waiting.reports) = (true, Vec::new());
            return;
        }
    }
    if shared.is_ending.load(Ordering::Acquire) {
        let mut text = Vec::new();
        line(&mut text, &SignOfLife { is_ending: true, ..shared.life() });
        // An agent that is gone ends the process by itself.
        let _ = socket.write_all(&text);
    }
}

fn line(text: &mut Vec<u8>, message: &impl serde::Serialize) {
    // Values of these types are always JSON, and memory takes any number of bytes.
    if serde_json::to_writer(&mut *text, message).is_ok() {
        text.push(b'\n');
    }
}

/// Reads orders until the agent disconnects. Without an agent, more work cannot be billed: the program must stop.
fn listen(shared: &Shared, socket: UnixStream) {
    for line in BufReader::new(socket).lines() {
        let Ok(line) = line else { break };
        match serde_json::from_str(&line) {
            Ok(RankCommand::Stop { .. }) => shared.stop.store(true, Ordering::Release),
            Ok(RankCommand::Checkpoint) => shared.save.store(true, Ordering::Release),
            // An order of a newer agent is no reason to lose work.
            Err(_) => {}
        }
    }
    shared.stop.store(true, Ordering::Release);
}
