//! The training state: everything that a step changes, and how it is saved and resumed.
//!
//! The complete state is: weights and running statistics, the optimizer's tensors, the random number generators, the
//! best weights, and [`TrainProgress`]. The schedule is a function of the step, and the loader of the position, so
//! neither has state of its own.

pub mod average;
mod best;
pub mod pretrained;
mod progress;
mod resume;
mod saved;
mod snapshot;
mod tensors;
mod trial;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use checkpoint::{BestWeights, Placement};
use data::Cursor;
use domain::finding::{Cause, Finding};
use domain::train::{Average, ModelSource, Module, Train};
use tch::{Device, Tensor};

use crate::error::Error;
use crate::model::{BuildHooks, ModelShape, Named, Network, Weights, fingerprint};
use crate::optim::GradScaler;
use crate::optim::schedule::{EpochOrigin, Length};
use crate::optim::{ModelOptimizer, kinds, unknown_prefix};
use crate::ranks::shards::StateKeys;
use crate::ranks::{ParamSet, Ranks};
use crate::step::precision::ComputeFormat;
use crate::torch;
use average::AveragedModel;
use pretrained::Pretrained;
use saved::{WholeWeights, fill_from_files};
use tensors::{fill, state_mismatch};
use trial::trial_step;

pub use best::WhichWeights;
pub use progress::{BestScore, TrainProgress};
pub use saved::{CheckpointFiles, Resumed};
pub(crate) use tensors::{copy, to_tensor as tensor_of};

/// The tensors of all ranks' generators, of the CPU and of CUDA devices.
const GENERATORS: [&str; 2] = ["random.ranks", "random.ranks.cuda"];

/// State that a resume omits, so that the chaos test can prove that it would notice. Empty in any other build.
#[derive(Debug, Clone, Copy, Default)]
pub struct OmittedState {
    /// The state of the random number generators.
    pub random: bool,
    /// The state of the optimiser.
    pub optimizer: bool,
    /// The position within the epoch.
    pub position: bool,
    /// The comparison of the data with that of the checkpoint.
    pub data: bool,
    /// Not of a resume: the check that gradients and saved states are finite.
    pub finite_check: bool,
}

/// The initial state of a run: a network that is complete on every rank until the ranks divide it, or divided from the
/// start if no rank may have all of it.
pub struct InitialState {
    /// The network.
    pub network: Network,
    progress: TrainProgress,
    best: Option<Arc<BestWeights>>,
    device: Device,
    /// The saved state besides the weights, if any.
    resumed: Option<SavedState>,
    /// Weights of the first rank for a network that is divided.
    whole: Option<WholeWeights>,
    omitted: OmittedState,
}

/// The saved state besides the weights.
enum SavedState {
    /// In memory, on the first rank.
    Tensors(Vec<checkpoint::Tensor>),
    /// In files that every rank reads.
    Files(Box<CheckpointFiles>),
}

/// A network in training.
pub struct Trainer {
    /// The trained network.
    pub network: Network,
    /// What trains it.
    pub optimizer: ModelOptimizer,
    /// How far it has come.
    pub progress: TrainProgress,
    /// The average of its weights, if configured.
    pub average: Option<AveragedModel>,
    /// This rank's weights between two steps: all, or a part of each.
    held: Weights,
    /// The kinds of optimizer state per parameter.
    kinds: &'static [&'static str],
    /// If each rank saves its own part: the placement of each of its tensors.
    places: Arc<BTreeMap<String, Placement>>,
    /// On the first rank, or a part of them on each that saves its own.
    best: Option<Arc<BestWeights>>,
    device: Device,
}

/// The mean of the weights, as it is saved.
const AVERAGE: StateKeys<'static> = StateKeys { names: &["average"], of: ParamSet::All };

