//! When the state is saved, how long that stalls the training thread, and what happens where a save runs out of disk space.
//!
//! A full disk does not end training while an earlier checkpoint stays: the save is a note, and the next one is tried as
//! usual. Only the last save of a run must succeed, and is tried again for a while.

use std::time::{Duration, Instant};

use checkpoint::interval::{CheckpointCosts, Pace};
use checkpoint::{CheckpointWriter, PartFolders};
use domain::rank::{Checkpointed, Pause, Report, Spec};

use crate::channel::Channel;
use crate::error::Error;
use crate::ranks::Ranks;
use crate::state::Trainer;

/// Weight of the newest step in the mean time of a step.
const NEWEST: f64 = 0.1;

/// The last save of a run is retried for so long after its first failure while the disk is full.
const RETRIED_FOR: Duration = Duration::from_secs(30);

/// The pause before each retry.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The writer, its rhythm, and the clock of both.
pub struct Checkpointer<'a> {
    /// None on a rank that does not save.
    writer: Option<CheckpointWriter>,
    pace: Pace,
    channel: &'a Channel,
    saved: Option<u64>,
    saved_at: Instant,
    step_seconds: Option<f64>,
    stalled: Duration,
    /// Whether some checkpoint of this run is durable.
    is_durable: bool,
    /// Whether the newest save ran out of disk space.
    is_short: bool,
}

