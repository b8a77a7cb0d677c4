//! What ranks exchange in a step besides keys, values and tokens: gradients and sharded weights among replicas, activations
//! between the stages of a pipeline and inside layers.

use crate::estimate::NumericFormat;
use crate::estimate::collective::{BUCKET, CollectiveTime, Ring};
use crate::estimate::fitted::rates::Shared;
use crate::estimate::ops::OpProfile;
use crate::estimate::setup::{Setup, Zero};

use super::division;

/// Seconds of a step of a ring that spans nodes. Fitted to nanotron's sweep on p5 instances: 16 ranks per layer on two nodes
/// and 32 on four take 3 and 11 ms longer for the ten gathers and scatters of a block than eight in one.
const RING_STEP: f64 = 40e-6;

/// The ring in which ranks exchange inside layers. Between nodes a tree sums in the logarithm of their number, but gathers and
/// scatters, of which sequence parallelism consists, go around all ranks one step after the other (NCCL has no tree for them
/// before 2.23, NVIDIA's release notes).
pub(super) fn layer_ring(setup: &Setup, shared: &Shared) -> Ring {
    let ring = Ring::of(&setup.device, setup.parallel.tensor.max(1), 1, shared);
    if setup.parallel.sequence { step_by_step(&ring) } else { ring }
}

/// A ring for gathers and scatters: between nodes each of its steps starts anew.
fn step_by_step(ring: &Ring) -> Ring {
    let steps = if ring.nodes > 1.0 { ring.near * ring.nodes - 1.0 } else { 0.0 };
    Ring { latency: ring.latency.max(2.0 * steps * RING_STEP), ..*ring }
}

/// Bytes of a gradient that is summed and exchanged. Beside a network in bfloat16 that is fp32 (Megatron's
/// `accumulate_allreduce_grads_in_fp32`, nanotron's `accumulate_grad_in_fp32`), except where weights are sharded; with fp16,
/// whose loss is scaled, it is fp16.
pub(super) fn gradient_bytes(work: &OpProfile, setup: &Setup) -> f64 {
    match work.half && (setup.precision == NumericFormat::AmpFp16 || setup.parallel.zero == Zero::Parameters) {
        true => 2.0,
        false => setup.precision.weight_bytes(),
    }
}

/// Bytes of a sharded weight that is gathered after an update, where only gradients are sharded.
fn renewed_bytes(work: &OpProfile, setup: &Setup) -> f64 {
    if work.trainer_gathers { setup.precision.weight_bytes() } else { 2.0 }
}

/// Bytes of sharded weights that a pass gathers, on average over the two of a micro-batch: in the format of products (the
/// `param_dtype` of FSDP's mixed precision, and what the built-in trainer gathers under autocast), each weight once for
/// either pass, but for those that stay.
pub(super) fn gathered_bytes(work: &OpProfile, setup: &Setup) -> f64 {
    let elsewhere = work.parameters - division::held(work, setup);
    let [once, once_in_fp32] = work.gathered_once;
    let width = setup.precision.compute_bytes();
    let twice = work.gathered - elsewhere - once - once_in_fp32;
    twice * width + (once * width + once_in_fp32 * 4.0) / 2.0
}

/// Seconds in which a stage of a pipeline passes a micro-batch on and its gradient back. Each of the ranks that share a layer
/// passes its part on (Narayanan et al. 2021, section 4.1).
pub(super) fn passing(work: &OpProfile, setup: &Setup, shared: &Shared) -> f64 {
    let parallel = &setup.parallel;
    let passed =
        setup.micro_batch as f64 * work.boundary * setup.precision.compute_bytes() / f64::from(parallel.tensor.max(1));
    match parallel.pipeline > 1 {
        true => 2.0 * passed / pass_bandwidth(setup, shared) + shared.stage * 1e-6,
        false => 0.0,
    }
}

