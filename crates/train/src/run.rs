//! One rank's run, from its specification to its last word, as one loop that reads from the top.
//!
//! Everything here happens on one thread. What goes on beside it is the loader's decoding, the writer's hashing and
//! writing ([`crate::saving`]) and the talk with the agent ([`crate::channel`]).

use std::path::Path;
use std::time::{Duration, Instant};

use checkpoint::{Identity, Writer};
use data::{Cursor, Part};
use domain::finding::{Cause, Finding};
use domain::rank::{Evaluated, EvaluatedSplit, RankCommand, Ready, Report, Spec, Step};
use domain::train::Task;
use tch::Device;

use crate::average::measure_statistics;
use crate::begin::{check_batches, check_pictures, check_shares, check_spec, environment, keep_threads, length};
use crate::channel::Channel;
use crate::error::{Error, not_finite};
use crate::evaluate::{Score, evaluate};
use crate::export::{Verdict, export};
use crate::material::Material;
use crate::pretrained;
use crate::profile::{Phase, Timeline};
use crate::provenance::{Recorded, named, prepared};
use crate::ranks::Ranks;
use crate::repeated::Repeated;
use crate::saving::Saving;
use crate::schedule::{self, Length};
use crate::state::{BestScore, LeftOut, Start, Trainer};
use crate::step::{Learner, Recipe, timed_step};
use crate::torch;
use crate::watching::Watch;

/// How a run ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All epochs are done, or the target was met; the model is exported.
    Trained,
    /// By order; the state of this step is durable.
    Stopped { step: u64 },
}

/// What is not the job's: where to run, and the mistakes that the chaos test makes.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Where the network is.
    pub device: Device,
    /// What a resume leaves out.
    pub left_out: LeftOut,
    /// The mistake that the writer makes.
    #[cfg(feature = "mutants")]
    pub mutant: Option<checkpoint::Mutant>,
}

