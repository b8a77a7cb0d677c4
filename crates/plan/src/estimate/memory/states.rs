//! Bytes of weights, gradients and the optimiser's state.
//!
//! Per trained value in fp32: 4 the weight, 4 the gradient, and of state what the table of optimisers says. ZeRO (Rajbhandari et al. 2020) divides the last, the last two or
//! all three over the data-parallel ranks.

use crate::estimate::collective::BUCKET;
use crate::estimate::optimizer::state_bytes;
use crate::estimate::savings::{Adapters, NF4, Savings};
use crate::estimate::{NumericFormat, Setup, Zero};

/// Bytes of what is there during the whole step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct States {
    pub weights: f64,
    pub gradients: f64,
    pub optimizer: f64,
    pub communication: f64,
    /// What the optimiser holds while it updates, when activations are gone.
    pub update: f64,
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
    /// Of the largest weight.
    pub largest: f64,
    /// Of the largest block.
    pub block: f64,
    /// Of all that stands around the blocks.
    pub around: f64,
    /// What one rank of adapters adds.
    pub adapters: f64,
    /// Of experts that other ranks hold.
    pub elsewhere: f64,
}

pub(super) fn states(values: &Values, setup: &Setup, savings: &Savings) -> States {
    match savings.adapters {
        None => full(values, setup, savings),
        Some(adapters) => adapted(values, setup, adapters),
    }
}

fn full(values: &Values, setup: &Setup, savings: &Savings) -> States {
    let ranks = f64::from(setup.parallel.sharded_over());
    let zero = setup.parallel.zero;
    // Each expert is sharded over the ranks that hold it, fewer than all by as many as share the experts: what a rank holds
    // of it when sharded does not depend on that.
    let of = |from: Zero| match zero >= from {
        true => (values.parameters + values.elsewhere) / ranks,
        false => values.parameters,
    };
    let is_half = savings.half_model && setup.precision.is_autocast();
    let width = setup.precision.weight_bytes();
    let sharded = zero == Zero::Parameters;
    let mut weights = match (is_half, sharded) {
        // In 16 bits; what they are updated in belongs to the optimiser.
        (true, false) => 2.0 * of(Zero::Parameters),
        // Sharded weights are in fp32 and cast when they are gathered. Autocast on processors keeps no copies from operator
        // to operator.
        (_, true) => width * of(Zero::Parameters),
        (false, false) if setup.precision.is_autocast() && !setup.device.is_processor() => {
            width * of(Zero::Parameters) + 2.0 * values.products
        }
        (false, false) => width * of(Zero::Parameters),
    } + 4.0 * values.buffers;
    // Gradients are summed in fp32 beside a network in bfloat16, and stay in fp16 beside one in that.
    let summed = match (is_half, setup.precision) {
        (true, NumericFormat::AmpFp16) => 2.0,
        _ => width,
    };
    let mut gradients = summed * of(Zero::Gradients);
    let masters = if is_half && !sharded { 4.0 } else { 0.0 };
    let mut optimizer = (masters + state_bytes(setup.optimizer, setup.precision)) * of(Zero::Optimizer);
    if is_half && summed > 2.0 && !sharded {
        // The largest gradient is cast before it is added.
        gradients += summed * values.largest;
    }
    if savings.offload_optimizer || savings.offload_weights {
        optimizer = 0.0;
    }
    if savings.offload_weights {
        (weights, gradients) = (0.0, 0.0);
    }
    if savings.update_in_backward {
        gradients = values.unit * width;
    }
    let update = match savings.foreach_update && optimizer > 0.0 {
        true => width * of(Zero::Optimizer),
        false => 0.0,
    };
    let communication = match setup.device.is_processor() {
        true => held_by_processor(values, setup),
        false => communication(values, setup, is_half, savings.trainer_gathers),
    };
    States { weights, gradients, optimizer, communication, update }
}

/// What exchanges take on GPUs.
fn communication(values: &Values, setup: &Setup, is_half: bool, trainer_gathers: bool) -> f64 {
    match (setup.parallel.replicas(), setup.parallel.zero) {
        (0 | 1, _) => 0.0,
        // The reducer's buckets are as large as all gradients that it exchanges (DDP's documentation of
        // `gradient_as_bucket_view`).
        (2.., Zero::None) if is_half => values.parameters * 2.0,
        (2.., Zero::None) => values.parameters * setup.precision.weight_bytes(),
        (2.., Zero::Optimizer) if is_half => values.parameters * 2.0,
        (2.., Zero::Optimizer | Zero::Gradients) => 2.0 * BUCKET,
        // A table of words and its gradients are in fp32, with the copy that autocast casts; of blocks, two are there in 16 bits.
        (2.., Zero::Parameters) if trainer_gathers && setup.precision.is_autocast() => {
            (3.0 * values.unit + values.block) * setup.precision.weight_bytes() + 2.0 * values.unit
        }
        // The part at work, its gradients, the same in the order in which they are scattered (`fully_shard` copies them
        // there, `foreach_reduce`), and the next block.
        (2.., Zero::Parameters) => (3.0 * values.unit + values.block) * setup.precision.compute_bytes(),
    }
}

/// What exchanges take on processors, where the C library's allocator never gives blocks below 32 MiB back: buckets of
/// gradients that are laid out anew after the first step; the whole network that a rank begins with, or, with sharded
/// parameters, as much again as was ever gathered (measured, `docs/parallel.md`). At work are a gradient, the same laid out
/// to be sent, and what is being sent.
fn held_by_processor(values: &Values, setup: &Setup) -> f64 {
    if setup.parallel.data <= 1 {
        return 0.0;
    }
    let at_work = 3.0 * values.block.max(values.around);
    let held = match setup.parallel.zero {
        Zero::None | Zero::Optimizer => values.parameters,
        Zero::Gradients => values.parameters + at_work,
        Zero::Parameters => 2.0 * values.parameters + at_work,
    };
    held * setup.precision.weight_bytes()
}

/// Frozen weights in the computing type or in 4 bits with a scale for each 64 (NF4 with double quantisation, 0.516
/// bytes), and adapters with Adam beside them.
fn adapted(values: &Values, setup: &Setup, adapters: Adapters) -> States {
    let ranks = f64::from(setup.parallel.sharded_over());
    let divided = match setup.parallel.zero {
        Zero::None | Zero::Optimizer | Zero::Gradients => 1.0,
        Zero::Parameters => ranks,
    };
    let computing = setup.precision.compute_bytes();
    let frozen = match adapters.quantized {
        true => NF4 * values.products + computing * (values.parameters - values.products).max(0.0),
        false => computing * values.parameters,
    };
    let trained = values.adapters * adapters.rank as f64;
    let width = setup.precision.weight_bytes();
    let gathered = match (setup.parallel.replicas(), setup.parallel.zero) {
        (2.., Zero::Parameters) if adapters.quantized => 2.0 * NF4 * values.unit,
        (2.., Zero::Parameters) => 2.0 * computing * values.unit,
        (_, Zero::None | Zero::Optimizer | Zero::Gradients | Zero::Parameters) => 0.0,
    };
    States {
        weights: (frozen + trained * width) / divided,
        gradients: trained * width / divided,
        optimizer: trained * state_bytes(setup.optimizer, setup.precision) / divided,
        communication: gathered,
        update: 0.0,
    }
}
