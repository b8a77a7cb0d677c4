//! The loop over steps.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use checkpoint::{CheckpointManifest, CheckpointWriter, Retention, WriterIdentity};
use data::Cursor;
use domain::finding::{Cause, Finding};
use domain::rank::{Pause, Ready, Report, Sample, Step};

use super::Context;
use super::checkpointer::Checkpointer;
use super::checks::with_memory_advice;
use super::commands::Commands;
use super::export::write_step;
use super::guard::{DeferredStep, DeferredSteps, FiniteGuard, Reaction, RollBack, StepHealth};
use super::monitor::LoaderMonitor;
use super::prepare::StartingPoint;
use super::validation::Evaluator;
use crate::error::Error;
use crate::input::{DeviceLoader, TrainingData};
use crate::optim::schedule::{self, Length};
use crate::ranks::Ranks;
use crate::state::Trainer;
use crate::step::cuda_graphs::CudaGraphRunner;
use crate::step::profile::{Phase, Timeline};
use crate::step::{StepOutcome, TrainStep, begin_step};
use crate::torch;
use tch::Tensor;

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
    guard: FiniteGuard,
    deferred: DeferredSteps,
    /// The newest step that was judged, and its batch.
    judged: Judged,
    /// Last step of the last epoch.
    last: u64,
    base_lr: f64,
    /// How much each class counts in the loss.
    class_weights: Option<Tensor>,
    step_ended: Instant,
}

/// A step that was judged.
#[derive(Debug, Clone)]
struct Judged {
    step: u64,
    /// Where the data goes on behind its batch.
    cursor: Cursor,
    /// Epoch of its batch, and the positions of its samples in the order of that epoch.
    batch: (u64, Range<u64>),
}

/// Why a state is not saved.
const STATE_NOT_FINITE: &str = "weights, running statistics or optimizer state are not finite";