impl<'a> Checkpointer<'a> {
    /// Starts at `step`: the state that was resumed, or a later one where steps were left out, or 0. `saved` is the step of
    /// the checkpoint, on every rank.
    pub fn new(
        writer: Option<CheckpointWriter>,
        spec: &Spec,
        step: u64,
        saved: Option<u64>,
        channel: &'a Channel,
    ) -> Checkpointer<'a> {
        let checkpoint = spec.train.checkpoint;
        Checkpointer {
            writer,
            pace: Pace::new(checkpoint.every, checkpoint.mtbf.unwrap_or(domain::train::Checkpoint::USUAL_MTBF), step),
            channel,
            saved,
            saved_at: Instant::now(),
            step_seconds: None,
            stalled: Duration::ZERO,
            is_durable: saved.is_some(),
            is_short: false,
        }
    }

    /// Whether the state after `step` is due to be saved.
    pub fn due(&self, step: u64) -> bool {
        self.pace.due(step, self.saved_at.elapsed().as_secs_f64())
    }

    /// The newest step that was passed on to be saved; 0 for none.
    pub fn saved(&self) -> u64 {
        self.saved.unwrap_or(0)
    }

    /// Copies the state and writes it in the background. Does nothing if this step is saved already, unless `anew`, for
    /// a state that changed without a step.
    ///
    /// Called by all ranks; the first one gathers and saves, or each saves its own part.
    pub fn save(&mut self, trainer: &Trainer, anew: bool, ranks: &Ranks) -> Result<(), Error> {
        let step = trainer.progress.step;
        if self.saved == Some(step) && !anew {
            return Ok(());
        }
        if ranks.is_first() {
            self.channel.send(Report::Pausing { pause: Pause::Checkpoint });
        }
        let began = Instant::now();
        let snapshot = if ranks.saves_parts() {
            let folders = self.begin_parts(trainer, ranks)?;
            let spare = self.writer.as_mut().and_then(CheckpointWriter::spare);
            Some(trainer.snapshot_part(spare, folders, ranks)?)
        } else {
            let spare = self.writer.as_mut().and_then(CheckpointWriter::spare);
            trainer.snapshot(spare, ranks)?
        };
        let earlier = self.writer.as_mut().map_or(Ok(None), CheckpointWriter::wait);
        self.record_outcome(earlier)?;
        if let (Some(writer), Some(snapshot)) = (&mut self.writer, snapshot) {
            writer.save(snapshot)?;
        }
        self.pace.saved(step);
        (self.saved, self.saved_at) = (Some(step), Instant::now());
        self.stalled += began.elapsed();
        Ok(())
    }

    /// The folders for every rank's part, created by the first one.
    fn begin_parts(&mut self, trainer: &Trainer, ranks: &Ranks) -> Result<PartFolders, Error> {
        let mut text = String::new();
        if let Some(writer) = self.writer.as_mut().filter(|_| ranks.is_first()) {
            let (PartFolders { step, best }, earlier) =
                writer.begin_parts(trainer.progress.step, trainer.best_step())?;
            text = [step, best.unwrap_or_default()].join("\n");
            self.report(earlier);
        }
        let text = ranks.broadcast_text(0, &text)?;
        let (step, best) = text.split_once('\n').unwrap_or((&text, ""));
        Ok(PartFolders { step: step.to_owned(), best: (!best.is_empty()).then(|| best.to_owned()) })
    }

    /// Before step `next`: reports what has become durable, and waits if training has run too far ahead of it.
    pub fn keep_up(&mut self, next: u64) -> Result<(), Error> {
        let began = Instant::now();
        if let Some(writer) = &mut self.writer {
            let done = writer.keep_up(next, self.pace.lag());
            self.record_outcome(done)?;
        }
        self.stalled += began.elapsed();
        Ok(())
    }

    /// Waits until the last save is durable. One that runs out of disk space is retried, as [`LastSave`] decides.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.finish_with(std::thread::sleep)
    }

    /// The same, with what passes the time before a retry.
    fn finish_with(&mut self, mut pause: impl FnMut(Duration)) -> Result<(), Error> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let mut last = LastSave::default();
        let mut began = Instant::now();
        let mut done = writer.wait();
        while writer.can_save_again() {
            // Otherwise its failure was noted before.
            if let Err(error) = done {
                if !last.is_retried(&error, [began, Instant::now()], self.channel.kill_at()) {
                    return Err(error.into());
                }
                pause(RETRY_PAUSE);
            }
            began = Instant::now();
            done = writer.save_again().and_then(|_| writer.wait());
        }
        self.report(done?);
        Ok(())
    }

    /// Reports a save that has ended; one that ran out of disk space is a note, as long as training can continue without it.
    fn record_outcome(&mut self, ended: Result<Option<Checkpointed>, checkpoint::Error>) -> Result<(), Error> {
        let can_save_again = self.writer.as_ref().is_some_and(CheckpointWriter::can_save_again);
        match ended {
            Ok(done) => self.report(done),
            Err(error) if is_tolerated(&error, self.is_durable, can_save_again) => {
                if !std::mem::replace(&mut self.is_short, true) {
                    let text = format!(
                        "{error}: training continues, and the next checkpoint is tried as usual; a failure before that loses the \
                         steps since the newest one"
                    );
                    self.channel.send(Report::Note { text });
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Records a step's time, and returns how much of it was spent saving.
    pub fn stepped(&mut self, took: Duration) -> Duration {
        let stalled = std::mem::take(&mut self.stalled);
        let bare = took.saturating_sub(stalled).as_secs_f64();
        self.step_seconds = Some(self.step_seconds.map_or(bare, |mean| mean + NEWEST * (bare - mean)));
        stalled
    }

    fn report(&mut self, done: Option<Checkpointed>) {
        let Some(done) = done else { return };
        if let Some(step) = self.step_seconds {
            let seconds = |micros: u64| micros as f64 / 1e6;
            // A zero step time means that the clock did not advance.
            let costs = CheckpointCosts {
                stall: seconds(done.stall_us),
                commit: seconds(done.commit_us),
                step: step.max(1e-6),
            };
            self.pace.measured(costs);
        }
        self.is_durable = true;
        self.channel.send(Report::Checkpointed(done));
        if std::mem::take(&mut self.is_short) {
            self.channel.send(Report::Note { text: "checkpoints are saved again: there is space".to_owned() });
        }
    }
}

/// Whether training continues after a save that failed. Without an earlier checkpoint the disk may be too small at all, which
/// is to be known at once; what several ranks save in parts is not saved again.
fn is_tolerated(error: &checkpoint::Error, is_durable: bool, can_save_again: bool) -> bool {
    matches!(error, checkpoint::Error::DiskFull { .. }) && is_durable && can_save_again
}

/// The last save of a run, which is retried while the disk is full.
#[derive(Debug, Default)]
struct LastSave {
    failed_at: Option<Instant>,
}

impl LastSave {
    /// Whether it is retried, having begun and failed at these times. The time begins with the first failure, however long the
    /// save took until then. A rank that is killed at `kill_at` must have reported by then why the run fails: it retries only
    /// while there is time for twice as long as the save has just taken.
    fn is_retried(
        &mut self,
        error: &checkpoint::Error,
        [began, failed]: [Instant; 2],
        kill_at: Option<Instant>,
    ) -> bool {
        let first = *self.failed_at.get_or_insert(failed);
        let needed = (failed.saturating_duration_since(began) + RETRY_PAUSE) * 2;
        let is_in_time = kill_at.is_none_or(|at| at.saturating_duration_since(failed) > needed);
        let is_early = failed.saturating_duration_since(first) < RETRIED_FOR;
        matches!(error, checkpoint::Error::DiskFull { .. }) && is_early && is_in_time
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::process::Command;

    use checkpoint::{Dtype, Snapshot, Tensor, WriterIdentity};
    use domain::id::{Fence, RunId};
    use domain::train::{Codec, Every};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    fn errors() -> [checkpoint::Error; 2] {
        let path = std::path::PathBuf::from("model.safetensors");
        let full = checkpoint::Error::DiskFull { path: path.clone(), source: ErrorKind::StorageFull.into() };
        [full, checkpoint::Error::ReadOnly { path, source: ErrorKind::ReadOnlyFilesystem.into() }]
    }

    #[test]
    fn a_full_disk_does_not_end_training_while_an_earlier_checkpoint_stays() {
        let [full, other] = errors();
        assert!(is_tolerated(&full, true, true));
        assert!(!is_tolerated(&full, false, true), "nothing would be left to resume from");
        assert!(!is_tolerated(&full, true, false), "the other ranks have ended");
        assert!(!is_tolerated(&other, true, true));
    }

    fn snapshot(step: u64, bytes: usize) -> Snapshot {
        let shape = vec![bytes as u64];
        let tensor = Tensor { name: "weight".into(), dtype: Dtype::U8, shape, bytes: vec![step as u8; bytes] };
        let (model, training) = (vec![tensor.clone()], vec![tensor]);
        let state = serde_json::json!(step);
        Snapshot { step, began: Instant::now(), model, training, state, best: None, part: None }
    }

    /// Run by the test below in a process whose files may not be large; its reports go to stdout.
    #[test]
    #[ignore = "is run by another test"]
    fn a_rank_on_a_small_disk() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = folder.path().join("checkpoints");
        let channel = Channel::connect("").unwrap();
        let run = RunId::new("digits-1");
        let identity = WriterIdentity { attempt: run.attempt(Fence(1)), run, fence: Fence(1), job_hash: "job".into() };
        let writer = CheckpointWriter::open(&checkpoints, identity, 3, Codec::Full, None).unwrap();
        let mut checkpointer = Checkpointer {
            writer: Some(writer),
            pace: Pace::new(Every::Auto, domain::train::Checkpoint::USUAL_MTBF, 0),
            channel: &channel,
            saved: None,
            saved_at: Instant::now(),
            step_seconds: None,
            stalled: Duration::ZERO,
            is_durable: false,
            is_short: false,
        };
        let (small, large) = (10_000, 3_000_000);
        let begin = |checkpointer: &mut Checkpointer, step: u64, bytes: usize| {
            checkpointer.writer.as_mut().unwrap().save(snapshot(step, bytes)).unwrap();
        };
        let save = |checkpointer: &mut Checkpointer, step: u64, bytes: usize| {
            begin(checkpointer, step, bytes);
            // Waits for it.
            checkpointer.keep_up(u64::MAX)
        };
        let first = save(&mut checkpointer, 10, large);
        let is_refused = matches!(first, Err(Error::Checkpoint(checkpoint::Error::DiskFull { .. })));
        assert!(is_refused, "none is durable: {first:?}");
        for (step, bytes) in [(20, small), (30, large), (40, large), (50, small)] {
            save(&mut checkpointer, step, bytes).unwrap();
        }
        let disk = getrlimit(Resource::Fsize);
        let resize = |current| setrlimit(Resource::Fsize, Rlimit { current, maximum: disk.maximum }).unwrap();
        // The last save fails, and is retried once there is space.
        begin(&mut checkpointer, 60, large);
        let mut pauses = 0;
        let pause = |_: Duration| {
            pauses += 1;
            resize(disk.maximum);
        };
        checkpointer.finish_with(pause).unwrap();
        assert_eq!(pauses, 1);
        // One whose failure was noted is retried without a pause.
        resize(disk.current);
        save(&mut checkpointer, 70, large).unwrap();
        resize(disk.maximum);
        checkpointer.finish_with(|_| panic!("there is space")).unwrap();
        drop(checkpointer);
        channel.finish();
    }

    #[test]
    fn training_continues_without_checkpoints_that_run_out_of_disk_space() {
        let name = "run::checkpointer::tests::a_rank_on_a_small_disk";
        let script = format!("trap '' XFSZ; ulimit -S -f 1000; exec \"$0\" --exact {name} --ignored --nocapture");
        let output = Command::new("sh").args(["-c", &script]).arg(std::env::current_exe().unwrap()).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
        let count = |part: &str| stdout.matches(part).count();
        assert_eq!(count("1 passed"), 1, "{stdout}");
        assert_eq!((count("training continues"), count("checkpoints are saved again")), (2, 2), "{stdout}");
        let durable = [10, 20, 30, 40, 50, 60, 70].map(|step| count(&format!("\"checkpointed\",\"step\":{step},")));
        assert_eq!(durable, [0, 1, 0, 0, 1, 1, 1], "{stdout}");
    }

    #[test]
    fn the_last_save_is_retried_for_a_while_after_its_first_failure() {
        let [full, other] = errors();
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut last = LastSave::default();
        // It took longer than it is retried.
        assert!(last.is_retried(&full, [at(0), at(35)], None));
        assert!(last.is_retried(&full, [at(36), at(64)], None));
        assert!(!last.is_retried(&full, [at(65), at(65)], None));
        assert!(!LastSave::default().is_retried(&other, [at(0), at(0)], None));
    }

    #[test]
    fn the_last_save_is_not_retried_where_the_rank_would_be_killed_before_it_reports_why() {
        let [full, _] = errors();
        let start = Instant::now();
        let check = |took: u64, grace: u64, expected: bool| {
            let [failed, kill_at] = [took, took + grace].map(|seconds| start + Duration::from_secs(seconds));
            let is_retried = LastSave::default().is_retried(&full, [start, failed], Some(kill_at));
            assert_eq!(is_retried, expected, "{took} {grace}");
        };
        // With a pause of a second before it.
        check(0, 1, false);
        check(0, 2, false);
        check(0, 3, true);
        check(10, 22, false);
        check(10, 23, true);
    }
}
