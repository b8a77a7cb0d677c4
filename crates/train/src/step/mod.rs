//! One optimizer step: everything that is done with a batch, and nothing else.
//!
//! `xtask bench train` compares [`step()`] with PyTorch, and a complete run with it. Read on in `batch` (the input of a
//! step), [`config`] (the job's settings), [`precision`], [`recompute`] and [`cuda_graphs`].

mod batch;
mod chunked;
pub mod config;
pub mod cuda_graphs;
mod pending;
pub mod precision;
pub mod profile;
pub mod recompute;

use tch::{Kind, Reduction, Tensor};

use crate::detect::{self, LossSums};
use crate::model::Network;
use crate::optim::ModelOptimizer;
use crate::ranks::Ranks;
use crate::torch::{self, Error, Result};

pub use batch::{BatchShare, BatchTensors, image_batch, mixed_targets};
pub use config::StepConfig;
use cuda_graphs::CudaGraphRunner;
pub use pending::PendingStep;
use profile::{Phase, Timeline};

/// Updates the network by one batch and returns the mean loss over the samples of all ranks, before the update.
///
/// Each micro-batch's loss is weighted by its share of the whole batch, so that micro-batches and ranks, however uneven,
/// add up to the whole batch's mean. Reading the loss is the only time the device is waited for, where the optimizer
/// defers.
///
/// # Errors
/// If libtorch, or a collective operation, fails.
pub fn step(
    network: &Network,
    optimizer: &mut ModelOptimizer,
    config: &StepConfig,
    batch: &BatchTensors,
    lr: f64,
    ranks: &Ranks,
) -> Result<f64> {
    let step = TrainStep { network, optimizer, ranks, cuda_graphs: None };
    timed_step(step, config, batch, lr, &mut Timeline::off()).map(|outcome| outcome.loss)
}

/// What came of a step; the same on every rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepOutcome {
    /// Mean loss over the samples of all ranks, before the update.
    pub loss: f64,
    /// Whether the weights were updated: not by gradients that are infinite or NaN.
    pub is_updated: bool,
}

/// Everything that a step uses and changes.
pub struct TrainStep<'a> {
    /// The network.
    pub network: &'a Network,
    /// Its update rule.
    pub optimizer: &'a mut ModelOptimizer,
    /// The ranks that share the batch.
    pub ranks: &'a Ranks,
    /// Recorded forward and backward passes; only where a rank works alone.
    pub cuda_graphs: Option<&'a mut CudaGraphRunner>,
}

/// Like [`step()`], with each phase timed in `timeline`. Recorded passes count as forward passes.
///
/// # Errors
/// If libtorch, or a collective operation, fails.
pub fn timed_step(
    step: TrainStep,
    config: &StepConfig,
    batch: &BatchTensors,
    lr: f64,
    timeline: &mut Timeline,
) -> Result<StepOutcome> {
    begin_step(step, config, batch, lr, timeline)?.read()
}

/// The same without waiting for what comes of it.
///
/// # Errors
/// When libtorch, or an exchange between ranks, fails.
pub fn begin_step(
    step: TrainStep,
    config: &StepConfig,
    batch: &BatchTensors,
    lr: f64,
    timeline: &mut Timeline,
) -> Result<PendingStep> {
    torch::unwound(|| begun_step(step, config, batch, lr, timeline))
}

