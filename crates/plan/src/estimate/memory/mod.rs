//! Memory of one GPU in training: what is there all the time, what the forward pass keeps for the backward pass, and
//! what the framework takes for itself.
//!
//! [`memory`] answers for a [`Model`] and a [`Setup`]; [`Profile`] is the part of the answer that does not depend on
//! the batch, for whoever asks about many. [`kept`] says what each operator keeps, [`walk`] when it is let go,
//! [`states`] what weights, gradients and the optimiser take, [`fixed`] what no model changes, [`totals`] what is
//! estimated when only totals are known; [`fit`] turns the sums into answers; [`part`] counts for a rank on a processor.

pub mod fit;
pub mod fixed;
mod kept;
pub mod part;
mod profile;
mod states;
#[cfg(test)]
mod tests;
mod totals;
mod walk;

use serde::Serialize;

use super::{Precision, Recompute, Setup};
use crate::model::{Graph, Model};

pub use fit::{Change, Remedy, Verdict, largest_batch, remedies, verdict};
pub use fixed::Figures;
pub use profile::{Key, Profile};
pub(super) use states::weight_width;

/// Memory of the fullest GPU at its fullest moment, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Memory {
    /// Weights, half-precision copies of them, and values kept with them.
    pub weights: f64,
    /// Gradients of the weights at that moment.
    pub gradients: f64,
    /// The optimiser's state.
    pub optimizer: f64,
    /// What is kept for the backward pass and what is on its way at that moment.
    pub activations: f64,
    /// What libraries take to compute.
    pub workspace: f64,
    /// Buckets and gathered shards.
    pub communication: f64,
    /// The driver's context, the libraries' code and the collectives' buffers; no allocator sees it.
    pub context: f64,
    /// What the allocator holds and cannot use.
    pub margin: f64,
    /// Everything above together: what a monitor of the GPU shows where there is room.
    pub middle: f64,
    /// A tenth of all runs get by with less than this.
    pub low: f64,
    /// What a GPU must have: before it fails, the allocator gives back what it holds but for parts of blocks in use.
    pub must: f64,
    /// A tenth of all runs must have more.
    pub high: f64,
}

impl Memory {
    /// Returns what tensors occupy, as `torch.cuda.max_memory_allocated` tells it.
    pub fn allocated(&self) -> f64 {
        self.weights + self.gradients + self.optimizer + self.activations + self.workspace + self.communication
    }

    /// Returns what a GPU must have: tensors and context, without what the allocator holds and can give back.
    pub fn needed(&self) -> f64 {
        self.allocated() + self.context
    }

    /// Returns what the allocator holds, as `torch.cuda.max_memory_reserved` tells it.
    pub fn reserved(&self) -> f64 {
        self.allocated() + self.margin
    }
}

/// What a program does with memory beyond a [`Setup`]: ways of saving it, as fine-tuning recipes use them, and one of
/// wasting it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Savings {
    /// Only small matrices beside the frozen weights are trained.
    pub adapters: Option<Adapters>,
    /// The network itself is in half precision with fp32 copies of its weights beside it, as Megatron and apex's `O2`
    /// have it, rather than cast operator by operator.
    pub half_model: bool,
    /// Each weight is updated as soon as its gradient is there, and the gradient let go.
    pub update_in_backward: bool,
    /// The optimiser's state lives in the host's memory.
    pub offload_optimizer: bool,
    /// Weights and gradients live in the host's memory too, but for the blocks at work.
    pub offload_weights: bool,
    /// GELU and the normalisations of layers are written out, an operator for each sign of their formulas, and all that
    /// lies between is kept.
    pub written_out: bool,
}

/// Low-rank adapters (Hu et al. 2021), with frozen weights in the computing type or in 4 bits (Dettmers et al. 2023).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adapters {
    pub rank: u64,
    pub quantized: bool,
}

/// Returns the bytes of one sample that a forward pass in 32-bit floats keeps for the backward pass: what
/// `torch.autograd.graph.saved_tensors_hooks` sees in training mode, each memory once and weights left out. `fused`
/// attention keeps no scores.
pub fn kept_bytes(graph: &Graph, fused: bool) -> f64 {
    let rules = kept::Rules::of_processor(Precision::Fp32, fused, 1);
    let storage = kept::Storage::new(graph, &rules);
    walk::walk(graph, 0..graph.operators.len(), &storage, &rules, Recompute::None).kept
}

/// Estimates the memory of the fullest GPU.
pub fn memory(model: &Model, setup: &Setup, figures: &Figures) -> Memory {
    memory_with(model, setup, &Savings::default(), figures)
}

/// Estimates the memory of the fullest GPU with further savings.
pub fn memory_with(model: &Model, setup: &Setup, savings: &Savings, figures: &Figures) -> Memory {
    Profile::new(model, setup, savings, figures).memory(setup)
}
