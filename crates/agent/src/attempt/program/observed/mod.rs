//! What can be seen of a program that does not use the package `gradus`: lines of its output that match a pattern of the
//! job, TensorBoard files, `trainer_state.json`, and checkpoints that its framework writes.
//!
//! One thread looks every half a second, sooner where more was printed than one read takes but with at most a quarter of
//! a core, and when the program has ended until all of its output is read. It sends what it finds to the agent's own
//! thread, which never waits for it, and reads on once that has handled it: neither memory nor the agent's answers depend
//! on how much is printed. [`Steps`] makes of what it finds the reports that a program with the package would have sent.
//! Nothing of the program is changed, and a file that cannot be read is left alone. Read next: `lines`, `scalars`,
//! `trainer_state` (where numbers come from), `steps` (reports).

mod found;
mod lines;
mod scalars;
mod steps;
mod trainer_state;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

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

/// While the program runs, so many times as long as a look has taken pass before the next one, which leaves three quarters of
/// a core to the program.
const REST_FACTOR: u32 = 3;

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

/// The thread that looks at a program; it ends with this, or once it has sent [`AttemptEvent::ObservedAll`].
#[derive(Debug)]
pub struct Observer {
    /// Takes how long the rest of the output may be read, once the program has ended.
    finish: Sender<Duration>,
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
        let (finish, finished) = channel();
        let attempt = attempt.clone();
        let mut look = Look::new(progress, places, before);
        std::thread::spawn(move || {
            watch(&mut look, &finished, &|event| events.send(Wakeup::Attempt(attempt.clone(), event)).is_ok());
        });
        Observer { finish }
    }

    /// The program has ended: reads the rest of its output, as far as it can be read `within` this time, and its newest
    /// lines in any case. [`AttemptEvent::ObservedAll`] follows what was found.
    pub fn finish(&self, within: Duration) {
        // A thread that is gone has sent that.
        let _ = self.finish.send(within);
    }
}

/// Looks at a program until it has ended and its rest is read.
fn watch(look: &mut Look, finished: &Receiver<Duration>, send: &impl Fn(AttemptEvent) -> bool) {
    let _end = EndSender(send);
    if let Some(within) = run(look, finished, send) {
        read_rest(look, within, send);
    }
}

/// Sends [`AttemptEvent::ObservedAll`] when it is dropped: also where the thread panics, as the attempt waits for it.
struct EndSender<'a, S: Fn(AttemptEvent) -> bool>(&'a S);

impl<S: Fn(AttemptEvent) -> bool> Drop for EndSender<'_, S> {
    fn drop(&mut self) {
        (self.0)(AttemptEvent::ObservedAll);
    }
}