fn begun_step(
    step: TrainStep,
    config: &StepConfig,
    batch: &BatchTensors,
    lr: f64,
    timeline: &mut Timeline,
) -> Result<PendingStep> {
    let TrainStep { network, optimizer, ranks, mut cuda_graphs } = step;
    let total = batch.count()?;
    let is_split = config.accumulate > 1 || ranks.shares() > 1;
    let target_tokens = match is_split && batch.has_own_mean() {
        true => Some(ranks.sum_tensor(batch.target_count()?.f_mul_scalar(batch.share.weight())?)?),
        false => None,
    };
    let passes = Passes { network, config, ranks, target_tokens, is_detection: is_split && batch.labels.dim() == 3 };
    let mut sums = Sums::default();
    let mut start = 0;
    if let Some(cuda_graphs) = &mut cuda_graphs {
        cuda_graphs.begin()?;
    }
    for length in micro_batch_sizes(batch, config.accumulate, ranks)? {
        let part = batch.part(start.min(total - 1), length)?;
        // A micro-batch behind the last sample only keeps the ranks in step.
        let share = BatchShare { counted: 0, ..part.share };
        let part = if start < total { part } else { BatchTensors { share, ..part } };
        start += length;
        match &mut cuda_graphs {
            Some(cuda_graphs) => passes.recorded(cuda_graphs, &part, optimizer, &mut sums, timeline)?,
            None => passes.eager(&part, start == total, optimizer, &mut sums, timeline)?,
        }
    }
    if let Some(target_scores) = sums.target_scores.take() {
        let target_scores = ranks.sum_tensor(target_scores)?.f_clamp_min(detect::LEAST)?;
        let factor = target_scores.f_reciprocal()?.f_mul_scalar(batch.share.whole as i64)?;
        ranks.scale_gradients(network, &factor)?;
        sums.loss = sums.loss.map(|sum| sum.f_mul(&factor)).transpose()?;
    }
    let flag = timeline.time(Phase::Optimizer, || ranks.update(network, optimizer, lr, config.clip_norm))?;
    let mut loss = match sums.loss {
        Some(loss) => loss.f_to_kind(Kind::Double)?.f_div_scalar(f64::from(ranks.shares()))?,
        None => Tensor::f_zeros([0i64; 0], (Kind::Double, config.device))?,
    };
    if ranks.shares() > 1 {
        loss = timeline.time(Phase::Exchange, || ranks.sum_tensor(loss))?;
    }
    PendingStep::begin(loss, &flag)
}

/// Peak bytes of tensors on the device during both passes of the first `samples` of a batch; nothing is updated, and no
/// gradients are left.
///
/// # Errors
/// If libtorch fails, such as for want of memory.
pub fn peak_of_passes(
    network: &Network,
    optimizer: &ModelOptimizer,
    config: &StepConfig,
    batch: &BatchTensors,
    samples: i64,
    ranks: &Ranks,
) -> Result<u64> {
    let parameters: Vec<Tensor> =
        network.weights().parameters().iter().map(|named| named.tensor.shallow_clone()).collect();
    torch::drop_gradients(&parameters)?;
    torch::begin_device_peak()?;
    let passes = Passes { network, config, ranks, target_tokens: None, is_detection: false };
    let loss = passes.forward(&batch.part(0, samples)?, None)?;
    optimizer.loss(loss)?.f_backward()?;
    let peak = torch::device_memory()?.peak;
    torch::drop_gradients(&parameters)?;
    Ok(peak)
}

/// Sums over the micro-batches of a step.
#[derive(Default)]
struct Sums {
    loss: Option<Tensor>,
    /// For detection, the sum of the target scores, which normalizes the loss: it is known once all micro-batches were
    /// processed, and until then losses are weighted by their images.
    target_scores: Option<Tensor>,
}

/// Common to the passes of all micro-batches of a step.
struct Passes<'a> {
    network: &'a Network,
    config: &'a StepConfig,
    ranks: &'a Ranks,
    /// Number of target tokens in the batch of all ranks, or the sum of its samples' weights; `None` if a micro-batch is
    /// the complete batch, or if the mean is over samples.
    target_tokens: Option<Tensor>,
    /// Whether detection losses are combined from several micro-batches.
    is_detection: bool,
}

