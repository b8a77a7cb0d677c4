//! Everything that one step changes, and how it is copied out to be saved and back to be resumed.
//!
//! The whole state is: weights and running statistics, the optimiser's tensors, the random number generators, the best
//! weights so far, and [`Progress`]. The schedule is a function of the step, and the loader of the position, so
//! neither has state of its own.

use std::sync::Arc;
use std::time::Instant;

use checkpoint::{Best, Dtype, Loaded, Snapshot};
use domain::finding::{Cause, Finding};
use domain::train::Train;
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};

use crate::average::Averaged;
use crate::error::Error;
use crate::model::{Named, Network, Shape};
use crate::optim::Optimizer;
use crate::precision::{Format, Scaler};
use crate::ranks::{Ranks, shards};
use crate::schedule::Length;
use crate::torch;

/// The tensor of all ranks' generators.
const GENERATORS: &str = "random.ranks";

/// What is saved besides tensors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Optimiser steps done.
    pub step: u64,
    /// Epoch of the next batch.
    pub epoch: u64,
    /// Samples of that epoch that were used.
    pub position: u64,
    /// Whether the validation split was scored after this step. Always so at an epoch's end, except when an order to
    /// stop came in between.
    pub evaluated: bool,
    /// Threads of the tensor library, which are part of the result.
    pub threads: u32,
    /// The best scores so far.
    pub best: Option<BestScore>,
}

/// The best scores on the validation split, and when they were made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BestScore {
    /// Step after which they were made.
    pub step: u64,
    /// Mean loss.
    pub loss: f64,
    /// Share of samples that were told right.
    pub accuracy: f64,
}

/// What a resume leaves out, so that the chaos test can prove that it would notice. Nothing, in any other build.
#[derive(Debug, Clone, Copy, Default)]
pub struct LeftOut {
    /// The state of the random number generators.
    pub random: bool,
    /// The state of the optimiser.
    pub optimizer: bool,
    /// The position within the epoch.
    pub position: bool,
}

/// A network in training.
pub struct Trainer {
    /// What is trained.
    pub network: Network,
    /// What trains it.
    pub optimizer: Optimizer,
    /// How far it has come.
    pub progress: Progress,
    /// The mean of its weights, where one is kept.
    pub average: Option<Averaged>,
    best: Option<Arc<Best>>,
    device: Device,
}

impl Trainer {
    /// A network that has seen nothing.
    pub fn fresh(
        train: &Train,
        shape: Shape,
        device: Device,
        threads: u32,
        ranks: &mut Ranks,
    ) -> Result<Trainer, Error> {
        let moments = ranks.moments();
        let network = Network::over(moments, train.model, shape, train.seed, device, train.memory_format)?;
        freeze(&network, &train.parameters.freeze)?;
        let kept = ranks.kept(network.weights(), train.parallel);
        let mut optimizer = Optimizer::with(train.optimizer, &train.parameters, &kept)?;
        if Format::choose(train.precision, device) == Format::Fp16 {
            optimizer = optimizer.scaled(Scaler::new(device)?);
        }
        let average = train.average.map(|rule| Averaged::new(rule, network.weights())).transpose()?;
        let progress = Progress { step: 0, epoch: 0, position: 0, evaluated: true, threads, best: None };
        Ok(Trainer { network, optimizer, progress, average, best: None, device })
    }

    /// Takes over a saved state. All of it fits, or nothing does: the file is of the same job. Returns what other
    /// ranks may want of it.
    pub fn restore(
        &mut self,
        loaded: Loaded,
        left_out: LeftOut,
        ranks: &Ranks,
    ) -> Result<Vec<checkpoint::Tensor>, Error> {
        let state = serde_json::from_value(loaded.manifest.state);
        let mut progress: Progress = state.map_err(|error| misfit(&format!("its progress cannot be read: {error}")))?;
        fill(self.network.weights().all(), &loaded.model)?;
        if !left_out.optimizer {
            // A run that goes on with scaled losses, where it began without, scales them as a fresh one.
            let is_there = |name: &str| !name.starts_with("scaler.") || find(&loaded.training, name).is_ok();
            let wanted: Vec<_> = self.optimizer.state().into_iter().filter(|named| is_there(&named.name)).collect();
            fill(&wanted, &loaded.training)?;
        }
        if let Some(average) = &self.average {
            fill(average.state(), &loaded.training)?;
        }
        if !left_out.random {
            for (device, name) in self.generators() {
                torch::set_random_state(device, &to_tensor(find(&loaded.training, name)?)?)?;
            }
        }
        if left_out.position {
            progress.position = 0;
        }
        self.best = loaded.best.map(Arc::new);
        self.progress = progress;
        Ok(if ranks.size() > 1 { loaded.training } else { Vec::new() })
    }

