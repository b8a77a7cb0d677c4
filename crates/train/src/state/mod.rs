//! Everything that one step changes, and how it is copied out to be saved and back to be resumed.
//!
//! The whole state is: weights and running statistics, the optimiser's tensors, the random number generators, the best
//! weights so far, and [`TrainProgress`]. The schedule is a function of the step, and the loader of the position, so
//! neither has state of its own.

pub mod average;
mod best;
pub mod pretrained;
mod progress;
mod tensors;
mod trial;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use checkpoint::{BestWeights, LoadedCheckpoint, Snapshot};
use data::Cursor;
use domain::finding::{Cause, Finding};
use domain::train::{ModelSource, Module, Train};
use tch::{Device, Tensor};

use crate::error::Error;
use crate::model::{ModelShape, Named, Network, Weights, fingerprint};
use crate::optim::GradScaler;
use crate::optim::schedule::{EpochOrigin, Length};
use crate::optim::{ModelOptimizer, kinds};
use crate::ranks::shards::{self, StateKeys};
use crate::ranks::{ParamSet, Ranks};
use crate::step::precision::ComputeFormat;
use crate::torch;
use average::AveragedModel;
use tensors::{HostCopies, fill, find, state_mismatch, to_tensor};
use trial::trial_step;

pub use progress::{BestScore, TrainProgress};
pub(crate) use tensors::{copy, fill_from};

/// The tensors of all ranks' generators, of the CPU and of CUDA devices.
const GENERATORS: [&str; 2] = ["random.ranks", "random.ranks.cuda"];

/// What a resume leaves out, so that the chaos test can prove that it would notice. Nothing, in any other build.
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

/// What a run begins with: a network that is whole on every rank, until the ranks divide it.
pub struct InitialState {
    /// The network.
    pub network: Network,
    progress: TrainProgress,
    best: Option<Arc<BestWeights>>,
    device: Device,
    /// What was saved besides the weights, where something was.
    resumed: Option<Vec<checkpoint::Tensor>>,
    omitted: OmittedState,
}

/// A network in training.
pub struct Trainer {
    /// What is trained.
    pub network: Network,
    /// What trains it.
    pub optimizer: ModelOptimizer,
    /// How far it has come.
    pub progress: TrainProgress,
    /// The mean of its weights, where one is kept.
    pub average: Option<AveragedModel>,
    /// What this rank has of the weights between two steps: all, or a part of each.
    held: Weights,
    /// What the optimiser keeps for each parameter.
    kinds: &'static [&'static str],
    best: Option<Arc<BestWeights>>,
    device: Device,
}

/// The mean of the weights, as it is saved.
const AVERAGE: StateKeys<'static> = StateKeys { names: &["average"], of: ParamSet::All };