/// Looks until the program has ended; for how long its rest may be read, or `None` if its attempt is over.
fn run(look: &mut Look, finished: &Receiver<Duration>, send: &impl Fn(AttemptEvent) -> bool) -> Option<Duration> {
    let (mut files_at, mut pause) = (Instant::now(), LOOK);
    loop {
        match finished.recv_timeout(pause) {
            Ok(within) => return Some(within),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let (at_files, before) = (Instant::now() >= files_at, clock(ClockId::ThreadCPUTime));
        let reports = look.look(at_files);
        let took = clock(ClockId::ThreadCPUTime).saturating_sub(before);
        if at_files {
            files_at = Instant::now() + LOOK * looks_between(took);
        }
        let passed_on = Instant::now();
        if !pass_on(reports, send) {
            return None;
        }
        // Meanwhile the agent's own thread has worked for this one.
        pause = pause_after(took + passed_on.elapsed(), look.is_behind());
    }
}

/// How long to wait after a look that took so much time, if there may be more output than it has read or not.
fn pause_after(took: Duration, is_behind: bool) -> Duration {
    let rest = took.saturating_mul(REST_FACTOR).min(LOOK * FILES_AT_MOST);
    if is_behind { rest } else { rest.max(LOOK) }
}

/// Reads what a program that has ended has left, and looks at its files once more.
fn read_rest(look: &mut Look, within: Duration, send: &impl Fn(AttemptEvent) -> bool) {
    let began = Instant::now();
    while began.elapsed() < within {
        if !pass_on(look.look(false), send) {
            return;
        }
        if !look.is_behind() {
            break;
        }
    }
    let mut reports = look.look_at_newest();
    reports.extend(look.unread(true));
    pass_on(reports, send);
}

/// Sends reports and waits until they are handled, so that those of one look at most are in memory; whether they were taken.
fn pass_on(reports: Vec<Report>, send: &impl Fn(AttemptEvent) -> bool) -> bool {
    if reports.is_empty() {
        return true;
    }
    let (handled, reached) = channel();
    let mut events = reports.into_iter().map(|report| AttemptEvent::Observed(Box::new(report)));
    if !events.all(send) || !send(AttemptEvent::Reached(handled)) {
        return false;
    }
    // Nothing is ever sent: it ends when the other end is dropped.
    let _ = reached.recv();
    true
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
    /// Bytes of the output that a note has reported as not read.
    noted: u64,
}

impl Look {
    fn new(progress: &Progress, places: WatchedPlaces, before: PriorState) -> Look {
        // A pattern that cannot be used was refused with the job.
        let pattern = progress.pattern().ok().flatten();
        let lines = pattern.map(|pattern| Lines::from(&places.log.0, places.log.1, pattern));
        let seen = frameworks::find(&places.checkpoints).into_iter().map(|found| found.path).collect();
        let (reads_files, steps, scalars) = (progress.files, Steps::after(before), BTreeMap::new());
        Look { places, lines, reads_files, steps, scalars, seen, noted: 0 }
    }

    /// Whether there may be more output than the last look has read.
    fn is_behind(&self) -> bool {
        self.lines.as_ref().is_some_and(Lines::is_behind)
    }

    /// What is new in the newest output and in files; of the output before it, nothing more is read.
    fn look_at_newest(&mut self) -> Vec<Report> {
        if let Some(lines) = &mut self.lines {
            lines.skip_to_newest();
        }
        self.look(true)
    }

    /// How much of the output was not read: reported once while the program runs, and again at its end if it is more by then.
    fn unread(&mut self, is_over: bool) -> Option<Report> {
        let skipped = self.lines.as_ref().map_or(0, Lines::skipped);
        let is_new = skipped > self.noted && (is_over || self.noted == 0);
        is_new.then(|| {
            self.noted = skipped;
            let text = format!(
                "the program prints faster than its output can be searched for `progress.regex`: {skipped} bytes were \
                 not read, and metrics in them are missing; print fewer lines, or report with the package `gradus`"
            );
            Report::Note { text }
        })
    }

    /// What is new.
    fn look(&mut self, at_files: bool) -> Vec<Report> {
        let mut reports = Vec::new();
        if let Some(lines) = &mut self.lines {
            for seen in lines.read() {
                reports.extend(self.steps.take(Source::Output, seen));
            }
        }
        reports.extend(self.unread(false));
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
    fn a_program_that_prints_fast_keeps_three_quarters_of_a_core() {
        let millis = |took, is_behind| pause_after(Duration::from_millis(took), is_behind).as_millis();
        assert_eq!([0, 1, 20, 400].map(|took| millis(took, true)), [0, 3, 60, 1_200]);
        assert_eq!([0, 1, 20, 400].map(|took| millis(took, false)), [500, 500, 500, 1_200]);
        assert_eq!(millis(u64::MAX, true), 30_000, "a step is seen within half a minute");
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

    /// A look at a program that has printed `text` before anything was read.
    fn printed(folder: &tempfile::TempDir, text: &str) -> Look {
        let place = |name: &str| folder.path().join(name);
        fs::create_dir_all(place("work")).unwrap();
        fs::write(place("log"), "").unwrap();
        let places = WatchedPlaces::before_start(&place("log"), place("work"), place("kept"));
        fs::write(place("log"), text).unwrap();
        let progress = Progress { regex: Some(r"step (?<step>\d+) loss (?<loss>\S+)".into()), files: false };
        Look::new(&progress, places, PriorState::Nothing)
    }

    /// What is reported of a program that prints `text` and ends before anything is read, if its rest may be read `within`
    /// a time.
    fn ended(text: &str, within: Duration) -> Vec<Report> {
        let folder = tempfile::tempdir().unwrap();
        let mut look = printed(&folder, text);
        let (events, inbox) = channel();
        let (finish, finished) = channel();
        finish.send(within).unwrap();
        let thread = std::thread::spawn(move || watch(&mut look, &finished, &|event| events.send(event).is_ok()));
        let mut reports = Vec::new();
        // As the agent handles them: one after the other, what was reached is dropped.
        while let Ok(event) = inbox.recv() {
            match event {
                AttemptEvent::Observed(report) => reports.push(*report),
                AttemptEvent::Reached(handled) => drop(handled),
                AttemptEvent::ObservedAll => {
                    thread.join().unwrap();
                    return reports;
                }
                other => panic!("{other:?}"),
            }
        }
        panic!("the end was not sent: {} reports", reports.len());
    }

    /// Lines without a step, of so many mebibytes, between two with one.
    fn far_behind(mebibytes: usize) -> String {
        let quiet = format!("{}\n", "x".repeat(1023)).repeat(mebibytes << 10);
        format!("step 1 loss 0.5\n{quiet}step 2 loss nan\n")
    }

    #[test]
    fn the_rest_of_what_a_program_has_printed_is_read_to_its_end() {
        let reports = ended(&far_behind(5), Duration::MAX);
        assert_eq!(numbers(&reports[..2]), ["ready 0", "step 1 loss 0.5 lr 0 epoch 0"]);
        assert!(matches!(&reports[2], Report::Note { text } if text.contains("step 2 is not finite")), "{reports:?}");
        assert!(
            matches!(&reports[3..], [Report::Metrics(last)] if last.step == 2 && last.loss.is_some()),
            "{reports:?}"
        );
    }

    #[test]
    fn the_end_is_sent_although_the_thread_panics() {
        let folder = tempfile::tempdir().unwrap();
        let mut look = printed(&folder, "step 1 loss 0.5\n");
        let (events, inbox) = channel();
        let (finish, finished) = channel();
        finish.send(Duration::MAX).unwrap();
        let thread = std::thread::spawn(move || {
            watch(&mut look, &finished, &|event| {
                assert!(!matches!(event, AttemptEvent::Observed(_)), "stands for any mistake");
                events.send(event).is_ok()
            });
        });
        assert!(thread.join().is_err());
        assert!(matches!(inbox.recv(), Ok(AttemptEvent::ObservedAll)));
    }

    #[test]
    fn what_cannot_be_read_in_time_is_noted_and_the_newest_is_read() {
        let text = far_behind(3);
        let reports = ended(&text, Duration::ZERO);
        let unread = text.len() - (1 << 20);
        let has_last =
            |report: &Report| matches!(report, Report::Metrics(last) if last.step == 2 && last.loss.is_some());
        assert!(reports.iter().any(has_last), "{reports:?}");
        let says = |report: &&Report| matches!(report, Report::Note { text } if text.contains("were not read"));
        let notes: Vec<&Report> = reports.iter().filter(says).collect();
        assert!(
            matches!(&notes[..], [Report::Note { text }] if text.contains(&format!(" {unread} bytes were not"))),
            "{notes:?}"
        );
    }

    #[test]
    fn a_look_that_is_behind_says_so_and_the_next_continues() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::write(place("log"), "").unwrap();
        let places = WatchedPlaces::before_start(&place("log"), place("work"), place("kept"));
        let progress = Progress { regex: Some(r"step (?<step>\d+) loss (?<loss>\S+)".into()), files: false };
        let mut look = Look::new(&progress, places, PriorState::Nothing);
        fs::write(place("log"), far_behind(1).replace("nan", "0.25")).unwrap();
        assert_eq!(numbers(&look.look(false)), ["ready 0", "step 1 loss 0.5 lr 0 epoch 0"]);
        assert!(look.is_behind());
        assert_eq!(numbers(&look.look(false)), ["step 2 loss 0.25 lr 0 epoch 0"]);
        assert!(!look.is_behind());
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
