//! One optimiser step: everything that is done with a batch, and nothing else.
//!
//! `xtask bench train` measures this function against PyTorch's and the whole run against this function.

use domain::train::{Recompute, Train};
use tch::{Device, Kind, Reduction, Tensor};

use crate::detect::{self, Sums};
use crate::model::{Network, Pass, Picture};
use crate::optim::Optimizer;
use crate::precision::Format;
use crate::profile::{Phase, Timeline};
use crate::ranks::Ranks;
use crate::recompute;
use crate::repeated::Repeated;
use crate::torch::{self, Error, Result};

/// What a step needs to know besides its batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recipe {
    /// Where the network is.
    pub device: Device,
    /// The format of matrix products.
    pub format: Format,
    /// Micro-batches that the batch is split into.
    pub accumulate: u32,
    /// Probability mass taken from the true class.
    pub label_smoothing: f64,
    /// Largest norm of the gradients.
    pub clip_norm: Option<f64>,
    /// Which blocks are computed again on the way back.
    pub recompute: Recompute,
}

impl Recipe {
    /// What the job says, on this device.
    pub fn of(train: &Train, device: Device) -> Recipe {
        Recipe {
            device,
            format: Format::choose(train.precision, device),
            accumulate: train.accumulate.max(1),
            label_smoothing: train.label_smoothing,
            clip_norm: train.clip_norm,
            recompute: train.recompute,
        }
    }
}

/// Labelled pictures or rows of words on the device.
#[derive(Debug)]
pub struct Samples {
    /// Normalised pixels, `samples × channels × height × width`; or numbers of words, `samples × length`, int64.
    pub values: Tensor,
    /// Which are words and which only fill a row, boolean; none where nothing fills. Where documents are kept apart, how
    /// far each word is from the beginning of its own, int64.
    pub mask: Option<Tensor>,
    /// One class a sample; at each place the word to be guessed, and −100 where none is; both int64. Or the share of each
    /// class in each sample, `samples × classes`, float, where pictures were mixed. Or the objects of each picture, as
    /// [`crate::detect::truths`] has them.
    pub labels: Tensor,
    /// Which part of the batch of all ranks they are.
    pub of: Of,
}

/// Which part of the batch of all ranks some samples are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Of {
    /// How many of them count: all, or none where a rank works for company only.
    pub counted: usize,
    /// Samples of all ranks.
    pub whole: usize,
}

impl Of {
    /// All of a batch.
    pub fn all(count: usize) -> Of {
        Of { counted: count, whole: count }
    }

    /// 1 if they count, else 0.
    pub fn weight(self) -> f64 {
        f64::from(u8::from(self.counted > 0))
    }
}

impl Samples {
    /// How many there are.
    pub fn count(&self) -> Result<i64> {
        Ok(self.labels.size().first().copied().unwrap_or(0))
    }

    /// The pass that these are sent through.
    pub fn pass(&self, train: bool) -> Pass {
        Pass { mask: self.mask.as_ref().map(Tensor::shallow_clone), ..Pass::whole(train) }
    }

    /// Some of them, which share their memory.
    fn part(&self, start: i64, length: i64) -> Result<Samples> {
        Ok(Samples {
            values: self.values.f_narrow(0, start, length)?,
            mask: self.mask.as_ref().map(|mask| mask.f_narrow(0, start, length)).transpose()?,
            labels: self.labels.f_narrow(0, start, length)?,
            of: self.of,
        })
    }

    /// The same in memory of their own.
    pub(crate) fn copied(&self) -> Result<Samples> {
        Ok(Samples {
            values: torch::copied(&self.values)?,
            mask: self.mask.as_ref().map(torch::copied).transpose()?,
            labels: torch::copied(&self.labels)?,
            of: self.of,
        })
    }

    /// Takes over the values of others of the same shape.
    pub(crate) fn take(&self, others: &Samples) -> Result<()> {
        self.values.shallow_clone().f_copy_(&others.values)?;
        if let (Some(mask), Some(other)) = (&self.mask, &others.mask) {
            mask.shallow_clone().f_copy_(other)?;
        }
        self.labels.shallow_clone().f_copy_(&others.labels)?;
        Ok(())
    }

    /// Words that are to be guessed.
    fn guesses(&self) -> Result<Tensor> {
        Ok(self.labels.f_ge(0)?.f_sum(Kind::Float)?)
    }
}

/// Updates the network by one batch and returns the mean loss over the samples of all ranks, before the update.
///
/// Each part's loss is weighted by its share of the whole batch, so that parts and ranks, however uneven, add up to
/// the whole batch's mean. Reading the loss is the only time the device is waited for.
pub fn step(
    network: &Network,
    optimizer: &mut Optimizer,
    recipe: &Recipe,
    batch: &Samples,
    lr: f64,
    ranks: &Ranks,
) -> Result<f64> {
    let learner = Learner { network, optimizer, ranks, repeated: None };
    timed_step(learner, recipe, batch, lr, &mut Timeline::off())
}

