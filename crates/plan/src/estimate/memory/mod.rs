//! Memory of one GPU in training: what is there all the time, what the forward pass saves for the backward pass, and
//! what the framework takes for itself.
//!
//! [`memory`] answers for a [`ModelDescription`] and a [`Setup`]; [`Profile`] is the part of the answer that does not depend on
//! the batch, for whoever asks about many. [`saved_tensors`] says what each operator saves, [`peak`] when it is freed,
//! [`states`] what weights, gradients and the optimiser take, [`fixed`] what no model changes, [`totals`] what is
//! estimated when only totals are known; [`fit`] turns the sums into answers.

pub mod fit;
pub mod fixed;
mod peak;
mod profile;
mod saved_tensors;
mod states;
#[cfg(test)]
mod tests;
mod totals;

use serde::Serialize;

use super::{ActivationCheckpointing, Setup};
use crate::model::{Graph, ModelDescription};

pub use super::savings::{Adapters, Savings};
pub use fit::{MemoryFit, largest_batch, verdict};
pub use fixed::MemoryCoefficients;
pub use profile::{Key, Profile};

/// Memory of the fullest GPU at its fullest moment, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct MemoryEstimate {
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
    pub required: f64,
    /// A tenth of all runs must have more.
    pub high: f64,
}

impl MemoryEstimate {
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

/// Returns the bytes of one sample that a forward pass in 32-bit floats keeps for the backward pass: what
/// `torch.autograd.graph.saved_tensors_hooks` sees in training mode, each memory once and weights left out. `fused`
/// attention keeps no scores.
pub fn saved_bytes(graph: &Graph, fused: bool) -> f64 {
    let rules = saved_tensors::Rules::plain(fused);
    let storage = saved_tensors::Storage::new(graph, &rules);
    peak::activation_peak(graph, 0..graph.operators.len(), &storage, &rules, ActivationCheckpointing::None).saved
}

/// Estimates the memory of the fullest GPU.
pub fn memory(model: &ModelDescription, setup: &Setup, figures: &MemoryCoefficients) -> MemoryEstimate {
    memory_with(model, setup, &Savings::default(), figures)
}

/// Estimates the memory of the fullest GPU with further savings.
pub fn memory_with(
    model: &ModelDescription,
    setup: &Setup,
    savings: &Savings,
    figures: &MemoryCoefficients,
) -> MemoryEstimate {
    Profile::new(model, setup, savings, figures).memory(setup)
}
