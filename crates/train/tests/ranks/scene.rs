//! One run in a folder, tried again and again with different numbers of ranks. Each rank is a `gradus-rank` with the
//! variables that torchrun sets; its reports are the lines on its stdout.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use domain::finding::Finding;
use domain::id::{AttemptId, Fence, RunId};
use domain::rank::{Evaluated, Exported, Rendezvous, Report, SPEC_SCHEMA, Spec};
use domain::threads::Threads;
use domain::train::Train;
use serde_json::{Value, json};

/// Long enough for any machine; only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(120);

/// An unused port, outside the ephemeral range.
pub fn port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let place = (process::id() % 400) * 25 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = (20_000 + place % 10_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

pub struct Scene {
    folder: tempfile::TempDir,
    train: Value,
    pub data: PathBuf,
    attempts: u64,
    pub accept_data_change: bool,
    /// Kills a rank when it reaches a point for the nth time, from 1.
    pub kill: Option<(u32, &'static str, usize)>,
}

/// Ranks that run.
pub struct Ranks {
    processes: Vec<Child>,
    /// The output of rank 0.
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    reports: Vec<Report>,
    logs: Vec<PathBuf>,
}

/// What came of one attempt.
pub struct Outcome {
    pub reports: Vec<Report>,
    /// The last reports of the ranks after rank 0.
    pub others: Vec<Option<Report>>,
    /// All weights of the exported model, if there is one.
    pub weights: Vec<f64>,
}

impl Scene {
    /// A small job on the digits; `changes` are keys of the `train:` section.
    pub fn new(changes: Value) -> Scene {
        let mut train = json!({
            "model": "mlp", "data": {"path": "digits.csv.gz"}, "epochs": 2, "batch": 157, "seed": 1,
            "optimizer": {"sgd": {"lr": 0.05}}, "checkpoint": {"every": "5 steps", "keep": 100},
        });
        for (key, value) in changes.as_object().unwrap() {
            train[key] = value.clone();
        }
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits.csv.gz");
        Scene { folder: tempfile::tempdir().unwrap(), train, data, attempts: 0, accept_data_change: false, kill: None }
    }

    /// A small job on a few lines of text: a model that predicts the next token, or one that classifies into three
    /// classes.
    pub fn of_texts(changes: Value) -> Scene {
        let mut train = json!({
            "model": "gpt_tiny", "data": {"path": "texts.csv", "text": {"length": 16, "vocabulary": 300}},
            "epochs": 1, "batch": 22, "dropout": 0.0,
        });
        for (key, value) in changes.as_object().unwrap() {
            train[key] = value.clone();
        }
        if train["model"] == "bert_mini" && changes.get("data").is_none() {
            train["data"]["text"]["label"] = json!("class");
        }
        let mut scene = Scene::new(train);
        scene.data = scene.path("texts.csv");
        fs::write(&scene.data, texts()).unwrap();
        scene
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts `started` of `ranks` ranks.
    pub fn start(&mut self, ranks: u32, started: u32, patience_s: u64) -> Ranks {
        self.attempts += 1;
        let port = port();
        let train: Train = serde_json::from_value(self.train.clone()).unwrap();
        let mut processes = Vec::new();
        let mut logs = Vec::new();
        for rank in 0..started {
            let meeting = Rendezvous {
                host: String::new(),
                port: 0,
                local_rank: 0,
                is_kept: false,
                patience_s,
                prefix: String::new(),
            };
            let spec = Spec {
                schema: SPEC_SCHEMA,
                run: RunId::new("test"),
                attempt: AttemptId::new(format!("test-a{}", self.attempts)),
                fence: Fence(self.attempts),
                rank: 0,
                world_size: 1,
                meeting: Some(meeting),
                job_hash: "job".into(),
                train: train.clone(),
                data: self.data.display().to_string(),
                threads: 1,
                accept_data_change: self.accept_data_change,
                checkpoints: self.path("checkpoints").display().to_string(),
                export: self.path("export").display().to_string(),
                tokens: String::new(),
                socket: String::new(),
            };
            let path = self.path(&format!("rank-{rank}.json"));
            fs::write(&path, serde_json::to_vec(&spec).unwrap()).unwrap();
            let (out, log) = (self.path(&format!("rank-{rank}.out")), self.path(&format!("rank-{rank}.log")));
            let mut command = Command::new(env!("CARGO_BIN_EXE_gradus-rank"));
            command.arg(&path).envs(Threads { per_rank: 1, ranks, cores: 1 }.environment());
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", ranks.to_string());
            command.env("LOCAL_RANK", rank.to_string());
            command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
            if let Some((_, point, nth)) = self.kill.filter(|(killed, _, _)| *killed == rank) {
                let socket = self.path(&format!("chaos-{}", self.attempts));
                kill_at(&socket, point, nth);
                command.env(chaos::VARIABLE, socket);
            }
            command.stderr(File::create(&log).unwrap());
            command.stdout(if rank == 0 { Stdio::piped() } else { Stdio::from(File::create(&out).unwrap()) });
            processes.push(command.spawn().unwrap());
            logs.push(out);
        }
        let lines = BufReader::new(processes[0].stdout.take().unwrap()).lines();
        Ranks { processes, lines, reports: Vec::new(), logs }
    }

    /// One attempt from start to end.
    pub fn finish(&mut self, ranks: u32) -> Outcome {
        self.start(ranks, ranks, PATIENCE.as_secs()).end()
    }

    /// Ends once step `step` was reported, as if ordered to.
    pub fn stop_after(&mut self, ranks: u32, step: u64) -> Outcome {
        let mut running = self.start(ranks, ranks, PATIENCE.as_secs());
        running.until_step(step);
        running.signal(0, "TERM");
        running.end()
    }

    /// Removes everything that was saved after step `last`, as if the ranks had been killed before it was durable.
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

    /// A copy of the checkpoints, to be resumed elsewhere.
    pub fn fork(&self) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("checkpoints");
        let copied = Command::new("cp").arg("-r").arg(self.path("checkpoints")).arg(&to).status().unwrap();
        assert!(copied.success());
        Scene {
            folder,
            train: self.train.clone(),
            data: self.data.clone(),
            attempts: self.attempts,
            accept_data_change: self.accept_data_change,
            kill: None,
        }
    }

    /// The same checkpoints under another job.
    pub fn with(mut self, key: &str, value: Value) -> Scene {
        self.train[key] = value;
        self
    }
}

/// Kills the process that reaches `point` for the nth time, of those that report to this socket.
fn kill_at(socket: &Path, point: &'static str, nth: usize) {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        let mut left = nth;
        for mut stream in listener.incoming().flatten() {
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            let words: Vec<&str> = line.split_whitespace().collect();
            left -= usize::from(words[2] == point);
            if left == 0 {
                Command::new("kill").args(["-KILL", words[1]]).status().unwrap();
                return;
            }
            let _ = stream.write_all(b".");
        }
    });
}