impl InitialState {
    /// A network that has seen nothing.
    pub fn fresh(
        train: &Train,
        shape: ModelShape,
        device: Device,
        threads: u32,
        ranks: &Ranks,
    ) -> Result<InitialState, Error> {
        let moments = ranks.moments();
        let (mut network, module) = match &train.model {
            ModelSource::Named(model) => {
                (Network::over(moments, *model, shape, train.seed, device, train.memory_format)?, None)
            }
            ModelSource::Module(Module::Torchscript(path)) => {
                let path = Path::new(path);
                let network = Network::of_module(path, shape, train.seed, device, train.memory_format)?;
                (network, Some(fingerprint(path)?))
            }
        };
        network.set_dropout(train.dropout);
        freeze(&network, &train.parameters.freeze)?;
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
        };
        Ok(InitialState { network, progress, best: None, device, resumed: None, omitted: OmittedState::default() })
    }

    /// Takes over a saved state. All of it fits, or nothing does: the file is of the same job.
    pub fn restore(&mut self, loaded: LoadedCheckpoint, omitted: OmittedState) -> Result<(), Error> {
        let state = serde_json::from_value(loaded.manifest.state);
        let mut progress: TrainProgress =
            state.map_err(|error| state_mismatch(&format!("its progress cannot be read: {error}")))?;
        if progress.module != self.progress.module {
            let message = "the module's file is not the one that this run began with";
            return Err(Finding::new(Cause::Job, message)
                .hint("put the old file back, or start over with a new run")
                .into());
        }
        fill(self.network.weights().all(), &loaded.model)?;
        if omitted.position {
            progress.position = 0;
        }
        if loaded.lost_best.is_some() {
            // The next evaluation finds the best weights anew; also the one of this step, if an epoch ends here.
            (progress.best, progress.evaluated) = (None, false);
        }
        self.best = loaded.best.map(Arc::new);
        self.progress = progress;
        (self.resumed, self.omitted) = (Some(loaded.training), omitted);
        Ok(())
    }

    /// Remembers the digest of the data. `changed` says that it is not the data of before: the samples of training and
    /// of a batch now.
    pub fn trains_on(&mut self, digest: Option<String>, changed: Option<(u64, u64)>) {
        self.progress.data = digest;
        if let (Some((samples, batch)), true) = (changed, self.resumed.is_some()) {
            self.progress.count_anew(samples, batch);
        }
    }

    /// Goes on after `step` and behind `cursor`, as if the steps since this state had updated nothing.
    pub fn skip_to(&mut self, step: u64, cursor: Cursor) {
        (self.progress.step, self.progress.epoch, self.progress.position) = (step, cursor.epoch, cursor.pos);
        self.progress.evaluated = false;
    }

    /// Gives all ranks the state of the first one, each as much as it keeps of it: of the network, and of what was
    /// saved of the optimiser, the generators and the mean of the weights.
    pub fn among(self, train: &Train, ranks: &mut Ranks) -> Result<Trainer, Error> {
        let InitialState { mut network, mut progress, best, device, resumed, omitted } = self;
        let [is_resumed] = ranks.broadcast_flags([resumed.is_some()])?;
        if ranks.size() > 1 {
            let text = serde_json::to_string(&progress).map_err(|error| state_mismatch(&error.to_string()))?;
            let text = ranks.broadcast_text(0, &text)?;
            progress = serde_json::from_str(&text).map_err(|error| state_mismatch(&error.to_string()))?;
        }
        ranks.broadcast(network.weights().all())?;
        ranks.divide(&mut network, train.parallel)?;

        let held = ranks.held(network.weights());
        let kept = ranks.kept(&held, train.parallel);
        let mut optimizer = ModelOptimizer::with(train.optimizer, &train.parameters, train.offload, &kept)?;
        if ComputeFormat::choose(train.precision, device) == ComputeFormat::Fp16 {
            optimizer = optimizer.scaled(GradScaler::new(device)?);
        }
        let average = train.average.map(|rule| AveragedModel::new(rule, &held)).transpose()?;
        let kinds = kinds(train.optimizer);
        let trainer = Trainer { network, optimizer, progress, average, held, kinds, best, device };
        trainer.resume(is_resumed, &resumed.unwrap_or_default(), omitted, train.seed, ranks)?;
        Ok(trainer)
    }
}

impl Trainer {
    /// A network that has seen nothing, divided among the ranks.
    pub fn fresh(
        train: &Train,
        shape: ModelShape,
        device: Device,
        threads: u32,
        ranks: &mut Ranks,
    ) -> Result<Trainer, Error> {
        InitialState::fresh(train, shape, device, threads, ranks)?.among(train, ranks)
    }

    /// Fills what each rank keeps with what the first one has `saved`.
    fn resume(
        &self,
        is_resumed: bool,
        saved: &[checkpoint::Tensor],
        omitted: OmittedState,
        seed: u64,
        ranks: &Ranks,
    ) -> Result<(), Error> {
        // A run that goes on with scaled losses, where it began without, scales them as a fresh one.
        let find = |name: &str| match find(saved, name) {
            Ok(tensor) => to_tensor(tensor).map(Some),
            Err(_) if !ranks.is_first() || name.starts_with("scaler.") => Ok(None),
            Err(error) => Err(error),
        };
        let [restores_optimizer] = ranks.broadcast_flags([is_resumed && !omitted.optimizer])?;
        if restores_optimizer {
            shards::scatter(&self.optimizer.state(), self.kept(), &find, ranks)?;
        }
        if let (Some(average), true) = (&self.average, is_resumed) {
            shards::scatter(average.state(), AVERAGE, &find, ranks)?;
        }
        if is_resumed && ranks.is_first() && !omitted.random {
            for (device, name) in self.generators() {
                torch::set_random_state(device, &to_tensor(self::find(saved, name)?)?)?;
            }
        }
        ranks.seed_per_share(seed, self.progress.step)?;
        for (device, _) in self.generators() {
            let found = saved.iter().find(|tensor| tensor.name == generators_name(device));
            ranks.set_generators(device, found.map(to_tensor).transpose()?)?;
        }
        Ok(())
    }