impl InitialState {
    /// A newly initialized network.
    pub fn fresh(
        train: &Train,
        shape: ModelShape,
        device: Device,
        threads: u32,
        ranks: &mut Ranks,
    ) -> Result<InitialState, Error> {
        ranks.forget_division();
        let layout = train.memory_format.unwrap_or_default();
        let (mut network, module) = match &train.model {
            ModelSource::Named(model) => {
                let half = ComputeFormat::choose(train.precision, device).half();
                let dividing = ranks.dividing(train.parallel, half);
                let on_block = dividing.as_ref().map(|dividing| dividing.on_block(&train.parameters.freeze));
                let hooks = BuildHooks { sync_batch_norm: ranks.moments(), on_block };
                let network = Network::among(hooks, *model, shape, train.seed, device, layout)?;
                dividing.into_iter().for_each(|dividing| ranks.take_division(dividing));
                (network, None)
            }
            ModelSource::Module(Module::Torchscript(path)) => {
                let path = Path::new(path);
                let network = Network::of_module(path, shape, train.seed, device, layout)?;
                (network, Some(fingerprint(path)?))
            }
        };
        network.set_dropout(train.dropout);
        freeze(&network, &train.parameters.freeze)?;
        if let Some(prefix) = unknown_prefix(&train.parameters, network.weights().in_order()) {
            let message = format!("no parameter's name begins with `{prefix}`, as a group of `parameters.groups` says");
            let hint = "the names are those in the exported `model.safetensors`; write the beginning of one";
            return Err(Finding::new(Cause::Job, message).hint(hint).into());
        }
        if module.is_some() {
            trial_step(&network, train, shape, device)?;
        }
        let progress = TrainProgress {
            step: 0,
            epoch: 0,
            position: 0,
            evaluated: true,
            threads,
            best: None,
            module,
            data: None,
            origin: EpochOrigin::default(),
            averaged: matches!(train.average, Some(Average::Swa(_))).then_some(0),
        };
        let omitted = OmittedState::default();
        Ok(InitialState { network, progress, best: None, device, resumed: None, whole: None, omitted })
    }

    /// Restores a saved state. Either all of it fits, or it is refused: the file is of the same job.
    pub fn restore(&mut self, resumed: Resumed, omitted: OmittedState, ranks: &Ranks) -> Result<(), Error> {
        let state = serde_json::from_value(resumed.manifest().state.clone());
        let mut progress: TrainProgress =
            state.map_err(|error| state_mismatch(&format!("its progress cannot be read: {error}")))?;
        if progress.module != self.progress.module {
            let message = "the module's file is not the one that this run began with";
            return Err(Finding::new(Cause::Job, message)
                .hint("put the old file back, or start over with a new run")
                .into());
        }
        if omitted.position {
            progress.position = 0;
        }
        if resumed.lost_best().is_some() {
            // The next evaluation determines the best weights again, including the one of this step if an epoch ends
            // here.
            (progress.best, progress.evaluated) = (None, false);
        }
        self.progress = progress;
        self.omitted = omitted;
        let is_divided = ranks.division().is_some();
        let weights = self.network.weights();
        self.resumed = Some(match resumed {
            Resumed::Whole(loaded) => {
                // A checkpoint after a change of the data may name the best weights of before.
                self.best = loaded.best.filter(|_| self.progress.best.is_some()).map(Arc::new);
                if is_divided {
                    fill(weights.buffers(), &loaded.model)?;
                    self.whole = Some(WholeWeights::Loaded(loaded.model));
                } else {
                    fill(weights.all(), &loaded.model)?;
                }
                SavedState::Tensors(loaded.training)
            }
            Resumed::Files(files) => {
                let parameters = weights.parameters().iter().filter(|_| !is_divided);
                fill_from_files(parameters.chain(weights.buffers()), &files.model, |_| None, |_| false)?;
                SavedState::Files(files)
            }
        });
        Ok(())
    }

    /// Takes over pretrained weights, on the first rank.
    pub fn start_from(&mut self, pretrained: Pretrained, ranks: &Ranks) -> Result<(), Error> {
        let weights = self.network.weights();
        if ranks.division().is_none() {
            return pretrained.fill(weights.all());
        }
        pretrained.fill(weights.buffers())?;
        self.whole = Some(WholeWeights::Pretrained(pretrained));
        Ok(())
    }