/// How the steps ended.
#[derive(Debug)]
pub(super) enum StepsEnd {
    /// All steps are done, or the target is met.
    Done,
    /// By order; the state of this step is durable.
    Stopped { step: u64 },
    /// The state is not to be used.
    NotFinite(RollBack),
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
        let StartingPoint { mut trainer, length, shape, manifest, saved, passed_over, is_first } = start;
        let lag = context.options.lag;
        trainer.optimizer.defer(lag > 0);
        let train = &spec.train;
        let writer = match (ranks.is_first(), ranks.saves_parts()) {
            (true, _) => Some(open_writer(context, manifest.as_ref())?),
            (false, true) => {
                let folder = Path::new(&spec.checkpoints);
                Some(CheckpointWriter::open_part(folder, spec.rank, WriterIdentity::of(spec), manifest.as_ref()))
            }
            (false, false) => None,
        };
        let step = trainer.progress.step;
        let checkpointer = Checkpointer::new(writer, spec, step, saved, channel);
        let last = length.end_of(train.last_epoch());
        if is_first {
            let report = ready(data, &trainer, (length, last), passed_over, shape.sample());
            channel.send(Report::Ready(report));
        }
        let from = Cursor { epoch: trainer.progress.epoch, pos: trainer.progress.position };
        let loader = data.train(train, from, ranks.share());
        let device = context.options.device;
        let graphs = CudaGraphRunner::of(train, device, trainer.network.weights(), ranks.size())?;
        if let Some(why) = graphs.why_not {
            context.note(format!("steps run without CUDA graphs: {why}"));
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
            cuda_graphs: graphs.runner,
            monitor: LoaderMonitor::new(spec, data),
            guard: FiniteGuard::default(),
            deferred: DeferredSteps::new(lag),
            judged: Judged { step, cursor: from, batch: (0, 0..0) },
            last,
            class_weights: class_weights(context, data)?,
            step_ended: Instant::now(),
        })
    }

    /// Makes all steps, until they are done, an order to stop arrives, or the state is no longer finite.
    ///
    /// # Errors
    /// Why the rank failed.
    pub fn run(&mut self) -> Result<StepsEnd, Error> {
        loop {
            let at = self.trainer.progress.step;
            if let Some(end) = self.between_steps(at)? {
                return Ok(end);
            }
            if let Some(poisoned) = self.step(at)? {
                return Ok(StepsEnd::NotFinite(poisoned));
            }
            chaos::point("step");
            self.commands.poll();
        }
    }

    /// After step `at`: evaluates, saves and stops as far as that is due.
    fn between_steps(&mut self, at: u64) -> Result<Option<StepsEnd>, Error> {
        let train = &self.evaluator.context.spec.train;
        let is_validated = self.length.is_due(train.validate_every, at) || (at > 0 && at >= self.last);
        let is_exported = train.export_every.is_some_and(|every| self.length.is_due(Some(every), at));
        let mut is_finite: Option<bool> = None;
        // What is scored is known to be well.
        let is_unscored = is_validated && !self.trainer.progress.evaluated;
        if let Some(poisoned) = self.judge(is_unscored)? {
            return self.rolled_back(poisoned).map(Some);
        }
        let Training { evaluator, length, trainer, checkpointer, commands, timeline, .. } = self;
        let Evaluator { context, ranks, .. } = *evaluator;
        if is_unscored && !ranks.any(commands.stop)? {
            if !*is_finite.insert(is_finite_state(trainer, context, ranks)?) {
                checkpointer.finish()?;
                return Ok(Some(StepsEnd::NotFinite(self.poisoned(STATE_NOT_FINITE.into()))));
            }
            timeline.time(Phase::Evaluation, || evaluator.validate(trainer, *length, commands))?;
            // A step's time does not include the evaluation before it.
            self.step_ended = Instant::now();
        }
        // The first rank reads orders and clocks; all follow its decision.
        let due = checkpointer.due(at);
        let [stop, save] = ranks.broadcast_flags([commands.stop, commands.save || due])?;
        let has_stalled = is_validated && has_stalled(evaluator.context, trainer, *length);
        let done = at >= self.last || is_target_met(evaluator.context, trainer) || has_stalled;
        // Nor is a state saved behind a step that was not judged.
        if let Some(poisoned) = self.judge(stop || save || done || is_exported)? {
            self.commands.stop |= stop;
            return self.rolled_back(poisoned).map(Some);
        }
        let Training { trainer, checkpointer, commands, timeline, .. } = self;
        // What is not finite is never saved as a good state.
        if (stop || save || done || is_exported)
            && !is_finite.map_or_else(|| is_finite_state(trainer, context, ranks), Ok)?
        {
            checkpointer.finish()?;
            let stopped = stop.then(|| StepsEnd::Stopped { step: checkpointer.saved() });
            return Ok(Some(stopped.unwrap_or_else(|| StepsEnd::NotFinite(self.poisoned(STATE_NOT_FINITE.into())))));
        }
        if stop {
            checkpointer.save(trainer, is_validated, ranks)?;
            checkpointer.finish()?;
            ranks.barrier()?;
            return Ok(Some(StepsEnd::Stopped { step: at }));
        }
        if is_exported {
            context.pauses(Pause::Export, ranks);
            timeline.time(Phase::Checkpoint, || write_step(trainer, context.spec, at, ranks))?;
        }
        if done || save {
            timeline.time(Phase::Checkpoint, || checkpointer.save(trainer, done, ranks))?;
            commands.save = false;
        }
        if done {
            return Ok(Some(StepsEnd::Done));
        }
        timeline.time(Phase::Checkpoint, || checkpointer.keep_up(at + 1))?;
        Ok(None)
    }

    /// Makes the step after `at`; returns what is wrong with the state after a step whose outcome has come.
    fn step(&mut self, at: u64) -> Result<Option<RollBack>, Error> {
        let Training { evaluator, length, trainer, timeline, loader, deferred, .. } = self;
        let (Context { spec, options, config, .. }, ranks) = (evaluator.context, evaluator.ranks);
        let batch = timeline.time(Phase::Data, || loader.next(options.device));
        let mut batch = batch.ok_or_else(|| Finding::new(Cause::Internal, "the data ended before the last step"))??;
        // While the device computes, only the host waits.
        let data_wait = if deferred.are_busy()? { Duration::ZERO } else { batch.wait };
        batch.samples.class_weights = self.class_weights.as_ref().map(Tensor::shallow_clone);
        let lr = self.base_lr * schedule::factor(&spec.train.schedule, *length, at);
        let (network, optimizer) = (&trainer.network, &mut trainer.optimizer);
        if let Some(momentum) = schedule::momentum(&spec.train.schedule, *length, at) {
            optimizer.set_momentum(momentum);
        }
        let step = TrainStep { network, optimizer, ranks, cuda_graphs: self.cuda_graphs.as_mut() };
        let outcome = begin_step(step, config, &batch.samples, lr, timeline)
            .map_err(|error| with_memory_advice(error, trainer, evaluator.context, ranks, &batch.samples))?;
        timeline.stepped();
        let given_up = CudaGraphRunner::drop_if_given_up(&mut self.cuda_graphs);
        given_up.into_iter().for_each(|why| evaluator.context.note(why));
        let share = batch.samples.share;
        let from = if trainer.progress.epoch == batch.epoch { trainer.progress.position } else { 0 };
        timeline.time(Phase::Exchange, || ranks.sync_buffers(&trainer.network, share.counted))?;
        trainer.progress.advance_to(batch.cursor_after);
        trainer.average(*length)?;
        let progress = &trainer.progress;
        deferred.push(DeferredStep {
            step: at + 1,
            outcome,
            lr,
            data_wait,
            samples: share.whole,
            batch: (batch.epoch, from..from + share.whole as u64),
            cursor: Cursor { epoch: progress.epoch, pos: progress.position },
        });
        self.judge(false)
    }

    /// Judges and reports the steps whose outcome is to be read by now, or `all` that were made; returns what is wrong
    /// with the state after one.
    fn judge(&mut self, all: bool) -> Result<Option<RollBack>, Error> {
        while let Some(step) = self.deferred.due(all) {
            let StepOutcome { loss, is_updated } = step.outcome.read()?;
            let DeferredStep { step, lr, data_wait, samples, batch, cursor, .. } = step;
            let epoch = batch.0;
            self.judged = Judged { step, cursor, batch };
            if let Some(poisoned) = self.check_finite(loss, is_updated)? {
                return Ok(Some(poisoned));
            }
            if loss.is_finite() {
                self.report(step, epoch, loss, lr, samples, data_wait);
            }
        }
        Ok(None)
    }

    /// Reports a step.
    fn report(&mut self, step: u64, epoch: u64, loss: f64, lr: f64, samples: usize, data_wait: Duration) {
        let took = self.step_ended.elapsed();
        self.step_ended = Instant::now();
        let context = self.evaluator.context;
        context.channel.send(Report::Step(Step {
            step,
            epoch: u32::try_from(epoch).unwrap_or(u32::MAX),
            loss,
            lr,
            samples: u32::try_from(samples).unwrap_or(u32::MAX),
            step_us: micros(took),
            data_wait_us: micros(data_wait),
            checkpoint_us: micros(self.checkpointer.stepped(took)),
            data: self.monitor.stepped(took, data_wait, self.loader.measured()),
        }));
        self.monitor.note().into_iter().for_each(|text| context.note(text));
    }

    /// How the steps end where a state is rolled back between two of them: an order to stop is followed all the same.
    fn rolled_back(&mut self, poisoned: RollBack) -> Result<StepsEnd, Error> {
        self.checkpointer.finish()?;
        Ok(match self.evaluator.ranks.any(self.commands.stop)? {
            true => StepsEnd::Stopped { step: self.checkpointer.saved() },
            false => StepsEnd::NotFinite(poisoned),
        })
    }

    /// Decides about the step that is being judged; returns why to roll back.
    fn check_finite(&mut self, loss: f64, is_updated: bool) -> Result<Option<RollBack>, Error> {
        let step = self.judged.step;
        let Evaluator { context, ranks, .. } = self.evaluator;
        let is_finite = is_updated && loss.is_finite();
        // An overflow in the forward pass corrupts running statistics even if no weight is updated.
        let has_finite_state = is_finite || is_finite_state(&self.trainer, context, ranks)?;
        let is_scaled = self.trainer.optimizer.is_scaled();
        let why = match loss.is_finite() {
            true => format!("the gradients of step {step} are not finite"),
            false => format!("the loss of step {step} is `{loss}`"),
        };
        match self.guard.after(StepHealth { is_finite, is_scaled, has_finite_state }) {
            Reaction::Continue => Ok(None),
            Reaction::Skip => {
                if !is_scaled {
                    context.note(format!("{why}: the step is skipped"));
                }
                Ok(None)
            }
            Reaction::RollBack => Ok(Some(self.poisoned(why))),
        }
    }

    /// How to roll back the state after the step that was judged last.
    fn poisoned(&self, why: String) -> RollBack {
        let Judged { step, cursor, batch: (epoch, positions) } = self.judged.clone();
        let samples = self.evaluator.data.sample_names(&self.evaluator.context.spec.train, epoch, positions);
        RollBack { step, cursor, why, samples }
    }
}