    /// What the optimiser keeps for each parameter.
    fn kept(&self) -> StateKeys<'static> {
        StateKeys { names: self.kinds, of: ParamSet::Trained }
    }

    /// Copies the state of all ranks, into the memory of an earlier snapshot where there is one; none on a rank that
    /// is not the first.
    pub fn snapshot(&self, spare: Option<Snapshot>, ranks: &Ranks) -> Result<Option<Snapshot>, Error> {
        let began = Instant::now();
        ranks.check_replicas(&self.network, self.progress.step)?;
        let (old_model, old_training) = spare.map_or_else(Default::default, |old| (old.model, old.training));
        let mut training = HostCopies::over(old_training);
        shards::gather(&self.optimizer.state(), self.kept(), ranks, &mut |named| training.add(named))?;
        if let Some(average) = &self.average {
            shards::gather(average.state(), AVERAGE, ranks, &mut |named| training.add(named))?;
        }
        let of_ranks = self.generators().into_iter().map(|(device, _)| Ok((device, ranks.generators(device)?)));
        let of_ranks = of_ranks.collect::<torch::Result<Vec<_>>>()?;
        let model = self.whole_weights(old_model, ranks)?;
        if !ranks.is_first() {
            return Ok(None);
        }
        for (device, name) in self.generators() {
            training.add(&Named { name: name.into(), tensor: torch::random_state(device)? })?;
        }
        for (device, tensor) in of_ranks.into_iter().filter_map(|(device, tensor)| Some((device, tensor?))) {
            training.add(&Named { name: generators_name(device).into(), tensor })?;
        }
        let state = serde_json::to_value(&self.progress).map_err(|error| state_mismatch(&error.to_string()))?;
        let (step, training, best) = (self.progress.step, training.made, self.best.clone());
        Ok(Some(Snapshot { step, began, model, training, state, best }))
    }

    /// Copies of all weights and buffers, sorted by name, on the first rank; nothing on the others.
    fn whole_weights(&self, spare: Vec<checkpoint::Tensor>, ranks: &Ranks) -> Result<Vec<checkpoint::Tensor>, Error> {
        let mut copies = HostCopies::over(spare);
        let weights = self.network.weights();
        match ranks.division() {
            Some(division) => {
                let mut failed = None;
                let own = |name: &str| {
                    let found = self.held.parameters().iter().find(|named| named.name == name);
                    found.map(|named| named.tensor.shallow_clone())
                };
                division.each_whole(ParamSet::All, &own, &mut |name, tensor| {
                    if failed.is_none() {
                        failed = copies.add(&Named { name: name.to_owned(), tensor }).err();
                    }
                    Ok(())
                })?;
                failed.map_or(Ok(()), Err)?;
                copies.made.sort_by(|left, right| left.name.cmp(&right.name));
            }
            None if ranks.is_first() => weights.parameters().iter().try_for_each(|named| copies.add(named))?,
            None => {}
        }
        if ranks.is_first() {
            weights.buffers().iter().try_for_each(|named| copies.add(named))?;
        }
        Ok(copies.made)
    }

    /// What is held here of the weights, and the buffers.
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
        let mut is_finite = true;
        let buffers = self.network.weights().buffers().iter().filter(|_| self.progress.module.is_none());
        for named in self.held.parameters().iter().chain(buffers).chain(&optimizer).chain(average) {
            is_finite = is_finite && torch::is_finite(&named.tensor)?;
        }
        Ok(!ranks.any(!is_finite)?)
    }

    /// Takes the weights of the step that was just made into their mean.
    pub fn average(&self, length: Length) -> Result<(), Error> {
        match &self.average {
            Some(average) => Ok(average.follow(length, self.progress.step)?),
            None => Ok(()),
        }
    }

    /// Puts the mean of the weights in their place, if there is one by now, and returns what was there.
    pub fn swap_in_average(&self, length: Length, ranks: &Ranks) -> Result<Option<SwappedWeights>, Error> {
        let Some(average) = self.average.as_ref().filter(|one| one.is_begun(length, self.progress.step)) else {
            return Ok(None);
        };
        let copies = self.here().map(|named| torch::copied(&named.tensor));
        let copies = copies.collect::<torch::Result<Vec<Tensor>>>()?;
        average.put()?;
        ranks.refresh()?;
        let has_statistics = !self.network.weights().buffers().is_empty();
        Ok(Some(SwappedWeights { copies, batches: if has_statistics { average.batches() } else { 0 } }))
    }

    /// Puts back what the mean took the place of.
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

/// What the generators of all ranks are saved as.
fn generators_name(device: Device) -> &'static str {
    GENERATORS[usize::from(device.is_cuda())]
}

/// The weights while their mean stands in their place.
pub struct SwappedWeights {
    copies: Vec<Tensor>,
    /// Batches from which statistics have to be measured for the mean; 0 where there are none.
    pub batches: u32,
}

/// Keeps parameters as they are whose names begin like this.
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
