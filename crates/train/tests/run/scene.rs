//! One run in its own folder, with an agent simulated by a thread.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::finding::{Cause, Finding};
use domain::id::{AttemptId, Fence, RunId};
use domain::rank::{Exported, RankCommand, Report, SPEC_SCHEMA, Spec};
use domain::train::Train;
use serde_json::{Value, json};
use tch::Device;
use train::channel::Channel;
use train::run::{Ending, RunOptions, run};
use train::state::OmittedState;

/// A folder in which one run is tried again and again.
pub struct Bench {
    pub folder: tempfile::TempDir,
    pub train: Train,
    pub data: PathBuf,
    pub attempts: u64,
    pub threads: u32,
    pub accept_data_change: bool,
    /// Steps whose outcome is read late, as on a device.
    pub lag: usize,
}

/// What came of one attempt.
pub struct Outcome {
    pub reports: Vec<Report>,
    pub ending: Result<Ending, Finding>,
}

pub fn digits() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits.csv.gz")
}

/// One test at a time: they share libtorch's threads and random numbers.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A small job: `changes` are keys of the `train:` section.
pub fn bench(changes: Value) -> Bench {
    formats::install();
    let mut train = json!({
        "model": "mlp", "data": {"path": "digits.csv.gz"}, "epochs": 2, "batch": 100, "seed": 1,
        "optimizer": {"sgd": {"lr": 0.05}}, "checkpoint": {"every": "5 steps", "keep": 100},
    });
    for (key, value) in changes.as_object().unwrap() {
        train[key] = value.clone();
    }
    let train = serde_json::from_value(train).unwrap();
    Bench {
        folder: tempfile::tempdir().unwrap(),
        train,
        data: digits(),
        attempts: 0,
        threads: 1,
        accept_data_change: false,
        lag: 0,
    }
}

impl Bench {
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// One attempt; `order` returns the agent's order after a report.
    pub fn attempt(
        &mut self,
        omitted: OmittedState,
        mut order: impl FnMut(&Report) -> Option<RankCommand> + Send,
    ) -> Outcome {
        let _turn = turn();
        self.attempts += 1;
        let socket = self.path(&format!("socket-{}", self.attempts));
        let spec = Spec {
            schema: SPEC_SCHEMA,
            run: RunId::new("test"),
            attempt: AttemptId::new(format!("test-a{}", self.attempts)),
            fence: Fence(self.attempts),
            rank: 0,
            world_size: 1,
            meeting: None,
            job_hash: "job".into(),
            train: self.train.clone(),
            data: self.data.display().to_string(),
            threads: self.threads,
            accept_data_change: self.accept_data_change,
            checkpoints: self.path("checkpoints").display().to_string(),
            export: self.path("export").display().to_string(),
            tokens: String::new(),
            socket: socket.display().to_string(),
        };
        let lag = self.lag;
        let listener = UnixListener::bind(&socket).unwrap();
        std::thread::scope(|scope| {
            let agent = scope.spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut reports = Vec::new();
                for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                    let report: Report = serde_json::from_str(&line.unwrap()).unwrap();
                    if let Some(order) = order(&report) {
                        let mut line = serde_json::to_string(&order).unwrap();
                        line.push('\n');
                        stream.write_all(line.as_bytes()).unwrap();
                    }
                    reports.push(report);
                }
                reports
            });
            let channel = Arc::new(Channel::connect(&spec.socket).unwrap());
            let (shared, spec) = (Arc::clone(&channel), &spec);
            let options = RunOptions { omitted, lag, ..RunOptions::on(Device::Cpu) };
            // In a thread of its own, as in a process: one that has panicked may not record gradients any more.
            let rank = scope.spawn(move || run(spec, options, &shared).map_err(|error| error.finding()));
            let ending = rank.join();
            // The agent's end waits for this, also where the rank has panicked.
            Arc::into_inner(channel).expect("the rank has ended").finish();
            let ending = ending.unwrap_or_else(|panic| resume_unwind(panic));
            Outcome { reports: agent.join().unwrap(), ending }
        })
    }

    pub fn finish(&mut self) -> Outcome {
        self.attempt(OmittedState::default(), |_| None)
    }

    /// Stops once step `step` was reported, wherever the rank is by then.
    pub fn stop_after(&mut self, step: u64) -> Outcome {
        self.attempt(OmittedState::default(), |report| {
            matches!(report, Report::Step(done) if done.step == step).then_some(RankCommand::Stop { within_us: None })
        })
    }

    /// Removes everything that was saved after step `last`, as if the rank had been killed before it was durable.
    pub fn lose_after(&self, last: u64) {
        for entry in fs::read_dir(self.path("checkpoints")).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().to_string_lossy().into_owned();
            let step = name.strip_prefix("manifest-").and_then(|rest| rest.strip_suffix(".json"));
            if step.is_some_and(|step| step.parse::<u64>().unwrap() > last) {
                fs::remove_file(entry.path()).unwrap();
            }
        }
    }
}

impl Outcome {
    pub fn exported(&self) -> &Exported {
        for report in &self.reports {
            if let Report::Exported(exported) = report {
                return exported;
            }
        }
        panic!("{:?} {:?}", self.ending, self.reports.last())
    }

    pub fn steps(&self) -> Vec<u64> {
        let step = |report: &Report| if let Report::Step(step) = report { Some(step.step) } else { None };
        self.reports.iter().filter_map(step).collect()
    }

    pub fn losses(&self) -> Vec<f64> {
        let loss = |report: &Report| if let Report::Step(step) = report { Some(step.loss) } else { None };
        self.reports.iter().filter_map(loss).collect()
    }

    pub fn resumed_from(&self) -> u64 {
        let ready = |report: &Report| if let Report::Ready(ready) = report { Some(ready.step) } else { None };
        self.reports.iter().find_map(ready).unwrap_or_else(|| panic!("{:?}", self.ending))
    }

    pub fn finding(&self, cause: Cause) -> &Finding {
        let finding = self.ending.as_ref().expect_err("it must not go on");
        assert_eq!(finding.cause, cause, "{finding:?}");
        assert!(!finding.message.contains('\n') && finding.hint.is_some(), "{finding:?}");
        finding
    }
}