/// The report that all is ready for the step after those that were made.
fn ready(
    data: &TrainingData,
    trainer: &Trainer,
    (length, last): (Length, u64),
    passed_over: Vec<String>,
    sample: Sample,
) -> Ready {
    Ready {
        step: trainer.progress.step,
        steps: last,
        steps_per_epoch: length.steps_per_epoch,
        samples: data.counts(),
        classes: data.outputs(),
        parameters: trainer.network.weights().count(),
        passed_over,
        sample: Some(sample),
        data: trainer.progress.data.clone(),
    }
}

/// The weight of each class in the loss, on the device.
fn class_weights(context: &Context, data: &TrainingData) -> Result<Option<Tensor>, Error> {
    let Some(weights) = data.class_weights(&context.spec.train)? else { return Ok(None) };
    Ok(Some(torch::upload(&weights, &[weights.len() as i64], context.options.device)?))
}

/// Whether the complete state is finite, unless the check is disabled to prove that it is needed.
fn is_finite_state(trainer: &Trainer, context: &Context, ranks: &Ranks) -> Result<bool, Error> {
    if context.options.omitted.finite_check { Ok(true) } else { trainer.is_finite(ranks) }
}

/// Whether the job's target is met, now or in an earlier attempt.
fn is_target_met(context: &Context, trainer: &Trainer) -> bool {
    match (context.spec.train.stop.and_then(|stop| stop.accuracy), trainer.progress.best) {
        (Some(enough), Some(best)) => best.accuracy >= enough.get(),
        (None, _) | (_, None) => false,
    }
}