impl Setting {
    /// No mistakes.
    pub fn on(device: Device) -> Setting {
        Setting {
            device,
            left_out: LeftOut::default(),
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }
}

/// Trains what `spec` says, from where its checkpoints end, and reports over `channel`.
///
/// All reports but the last word are sent here; that one is for the caller to send, by what this returns.
///
/// Of several ranks, the first speaks for all; what the others say is who they are and how they ended.
pub fn run(spec: &Spec, setting: Setting, channel: &Channel) -> Result<Ending, Error> {
    let (train, device) = (&spec.train, setting.device);
    let recipe = Recipe::of(train, device);
    let version = torch::version()?;
    channel.send(Report::Hello {
        rank: spec.rank,
        pid: std::process::id(),
        environment: environment(spec, &recipe, &version),
    });
    check_spec(spec, &version)?;
    if spec.rank > 0 {
        channel.hush();
    }
    let mut ranks = Ranks::meet(spec)?;
    if ranks.size() > 1 && device.is_cuda() {
        channel.send(Report::Note { text: format!("the ranks exchange {}", ranks.exchanges()) });
    }
    together(spec, setting, channel, &mut ranks).map_err(|error| ranks.blame(error))
}

/// The run of this rank among `ranks`.
fn together(spec: &Spec, setting: Setting, channel: &Channel, ranks: &mut Ranks) -> Result<Ending, Error> {
    let (train, device) = (&spec.train, setting.device);
    let recipe = Recipe::of(train, device);
    chaos::point("stage");
    let folder = Path::new(&spec.checkpoints);
    let (loaded, passed_over) = if ranks.is_first() {
        checkpoint::claim(folder, spec.fence)?;
        checkpoint::newest_verified(folder, &spec.job_hash)
    } else {
        (None, Vec::new())
    };
    let manifest = loaded.as_ref().map(|loaded| loaded.manifest.clone());
    let mut recorded = Recorded::by(manifest.as_ref(), folder, &spec.job_hash);
    let mut provenance = recorded.provenance(spec, ranks)?;
    let material = prepared(channel, &provenance.preparation(), || Material::open(spec, channel, &mut provenance));
    let material = material.map_err(|error| named(error, spec))?;
    let digest = recorded.check(&provenance, spec, channel, ranks).map_err(|error| named(error, spec))?;
    let shape = material.shape(train);
    let length = length(train, material.counts())?;
    check_pictures(train, shape)?;
    check_batches(train, shape, material.counts(), ranks.shares())?;
    check_shares(train, material.counts(), ranks.shares())?;

    torch::set_threads(spec.threads);
    torch::set_deterministic(train.deterministic)?;
    recipe.format.settle(device)?;
    let mut start = Start::fresh(train, shape, device, spec.threads, ranks)?;
    match (loaded, &train.weights) {
        (Some(loaded), _) => start.restore(loaded, setting.left_out)?,
        (None, Some(_)) if !ranks.is_first() => {}
        (None, Some(path)) => {
            for text in pretrained::load(&start.network, &train.model, Path::new(path))? {
                channel.send(Report::Note { text });
            }
        }
        (None, None) => {}
    }
    start.trains_on(digest, provenance.change().map(|_| (material.counts()[0], u64::from(train.batch))));
    drop(provenance);
    // All ranks begin with what the first one has.
    let mut trainer = start.among(train, ranks)?;
    let length = length.counted_from(trainer.progress.origin, train.epochs);
    let last = length.end_of(train.last_epoch());
    keep_threads(spec, &trainer, channel);
    ranks.hook(&trainer.network, train.parallel)?;
    let ranks = &*ranks;

    let writer = if ranks.is_first() { Some(open_writer(spec, setting, manifest.as_ref())?) } else { None };
    let mut saving = Saving::new(writer, spec, trainer.progress.step, channel);
    let mut orders = Orders { channel, save: false, stop: false };
    channel.send(Report::Ready(Ready {
        step: trainer.progress.step,
        steps: last,
        steps_per_epoch: length.steps_per_epoch,
        samples: material.counts(),
        classes: material.classes().to_vec(),
        parameters: trainer.network.weights().count(),
        passed_over,
        sample: Some(shape.sample()),
    }));

    let from = Cursor { epoch: trainer.progress.epoch, pos: trainer.progress.position };
    let mut feed = material.train(train, from, ranks.share());
    let scorer = Scorer { spec, material: &material, recipe: &recipe, channel, ranks };
    let base_rate = trainer.optimizer.base_rate();
    let mut timeline = if train.profile { Timeline::on(device) } else { Timeline::off() };
    let mut watch = Watch::new(spec, &material);
    let (mut repeated, why) = Repeated::asked(train, device, trainer.network.weights(), ranks.size())?;
    if let Some(why) = why {
        channel.send(Report::Note { text: format!("`cuda_graphs` changes nothing: {why}") });
    }
    let mut ended = Instant::now();

    loop {
        let at = trainer.progress.step;
        let epoch_ended = length.ends_epoch(at);
        if epoch_ended && !trainer.progress.evaluated && !ranks.any(orders.stop)? {
            timeline.time(Phase::Evaluation, || scorer.validate(&mut trainer, length, &mut orders))?;
            // A step's time does not include the evaluation before it.
            ended = Instant::now();
        }
        // Orders and clocks are the first rank's; all do what it says.
        let [stop, save] = ranks.agree([orders.stop, orders.save || saving.due(at)])?;
        if stop {
            saving.save(&trainer, epoch_ended, ranks)?;
            saving.finish()?;
            ranks.wait()?;
            return Ok(Ending::Stopped { step: at });
        }
        let done = at >= last || reached(spec, &trainer);
        if done || save {
            timeline.time(Phase::Checkpoint, || saving.save(&trainer, done, ranks))?;
            orders.save = false;
        }
        if done {
            break;
        }
        timeline.time(Phase::Checkpoint, || saving.keep_up(at + 1))?;

        let batch = timeline.time(Phase::Data, || feed.next(device));
        let batch = batch.ok_or_else(|| Finding::new(Cause::Internal, "the data ended before the last step"))??;
        let lr = base_rate * schedule::factor(&train.schedule, length, at);
        let (network, optimizer, repeated) = (&trainer.network, &mut trainer.optimizer, repeated.as_mut());
        let learner = Learner { network, optimizer, ranks, repeated };
        let loss = timed_step(learner, &recipe, &batch.samples, lr, &mut timeline)?;
        timeline.stepped();
        if !loss.is_finite() {
            return Err(not_finite(at + 1, loss));
        }
        timeline.time(Phase::Exchange, || ranks.level(&trainer.network, batch.samples.of.counted))?;
        trainer.progress.step = at + 1;
        (trainer.progress.epoch, trainer.progress.position) = (batch.cursor_after.epoch, batch.cursor_after.pos);
        trainer.progress.evaluated = false;
        trainer.average(length)?;

        let took = ended.elapsed();
        ended = Instant::now();
        channel.send(Report::Step(Step {
            step: at + 1,
            epoch: u32::try_from(batch.epoch).unwrap_or(u32::MAX),
            loss,
            lr,
            samples: u32::try_from(batch.samples.of.whole).unwrap_or(u32::MAX),
            step_us: micros(took),
            data_wait_us: micros(batch.wait),
            checkpoint_us: micros(saving.stepped(took)),
            data: watch.stepped(took, batch.wait, feed.measured()),
        }));
        if let Some(text) = watch.note() {
            channel.send(Report::Note { text });
        }
        chaos::point("step");
        orders.take();
    }

    tell_times(spec, &timeline, channel, ranks)?;
    // Durable before it is exported: a kill from here on costs no step.
    saving.finish()?;
    let best = trainer.use_best(ranks)?;
    let Some(test) = scorer.score(&trainer, Part::Test, &mut orders)? else {
        return Ok(Ending::Stopped { step: trainer.progress.step });
    };
    let rank_memory = tell_memory(channel, ranks)?;
    let processor_us = ranks.each(torch::processor_micros() as f64)?.iter().sum::<f64>() as u64;
    let Some(best) = best else { return Ok(Ending::Trained) };
    let validation = trainer.progress.best.ok_or_else(|| Finding::new(Cause::Internal, "nothing was evaluated"))?;
    let epoch = length.epoch_ended_by(validation.step);
    channel.send(evaluated(validation.step, epoch, EvaluatedSplit::Test, &test, true));
    let parameters = trainer.network.weights().count();
    if !test.figures.is_empty() {
        let told: Vec<String> = test.figures.lines().iter().map(|(name, value)| format!("{name} {value}")).collect();
        channel.send(Report::Note { text: format!("on the test split: {}", told.join(", ")) });
    }
    let network = &trainer.network;
    let verdict = Verdict { network, validation, test, parameters, format: recipe.format, rank_memory, processor_us };
    channel.send(Report::Exported(export(spec, &material, &best, &trainer.progress, &verdict)?));
    Ok(Ending::Trained)
}

/// Writes every rank's trace, and tells where the time of each has gone.
fn tell_times(spec: &Spec, timeline: &Timeline, channel: &Channel, ranks: &Ranks) -> Result<(), Error> {
    let trace = Path::new(&spec.export).with_file_name("profile").join(format!("rank-{}.json", spec.rank));
    let Some(own) = timeline.finish(&trace, spec.rank)? else { return Ok(()) };
    for rank in 0..ranks.size() {
        channel.send(Report::Note { text: ranks.spread_text(rank, &own)? });
    }
    Ok(())
}

/// Orders that came and are not followed yet.
struct Orders<'a> {
    channel: &'a Channel,
    save: bool,
    stop: bool,
}

