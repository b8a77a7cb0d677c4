//! From bytes to answers: whether it fits, and the largest batch that does.

use domain::gpu::Gpu;
use serde::Serialize;

use super::{MemoryCoefficients, MemoryEstimate, Profile, Savings};
use crate::estimate::Setup;
use crate::model::ModelDescription;

/// Largest batch that is looked for.
const LARGEST: u64 = 1 << 20;

/// Whether a GPU's memory is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryFit {
    /// Even a high estimate fits.
    Fits,
    /// It may fit, with nothing to spare.
    Tight,
    /// Even a low estimate does not.
    TooLarge,
}

impl MemoryFit {
    /// Compares a band with what there is, both in bytes.
    pub fn of(low: f64, high: f64, has: f64) -> MemoryFit {
        match (high <= has, low <= has) {
            (true, _) => MemoryFit::Fits,
            (false, true) => MemoryFit::Tight,
            (false, false) => MemoryFit::TooLarge,
        }
    }
}

/// Compares an estimate with what a GPU has.
pub fn verdict(memory: &MemoryEstimate, gpu: &Gpu) -> MemoryFit {
    MemoryFit::of(memory.low, memory.high, gpu.usable.0 as f64)
}

/// Returns the largest micro-batch of which the GPU can be expected to hold what is needed; none where it cannot hold
/// one sample.
pub fn largest_batch(
    model: &ModelDescription,
    setup: &Setup,
    savings: &Savings,
    figures: &MemoryCoefficients,
) -> Option<u64> {
    let profile = Profile::new(model, setup, savings, figures);
    let has = setup.device.gpu.usable.0 as f64;
    let fits = |batch: u64| profile.memory(&Setup { micro_batch: batch, ..setup.clone() }).needed() <= has;
    if !fits(1) {
        return None;
    }
    let (mut fitting, mut failing) = (1, LARGEST + 1);
    while failing - fitting > 1 {
        let between = fitting + (failing - fitting) / 2;
        match fits(between) {
            true => fitting = between,
            false => failing = between,
        }
    }
    Some(fitting)
}