/// Whether the best validation result is older than `stop.patience` allows, after a step that was evaluated.
fn has_stalled(context: &Context, trainer: &Trainer, length: Length) -> bool {
    let progress = &trainer.progress;
    match (context.spec.train.stop.and_then(|stop| stop.patience), progress.best) {
        (Some(patience), Some(best)) if progress.evaluated => {
            let times = |step| length.times_due(context.spec.train.validate_every, step);
            times(progress.step) >= times(best.step) + u64::from(patience)
        }
        (Some(_) | None, _) => false,
    }
}

#[cfg(not(feature = "mutants"))]
fn open_writer(context: &Context, resumed: Option<&CheckpointManifest>) -> Result<CheckpointWriter, Error> {
    let spec = context.spec;
    let (folder, kept) = (Path::new(&spec.checkpoints), Retention::of(&spec.train.checkpoint));
    Ok(CheckpointWriter::open_keeping(folder, WriterIdentity::of(spec), kept, spec.train.checkpoint.codec, resumed)?)
}

#[cfg(feature = "mutants")]
fn open_writer(context: &Context, resumed: Option<&CheckpointManifest>) -> Result<CheckpointWriter, Error> {
    let (spec, mutant) = (context.spec, context.options.mutant);
    let (folder, checkpoint) = (Path::new(&spec.checkpoints), spec.train.checkpoint);
    let (kept, codec) = (Retention::of(&checkpoint), checkpoint.codec);
    Ok(CheckpointWriter::open_mutant(folder, WriterIdentity::of(spec), kept, codec, resumed, mutant)?)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