    /// Records the digest of the data. `changed` means that the data differs from before, and has the current numbers
    /// of training samples and samples per batch.
    pub fn trains_on(&mut self, digest: Option<String>, changed: Option<(u64, u64)>) {
        self.progress.data = digest;
        if let (Some((samples, batch)), true) = (changed, self.resumed.is_some()) {
            self.progress.count_anew(samples, batch);
            self.best = None;
        }
    }

    /// Continues after `step` and at `cursor`, as if the steps since this state had updated nothing.
    pub fn skip_to(&mut self, step: u64, cursor: Cursor) {
        (self.progress.step, self.progress.epoch, self.progress.position) = (step, cursor.epoch, cursor.pos);
        self.progress.evaluated = false;
    }

    /// Broadcasts the first rank's state. Each rank keeps its shard of the network, of the saved optimizer state, of the
    /// random generators and of the averaged weights.
    pub fn among(self, train: &Train, ranks: &mut Ranks) -> Result<Trainer, Error> {
        let InitialState { mut network, mut progress, best, device, resumed, whole, omitted } = self;
        let format = ComputeFormat::choose(train.precision, device);
        let [is_resumed] = ranks.broadcast_flags([resumed.is_some()])?;
        if ranks.size() > 1 {
            let text = serde_json::to_string(&progress).map_err(|error| state_mismatch(&error.to_string()))?;
            let text = ranks.broadcast_text(0, &text)?;
            progress = serde_json::from_str(&text).map_err(|error| state_mismatch(&error.to_string()))?;
        }
        if ranks.division().is_some() {
            ranks.broadcast(network.weights().buffers())?;
            resume::scatter_weights(whole.as_ref(), &ranks.held(network.weights()), ranks)?;
            drop(whole);
        } else {
            ranks.broadcast(network.weights().all())?;
            ranks.divide(&mut network, train.parallel, format.half())?;
        }

        let held = ranks.held(network.weights());
        let kept = ranks.kept(&held, train.parallel);
        let mut optimizer = ModelOptimizer::with(train.optimizer, &train.parameters, train.offload, &kept)?;
        if format == ComputeFormat::Fp16 {
            optimizer = optimizer.scaled(GradScaler::new(device)?);
        }
        let average = train.average.map(|rule| AveragedModel::new(rule, &held)).transpose()?;
        let kinds = kinds(train.optimizer);
        let places = Arc::new(resume::places(ranks, kinds));
        let mut trainer = Trainer { network, optimizer, progress, average, held, kinds, places, best, device };
        match resumed {
            Some(SavedState::Files(files)) => trainer.resume_files(&files, omitted, train.seed, ranks)?,
            Some(SavedState::Tensors(saved)) => trainer.resume(is_resumed, &saved, omitted, train.seed, ranks)?,
            None => trainer.resume(is_resumed, &[], omitted, train.seed, ranks)?,
        }
        Ok(trainer)
    }
}

impl Trainer {
    /// A newly initialized network, divided among the ranks.
    pub fn fresh(
        train: &Train,
        shape: ModelShape,
        device: Device,
        threads: u32,
        ranks: &mut Ranks,
    ) -> Result<Trainer, Error> {
        InitialState::fresh(train, shape, device, threads, ranks)?.among(train, ranks)
    }

