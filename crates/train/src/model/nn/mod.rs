//! Layers as in PyTorch's `torch.nn`, and the state passed between them.
//!
//! [`layer`] and `attention` compute; [`Weights`] names every tensor that a layer creates; [`Pass`] carries the state
//! of one forward pass, `tensor_parallel` implements layers divided among ranks, and `stochastic_depth` skips branches
//! at random.

pub(in crate::model) mod attention;
pub mod layer;
mod pass;
pub(in crate::model) mod stochastic_depth;
mod tensor_parallel;
mod weights;

pub use pass::{BatchNormMode, Pass};
pub use tensor_parallel::TensorParallel;
pub use weights::{BuildHooks, ConvNormPair, Named, OnBlock, Weights};
