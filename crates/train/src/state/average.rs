//! Averages of the weights over the steps (EMA, SWA), and the batch statistics that they need.
//!
//! The contribution of the current weights to the average is a pure function of the step, so that only the average
//! itself is saved. It replaces the weights in validation, in the best weights and so in the export.

use domain::train::{Average, Ema, Swa};
use tch::Tensor;

use crate::error::Error;
use crate::input::DeviceLoader;
use crate::model::{BatchNormMode, Named, Network, Pass, Weights};
use crate::optim::schedule::Length;
use crate::ranks::Ranks;
use crate::step::StepConfig;
use crate::step::recompute::forward_alone;
use crate::torch::{self, Result};

/// A mean of the weights of one network.
pub struct AveragedModel {
    rule: Average,
    parameters: Vec<Tensor>,
    means: Vec<Named>,
}

impl AveragedModel {
    /// An empty average.
    pub fn new(rule: Average, weights: &Weights) -> Result<AveragedModel> {
        let (mut parameters, mut means) = (Vec::new(), Vec::new());
        for named in weights.parameters() {
            let values = named.tensor.f_detach()?;
            means.push(Named { name: format!("average.{}", named.name), tensor: torch::copied(&values)? });
            parameters.push(values);
        }
        Ok(AveragedModel { rule, parameters, means })
    }

    /// After so many steps of the run. `averaged` is how many weights SWA has averaged before, and counts these.
    pub fn follow(&self, length: Length, step: u64, averaged: &mut Option<u64>) -> Result<()> {
        let before = averaged.unwrap_or_else(|| ends_taken(self.rule, length, step.saturating_sub(1)));
        let Some(share) = share(self.rule, length, step, before) else { return Ok(()) };
        if let Average::Swa(_) = self.rule {
            *averaged = Some(before + 1);
        }
        torch::lerp(&self.tensors(), &self.parameters, share)
    }

    /// Copies the average over the weights.
    pub fn put(&self) -> Result<()> {
        for (parameter, mean) in self.parameters.iter().zip(&self.means) {
            parameter.shallow_clone().f_copy_(&mean.tensor)?;
        }
        Ok(())
    }

    /// Whether there is a mean after so many steps; `averaged` as in [`AveragedModel::follow`].
    pub fn is_begun(&self, length: Length, step: u64, averaged: Option<u64>) -> bool {
        match self.rule {
            Average::Ema(_) => step > 0,
            Average::Swa(_) => averaged.unwrap_or_else(|| ends_taken(self.rule, length, step)) > 0,
        }
    }

    /// Number of batches from which statistics are measured again.
    pub fn batches(&self) -> u32 {
        self.rule.batches()
    }

    /// The means by name, as they are saved.
    pub fn state(&self) -> &[Named] {
        &self.means
    }

    fn tensors(&self) -> Vec<Tensor> {
        self.means.iter().map(|named| named.tensor.shallow_clone()).collect()
    }
}

/// How many weights SWA has averaged after so many steps if none of the steps was skipped.
fn ends_taken(rule: Average, length: Length, step: u64) -> u64 {
    match rule {
        Average::Ema(_) => 0,
        Average::Swa(Swa { from, .. }) => length.epochs_after(step).saturating_sub(u64::from(from)),
    }
}

/// The contribution of the weights after `step` steps to the average, of which SWA has averaged so many before; `None` if
/// it is unchanged.
fn share(rule: Average, length: Length, step: u64, averaged: u64) -> Option<f64> {
    match rule {
        Average::Ema(Ema { decay, warmup, .. }) => {
            // The first step initializes it, as in `torch.optim.swa_utils.AveragedModel`.
            let before = step.saturating_sub(1) as f64;
            if before == 0.0 {
                return Some(1.0);
            }
            // As TensorFlow's `ExponentialMovingAverage` with a number of updates: the first weights are soon forgotten.
            Some(1.0 - if warmup { decay.min((1.0 + before) / (10.0 + before)) } else { decay })
        }
        Average::Swa(Swa { from, .. }) => {
            let is_taken = length.ends_epoch(step) && length.epochs_after(step) > u64::from(from);
            is_taken.then(|| 1.0 / (averaged + 1) as f64)
        }
    }
}