impl Orders<'_> {
    fn take(&mut self) {
        while let Some(order) = self.channel.try_order() {
            match order {
                RankCommand::Checkpoint => self.save = true,
                RankCommand::Stop => self.stop = true,
            }
        }
    }
}

/// What it takes to score a split.
struct Scorer<'a> {
    spec: &'a Spec,
    material: &'a Material,
    recipe: &'a Recipe,
    channel: &'a Channel,
    ranks: &'a Ranks,
}

impl Scorer<'_> {
    /// Scores the validation split, keeps the weights if they are the best, and reports; unless an order to stop comes.
    fn validate(&self, trainer: &mut Trainer, length: Length, orders: &mut Orders) -> Result<(), Error> {
        let lent = trainer.lend_average(length, self.ranks)?;
        if let Some(batches) = lent.as_ref().map(|lent| lent.batches).filter(|batches| *batches > 0) {
            let mut feed = self.material.train(&self.spec.train, Cursor { epoch: 0, pos: 0 }, self.ranks.share());
            let counted = measure_statistics(&trainer.network, self.recipe, &mut feed, batches, self.ranks)?;
            self.ranks.level(&trainer.network, counted)?;
        }
        if let Some(score) = self.score(trainer, Part::Validation, orders)? {
            self.judge(trainer, length, score)?;
        }
        lent.map_or(Ok(()), |lent| trainer.take_back(lent, self.ranks))
    }

    /// Keeps the weights if they are the best, and reports.
    fn judge(&self, trainer: &mut Trainer, length: Length, score: Score) -> Result<(), Error> {
        let at = trainer.progress.step;
        let better = |best: BestScore| match self.spec.train.task() {
            Task::Pictures | Task::Texts | Task::Boxes => score.accuracy > best.accuracy,
            // Of words no more than a share can be known; what is said of the others counts too.
            Task::MaskedWords | Task::NextWord => score.loss < best.loss,
        };
        let [_, validation, _] = self.material.counts();
        // Without validation samples, the last weights are the best that can be named.
        let best = trainer.progress.best.is_none_or(better) || validation == 0;
        if best {
            let score = BestScore { step: at, loss: score.loss, accuracy: score.accuracy, figures: score.figures };
            trainer.keep_best(score, self.ranks)?;
        }
        trainer.progress.evaluated = true;
        self.channel.send(evaluated(at, length.epoch_ended_by(at), EvaluatedSplit::Validation, &score, best));
        Ok(())
    }

    /// Scores one split; `None` if an order to stop came first.
    fn score(&self, trainer: &Trainer, part: Part, orders: &mut Orders) -> Result<Option<Score>, Error> {
        let mut feed = self.material.evaluate(&self.spec.train, part, self.ranks.share());
        let score = evaluate(&trainer.network, self.recipe, &mut feed, self.ranks, || {
            orders.take();
            !orders.stop
        })?;
        match score {
            Some(score) if !score.loss.is_finite() => Err(not_finite(trainer.progress.step, score.loss)),
            Some(_) | None => Ok(score),
        }
    }
}

