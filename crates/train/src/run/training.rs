//! The loop over steps.

use std::path::Path;
use std::time::{Duration, Instant};

use checkpoint::{CheckpointManifest, CheckpointWriter, WriterIdentity};
use data::Cursor;
use domain::finding::{Cause, Finding};
use domain::rank::{Ready, Report, Step};

use super::Context;
use super::checkpointer::Checkpointer;
use super::commands::Commands;
use super::monitor::LoaderMonitor;
use super::prepare::StartingPoint;
use super::validation::Evaluator;
use crate::error::{Error, not_finite};
use crate::input::{DeviceLoader, TrainingData};
use crate::optim::schedule::{self, Length};
use crate::ranks::Ranks;
use crate::state::Trainer;
use crate::step::cuda_graphs::CudaGraphRunner;
use crate::step::profile::{Phase, Timeline};
use crate::step::{TrainStep, timed_step};

/// A run between its first step and its last.
pub(super) struct Training<'a> {
    pub evaluator: Evaluator<'a>,
    pub length: Length,
    pub trainer: Trainer,
    pub checkpointer: Checkpointer<'a>,
    pub commands: Commands<'a>,
    pub timeline: Timeline,
    loader: DeviceLoader,
    cuda_graphs: Option<CudaGraphRunner>,
    monitor: LoaderMonitor,
    /// Last step of the last epoch.
    last: u64,
    base_lr: f64,
    step_ended: Instant,
}

/// What comes after a step.
enum Next {
    Step,
    /// All steps are done, or the target is met.
    Finish,
    /// The state is durable.
    Stop,
}

