//! Models: the operations and saved tensors of a network for one sample, as a list of operators.
//!
//! Estimates are independent of a model's name: they use a [`Graph`], or, if only totals are known, a [`Summary`]. A
//! graph comes from a family's template, a Hugging Face `config.json`, an ONNX file or a safetensors header.

pub mod builder;
pub mod families;
pub mod graph;
pub mod ours;
pub mod read;
mod totals;

pub use builder::Builder;
pub use graph::{Function, Graph, Input, Norm, OpKind, Operator, TensorId, WeightSplit};

use serde::{Deserialize, Serialize};

/// Description of a network.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelDescription {
    /// Every operator.
    Graph(Graph),
    /// Only totals.
    Summary(Summary),
}

/// Totals of a network, as tables of models state them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Trainable parameters.
    pub parameters: f64,
    /// Multiply-adds of one forward pass of one sample.
    pub multiply_adds: f64,
    /// Values that convolutions and linear layers write in one forward pass of one sample, as fvcore counts them.
    pub activations: f64,
    /// The kind of its blocks, such as `resnet` or `vit`, if it is stated.
    pub family: Option<String>,
}