/// What data-parallel ranks exchange in a step: gradients, and the weights that ZeRO gathers.
pub(super) fn data_collectives(
    work: &OpProfile,
    setup: &Setup,
    ring: &Ring,
    late: bool,
    shared: &Shared,
) -> [CollectiveTime; 2] {
    let parallel = &setup.parallel;
    let micros = setup.accumulate.max(1) as f64;
    let wide = gradient_bytes(work, setup);
    let ranks = f64::from(parallel.tensor.max(1)) * f64::from(parallel.pipeline.max(1));
    let weights = division::held(work, setup) / ranks;
    let units = f64::from(work.blocks) + 1.0;
    let buckets = if late { 1.0 } else { (weights * wide / BUCKET).ceil().max(1.0) };
    let scattered = CollectiveTime::spread(ring, weights * wide, units).times(micros);
    match (parallel.replicas() > 1, parallel.zero) {
        (false, _) => [CollectiveTime::default(); 2],
        (true, Zero::None) => [CollectiveTime::sum(ring, weights * wide, buckets), CollectiveTime::default()],
        (true, Zero::Optimizer) => {
            let width = if work.half { 2.0 } else { wide };
            // Shards that stay within a node are whole between nodes, and gradients are summed there (InternEvo, MiCS).
            if work.sharded_over.is_some_and(|ranks| ranks < parallel.replicas()) {
                let near = Ring::of(&setup.device, work.sharded_over.unwrap_or(1), parallel.tensor.max(1), shared);
                let summed = CollectiveTime::sum(ring, weights * wide, buckets);
                return [summed, CollectiveTime::spread(&near, weights * width, 1.0)];
            }
            let around = step_by_step(ring);
            let scattered = CollectiveTime::spread(&around, weights * wide, units);
            [scattered, CollectiveTime::spread(&around, weights * width, 1.0)]
        }
        (true, Zero::Gradients) => {
            [scattered, CollectiveTime::spread(ring, weights * renewed_bytes(work, setup), units)]
        }
        (true, Zero::Parameters) => {
            let bytes = gathered_bytes(work, setup) / ranks;
            let gathered = CollectiveTime::spread(ring, bytes, units);
            [scattered, gathered.times(2.0 * micros)]
        }
    }
}

/// The same where replicas hold several sharded copies: weights are gathered and gradients scattered on `near`, among the
/// ranks of a copy, and each rank sums its shard of the gradients over the copies (hybrid sharding, Zhao et al. 2023,
/// section 3.2.2). With it, `near` at the mean bandwidth of all that each rank sends.
pub(super) fn hybrid_collectives(
    work: &OpProfile,
    setup: &Setup,
    near: &Ring,
    shared: &Shared,
) -> (Ring, [CollectiveTime; 2]) {
    let parallel = &setup.parallel;
    let tensor = parallel.tensor.max(1);
    let over = parallel.sharded_over();
    let micros = setup.accumulate.max(1) as f64;
    let wide = gradient_bytes(work, setup);
    let ranks = f64::from(tensor) * f64::from(parallel.pipeline.max(1));
    let weights = division::held(work, setup) / ranks;
    let units = f64::from(work.blocks) + 1.0;
    let far = Ring::of(&setup.device, parallel.copies.max(1), tensor.saturating_mul(over), shared);
    let scattered = CollectiveTime::spread(near, weights * wide, units).times(micros);
    let summed = CollectiveTime::sum(&far, weights * wide / f64::from(over), units).times(micros);
    let gathers = match parallel.zero {
        Zero::None | Zero::Optimizer => CollectiveTime::default(),
        Zero::Gradients => CollectiveTime::spread(near, weights * renewed_bytes(work, setup), units),
        Zero::Parameters => {
            let bytes = gathered_bytes(work, setup) / ranks;
            CollectiveTime::spread(near, bytes, units).times(2.0 * micros)
        }
    };
    let (inside, between) = (scattered.moving + gathers.moving, summed.moving);
    let sent = inside * near.bandwidth + between * far.bandwidth;
    let bandwidth = if inside + between > 0.0 { sent / (inside + between) } else { near.bandwidth };
    let gradients = CollectiveTime {
        moving: scattered.moving + summed.moving,
        starting: scattered.starting + summed.starting,
        pieces: scattered.pieces,
    };
    (Ring { bandwidth, ..*near }, [gradients, gathers])
}

/// Bytes a second between two stages of a pipeline.
fn pass_bandwidth(setup: &Setup, shared: &Shared) -> f64 {
    let stride = setup.parallel.tensor.max(1) * setup.parallel.data.max(1);
    Ring::of(&setup.device, 2, stride, shared).bandwidth
}