    /// Copies the state of all ranks, into the memory of an earlier snapshot where there is one; none on a rank that
    /// is not the first.
    pub fn snapshot(&self, spare: Option<Snapshot>, ranks: &Ranks) -> Result<Option<Snapshot>, Error> {
        let began = Instant::now();
        ranks.check_same(&self.network, self.progress.step)?;
        let others = shards::gather(&self.optimizer.state(), ranks)?;
        let generators = if ranks.size() > 1 { Some(ranks.generators()?) } else { None };
        if !ranks.is_first() {
            return Ok(None);
        }
        let (mut old_model, mut old_training) = spare.map_or_else(Default::default, |old| (old.model, old.training));
        old_model.reverse();
        old_training.reverse();
        let mut training = copy(&self.optimizer.state(), &mut old_training)?;
        if let Some(average) = &self.average {
            training.extend(copy(average.state(), &mut old_training)?);
        }
        for (device, name) in self.generators() {
            let generator = Named { name: name.into(), tensor: torch::random_state(device)? };
            training.extend(copy([&generator], &mut old_training)?);
        }
        if let Some(tensor) = generators {
            training.extend(copy([&Named { name: GENERATORS.into(), tensor }], &mut old_training)?);
        }
        training.extend(copy(&others, &mut old_training)?);
        let state = serde_json::to_value(&self.progress).map_err(|error| misfit(&error.to_string()))?;
        let model = copy(self.network.weights().all(), &mut old_model)?;
        Ok(Some(Snapshot { step: self.progress.step, began, model, training, state, best: self.best.clone() }))
    }

    /// Takes the weights of the step that was just made into their mean.
    pub fn average(&self, length: Length) -> Result<(), Error> {
        match &self.average {
            Some(average) => Ok(average.follow(length, self.progress.step)?),
            None => Ok(()),
        }
    }

    /// Puts the mean of the weights in their place, if there is one by now, and returns what was there.
    pub fn lend_average(&self, length: Length) -> Result<Option<Lent>, Error> {
        let Some(average) = self.average.as_ref().filter(|one| one.is_begun(length, self.progress.step)) else {
            return Ok(None);
        };
        let copies = self.network.weights().all().map(|named| torch::copied(&named.tensor));
        let copies = copies.collect::<torch::Result<Vec<Tensor>>>()?;
        average.put()?;
        let has_statistics = !self.network.weights().buffers().is_empty();
        Ok(Some(Lent { copies, batches: if has_statistics { average.batches() } else { 0 } }))
    }

    /// Puts back what the mean took the place of.
    pub fn take_back(&self, lent: Lent) -> Result<(), Error> {
        for (named, copy) in self.network.weights().all().zip(lent.copies) {
            let mut target = named.tensor.f_detach().map_err(torch::Error::from)?;
            target.f_copy_(&copy).map_err(torch::Error::from)?;
        }
        Ok(())
    }

    /// Remembers the present weights as the best ones.
    pub fn keep_best(&mut self, score: BestScore) -> Result<(), Error> {
        let model = copy(self.network.weights().all(), &mut Vec::new())?;
        self.best = Some(Arc::new(Best { step: score.step, model }));
        self.progress.best = Some(score);
        Ok(())
    }

    /// Puts the best weights into the network, and returns them as they are saved.
    pub fn use_best(&mut self) -> Result<Arc<Best>, Error> {
        let best = match &self.best {
            Some(best) => Arc::clone(best),
            None => return Err(misfit("it holds no best weights")),
        };
        fill(self.network.weights().all(), &best.model)?;
        Ok(best)
    }

    fn generators(&self) -> Vec<(Device, &'static str)> {
        let mut all = vec![(Device::Cpu, "random.cpu")];
        if self.device.is_cuda() {
            all.push((self.device, "random.cuda"));
        }
        all
    }
}

/// Gives all ranks the state of the first one: its network, its progress, and of the tensors that it resumed from
/// those of each rank's optimiser and generator.
pub fn spread(trainer: &mut Trainer, resumed: &[checkpoint::Tensor], ranks: &Ranks, seed: u64) -> Result<(), Error> {
    if ranks.size() == 1 {
        return Ok(());
    }
    let progress = serde_json::to_string(&trainer.progress).map_err(|error| misfit(&error.to_string()))?;
    let progress = ranks.spread_text(0, &progress)?;
    trainer.progress = serde_json::from_str(&progress).map_err(|error| misfit(&error.to_string()))?;
    ranks.spread(trainer.network.weights().all())?;
    if let Some(average) = &trainer.average {
        ranks.spread(average.state())?;
    }
    if trainer.progress.step > 0 {
        shards::scatter(&trainer.optimizer.state(), |name| to_tensor(find(resumed, name)?), ranks)?;
    }
    let saved = resumed.iter().find(|tensor| tensor.name == GENERATORS).map(to_tensor).transpose()?;
    Ok(ranks.set_generators(saved, seed, trainer.progress.step)?)
}