/// What a batch changes, and with whom.
pub struct Learner<'a> {
    /// The network.
    pub network: &'a Network,
    /// Its update rule.
    pub optimizer: &'a mut Optimizer,
    /// The ranks that share the batch.
    pub ranks: &'a Ranks,
    /// Passes that are recorded and repeated; only where a rank works alone.
    pub repeated: Option<&'a mut Repeated>,
}

/// The same, each part of it noted in `timeline`. Passes that are repeated count as forward passes.
pub fn timed_step(learner: Learner, recipe: &Recipe, batch: &Samples, lr: f64, timeline: &mut Timeline) -> Result<f64> {
    let Learner { network, optimizer, ranks, mut repeated } = learner;
    let total = batch.count()?;
    let by_word = batch.labels.dim() == 2 && batch.labels.kind() == Kind::Int64;
    let all_guesses = match by_word && (recipe.accumulate > 1 || ranks.shares() > 1) {
        true => Some(ranks.total(batch.guesses()?.f_mul_scalar(batch.of.weight())?)?),
        false => None,
    };
    // How much is to be found is known once all parts have been seen; until then they are weighted by their pictures.
    let by_object = batch.labels.dim() == 3 && (recipe.accumulate > 1 || ranks.shares() > 1);
    let mut wanted: Option<Tensor> = None;
    let mut sum: Option<Tensor> = None;
    let mut start = 0;
    if let Some(repeated) = &repeated {
        repeated.begin()?;
    }
    for length in passes(batch, recipe.accumulate, ranks)? {
        let part = batch.part(start.min(total - 1), length)?;
        // What comes after the last sample is for company only.
        let part = if start < total { part } else { Samples { of: Of { counted: 0, ..part.of }, ..part } };
        start += length;
        if let Some(repeated) = &mut repeated {
            let mut there_and_back = |part: &Samples, guesses: Option<&Tensor>| {
                let loss = forward(network, recipe, part, guesses, ranks)?;
                let value = loss.f_detach()?;
                optimizer.loss(loss)?.f_backward()?;
                Ok(value)
            };
            let guesses = all_guesses.as_ref();
            let value = timeline.time(Phase::Forward, || repeated.pass(&part, guesses, &mut there_and_back))?;
            add(&mut sum, value)?;
            continue;
        }
        let exchange = ranks.exchange().filter(|_| start == total);
        if let Some(exchange) = exchange {
            exchange.before_forward()?;
        }
        let loss = timeline.time(Phase::Forward, || match by_object {
            true => {
                let Sums { loss, scores } = forward_sums(network, recipe, &part, ranks)?;
                add(&mut wanted, scores)?;
                Ok(loss)
            }
            false => forward(network, recipe, &part, all_guesses.as_ref(), ranks),
        })?;
        let value = loss.f_detach()?;
        if let Some(exchange) = exchange {
            exchange.before_backward()?;
        }
        timeline.time(Phase::Backward, || optimizer.loss(loss)?.f_backward().map_err(Error::from))?;
        timeline.time(Phase::Exchange, || ranks.went_back())?;
        add(&mut sum, value)?;
    }
    if let Some(wanted) = wanted {
        let wanted = ranks.total(wanted)?.f_clamp_min(detect::LEAST)?;
        let factor = wanted.f_reciprocal()?.f_mul_scalar(batch.of.whole as i64)?;
        ranks.scale_gradients(network, &factor)?;
        sum = sum.map(|sum| sum.f_mul(&factor)).transpose()?;
    }
    timeline.time(Phase::Optimizer, || ranks.update(network, optimizer, lr, recipe.clip_norm))?;
    let mut loss = [sum.map_or(Ok(0.0), |loss| loss.f_double_value(&[]))? / f64::from(ranks.shares())];
    if ranks.shares() > 1 {
        timeline.time(Phase::Exchange, || ranks.sum(&mut loss))?;
    }
    Ok(loss[0])
}

/// What a part adds to the mean loss of the batch of all ranks; `all_guesses` are the words that are guessed in it.
fn forward(
    network: &Network,
    recipe: &Recipe,
    part: &Samples,
    all_guesses: Option<&Tensor>,
    ranks: &Ranks,
) -> Result<Tensor> {
    // What ranks exchange is their mean, and what is wanted is their sum.
    let weight = part.of.weight() * f64::from(ranks.shares());
    let (pass, length, whole) = (part.pass(true), part.count()? as f64, part.of.whole as f64);
    let forward = || recompute::forward(network, &part.values, &pass, recipe, ranks);
    let scores = recipe.format.forward(recipe.device, forward)?;
    let loss = loss(&scores, part, recipe.label_smoothing)?;
    if let Some(all) = all_guesses {
        // A part without a word to guess has no mean.
        let share = part.guesses()?.f_div(all)?;
        return Ok(loss.f_mul(&share.f_mul_scalar(weight)?)?.f_nan_to_num(0.0, None, None)?);
    }
    if length * weight != whole {
        return Ok(loss.f_mul_scalar(weight * length / whole)?);
    }
    Ok(loss)
}

