//! Bytes of weights, gradients and the optimiser's state.
//!
//! Per trained value in fp32: 4 the weight, 4 the gradient, and of state 8 with Adam, 4 with momentum, 2 in 8 bits, next
//! to nothing with Adafactor's row and column means. ZeRO (Rajbhandari et al. 2020) divides the last, the last two or
//! all three over the data-parallel ranks.

use super::{Adapters, Savings};
use crate::estimate::collective::BUCKET;
use crate::estimate::work::NF4;
use crate::estimate::{Optimizer, Precision, Setup, Zero};

/// Bytes of what is there during the whole step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct States {
    pub weights: f64,
    pub gradients: f64,
    pub optimizer: f64,
    pub communication: f64,
}

/// Values of one GPU's share of the network.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Values {
    pub parameters: f64,
    pub buffers: f64,
    /// Of convolutions and linear layers, whose half-precision copies autocast keeps.
    pub products: f64,
    /// Of the largest part that is gathered at once under ZeRO-3: a block, or a table of words.
    pub unit: f64,
    /// Of the largest block.
    pub block: f64,
    /// What one rank of adapters adds.
    pub adapters: f64,
}

pub(super) fn states(values: &Values, setup: &Setup, savings: &Savings) -> States {
    match savings.adapters {
        None => full(values, setup, savings),
        Some(adapters) => adapted(values, setup, adapters),
    }
}

fn full(values: &Values, setup: &Setup, savings: &Savings) -> States {
    let ranks = f64::from(setup.parallel.data.max(1));
    let width = weight_width(setup.precision);
    let divide = |from: Zero| if setup.parallel.zero >= from { ranks } else { 1.0 };
    let sharded = setup.parallel.zero == Zero::Parameters;
    let half = match (autocast(setup.precision), sharded) {
        (true, false) => 2.0 * values.products,
        (true, true) | (false, _) => 0.0,
    };
    let mut weights = values.parameters * width / divide(Zero::Parameters) + half + 4.0 * values.buffers;
    let mut gradients = values.parameters * width / divide(Zero::Gradients);
    let mut optimizer = values.parameters * state_width(setup) / divide(Zero::Optimizer);
    if savings.offload_optimizer || savings.offload_weights {
        optimizer = 0.0;
    }
    if savings.offload_weights {
        (weights, gradients) = (0.0, 0.0);
    }
    if savings.update_in_backward {
        gradients = values.unit * width;
    }
    let computing = compute_width(setup.precision);
    let communication = match (setup.parallel.data, setup.parallel.zero) {
        (0 | 1, _) => 0.0,
        // The reducer's buckets are as large as all gradients (DDP's documentation of `gradient_as_bucket_view`).
        (2.., Zero::None) => values.parameters * width,
        (2.., Zero::Optimizer | Zero::Gradients) => 2.0 * BUCKET,
        // The part at work, its gradients, the same in the order in which they are scattered (`fully_shard` copies them
        // there, `foreach_reduce`), and the next block.
        (2.., Zero::Parameters) => (3.0 * values.unit + values.block) * computing,
    };
    States { weights, gradients, optimizer, communication }
}

/// Frozen weights in the computing type or in 4 bits with a scale for each 64 (NF4 with double quantisation, 0.516
/// bytes), and adapters with Adam beside them.
fn adapted(values: &Values, setup: &Setup, adapters: Adapters) -> States {
    let ranks = f64::from(setup.parallel.data.max(1));
    let divided = match setup.parallel.zero {
        Zero::None | Zero::Optimizer | Zero::Gradients => 1.0,
        Zero::Parameters => ranks,
    };
    let computing = compute_width(setup.precision);
    let frozen = match adapters.quantized {
        true => NF4 * values.products + computing * (values.parameters - values.products).max(0.0),
        false => computing * values.parameters,
    };
    let trained = values.adapters * adapters.rank as f64;
    let width = weight_width(setup.precision);
    let gathered = match (setup.parallel.data, setup.parallel.zero) {
        (2.., Zero::Parameters) if adapters.quantized => 2.0 * NF4 * values.unit,
        (2.., Zero::Parameters) => 2.0 * computing * values.unit,
        (_, Zero::None | Zero::Optimizer | Zero::Gradients | Zero::Parameters) => 0.0,
    };
    States {
        weights: (frozen + trained * width) / divided,
        gradients: trained * width / divided,
        optimizer: trained * state_width(setup) / divided,
        communication: gathered,
    }
}

/// Whether operators compute in another type than the weights have.
pub(super) fn autocast(precision: Precision) -> bool {
    match precision {
        Precision::AmpFp16 | Precision::AmpBf16 | Precision::Fp8 => true,
        Precision::Fp32 | Precision::Tf32 | Precision::Bf16 => false,
    }
}

/// Bytes of a value that products of matrices read and write.
pub(super) fn compute_width(precision: Precision) -> f64 {
    match precision {
        Precision::Fp32 | Precision::Tf32 => 4.0,
        Precision::AmpFp16 | Precision::AmpBf16 | Precision::Bf16 | Precision::Fp8 => 2.0,
    }
}

/// Bytes of a weight that is trained.
pub(in crate::estimate) fn weight_width(precision: Precision) -> f64 {
    match precision {
        Precision::Fp32 | Precision::Tf32 | Precision::AmpFp16 | Precision::AmpBf16 | Precision::Fp8 => 4.0,
        Precision::Bf16 => 2.0,
    }
}

fn state_width(setup: &Setup) -> f64 {
    let width = weight_width(setup.precision);
    match setup.optimizer {
        Optimizer::Sgd => 0.0,
        Optimizer::SgdMomentum => width,
        Optimizer::Adam | Optimizer::Lamb => 2.0 * width,
        // Two bytes, and a scale of 4 bytes for each of them and 256 values (Dettmers et al. 2021 has blocks of 2,048,
        // today's bitsandbytes 256).
        Optimizer::Adam8bit => 2.0 + 8.0 / 256.0,
        Optimizer::Adafactor => 0.02,
    }
}