/// The weights while their mean stands in their place.
pub struct Lent {
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

/// Copies tensors to plain memory, each in C order whatever its memory format. `spare` is taken from its end.
pub(crate) fn copy<'a>(
    tensors: impl IntoIterator<Item = &'a Named>,
    spare: &mut Vec<checkpoint::Tensor>,
) -> Result<Vec<checkpoint::Tensor>, Error> {
    let mut copies = Vec::new();
    for named in tensors {
        let tensor = named.tensor.f_detach().map_err(torch::Error::from)?;
        let plain = tensor.f_to_device(Device::Cpu).and_then(|tensor| tensor.f_contiguous());
        let plain = plain.map_err(torch::Error::from)?;
        let dtype = dtype(plain.kind()).ok_or_else(|| misfit(&format!("`{}` is {:?}", named.name, plain.kind())))?;
        let length = plain.numel() * dtype.bytes() as usize;
        let mut bytes = spare.pop().map(|old| old.bytes).unwrap_or_default();
        bytes.resize(length, 0);
        plain.f_copy_data_u8(&mut bytes, plain.numel()).map_err(torch::Error::from)?;
        let shape = plain.size().into_iter().map(i64::unsigned_abs).collect();
        copies.push(checkpoint::Tensor { name: named.name.clone(), dtype, shape, bytes });
    }
    Ok(copies)
}

/// Writes saved values into tensors of the same names.
fn fill<'a>(tensors: impl IntoIterator<Item = &'a Named>, saved: &[checkpoint::Tensor]) -> Result<(), Error> {
    for named in tensors {
        let values = to_tensor(find(saved, &named.name)?)?;
        if values.size() != named.tensor.size() || values.kind() != named.tensor.kind() {
            return Err(misfit(&format!("`{}` has another shape", named.name)));
        }
        let mut target = named.tensor.f_detach().map_err(torch::Error::from)?;
        target.f_copy_(&values).map_err(torch::Error::from)?;
    }
    Ok(())
}

/// Writes the values of a file, in whatever float format it has, into tensors of the same names and shapes.
pub(crate) fn fill_from<'a>(
    tensors: impl IntoIterator<Item = &'a Named>,
    saved: &[checkpoint::Tensor],
) -> Result<(), Error> {
    for named in tensors {
        let values = to_tensor(find(saved, &named.name)?)?;
        let mut target = named.tensor.f_detach().map_err(torch::Error::from)?;
        target.f_copy_(&values).map_err(torch::Error::from)?;
    }
    Ok(())
}

/// The tensor of this name in a list that is sorted by name.
fn find<'a>(saved: &'a [checkpoint::Tensor], name: &str) -> Result<&'a checkpoint::Tensor, Error> {
    let missing = || misfit(&format!("`{name}` is missing"));
    saved.iter().find(|tensor| tensor.name == name).ok_or_else(missing)
}

fn to_tensor(saved: &checkpoint::Tensor) -> Result<Tensor, Error> {
    let shape: Vec<i64> = saved.shape.iter().map(|length| *length as i64).collect();
    Ok(Tensor::f_from_data_size(&saved.bytes, &shape, kind(saved.dtype)).map_err(torch::Error::from)?)
}

fn kind(dtype: Dtype) -> Kind {
    match dtype {
        Dtype::F64 => Kind::Double,
        Dtype::I64 => Kind::Int64,
        Dtype::F32 => Kind::Float,
        Dtype::I32 => Kind::Int,
        Dtype::BF16 => Kind::BFloat16,
        Dtype::F16 => Kind::Half,
        Dtype::U8 => Kind::Uint8,
        Dtype::Bool => Kind::Bool,
    }
}

fn dtype(of: Kind) -> Option<Dtype> {
    use Dtype::*;
    [F64, I64, F32, I32, BF16, F16, U8, Bool].into_iter().find(|dtype| kind(*dtype) == of)
}

/// A verified checkpoint of this very job that does not fit is our own mistake.
fn misfit(why: &str) -> Error {
    let finding = Finding::new(Cause::Internal, format!("the saved state does not fit this job: {why}"));
    finding.hint("start the run afresh, and report this with the rank's log").into()
}
