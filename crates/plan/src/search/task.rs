//! What is to be trained, in numbers: all that time and money depend on beside the machines.

use domain::Bytes;
use domain::tariff::Service;
use serde::Serialize;

use crate::estimate::{Layout, Optimizer, Precision};

/// A run to be planned.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Task {
    /// Samples an optimiser step, over all devices.
    pub batch: u64,
    /// Optimiser steps.
    pub steps: u64,
    /// Samples that are evaluated, in all.
    pub evaluated: u64,
    /// Samples a second that one core makes ready; none where nothing has to be made.
    pub per_core: Option<f64>,
    /// Bytes of the data in all.
    pub data: Bytes,
    /// The disk that the data needs: a fast one where many small samples are read in random order.
    pub disk: Service,
    /// Bytes of a checkpoint.
    pub state: Bytes,
    /// Bytes of the trained weights.
    pub weights: Bytes,
    /// Checkpoints that are kept.
    pub keep: u32,
    /// Seconds between two checkpoints, where the job says so.
    pub checkpoint: Option<f64>,
    /// Multiply-adds of one forward pass of one sample.
    pub multiply_adds: f64,
    /// Formats that may be used, the one that is liked best first; of these each GPU takes those that it has.
    pub formats: Formats,
    pub optimizer: Optimizer,
    pub layout: Layout,
    pub flash_attention: bool,
    pub compiled: bool,
    /// Whether activations may be computed again.
    pub recompute: bool,
    /// Repeated blocks, as far as the network can be cut between them; 0 where it cannot.
    pub blocks: u32,
    /// Heads of attention, which tensor parallelism divides; 0 where there are none.
    pub heads: u32,
}

/// Which number formats may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Formats {
    /// Autocast to the half precision that the GPU has, else fp32.
    Auto,
    Fp32,
    AmpFp16,
    AmpBf16,
    Bf16,
    Fp8,
}

impl Formats {
    /// The precision that a GPU of these rates takes; none where it lacks what is asked for.
    pub fn on(self, rates: &domain::gpu::Rates) -> Option<Precision> {
        let wide = if rates.tf32.is_some() { Precision::Tf32 } else { Precision::Fp32 };
        match self {
            Formats::Auto => Some(match (rates.bf16, rates.fp16) {
                (Some(_), _) => Precision::AmpBf16,
                (None, Some(half)) if half > 1.5 * rates.fp32 => Precision::AmpFp16,
                (None, _) => wide,
            }),
            Formats::Fp32 => Some(wide),
            Formats::AmpFp16 => rates.fp16.map(|_| Precision::AmpFp16),
            Formats::AmpBf16 => rates.bf16.map(|_| Precision::AmpBf16),
            Formats::Bf16 => rates.bf16.map(|_| Precision::Bf16),
            Formats::Fp8 => rates.fp8.map(|_| Precision::Fp8),
        }
    }

    /// How the job file writes it.
    pub fn word(self) -> &'static str {
        match self {
            Formats::Auto => "auto",
            Formats::Fp32 => "fp32",
            Formats::AmpFp16 => "amp_fp16",
            Formats::AmpBf16 => "amp_bf16",
            Formats::Bf16 => "bf16",
            Formats::Fp8 => "fp8",
        }
    }
}
