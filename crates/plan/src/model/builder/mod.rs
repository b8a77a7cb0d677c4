//! How graphs are written: one call an operator, in the order in which a network runs them.
//!
//! [`Builder::add`] is all there is to it; [`images`] and [`sequences`] know the usual layers over it, with the
//! shapes and weights that PyTorch gives them.

pub mod images;
pub mod sequences;

use super::{Graph, Input, OpKind, Operator, TensorId};

pub use images::{Convolution, FeatureMap};
pub use sequences::Rows;

/// A graph that is being written.
#[derive(Debug, Clone, Default)]
pub struct Builder {
    graph: Graph,
    block: Option<u32>,
    next: u32,
    sharing: bool,
}

/// Values that an operator owns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Owned {
    /// Trained.
    pub parameters: u64,
    /// Stored with the weights and not trained.
    pub buffers: u64,
}

impl Owned {
    /// An operator without weights.
    pub const NOTHING: Owned = Owned { parameters: 0, buffers: 0 };

    /// So many trained values and no buffers.
    pub fn parameters(parameters: u64) -> Owned {
        Owned { parameters, buffers: 0 }
    }
}

impl Builder {
    /// Begins an empty graph.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Adds a tensor that comes from outside.
    pub fn input(&mut self, elements: u64) -> TensorId {
        let index = self.graph.tensors.len() as u32;
        self.graph.tensors.push(elements);
        TensorId(index)
    }

    /// Notes what enters the network for one sample.
    pub fn reads(&mut self, input: Input) {
        self.graph.inputs.push(input);
    }

    /// Adds an operator that writes `elements` values per sample, and returns its output.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        kind: OpKind,
        inputs: &[TensorId],
        elements: u64,
        owned: Owned,
    ) -> TensorId {
        let output = self.input(elements);
        self.graph.operators.push(Operator {
            name: name.into(),
            kind,
            inputs: inputs.to_vec(),
            output,
            block: self.block,
            parameters: if self.sharing { 0 } else { owned.parameters },
            buffers: if self.sharing { 0 } else { owned.buffers },
        });
        output
    }

    /// Returns how many operators there are: the index of the next.
    pub fn count(&self) -> usize {
        self.graph.operators.len()
    }

    /// Returns how many values of one sample `tensor` has.
    pub fn elements(&self, tensor: TensorId) -> u64 {
        self.graph.tensors[tensor.0 as usize]
    }

    /// Subsequent operators belong to the next repeated block.
    pub fn begin_block(&mut self) -> u32 {
        let block = self.next;
        self.block = Some(block);
        self.next += 1;
        block
    }

    /// Subsequent operators belong to no repeated block.
    pub fn end_blocks(&mut self) {
        self.block = None;
    }

    /// Subsequent operators share weights that are counted already.
    pub fn share_weights(&mut self) {
        self.sharing = true;
    }

    /// Subsequent operators have weights of their own.
    pub fn own_weights(&mut self) {
        self.sharing = false;
    }

    /// Gives the last operator a bias, if it is a product and wrote `output`.
    pub fn add_bias(&mut self, output: TensorId, bias: Owned) -> bool {
        match self.graph.operators.last_mut() {
            Some(last) if last.output == output && last.kind.is_weighted() => {
                last.parameters = last.parameters.saturating_add(bias.parameters);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Returns whether a product with a weight wrote `tensor`.
    pub fn is_product(&self, tensor: TensorId) -> bool {
        self.graph.operators.iter().rev().any(|operator| operator.output == tensor && operator.kind.is_weighted())
    }

    /// Notes an operator that was not understood.
    pub fn unknown(&mut self, what: String) {
        self.graph.unknown.push(what);
    }

    /// Adds the cross-entropy loss of `rows` predictions over `classes`.
    pub fn loss(&mut self, scores: TensorId, rows: u64, classes: u64) -> TensorId {
        self.add("loss", OpKind::Loss { rows, classes }, &[scores], 1, Owned::NOTHING)
    }

    /// Returns the graph, which holds operators in the order in which they were added.
    pub fn finish(self) -> Graph {
        self.graph
    }
}
