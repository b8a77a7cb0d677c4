//! Operators that cost the same, counted rather than listed.

use super::BlockPosition;
use crate::estimate::savings::Adapters;
use crate::model::graph::OpKind;

/// Operators that cost the same.
#[derive(Debug, Clone, PartialEq)]
pub struct OpGroup {
    pub kind: OpKind,
    /// How many there are.
    pub count: f64,
    /// How many of them selective recomputation keeps beside flash attention: attention itself, and of a block's products
    /// of matrices the first, third and so on (torchtitan's `selective op`).
    pub saved_by_selective_checkpointing: f64,
    /// How many of them stand at the end of a block where nothing more is kept, so that recomputing it need not reach them
    /// (`set_checkpoint_early_stop`, since PyTorch 2.1).
    pub ends: f64,
    /// Trained values of each.
    pub parameters: f64,
    pub place: BlockPosition,
    /// With tensor parallelism each rank has a part of it.
    pub divided: bool,
    /// Nothing before it is trained, so no gradient of its input is wanted.
    pub first: bool,
    /// It has weights that stay as they are, so no gradient of them is wanted.
    pub frozen: bool,
    /// Thin matrices beside those weights, which are trained instead.
    pub adapters: Option<Adapters>,
    /// Share of the tensors that it reads and writes that stay in 32 bits where autocast casts operator by operator:
    /// normalisations, softmax and sums insist on them, and what only passes values on keeps what it is given.
    pub fp32_fraction: f64,
    /// Exchanges among tensor-parallel ranks behind each, forwards and backwards: values of one sample.
    pub exchanged: [f64; 2],
}

impl OpGroup {
    /// Copies of its weight, of which each row uses one: experts.
    pub fn copies(&self) -> f64 {
        match self.kind {
            OpKind::Linear { inner, columns, .. } => {
                (self.parameters / (inner * columns).max(1) as f64).floor().max(1.0)
            }
            _ => 1.0,
        }
    }

    /// Whether both cost the same; how many there are aside.
    pub(super) fn same(&self, other: &OpGroup) -> bool {
        self.kind == other.kind
            && self.parameters == other.parameters
            && self.place == other.place
            && self.divided == other.divided
            && self.first == other.first
            && self.frozen == other.frozen
            && self.fp32_fraction == other.fp32_fraction
            && self.exchanged == other.exchanged
    }
}