impl<'a> Training<'a> {
    /// Opens the folder of checkpoints, reports that the rank is ready, and starts the loader.
    pub fn begin(
        context: &'a Context<'a>,
        ranks: &'a Ranks,
        data: &'a TrainingData,
        start: StartingPoint,
    ) -> Result<Training<'a>, Error> {
        let Context { spec, channel, .. } = *context;
        let StartingPoint { trainer, length, shape, manifest, passed_over } = start;
        let train = &spec.train;
        let writer = if ranks.is_first() { Some(open_writer(context, manifest.as_ref())?) } else { None };
        let step = trainer.progress.step;
        let checkpointer = Checkpointer::new(writer, spec, step, channel);
        let last = length.end_of(train.last_epoch());
        channel.send(Report::Ready(Ready {
            step,
            steps: last,
            steps_per_epoch: length.steps_per_epoch,
            samples: data.counts(),
            classes: data.classes().to_vec(),
            parameters: trainer.network.weights().count(),
            passed_over,
            sample: Some(shape.sample()),
        }));
        let from = Cursor { epoch: trainer.progress.epoch, pos: trainer.progress.position };
        let loader = data.train(train, from, ranks.share());
        let device = context.options.device;
        let (cuda_graphs, why) = CudaGraphRunner::asked(train, device, trainer.network.weights(), ranks.size())?;
        if let Some(why) = why {
            context.note(format!("`cuda_graphs` changes nothing: {why}"));
        }
        Ok(Training {
            evaluator: Evaluator { context, data, ranks },
            length,
            base_lr: trainer.optimizer.base_rate(),
            trainer,
            checkpointer,
            commands: Commands::on(channel),
            timeline: if train.profile { Timeline::on(device) } else { Timeline::off() },
            loader,
            cuda_graphs,
            monitor: LoaderMonitor::new(spec, data),
            last,
            step_ended: Instant::now(),
        })
    }

    /// Makes all steps; the step after which it was ordered to stop, or none when they are done.
    pub fn run(&mut self) -> Result<Option<u64>, Error> {
        loop {
            let at = self.trainer.progress.step;
            match self.between_steps(at)? {
                Next::Stop => return Ok(Some(at)),
                Next::Finish => return Ok(None),
                Next::Step => self.step(at)?,
            }
            chaos::point("step");
            self.commands.poll();
        }
    }

    /// After step `at`: evaluates, saves and stops as far as that is due.
    fn between_steps(&mut self, at: u64) -> Result<Next, Error> {
        let Training { evaluator, length, trainer, checkpointer, commands, timeline, .. } = self;
        let ranks = evaluator.ranks;
        let epoch_ended = length.ends_epoch(at);
        if epoch_ended && !trainer.progress.evaluated && !ranks.any(commands.stop)? {
            timeline.time(Phase::Evaluation, || evaluator.validate(trainer, *length, commands))?;
            // A step's time does not include the evaluation before it.
            self.step_ended = Instant::now();
        }
        // Orders and clocks are the first rank's; all do what it says.
        let due = checkpointer.due(at);
        let [stop, save] = ranks.broadcast_flags([commands.stop, commands.save || due])?;
        if stop {
            checkpointer.save(trainer, epoch_ended, ranks)?;
            checkpointer.finish()?;
            ranks.barrier()?;
            return Ok(Next::Stop);
        }
        let done = at >= self.last || is_target_met(evaluator.context, trainer);
        if done || save {
            timeline.time(Phase::Checkpoint, || checkpointer.save(trainer, done, ranks))?;
            commands.save = false;
        }
        if done {
            return Ok(Next::Finish);
        }
        timeline.time(Phase::Checkpoint, || checkpointer.keep_up(at + 1))?;
        Ok(Next::Step)
    }

    /// Makes the step after `at`, and reports it.
    fn step(&mut self, at: u64) -> Result<(), Error> {
        let Training { evaluator, length, trainer, timeline, loader, .. } = self;
        let (Context { spec, options, config, .. }, ranks) = (evaluator.context, evaluator.ranks);
        let batch = timeline.time(Phase::Data, || loader.next(options.device));
        let batch = batch.ok_or_else(|| Finding::new(Cause::Internal, "the data ended before the last step"))??;
        let lr = self.base_lr * schedule::factor(&spec.train.schedule, *length, at);
        let (network, optimizer) = (&trainer.network, &mut trainer.optimizer);
        let step = TrainStep { network, optimizer, ranks, cuda_graphs: self.cuda_graphs.as_mut() };
        let loss = timed_step(step, config, &batch.samples, lr, timeline)?;
        timeline.stepped();
        if !loss.is_finite() {
            return Err(not_finite(at + 1, loss));
        }
        let share = batch.samples.share;
        timeline.time(Phase::Exchange, || ranks.sync_buffers(&trainer.network, share.counted))?;
        trainer.progress.advance_to(batch.cursor_after);
        trainer.average(*length)?;

        let took = self.step_ended.elapsed();
        self.step_ended = Instant::now();
        evaluator.context.channel.send(Report::Step(Step {
            step: at + 1,
            epoch: u32::try_from(batch.epoch).unwrap_or(u32::MAX),
            loss,
            lr,
            samples: u32::try_from(share.whole).unwrap_or(u32::MAX),
            step_us: micros(took),
            data_wait_us: micros(batch.wait),
            checkpoint_us: micros(self.checkpointer.stepped(took)),
            data: self.monitor.stepped(took, batch.wait, loader.measured()),
        }));
        if let Some(text) = self.monitor.note() {
            evaluator.context.note(text);
        }
        Ok(())
    }
}

/// Whether the job's target is met, now or in an earlier attempt.
fn is_target_met(context: &Context, trainer: &Trainer) -> bool {
    match (context.spec.train.stop.and_then(|stop| stop.accuracy), trainer.progress.best) {
        (Some(enough), Some(best)) => best.accuracy >= enough.get(),
        (None, _) | (_, None) => false,
    }
}

#[cfg(not(feature = "mutants"))]
fn open_writer(context: &Context, resumed: Option<&CheckpointManifest>) -> Result<CheckpointWriter, Error> {
    let spec = context.spec;
    let (folder, checkpoint) = (Path::new(&spec.checkpoints), spec.train.checkpoint);
    Ok(CheckpointWriter::open(folder, WriterIdentity::of(spec), checkpoint.keep, checkpoint.codec, resumed)?)
}

#[cfg(feature = "mutants")]
fn open_writer(context: &Context, resumed: Option<&CheckpointManifest>) -> Result<CheckpointWriter, Error> {
    let (spec, mutant) = (context.spec, context.options.mutant);
    let (folder, checkpoint) = (Path::new(&spec.checkpoints), spec.train.checkpoint);
    let (keep, codec) = (checkpoint.keep, checkpoint.codec);
    Ok(CheckpointWriter::open_mutant(folder, WriterIdentity::of(spec), keep, codec, resumed, mutant)?)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
