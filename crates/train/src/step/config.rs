//! The configuration of a step, from the job.

use domain::train::{Recompute, Train};
use tch::Device;

use super::precision::ComputeFormat;

/// The configuration of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepConfig {
    /// The device of the network.
    pub device: Device,
    /// The format of matrix products.
    pub format: ComputeFormat,
    /// Micro-batches that the batch is split into.
    pub accumulate: u32,
    /// Probability mass taken from the true class.
    pub label_smoothing: f64,
    /// Largest norm of the gradients.
    pub clip_norm: Option<f64>,
    /// Which blocks recompute their activations in the backward pass.
    pub recompute: Recompute,
    /// Whether a language model's logits are computed in chunks.
    pub chunked_loss: bool,
}

impl StepConfig {
    /// The job's settings, on this device.
    pub fn of(train: &Train, device: Device) -> StepConfig {
        StepConfig {
            device,
            format: ComputeFormat::choose(train.precision, device),
            accumulate: train.accumulate.max(1),
            label_smoothing: train.label_smoothing,
            clip_norm: train.clip_norm,
            recompute: train.recompute,
            chunked_loss: train.chunked_loss,
        }
    }
}
