//! What can be seen of a program that does not use the package `gradus`: lines of its output that match a pattern of the
//! job, TensorBoard files, `trainer_state.json`, and checkpoints that its framework writes.
//!
//! One thread looks every half a second, and once more when the program has ended. [`Steps`] makes of what it finds the
//! reports that a program with the package would have sent. Nothing of the program is changed, and a file that cannot be
//! read is left alone. Read next: `lines`, `scalars`, `trainer_state` (where numbers come from), `steps` (reports).

mod found;
mod lines;
mod scalars;
mod steps;
mod trainer_state;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use checkpoint::frameworks;
use domain::AttemptId;
use domain::progress::Progress;
use domain::rank::{Checkpointed, Report};
use rustix::time::{ClockId, clock_gettime};

use crate::event::{AttemptEvent, Wakeup};
use lines::Lines;
use scalars::ScalarFile;
pub use steps::PriorState;
use steps::{Source, Steps};

/// Between two looks at the output.
const LOOK: Duration = Duration::from_millis(500);

/// Files are looked for at every so many looks, where that costs little.
const FILES: u32 = 4;

/// At every so many, however large the folders are: 30 s.
const FILES_AT_MOST: u32 = 60;

/// The next look at files comes after this many times the CPU time of the last one, which makes 0.25 % of a core.
const CPU_TIME_FACTOR: u32 = 400;

/// Where a program is looked at, and from when on: what was there before it started is not its own.
#[derive(Debug, Clone)]
pub struct WatchedPlaces {
    /// Its output, and how long that is already.
    log: (PathBuf, u64),
    workdir: PathBuf,
    checkpoints: PathBuf,
    started: SystemTime,
}

impl WatchedPlaces {
    /// The output, the working folder and the folder that survives attempts of a program that is about to start.
    pub fn before_start(log: &Path, workdir: PathBuf, checkpoints: PathBuf) -> WatchedPlaces {
        let length = log.metadata().map_or(0, |about| about.len());
        WatchedPlaces { log: (log.to_owned(), length), workdir, checkpoints, started: file_time() }
    }
}

/// The time that a file written now would have: that of the kernel's last tick, which lies up to 10 ms before
/// [`SystemTime::now`].
fn file_time() -> SystemTime {
    SystemTime::UNIX_EPOCH + clock(ClockId::RealtimeCoarse)
}