/// What a part of scenes adds to the sums over the batch of all ranks, divided by the batch's pictures.
fn forward_sums(network: &Network, recipe: &Recipe, part: &Samples, ranks: &Ranks) -> Result<Sums> {
    let weight = part.of.weight();
    let (pass, size) = (part.pass(true), part.values.size());
    let forward = || recompute::forward(network, &part.values, &pass, recipe, ranks);
    let said = recipe.format.forward(recipe.device, forward)?;
    let Sums { loss, scores } = detect::sums(&said, &part.labels, [size[2], size[3]])?;
    // What ranks exchange is their mean, and what is wanted is their sum.
    let share = weight * f64::from(ranks.shares()) / part.of.whole as f64;
    Ok(Sums { loss: loss.f_mul_scalar(share)?, scores: scores.f_detach()?.f_mul_scalar(weight)? })
}

fn add(sum: &mut Option<Tensor>, value: Tensor) -> Result<()> {
    *sum = Some(match sum.take() {
        None => value,
        Some(sum) => sum.f_add(&value)?,
    });
    Ok(())
}

/// The mean loss of what a network said of a batch.
pub fn loss(said: &Tensor, batch: &Samples, smoothing: f64) -> Result<Tensor> {
    match (batch.labels.dim(), batch.values.size().as_slice()) {
        (3, [_, _, height, width]) => detect::loss(said, &batch.labels, [*height, *width]),
        (_, _) => cross_entropy(said, &batch.labels, smoothing),
    }
}

/// Mean cross-entropy of scores against classes or shares of classes, or at each place against words, with `smoothing`
/// of the mass spread over all; labels of −100 do not count.
pub fn cross_entropy(scores: &Tensor, labels: &Tensor, smoothing: f64) -> Result<Tensor> {
    let width = scores.size().last().copied().unwrap_or(1);
    let (scores, labels) = match scores.dim() {
        2 => (scores.shallow_clone(), labels.shallow_clone()),
        _ => (scores.f_reshape([-1, width])?, labels.f_reshape([-1])?),
    };
    Ok(scores.f_cross_entropy_loss::<Tensor>(&labels, None, Reduction::Mean, -100, smoothing)?)
}

/// Sizes of the micro-batches of this rank's share. Where ranks meet in every pass, each makes as many as the largest
/// share has, if need be of a single sample that does not count.
fn passes(batch: &Samples, accumulate: u32, ranks: &Ranks) -> Result<Vec<i64>> {
    let (total, parts) = (batch.count()?, i64::from(accumulate));
    let mut sizes: Vec<i64> = micro_batches(total, parts).collect();
    if ranks.shards().is_some() {
        let largest = batch.of.whole.div_ceil(ranks.shares() as usize) as i64;
        sizes.resize(sizes.len().max(largest.min(parts) as usize), 1);
    }
    Ok(sizes)
}

/// Sizes of at most `parts` micro-batches of `total` samples; the first ones take what is left over.
pub(crate) fn micro_batches(total: i64, parts: i64) -> impl Iterator<Item = i64> {
    let parts = parts.clamp(1, total.max(1));
    (0..parts).map(move |place| total / parts + i64::from(place < total % parts))
}

/// The share of each class in each sample, `samples × classes`: of its own class `own`, and the rest of that which its
/// picture was mixed with.
pub fn shares(labels: &Tensor, others: &[i64], own: f64, classes: i64) -> Result<Tensor> {
    let others = Tensor::f_from_slice(others)?.f_to_device(labels.device())?;
    let one = |of: &Tensor| of.f_one_hot(classes)?.f_to_kind(Kind::Float);
    Ok(one(labels)?.f_mul_scalar(own)?.f_add(&one(&others)?.f_mul_scalar(1.0 - own)?)?)
}

/// Moves one batch's values, which may lie in memory pixel by pixel, to the device.
pub fn pictures(
    images: &[f32],
    labels: &[i64],
    Picture { channels, height, width }: Picture,
    channels_last: bool,
    device: Device,
) -> Result<Samples> {
    let count = labels.len() as i64;
    let values = Tensor::f_from_slice(images)?;
    let images = if channels_last {
        // The pixels stay where they are: only the strides say that channels come last.
        values.f_view([count, height, width, channels])?.f_permute([0, 3, 1, 2])?
    } else {
        values.f_view([count, channels, height, width])?
    };
    debug_assert_eq!(images.kind(), Kind::Float);
    let labels = Tensor::f_from_slice(labels)?.f_to_device(device)?;
    Ok(Samples { values: images.f_to_device(device)?, mask: None, labels, of: Of::all(count as usize) })
}

#[cfg(test)]
mod tests;