impl Ranks {
    /// Reads on until rank 0 has reported this step.
    pub fn until_step(&mut self, step: u64) {
        for line in self.lines.by_ref() {
            let report: Report = serde_json::from_str(&line.unwrap()).unwrap();
            let is_it = matches!(&report, Report::Step(done) if done.step >= step);
            self.reports.push(report);
            if is_it {
                return;
            }
        }
        panic!("rank 0 ended before step {step}: {:?}", self.reports.last());
    }

    pub fn signal(&self, rank: usize, signal: &str) {
        let pid = self.processes[rank].id().to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success());
    }

    /// Waits for the end of all.
    pub fn end(mut self) -> Outcome {
        for line in self.lines.by_ref() {
            self.reports.push(serde_json::from_str(&line.unwrap()).unwrap());
        }
        let deadline = Instant::now() + PATIENCE;
        for process in &mut self.processes {
            while process.try_wait().unwrap().is_none() {
                assert!(Instant::now() < deadline, "a rank does not end");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let last = |path: &PathBuf| {
            let text = fs::read_to_string(path).unwrap();
            text.lines().last().map(|line| serde_json::from_str(line).unwrap())
        };
        let others = self.logs[1..].iter().map(last).collect();
        let reports = std::mem::take(&mut self.reports);
        let model = reports.iter().find_map(|report| match report {
            Report::Exported(exported) => Some(weights(Path::new(&exported.model))),
            _ => None,
        });
        Outcome { reports, others, weights: model.unwrap_or_default() }
    }
}

/// A failing test leaves no processes behind.
impl Drop for Ranks {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Outcome {
    pub fn exported(&self) -> &Exported {
        let exported = |report: &'_ Report| matches!(report, Report::Exported(_));
        let Some(Report::Exported(exported)) = self.reports.iter().find(|report| exported(report)) else {
            panic!("{:?} {:?}", self.reports.last(), self.others)
        };
        exported
    }

    pub fn losses(&self) -> Vec<f64> {
        let loss = |report: &Report| if let Report::Step(step) = report { Some(step.loss) } else { None };
        self.reports.iter().filter_map(loss).collect()
    }

    pub fn evaluated(&self) -> Vec<Evaluated> {
        let found = |report: &Report| if let Report::Evaluated(found) = report { Some(*found) } else { None };
        self.reports.iter().filter_map(found).collect()
    }

    pub fn resumed_from(&self) -> u64 {
        let ready = |report: &Report| if let Report::Ready(ready) = report { Some(ready.step) } else { None };
        self.reports.iter().find_map(ready).unwrap_or_else(|| panic!("{:?}", self.reports.last()))
    }

    pub fn finding(&self) -> &Finding {
        let Some(Report::Failed(finding)) = self.reports.last() else { panic!("{:?}", self.reports.last()) };
        finding
    }
}

/// Texts of three topics with distinct words, and a few common ones; of different lengths.
fn texts() -> String {
    let subjects = [["goal", "match", "team"], ["bank", "share", "price"], ["chip", "code", "phone"]];
    let line = |number: usize| {
        let word = |step: usize| subjects[number % 3][(number / 3 * 7 + step * step + number / 11) % 3];
        let end = ["today", "and then it was over", "with a new one"][number / 5 % 3];
        format!("{},the {} and the {} of a {} {end}\n", number % 3, word(0), word(1), word(2))
    };
    format!("class,text\n{}", (0..150).map(line).collect::<String>())
}

fn weights(model: &Path) -> Vec<f64> {
    let tensors = checkpoint::read_tensors(model).unwrap();
    let floats = tensors.iter().filter(|tensor| tensor.dtype == checkpoint::Dtype::F32);
    let values = floats.flat_map(|tensor| tensor.bytes.chunks_exact(4));
    values.map(|four| f64::from(f32::from_le_bytes(four.try_into().unwrap()))).collect()
}

/// The largest difference between two curves, relative to their values.
pub fn apart(left: &[f64], right: &[f64]) -> f64 {
    assert_eq!(left.len(), right.len());
    assert!(!left.is_empty());
    left.iter().zip(right).map(|(a, b)| (a - b).abs() / b.abs().max(1.0)).fold(0.0, f64::max)
}