#[cfg(not(feature = "mutants"))]
fn open_writer(spec: &Spec, _: Setting, resumed: Option<&checkpoint::Manifest>) -> Result<Writer, Error> {
    let checkpoint = spec.train.checkpoint;
    let folder = Path::new(&spec.checkpoints);
    Ok(Writer::open(folder, Identity::of(spec), checkpoint.keep, checkpoint.codec, resumed)?)
}

#[cfg(feature = "mutants")]
fn open_writer(spec: &Spec, setting: Setting, resumed: Option<&checkpoint::Manifest>) -> Result<Writer, Error> {
    let (folder, checkpoint) = (Path::new(&spec.checkpoints), spec.train.checkpoint);
    let (keep, codec) = (checkpoint.keep, checkpoint.codec);
    Ok(Writer::open_mutant(folder, Identity::of(spec), keep, codec, resumed, setting.mutant)?)
}

/// Says how much memory each of several ranks has used at its peak, and returns it.
fn tell_memory(channel: &Channel, ranks: &Ranks) -> Result<Vec<u64>, Error> {
    if ranks.size() == 1 {
        return Ok(Vec::new());
    }
    let figures = ranks.each(torch::peak_memory()?.largest() as f64)?;
    let told: Vec<String> = figures.iter().map(|bytes| format!("{:.0} MB", bytes / 1e6)).collect();
    channel.send(Report::Note { text: format!("peak memory of the ranks, from rank 0 on: {}", told.join(", ")) });
    Ok(figures.into_iter().map(|bytes| bytes as u64).collect())
}

/// Whether the job's target is met, now or in an earlier attempt.
fn reached(spec: &Spec, trainer: &Trainer) -> bool {
    match (spec.train.stop.and_then(|stop| stop.accuracy), trainer.progress.best) {
        (Some(enough), Some(best)) => best.accuracy >= enough.get(),
        (None, _) | (_, None) => false,
    }
}

fn evaluated(step: u64, epoch: u32, split: EvaluatedSplit, score: &Score, best: bool) -> Report {
    let Score { loss, accuracy, figures, .. } = *score;
    Report::Evaluated(Evaluated { step, epoch, split, loss, accuracy, best, figures })
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