    /// The optimizer state per parameter.
    fn kept(&self) -> StateKeys<'static> {
        StateKeys { names: self.kinds, of: ParamSet::Trained }
    }

    /// The local weights, and the buffers.
    fn here(&self) -> impl Iterator<Item = &Named> {
        self.held.parameters().iter().chain(self.network.weights().buffers())
    }

    /// Whether all that a checkpoint holds is finite, on every rank: weights, buffers, optimizer state and averages. The
    /// constants of a user's own module may be infinite, as those of masks are.
    ///
    /// # Errors
    /// When libtorch, or the exchange between ranks, fails.
    pub fn is_finite(&self, ranks: &Ranks) -> Result<bool, Error> {
        let (optimizer, average) = (self.optimizer.state(), self.average.iter().flat_map(AveragedModel::state));
        let average: Vec<&Named> = average.collect();
        let buffers = self.network.weights().buffers().iter().filter(|_| self.progress.module.is_none());
        let all = self.held.parameters().iter().chain(buffers).chain(&optimizer).chain(average);
        let is_finite = torch::are_finite(all.map(|named| &named.tensor))?;
        Ok(!ranks.any(!is_finite)?)
    }

    /// Updates the averaged weights (EMA or SWA) with those of the current step. Does nothing without `average`, or where
    /// SWA takes no weights at this step.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn average(&mut self, length: Length) -> Result<(), Error> {
        match &self.average {
            Some(average) => Ok(average.follow(length, self.progress.step, &mut self.progress.averaged)?),
            None => Ok(()),
        }
    }

    /// Replaces the weights by their average, if there is one yet, and returns the weights.
    pub fn swap_in_average(&self, length: Length, ranks: &Ranks) -> Result<Option<SwappedWeights>, Error> {
        let TrainProgress { step, averaged, .. } = self.progress;
        let Some(average) = self.average.as_ref().filter(|one| one.is_begun(length, step, averaged)) else {
            return Ok(None);
        };
        let copies = self.here().map(|named| torch::copied(&named.tensor));
        let copies = copies.collect::<torch::Result<Vec<Tensor>>>()?;
        average.put()?;
        ranks.refresh()?;
        let has_statistics = !self.network.weights().buffers().is_empty();
        Ok(Some(SwappedWeights { copies, batches: if has_statistics { average.batches() } else { 0 } }))
    }

    /// Restores the weights that the average replaced.
    pub fn swap_back(&self, lent: SwappedWeights, ranks: &Ranks) -> Result<(), Error> {
        for (named, copy) in self.here().zip(lent.copies) {
            let mut target = named.tensor.f_detach().map_err(torch::Error::from)?;
            target.f_copy_(&copy).map_err(torch::Error::from)?;
        }
        Ok(ranks.refresh()?)
    }

    fn generators(&self) -> Vec<(Device, &'static str)> {
        let mut all = vec![(Device::Cpu, "random.cpu")];
        if self.device.is_cuda() {
            all.push((self.device, "random.cuda"));
        }
        all
    }
}

/// The name under which the generators of all ranks are saved.
fn generators_name(device: Device) -> &'static str {
    GENERATORS[usize::from(device.is_cuda())]
}

/// The weights while they are replaced by their average.
pub struct SwappedWeights {
    copies: Vec<Tensor>,
    /// Number of batches from which statistics must be measured for the average; 0 if there are none.
    pub batches: u32,
}

/// Freezes parameters whose names have these prefixes.
fn freeze(network: &Network, beginnings: &[String]) -> Result<(), Error> {
    let parameters = network.weights().parameters();
    for beginning in beginnings {
        let mut named = parameters.iter().filter(|named| named.name.starts_with(beginning)).peekable();
        if named.peek().is_none() {
            let some = parameters.first().map_or("", |named| named.name.as_str());
            let message = format!("no parameter's name begins with `{beginning}`, so there is none to freeze");
            let hint = format!("names are such as `{some}`; write the beginning of one");
            return Err(Finding::new(Cause::Job, message).hint(hint).into());
        }
        for named in named {
            let _ = named.tensor.f_set_requires_grad(false).map_err(torch::Error::from)?;
        }
    }
    if parameters.iter().all(|named| !named.tensor.requires_grad()) {
        let message = "every parameter is frozen, so there is nothing to train";
        return Err(Finding::new(Cause::Job, message).hint("leave a part out of `parameters.freeze`").into());
    }
    Ok(())
}
