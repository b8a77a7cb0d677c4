//! From bytes to answers: whether it fits, the largest batch that does, and what would make it fit.

use domain::gpu::Gpu;
use serde::Serialize;

use super::{Figures, Memory, Profile, Savings, memory};
use crate::estimate::{Precision, Recompute, Setup, Zero};
use crate::model::Model;

/// Largest batch that is looked for.
const LARGEST: u64 = 1 << 20;

/// Whether a GPU's memory is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Even a high estimate fits.
    Fits,
    /// It may fit, with nothing to spare.
    Tight,
    /// Even a low estimate does not.
    TooLarge,
}

impl Verdict {
    /// Compares a band with what there is, both in bytes.
    pub fn of(low: f64, high: f64, has: f64) -> Verdict {
        match (high <= has, low <= has) {
            (true, _) => Verdict::Fits,
            (false, true) => Verdict::Tight,
            (false, false) => Verdict::TooLarge,
        }
    }
}

/// Compares an estimate with what a GPU has.
pub fn verdict(memory: &Memory, gpu: &Gpu) -> Verdict {
    Verdict::of(memory.low, memory.high, gpu.usable.0 as f64)
}

/// Returns the largest micro-batch of which the GPU can be expected to hold what is needed; none where it cannot hold
/// one sample.
pub fn largest_batch(model: &Model, setup: &Setup, savings: &Savings, figures: &Figures) -> Option<u64> {
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

/// A change that makes a setup fit, or makes it smaller.
#[derive(Debug, Clone, PartialEq)]
pub struct Remedy {
    pub change: Change,
    /// The setup with the change, for whoever estimates its time and price.
    pub setup: Setup,
    pub memory: Memory,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Fewer samples at a time, and as many more micro-batches a step: the same steps.
    SmallerMicroBatch,
    /// Attention without its matrix of scores.
    FlashAttention,
    /// Products in half precision.
    HalfPrecision,
    /// Blocks are computed again in the backward pass.
    Recompute,
    /// States divided over the data-parallel ranks.
    Shard(Zero),
    /// Each layer divided over the GPUs of a node.
    Tensor(u32),
    /// The smallest GPU that has enough memory, in bytes; which ones there are, the catalog knows.
    MoreMemory(u64),
}

/// Returns what would make `setup` fit, each alone, in the order in which it is worth trying; then a GPU that is large
/// enough. A change that does not apply is left out, and one that is not enough alone says so by its verdict.
pub fn remedies(model: &Model, setup: &Setup, figures: &Figures) -> Vec<Remedy> {
    let mut remedies = Vec::new();
    let mut consider = |change: Change, setup: Setup| {
        let memory = memory(model, &setup, figures);
        let verdict = verdict(&memory, &setup.device.gpu);
        remedies.push(Remedy { change, setup, memory, verdict });
    };
    if let Some(smaller) = smaller(model, setup, figures) {
        consider(Change::SmallerMicroBatch, smaller);
    }
    if !setup.flash_attention && has_attention(model) {
        consider(Change::FlashAttention, Setup { flash_attention: true, ..setup.clone() });
    }
    if let Some(precision) = halved(setup) {
        consider(Change::HalfPrecision, Setup { precision, ..setup.clone() });
    }
    if setup.recompute != Recompute::Full {
        consider(Change::Recompute, Setup { recompute: Recompute::Full, ..setup.clone() });
    }
    if setup.parallel.data > 1 {
        for zero in [Zero::Optimizer, Zero::Gradients, Zero::Parameters] {
            if zero > setup.parallel.zero {
                let mut sharded = setup.clone();
                sharded.parallel.zero = zero;
                consider(Change::Shard(zero), sharded);
            }
        }
    }
    let per_node = setup.device.gpus_per_node;
    for tensor in [2, 4, 8] {
        let fewer = setup.parallel.data / tensor * setup.parallel.tensor;
        if tensor > setup.parallel.tensor && tensor <= per_node && fewer > 0 && has_attention(model) {
            let mut divided = setup.clone();
            divided.parallel.tensor = tensor;
            divided.parallel.data = fewer;
            // The same batch in all: each rank that is left takes the share of those that are not.
            divided.accumulate = setup.accumulate * u64::from(setup.parallel.data / fewer);
            consider(Change::Tensor(tensor), divided);
        }
    }
    let needs = memory(model, setup, figures);
    let mut larger = setup.clone();
    larger.device.gpu.usable = domain::Bytes(needs.high.ceil() as u64);
    consider(Change::MoreMemory(needs.high.ceil() as u64), larger);
    remedies
}

/// The same batch in micro-batches that fit: the most samples at a time that divide it.
fn smaller(model: &Model, setup: &Setup, figures: &Figures) -> Option<Setup> {
    let profile = Profile::new(model, setup, &Savings::default(), figures);
    let halves = (1..).map(|halvings| 1u64 << halvings).take_while(|parts| *parts <= setup.micro_batch);
    let mut last = None;
    for parts in halves.take(32) {
        let candidate = Setup {
            micro_batch: setup.micro_batch.div_ceil(parts),
            accumulate: setup.accumulate.saturating_mul(parts),
            ..setup.clone()
        };
        let fits = verdict(&profile.memory(&candidate), &setup.device.gpu) == Verdict::Fits;
        last = Some(candidate);
        if fits {
            break;
        }
    }
    last
}

fn halved(setup: &Setup) -> Option<Precision> {
    let rates = &setup.device.gpu.rates;
    match setup.precision {
        Precision::Fp32 | Precision::Tf32 if rates.bf16.is_some() => Some(Precision::AmpBf16),
        Precision::Fp32 | Precision::Tf32 if rates.fp16.is_some() => Some(Precision::AmpFp16),
        Precision::Fp32
        | Precision::Tf32
        | Precision::AmpFp16
        | Precision::AmpBf16
        | Precision::Bf16
        | Precision::Fp8 => None,
    }
}

fn has_attention(model: &Model) -> bool {
    match model {
        Model::Graph(graph) => {
            graph.operators.iter().any(|operator| matches!(operator.kind, crate::model::Kind::Attention { .. }))
        }
        Model::Summary(_) => false,
    }
}