fn clock(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The thread that looks at a program; it ends with this.
#[derive(Debug)]
pub struct Observer {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Vec<Report>>>,
}

impl Observer {
    /// Starts to look.
    pub fn start(
        progress: &Progress,
        places: WatchedPlaces,
        before: PriorState,
        attempt: &AttemptId,
        events: Sender<Wakeup>,
    ) -> Observer {
        let (stop, stopped) = channel();
        let attempt = attempt.clone();
        let mut look = Look::new(progress, places, before);
        let thread = std::thread::spawn(move || {
            let send = |report| {
                events.send(Wakeup::Attempt(attempt.clone(), AttemptEvent::Observed(Box::new(report)))).is_ok()
            };
            run(&mut look, &stopped, send)
        });
        Observer { stop: Some(stop), thread: Some(thread) }
    }

    /// Looks once more, and gives what was found then.
    pub fn finish(mut self) -> Vec<Report> {
        drop(self.stop.take());
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

fn run(look: &mut Look, stopped: &Receiver<()>, send: impl Fn(Report) -> bool) -> Vec<Report> {
    let mut until_files = 0;
    while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(LOOK) {
        let (at_files, before) = (until_files == 0, clock(ClockId::ThreadCPUTime));
        let reports = look.look(at_files);
        if at_files {
            until_files = looks_between(clock(ClockId::ThreadCPUTime).saturating_sub(before));
        }
        until_files -= 1;
        if !reports.into_iter().all(&send) {
            break;
        }
    }
    look.look(true)
}

/// At which look after one at files, which took so much processor time, they are looked at again.
fn looks_between(took: Duration) -> u32 {
    let looks = took.saturating_mul(CPU_TIME_FACTOR).as_micros().div_ceil(LOOK.as_micros());
    u32::try_from(looks).unwrap_or(u32::MAX).clamp(FILES, FILES_AT_MOST)
}

/// What was seen so far.
struct Look {
    places: WatchedPlaces,
    lines: Option<Lines>,
    reads_files: bool,
    steps: Steps,
    scalars: BTreeMap<PathBuf, ScalarFile>,
    /// Checkpoints that were reported, or were there before.
    seen: BTreeSet<PathBuf>,
}

impl Look {
    fn new(progress: &Progress, places: WatchedPlaces, before: PriorState) -> Look {
        // A pattern that cannot be used was refused with the job.
        let pattern = progress.pattern().ok().flatten();
        let lines = pattern.map(|pattern| Lines::from(&places.log.0, places.log.1, pattern));
        let seen = frameworks::find(&places.checkpoints).into_iter().map(|found| found.path).collect();
        let (reads_files, steps, scalars) = (progress.files, Steps::after(before), BTreeMap::new());
        Look { places, lines, reads_files, steps, scalars, seen }
    }

    /// What is new.
    fn look(&mut self, at_files: bool) -> Vec<Report> {
        let mut reports = Vec::new();
        if let Some(lines) = &mut self.lines {
            for seen in lines.read() {
                reports.extend(self.steps.take(Source::Output, seen));
            }
        }
        if self.reads_files && at_files {
            self.look_at_files(&mut reports);
        }
        reports
    }

    fn look_at_files(&mut self, reports: &mut Vec<Report>) {
        let files = found::files(&[&self.places.workdir, &self.places.checkpoints], self.places.started);
        for path in files.scalars {
            let file = self.scalars.entry(path.clone()).or_default();
            for seen in file.read(&path) {
                reports.extend(self.steps.take(Source::Scalars, seen));
            }
        }
        for path in files.states {
            let seen = trainer_state::read(&path, self.steps.last(trainer_state::seconds(self.places.started)));
            // The history begins with that of the checkpoint which the program was given.
            let from =
                self.steps.resumed_from().filter(|from| frameworks::step_of(&path).is_none_or(|step| step > *from));
            for seen in seen.into_iter().filter(|seen| from.is_none_or(|from| seen.step > from)) {
                reports.extend(self.steps.take(Source::TrainerState, seen));
            }
        }
        for checkpoint in frameworks::find(&self.places.checkpoints) {
            if !self.seen.contains(&checkpoint.path) && checkpoint.verify().is_ok() {
                let (step, bytes) = (checkpoint.step, checkpoint.bytes());
                self.seen.insert(checkpoint.path);
                reports.push(Report::Checkpointed(Checkpointed { step, bytes, stall_us: 0, commit_us: 0 }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn numbers(reports: &[Report]) -> Vec<String> {
        let text = |report: &Report| match report {
            Report::Ready(ready) => format!("ready {}", ready.step),
            Report::Step(step) => format!("step {} loss {} lr {} epoch {}", step.step, step.loss, step.lr, step.epoch),
            Report::Metrics(metrics) => format!("metrics {} {:?}", metrics.step, metrics.values),
            Report::Checkpointed(saved) => format!("saved {} ({} bytes)", saved.step, saved.bytes),
            other => format!("{other:?}"),
        };
        reports.iter().map(text).collect()
    }

    #[test]
    fn a_file_written_after_the_start_is_never_older_than_it() {
        let folder = tempfile::tempdir().unwrap();
        for turn in 0..200 {
            let started = file_time();
            let path = folder.path().join(turn.to_string());
            fs::write(&path, "").unwrap();
            let written = path.metadata().unwrap().modified().unwrap();
            assert!(written >= started, "{turn}: {written:?} is before {started:?}");
            std::thread::sleep(Duration::from_micros(137));
        }
    }

    #[test]
    fn large_folders_are_looked_at_less_often() {
        let seconds = |millis: u64| (LOOK * looks_between(Duration::from_millis(millis))).as_secs_f64();
        assert_eq!([0, 1, 5, 6, 10, 20].map(seconds), [2.0, 2.0, 2.0, 2.5, 4.0, 8.0]);
        assert_eq!([75, 1_000, u64::MAX].map(seconds), [30.0; 3], "a step is seen within half a minute");
    }

    #[test]
    fn output_and_files_become_reports_and_each_step_comes_once() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::create_dir_all(place("work")).unwrap();
        fs::write(place("log"), "step 1 loss 9.0\n").unwrap();
        let places = WatchedPlaces::before_start(&place("log"), place("work"), place("kept"));
        let progress = Progress { regex: Some(r"step (?<step>\d+) loss (?<loss>\S+)".into()), files: true };
        let mut look = Look::new(&progress, places.clone(), PriorState::Nothing);
        assert_eq!(numbers(&look.look(true)), [""; 0], "what was there before is of another attempt");
        fs::write(place("log"), "step 1 loss 9.0\nstep 4 loss 0.5\nstep 5 lo").unwrap();
        assert_eq!(numbers(&look.look(true)), ["ready 0", "step 4 loss 0.5 lr 0 epoch 0"]);
        let state = places.checkpoints.join("out/checkpoint-6");
        fs::create_dir_all(&state).unwrap();
        let history = r#"{"global_step": 6, "max_steps": 9, "log_history": [
            {"step": 4, "loss": 0.7, "learning_rate": 0.1, "epoch": 1.5},
            {"step": 6, "loss": 0.4, "learning_rate": 0.2, "epoch": 2.5}, {"step": 6, "eval_loss": 0.3, "epoch": 2.5}]}"#;
        fs::write(state.join("trainer_state.json"), history).unwrap();
        let expected = ["step 6 loss 0.4 lr 0.2 epoch 2", r#"metrics 6 {"eval_loss": 0.3}"#];
        assert_eq!(numbers(&look.look(true)), expected);
        assert_eq!(numbers(&look.look(true)), [""; 0]);
    }

    #[test]
    fn the_history_before_a_checkpoint_is_not_reported_again() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::write(place("log"), "").unwrap();
        let places = WatchedPlaces::before_start(&place("log"), place("work"), place("kept"));
        let progress = Progress { regex: None, files: true };
        let written = |step: u64, last: u64| {
            let state = places.checkpoints.join(format!("out/checkpoint-{step}"));
            fs::create_dir_all(&state).unwrap();
            let each = (10..=last).step_by(10);
            let each =
                each.map(|step| format!(r#"{{"step": {step}, "loss": 0.5}}, {{"step": {step}, "eval_loss": 0.3}}"#));
            let history = each.collect::<Vec<_>>().join(", ");
            let text = format!(r#"{{"global_step": {step}, "max_steps": 90, "log_history": [{history}]}}"#);
            fs::write(state.join("trainer_state.json"), text).unwrap();
        };
        let mut look = Look::new(&progress, places.clone(), PriorState::Checkpoint(20));
        written(25, 20);
        assert_eq!(numbers(&look.look(true)), [""; 0], "nothing was logged since");
        written(30, 30);
        let expected = ["ready 20", "step 30 loss 0.5 lr 0 epoch 0", r#"metrics 30 {"eval_loss": 0.3}"#];
        assert_eq!(numbers(&look.look(true)), expected);
        // A program that begins again shows its own steps.
        let mut look = Look::new(&progress, places.clone(), PriorState::Checkpoint(40));
        assert_eq!(numbers(&look.look(true))[..2], ["ready 9", "step 10 loss 0.5 lr 0 epoch 0"]);
    }
}
