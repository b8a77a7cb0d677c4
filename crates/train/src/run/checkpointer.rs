//! When the state is saved, and how long that stalls the training thread.

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
        if let (Some(writer), Some(snapshot)) = (&mut self.writer, snapshot) {
            let earlier = writer.save(snapshot)?;
            self.report(earlier);
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
            let done = writer.keep_up(next, self.pace.lag())?;
            self.report(done);
        }
        self.stalled += began.elapsed();
        Ok(())
    }

    /// Waits until the last save is durable.
    pub fn finish(&mut self) -> Result<(), Error> {
        if let Some(writer) = &mut self.writer {
            let done = writer.wait()?;
            self.report(done);
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
        self.channel.send(Report::Checkpointed(done));
    }
}
