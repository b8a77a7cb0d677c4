//! A control loop for tests: real HTTP over a Unix socket. It records reports and sends the replies that a test sets.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use domain::wire::{AgentCommand, Entry, Heartbeat, HeartbeatReply};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Control {
    shared: Arc<(Mutex<State>, Condvar)>,
    pub socket: PathBuf,
}

#[derive(Default)]
struct State {
    /// Without repetitions, in order.
    entries: Vec<Entry>,
    /// Entries that came more than once.
    repeated: usize,
    orders: Vec<AgentCommand>,
    lease_ms: u64,
    /// Calls are accepted but not answered.
    mute: bool,
    calls: usize,
    /// The lease of the last answer.
    granted_ms: u64,
}

impl Control {
    pub fn start(folder: &Path) -> Control {
        let socket = folder.join("loop.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let state = State { lease_ms: 60_000, ..State::default() };
        let shared = Arc::new((Mutex::new(state), Condvar::new()));
        let serving = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = serving.clone();
                std::thread::spawn(move || serve(stream.unwrap(), &shared));
            }
        });
        Control { shared, socket }
    }

    pub fn order(&self, orders: Vec<AgentCommand>) {
        self.shared.0.lock().unwrap().orders = orders;
    }

    /// Grants this lease from now on, and returns once an answer has granted it.
    pub fn lease(&self, milliseconds: u64) {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.shared.0.lock().unwrap();
        state.lease_ms = milliseconds;
        while state.granted_ms != milliseconds {
            assert!(Instant::now() < deadline, "the agent does not call");
            state = self.shared.1.wait_timeout(state, Duration::from_millis(100)).unwrap().0;
        }
    }

    pub fn mute(&self, mute: bool) {
        self.shared.0.lock().unwrap().mute = mute;
    }

    pub fn calls(&self) -> usize {
        self.shared.0.lock().unwrap().calls
    }

    pub fn repeated(&self) -> usize {
        self.shared.0.lock().unwrap().repeated
    }

    /// All reports, once `enough` returns true for them.
    pub fn wait(&self, what: &str, enough: impl Fn(&[Entry]) -> bool) -> Vec<Entry> {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.shared.0.lock().unwrap();
        while !enough(&state.entries) {
            assert!(Instant::now() < deadline, "no {what}; said so far: {:#?}", state.entries);
            state = self.shared.1.wait_timeout(state, Duration::from_millis(100)).unwrap().0;
        }
        state.entries.clone()
    }
}

fn serve(stream: UnixStream, shared: &(Mutex<State>, Condvar)) {
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    while let Some(body) = request(&mut reader) {
        let heartbeat: Heartbeat = serde_json::from_slice(&body).unwrap();
        let mut state = shared.0.lock().unwrap();
        state.calls += 1;
        if state.mute {
            return;
        }
        for entry in heartbeat.entries {
            let heard = state.entries.last().map_or(0, |last| last.seq);
            if entry.seq <= heard {
                assert_eq!(state.entries[entry.seq as usize - 1], entry, "a repeated event is the same event");
                state.repeated += 1;
            } else {
                assert_eq!(entry.seq, heard + 1, "no gaps");
                state.entries.push(entry);
            }
        }
        let orders = HeartbeatReply {
            acknowledged: state.entries.last().map_or(0, |last| last.seq),
            measured: None,
            lease: domain::Duration::from_micros(state.lease_ms * 1000),
            saving: None,
            next: domain::Duration::from_micros(50_000.min(state.lease_ms * 300)),
            orders: state.orders.clone(),
        };
        state.granted_ms = state.lease_ms;
        shared.1.notify_all();
        drop(state);
        let body = serde_json::to_string(&orders).unwrap();
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        if writer.write_all(format!("{head}{body}").as_bytes()).is_err() {
            return;
        }
    }
}

/// The body of the next request, or `None` if the caller has disconnected.
fn request(reader: &mut BufReader<UnixStream>) -> Option<Vec<u8>> {
    let mut first = String::new();
    reader.read_line(&mut first).ok().filter(|count| *count > 0)?;
    assert_eq!(first.trim(), "POST /v1/tick HTTP/1.1");
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        length = line.strip_prefix("content-length:").map_or(length, |value| value.trim().parse().unwrap());
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(body)
}
