//! Layers, as PyTorch's `torch.nn` has them, and what is handed from layer to layer.
//!
//! [`layer`] and `attention` compute; [`Weights`] names every tensor that a layer makes; [`Pass`] carries what holds
//! throughout one forward pass, and `tensor_parallel` is how ranks that divide a layer work together.

pub(in crate::model) mod attention;
pub mod layer;
mod pass;
mod tensor_parallel;
mod weights;

pub use pass::{BatchNormMode, Pass};
pub use tensor_parallel::TensorParallel;
pub use weights::{BuildHooks, ConvNormPair, Named, OnBlock, Weights};