/// Has batch normalisations forget their running statistics and take the plain mean of those of some batches, as
/// `torch.optim.swa_utils.update_bn`. Random numbers that are drawn meanwhile count as not drawn.
/// Returns how many samples this rank saw.
pub fn measure_statistics(
    network: &Network,
    config: &StepConfig,
    feed: &mut DeviceLoader,
    batches: u32,
    ranks: &Ranks,
) -> std::result::Result<usize, Error> {
    let numbers = torch::random_state(config.device)?;
    let (mut seen, mut counted) = (0_u32, 0);
    for _ in 0..batches {
        let Some(batch) = feed.next(config.device) else { break };
        let samples = batch?.samples;
        // A rank's share of a small batch may be only a blank sample.
        let is_blank = samples.share.counted == 0;
        if is_blank && ranks.shards().is_none() {
            continue;
        }
        seen += u32::from(!is_blank);
        counted += samples.share.counted;
        let running = if is_blank { BatchNormMode::KeepRunning } else { BatchNormMode::Blend(1.0 / f64::from(seen)) };
        let pass = Pass { running, ..samples.pass(true) };
        let forward = || forward_alone(network, &samples.values, &pass, config, ranks);
        let _ = tch::no_grad(|| config.format.forward(config.device, forward))?;
    }
    torch::set_random_state(config.device, &numbers)?;
    Ok(counted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optim::schedule::EpochOrigin;

    const LENGTH: Length = Length { steps_per_epoch: 4, steps: 20, origin: EpochOrigin { step: 0, epoch: 0 } };

    /// The mean of the numbers 1, 2, 3 …, each the only weight after that step.
    fn mean(rule: Average, steps: u64) -> f64 {
        mean_without(rule, steps, 0)
    }

    /// The same, where one step is skipped.
    fn mean_without(rule: Average, steps: u64, skipped: u64) -> f64 {
        let (mut mean, mut averaged) = (-100.0, 0);
        for step in (1..=steps).filter(|step| *step != skipped) {
            if let Some(share) = share(rule, LENGTH, step, averaged) {
                mean += share * (step as f64 - mean);
                averaged += 1;
            }
        }
        mean
    }

    #[test]
    fn a_plain_mean_is_that_of_the_last_ends_of_epochs() {
        let swa = Average::Swa(Swa { from: 2, batches: 1 });
        for (steps, expected) in [(11, -100.0), (12, 12.0), (15, 12.0), (16, 14.0), (20, 16.0)] {
            assert!((mean(swa, steps) - expected).abs() < 1e-12, "{steps}: {}", mean(swa, steps));
        }
    }

    #[test]
    fn a_skipped_end_of_an_epoch_is_no_part_of_a_plain_mean() {
        let swa = Average::Swa(Swa { from: 2, batches: 1 });
        for (skipped, steps, expected) in [(12, 15, -100.0), (12, 16, 16.0), (12, 20, 18.0), (16, 20, 16.0)] {
            let found = mean_without(swa, steps, skipped);
            assert!((found - expected).abs() < 1e-12, "{skipped} {steps}: {found}");
        }
        // What checkpoints of earlier versions do not say.
        assert_eq!([11, 12, 19, 20].map(|step| ends_taken(swa, LENGTH, step)), [0, 1, 2, 3]);
    }

    #[test]
    fn a_mean_that_forgets_is_its_closed_form() {
        for decay in [0.05, 0.5, 0.9, 0.999] {
            for warmup in [true, false] {
                let ema = Average::Ema(Ema { decay, warmup, batches: 1 });
                let mut expected = -100.0;
                for step in 1..=20u64 {
                    let limit = if warmup { step as f64 / (9.0 + step as f64) } else { 1.0 };
                    let kept = if step == 1 { 0.0 } else { f64::min(decay, limit) };
                    expected = kept * expected + (1.0 - kept) * step as f64;
                    assert!((mean(ema, step) - expected).abs() < 1e-9, "{decay} {warmup} {step}");
                }
            }
        }
    }

    /// `AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))` of PyTorch 2.11, whose parameter is 1, 2, 3 … after
    /// each step: 1, then `lerp(mean, parameter, 1 - decay)`.
    #[test]
    fn without_warmup_it_is_that_of_pytorch() {
        for (decay, expected) in [(0.9, [1.0, 1.1, 1.29, 1.561, 1.9049]), (0.5, [1.0, 1.5, 2.25, 3.125, 4.0625])] {
            let ema = Average::Ema(Ema { decay, warmup: false, batches: 1 });
            for (step, expected) in (1..).zip(expected) {
                assert!((mean(ema, step) - expected).abs() < 1e-12, "{decay} {step}: {}", mean(ema, step));
            }
        }
    }
}