impl Passes<'_> {
    /// Forward and backward pass of one micro-batch, as recorded on the device.
    fn recorded(
        &self,
        cuda_graphs: &mut CudaGraphRunner,
        part: &BatchTensors,
        optimizer: &ModelOptimizer,
        sums: &mut Sums,
        timeline: &mut Timeline,
    ) -> Result<()> {
        let mut forward_and_backward = |part: &BatchTensors, target_tokens: Option<&Tensor>| {
            let loss = self.forward(part, target_tokens)?;
            let value = loss.f_detach()?;
            optimizer.loss(loss)?.f_backward()?;
            Ok(value)
        };
        let target_tokens = self.target_tokens.as_ref();
        let value =
            timeline.time(Phase::Forward, || cuda_graphs.pass(part, target_tokens, &mut forward_and_backward))?;
        add(&mut sums.loss, value)
    }

    /// Forward and backward pass of one micro-batch; gradients are exchanged during the backward pass of the last one.
    fn eager(
        &self,
        part: &BatchTensors,
        is_last: bool,
        optimizer: &ModelOptimizer,
        sums: &mut Sums,
        timeline: &mut Timeline,
    ) -> Result<()> {
        let reducer = self.ranks.exchange().filter(|_| is_last);
        if let Some(reducer) = reducer {
            reducer.before_forward()?;
        }
        let loss = timeline.time(Phase::Forward, || match self.is_detection {
            true => {
                let LossSums { loss, scores } = self.forward_detection(part)?;
                add(&mut sums.target_scores, scores)?;
                Ok(loss)
            }
            false => self.forward(part, self.target_tokens.as_ref()),
        })?;
        let value = loss.f_detach()?;
        if let Some(reducer) = reducer {
            reducer.before_backward()?;
        }
        timeline.time(Phase::Backward, || optimizer.loss(loss)?.f_backward().map_err(Error::from))?;
        timeline.time(Phase::Exchange, || self.ranks.after_backward())?;
        add(&mut sums.loss, value)
    }

    /// A micro-batch's contribution to the mean loss of the batch of all ranks, which has `target_tokens` targets.
    fn forward(&self, part: &BatchTensors, target_tokens: Option<&Tensor>) -> Result<Tensor> {
        let Passes { network, config, ranks, .. } = *self;
        // The ranks average their contributions, and the sum is needed.
        let weight = part.share.weight() * f64::from(ranks.shares());
        let (length, whole) = (part.count()? as f64, part.share.whole as f64);
        let logits = || {
            let pass = part.pass(true);
            let forward = || recompute::forward(network, &part.values, &pass, config, ranks);
            config.format.forward(config.device, forward)
        };
        if let (Some(all), Some(weights)) = (target_tokens, part.weights_of_classes()) {
            let logits = logits()?;
            // Not by means: samples that all have weight 0 have no mean, and its gradient would not be finite.
            let smoothing = config.label_smoothing;
            let sum = weighted_cross_entropy(&logits, &part.labels, Some(weights), smoothing, Reduction::Sum)?;
            // A batch in which all have weight 0 counts as nothing.
            let factor = all.f_reciprocal()?.f_nan_to_num(0.0, 0.0, 0.0)?;
            return Ok(sum.f_mul(&factor.f_mul_scalar(weight)?)?);
        }
        let loss = match (part.weights_of_classes(), network.token_head()) {
            (Some(weights), _) => weighted_mean(&logits()?, part, weights, config.label_smoothing)?,
            (None, Some(head)) if config.chunked_loss => chunked::loss(network, head, part, config, ranks)?,
            (None, _) => loss(&logits()?, part, config.label_smoothing)?,
        };
        if let Some(all) = target_tokens {
            // A micro-batch without a token to predict has no mean.
            let share = part.target_count()?.f_div(all)?;
            return Ok(loss.f_mul(&share.f_mul_scalar(weight)?)?.f_nan_to_num(0.0, None, None)?);
        }
        if length * weight != whole {
            return Ok(loss.f_mul_scalar(weight * length / whole)?);
        }
        Ok(loss)
    }

    /// A micro-batch's contribution to the detection sums over the batch of all ranks, divided by the batch's images.
    fn forward_detection(&self, part: &BatchTensors) -> Result<LossSums> {
        let Passes { network, config, ranks, .. } = *self;
        let weight = part.share.weight();
        let (pass, size) = (part.pass(true), part.values.size());
        let forward = || recompute::forward(network, &part.values, &pass, config, ranks);
        let predictions = config.format.forward(config.device, forward)?;
        let LossSums { loss, scores } = detect::sums(&predictions, &part.labels, [size[2], size[3]])?;
        // The ranks average their contributions, and the sum is needed.
        let share = weight * f64::from(ranks.shares()) / part.share.whole as f64;
        Ok(LossSums { loss: loss.f_mul_scalar(share)?, scores: scores.f_detach()?.f_mul_scalar(weight)? })
    }
}

