//! What is estimated when only totals are known: coarser, with a wider band.
//!
//! Convolutions and linear layers write the stated activations; what else is kept (normalised values, what activation
//! functions read, probabilities of attention) is in proportion to them, by one fitted factor.

use super::MemoryCoefficients;
use super::peak::ActivationPeak;
use super::states::Values;
use crate::estimate::{ActivationCheckpointing, Setup};
use crate::model::Summary;

/// Share of what is kept that stays with full recomputation: one value in each block of about this many.
const ENTERS_A_BLOCK: f64 = 0.1;

pub(super) fn estimate(summary: &Summary, setup: &Setup, figures: &MemoryCoefficients) -> (Values, ActivationPeak) {
    let tensor = f64::from(setup.parallel.tensor.max(1)) * f64::from(setup.parallel.pipeline.max(1));
    let parameters = summary.parameters / tensor;
    // Blocks are not known: a tenth of the network at once is more than any usual block.
    let unit = parameters * ENTERS_A_BLOCK;
    let values = Values {
        parameters,
        buffers: 0.0,
        products: parameters,
        unit,
        block: unit,
        around: unit,
        adapters: 0.0,
        elsewhere: 0.0,
        largest: 0.0,
    };
    let width = setup.precision.compute_bytes();
    let all = figures.kept_of_totals * width * summary.activations / tensor;
    let (saved, fullest) = match setup.recompute {
        ActivationCheckpointing::None | ActivationCheckpointing::Selective => (all, all),
        ActivationCheckpointing::Full | ActivationCheckpointing::Every(_) => {
            (ENTERS_A_BLOCK * all, 2.0 * ENTERS_A_BLOCK * all)
        }
    };
    (values, ActivationPeak { saved, fullest, at_end: fullest })
}
