//! One run, and its killer.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::PATIENCE;
use super::processes::{self, Sightings};
use super::storm::{Kill, Trigger};
use super::verdict::Run;
use xtask::build::Programs;

/// Price of this machine in the test: a thousand micro-dollars a second.
const PRICE: &str = "3.6/h";

/// The remaining kills, and what happened so far.
struct Killer {
    /// Each with the number of times that its point was passed.
    left: Vec<(Kill, u64)>,
    started: Instant,
    done: Vec<(String, &'static str)>,
    steps: u64,
}

impl Killer {
    /// The kills that are due, after a process has reached `point` or time has passed.
    fn due(&mut self, point: Option<&str>) -> Vec<Kill> {
        let mut due = Vec::new();
        for (kill, passed) in std::mem::take(&mut self.left) {
            let passed = match &kill.trigger {
                Trigger::Point { name, .. } => passed + u64::from(point == Some(name)),
                Trigger::Time(_) => passed,
            };
            let is_due = match &kill.trigger {
                Trigger::Point { name, count } => point == Some(name) && passed >= *count,
                Trigger::Time(time) => self.started.elapsed() >= *time,
            };
            if is_due { due.push(kill) } else { self.left.push((kill, passed)) }
        }
        due
    }

    /// Executes the kills that are due, and records those that hit a process.
    fn strike(&mut self, home: &Path, point: Option<&str>) {
        for kill in self.due(point) {
            if processes::kill(home, kill.target) == 0 {
                continue;
            }
            let place = match &kill.trigger {
                Trigger::Point { name, .. } => (*name).to_owned(),
                Trigger::Time(_) => "any time".to_owned(),
            };
            self.done.push((place, kill.target.word()));
        }
    }
}

/// The disturbance of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disturbance<'a> {
    pub kills: &'a [Kill],
    pub mutant: Option<&'a str>,
    /// Time before a killed loop is restarted.
    pub away: Duration,
    /// The metadata service that its agents ask, as `GRADUS_METADATA` names it.
    pub metadata: Option<&'a str>,
}

/// Runs the job in its own home, with the disturbance, until it reports that it is done.
pub fn run(programs: &Programs, job: &Path, home: &Path, disturbance: Disturbance) -> Result<Run, String> {
    fs::create_dir_all(home).map_err(|error| format!("cannot make `{}`: {error}", home.display()))?;
    let home = home.canonicalize().map_err(|error| error.to_string())?;
    let socket = home.join("chaos.sock");
    let listener =
        UnixListener::bind(&socket).map_err(|error| format!("cannot listen at `{}`: {error}", socket.display()))?;
    let started = Instant::now();
    let left = disturbance.kills.iter().map(|kill| (kill.clone(), 0)).collect();
    let killer = Killer { left, started, done: Vec::new(), steps: 0 };
    let killer = Arc::new(Mutex::new(killer));
    let over = Arc::new(AtomicBool::new(false));
    let listening = listen(listener, killer.clone(), home.clone(), over.clone());
    let sightings = watch(killer.clone(), home.clone(), started, over.clone());
    let mut heard: Vec<Value> = Vec::new();
    let result = loop {
        let ended = once(programs, job, &home, disturbance, &mut heard)?;
        if ended || started.elapsed() > PATIENCE {
            break if ended { Ok(()) } else { Err(format!("not done after {} s", PATIENCE.as_secs())) };
        }
        std::thread::sleep(disturbance.away);
    };
    let seconds = started.elapsed().as_secs_f64();
    over.store(true, Ordering::SeqCst);
    // The listener waits for one more caller.
    let _ = std::os::unix::net::UnixStream::connect(&socket);
    let _ = listening.join();
    let sightings = sightings.join().map_err(|_| "the watcher panicked".to_owned())?;
    let leftover = processes::of(&home);
    processes::kill(&home, super::storm::Target::All);
    result?;
    let killer = killer.lock().map_err(|_| "the killer panicked".to_owned())?;
    let log = events(programs, &home)?;
    Ok(Run {
        heard,
        log,
        seconds,
        kills: killer.done.clone(),
        computed: killer.steps,
        sightings,
        leftover: leftover.len(),
    })
}

/// Starts the loop once and reads its output to the end; returns whether it printed the last line.
fn once(
    programs: &Programs,
    job: &Path,
    home: &Path,
    disturbance: Disturbance,
    heard: &mut Vec<Value>,
) -> Result<bool, String> {
    let mut command = Command::new(&programs.gradus);
    command.args(["run", "--yes", "--json", "--price", PRICE, "--home"]).arg(home).arg(job);
    command.env("GRADUS_CHAOS_SOCKET", home.join("chaos.sock")).env("GRADUS_RANK", &programs.rank);
    if let Some(mutant) = disturbance.mutant {
        command.env("GRADUS_MUTANT", mutant);
    }
    if let Some(metadata) = disturbance.metadata {
        command.env("GRADUS_METADATA", metadata);
    }
    let log = fs::File::options().create(true).append(true).open(home.join("loop.log"));
    let log = log.map_err(|error| format!("cannot write the log: {error}"))?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let mut child =
        command.spawn().map_err(|error| format!("cannot start `{}`: {error}", programs.gradus.display()))?;
    let mut last = None;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            // A line that a kill has cut is no word.
            if let Ok(value) = serde_json::from_str::<Value>(&line) {
                last = Some(value["event"] == "done");
                heard.push(value);
            }
        }
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    if last == Some(true) {
        return Ok(true);
    }
    match status.code() {
        // Ended by a signal: start it again.
        None => Ok(false),
        Some(code) => {
            Err(format!("gradus left with code {code} and no last line; see {}", home.join("loop.log").display()))
        }
    }
}

/// Answers each process that reaches a point, or kills.
fn listen(
    listener: UnixListener,
    killer: Arc<Mutex<Killer>>,
    home: std::path::PathBuf,
    over: Arc<AtomicBool>,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            if over.load(Ordering::SeqCst) {
                return;
            }
            let mut line = String::new();
            let mut reader = BufReader::new(&stream);
            if reader.read_line(&mut line).is_err() {
                continue;
            }
            let point = line.split_whitespace().nth(2).unwrap_or_default().to_owned();
            let Ok(mut killer) = killer.lock() else { return };
            killer.steps += u64::from(point == "step");
            killer.strike(&home, Some(&point));
        }
    })
}

/// Keeps the harness' own clock, and does the kills that wait for a time.
fn watch(
    killer: Arc<Mutex<Killer>>,
    home: std::path::PathBuf,
    started: Instant,
    over: Arc<AtomicBool>,
) -> std::thread::JoinHandle<Sightings> {
    std::thread::spawn(move || {
        let mut sightings = Sightings::default();
        while !over.load(Ordering::SeqCst) {
            sightings.look(&home, started.elapsed().as_secs_f64());
            if let Ok(mut killer) = killer.lock() {
                killer.strike(&home, None);
            }
            std::thread::sleep(Duration::from_millis(15));
        }
        sightings
    })
}

/// The complete event log.
fn events(programs: &Programs, home: &Path) -> Result<Vec<Value>, String> {
    let output = Command::new(&programs.gradus).args(["events", "--json", "--home"]).arg(home).output();
    let output = output.map_err(|error| format!("cannot read the events: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}