/// The mean cross-entropy of a whole batch over the weights of its classes; 0 where all of them are 0, which have no mean.
fn weighted_mean(logits: &Tensor, batch: &BatchTensors, weights: &Tensor, smoothing: f64) -> Result<Tensor> {
    let all = batch.target_count()?;
    let [is_none, is_some] = [all.f_eq(0.0)?.f_to_kind(Kind::Float)?, all.f_ne(0.0)?.f_to_kind(Kind::Float)?];
    // Not by replacing the mean: its gradient would not be finite.
    let weights = weights.f_add(&is_none)?;
    let mean = weighted_cross_entropy(logits, &batch.labels, Some(&weights), smoothing, Reduction::Mean)?;
    Ok(mean.f_mul(&is_some)?)
}

fn add(sum: &mut Option<Tensor>, value: Tensor) -> Result<()> {
    *sum = Some(match sum.take() {
        None => value,
        Some(sum) => sum.f_add(&value)?,
    });
    Ok(())
}

/// The mean loss of a network's output for a batch.
///
/// # Errors
/// When their shapes do not fit.
pub fn loss(logits: &Tensor, batch: &BatchTensors, smoothing: f64) -> Result<Tensor> {
    let labels = &batch.labels;
    match (labels.dim(), labels.kind(), batch.values.size().as_slice()) {
        (3, _, [_, _, height, width]) => detect::loss(logits, labels, [*height, *width]),
        (_, Kind::Bool, _) => {
            let (logits, labels) = (logits.f_to_kind(Kind::Float)?, labels.f_to_kind(Kind::Float)?);
            Ok(logits.f_binary_cross_entropy_with_logits::<Tensor>(&labels, None, None, Reduction::Mean)?)
        }
        (1, Kind::Float, _) => {
            Ok(logits.f_to_kind(Kind::Float)?.f_squeeze_dim(-1)?.f_mse_loss(labels, Reduction::Mean)?)
        }
        (_, _, _) => {
            weighted_cross_entropy(logits, &batch.labels, batch.class_weights.as_ref(), smoothing, Reduction::Mean)
        }
    }
}

/// Mean cross-entropy of logits, `samples × classes` or `samples × length × vocabulary`, against classes, probabilities of
/// classes, or at each position against token ids, with `smoothing` of the mass spread over all; labels of −100 do not
/// count.
///
/// # Errors
/// When their shapes do not fit.
pub fn cross_entropy(logits: &Tensor, labels: &Tensor, smoothing: f64) -> Result<Tensor> {
    weighted_cross_entropy(logits, labels, None, smoothing, Reduction::Mean)
}

/// The same, in which each class counts as much as `weights` says, as in PyTorch: of classes, the mean is over the weights.
fn weighted_cross_entropy(
    logits: &Tensor,
    labels: &Tensor,
    weights: Option<&Tensor>,
    smoothing: f64,
    reduction: Reduction,
) -> Result<Tensor> {
    let width = logits.size().last().copied().unwrap_or(1);
    let (logits, labels) = match logits.dim() {
        2 => (logits.shallow_clone(), labels.shallow_clone()),
        _ => (logits.f_reshape([-1, width])?, labels.f_reshape([-1])?),
    };
    Ok(logits.f_cross_entropy_loss(&labels, weights, reduction, -100, smoothing)?)
}

/// Sizes of the micro-batches of this rank's share. If ranks communicate in every pass, each makes as many as the
/// largest share has, if need be of a single sample that does not count.
fn micro_batch_sizes(batch: &BatchTensors, accumulate: u32, ranks: &Ranks) -> Result<Vec<i64>> {
    let (total, parts) = (batch.count()?, i64::from(accumulate));
    let mut sizes: Vec<i64> = micro_batches(total, parts).collect();
    if ranks.shards().is_some() {
        let largest = batch.share.whole.div_ceil(ranks.shares() as usize) as i64;
        sizes.resize(sizes.len().max(largest.min(parts) as usize), 1);
    }
    Ok(sizes)
}

/// Sizes of at most `parts` micro-batches of `total` samples; the first ones are larger by one if needed.
pub(crate) fn micro_batches(total: i64, parts: i64) -> impl Iterator<Item = i64> {
    let parts = parts.clamp(1, total.max(1));
    (0..parts).map(move |place| total / parts + i64::from(place < total % parts))
}

#[cfg(test)]
mod tests;
