//! Totals of a graph, by the rules of the tables that state them, so that ours can be compared with theirs.

use super::{Graph, OpKind, Operator, Summary};

impl Graph {
    /// Returns how many values are trained; a weight that two operators share counts once.
    pub fn parameters(&self) -> u64 {
        self.sum(|operator| operator.parameters)
    }

    /// Returns the number of untrained values stored with the weights.
    pub fn buffers(&self) -> u64 {
        self.sum(|operator| operator.buffers)
    }

    /// Returns the multiply-adds of one forward pass of one sample: products of matrices only, as fvcore counts them.
    pub fn multiply_adds(&self) -> u64 {
        self.sum(|operator| operator.kind.multiply_adds())
    }

    /// Returns how many values convolutions and linear layers write in one forward pass of one sample, as fvcore
    /// counts activations.
    pub fn activations(&self) -> u64 {
        self.sum(|operator| match operator.kind.is_weighted() {
            true => self.elements(operator),
            false => 0,
        })
    }

    /// Returns how many values an operator writes for one sample.
    pub fn elements(&self, operator: &Operator) -> u64 {
        self.tensors[operator.output.0 as usize]
    }

    /// Returns how many repeated blocks there are.
    pub fn blocks(&self) -> u32 {
        self.operators.iter().filter_map(|operator| operator.block).max().map_or(0, |last| last.saturating_add(1))
    }

    /// Forgets everything but the totals.
    pub fn summary(&self, family: Option<String>) -> Summary {
        Summary {
            parameters: self.parameters() as f64,
            multiply_adds: self.multiply_adds() as f64,
            activations: self.activations() as f64,
            family,
        }
    }

    fn sum(&self, count: impl Fn(&Operator) -> u64) -> u64 {
        self.operators.iter().fold(0, |sum: u64, operator| sum.saturating_add(count(operator)))
    }
}

impl OpKind {
    /// Returns the multiply-adds of one forward pass of one sample. Masked attention counts fully, as in fvcore.
    pub fn multiply_adds(&self) -> u64 {
        match *self {
            OpKind::Convolution { positions, inner, columns, groups, kernel: _ } => {
                product(&[positions, inner, columns, groups])
            }
            OpKind::Linear { rows, inner, columns, split: _ } => product(&[rows, inner, columns]),
            OpKind::Attention { heads, width, value_width, queries, keys, .. } => {
                product(&[heads, width.saturating_add(value_width), queries, keys])
            }
            OpKind::Product { batch, rows, inner, columns } => product(&[batch, rows, inner, columns]),
            OpKind::Recurrent { steps, inner, hidden, gates, directions } => {
                product(&[steps, inner.saturating_add(hidden), hidden, gates, directions])
            }
            OpKind::Norm { .. }
            | OpKind::Activation { .. }
            | OpKind::Elementwise { .. }
            | OpKind::Softmax { .. }
            | OpKind::Dropout { .. }
            | OpKind::Embedding { .. }
            | OpKind::Pool { .. }
            | OpKind::Resize { .. }
            | OpKind::Copy { .. }
            | OpKind::View
            | OpKind::Loss { .. } => 0,
        }
    }

    /// Returns whether it multiplies by a weight.
    pub fn is_weighted(&self) -> bool {
        match self {
            OpKind::Convolution { .. } | OpKind::Linear { .. } | OpKind::Recurrent { .. } => true,
            OpKind::Attention { .. }
            | OpKind::Product { .. }
            | OpKind::Norm { .. }
            | OpKind::Activation { .. }
            | OpKind::Elementwise { .. }
            | OpKind::Softmax { .. }
            | OpKind::Dropout { .. }
            | OpKind::Embedding { .. }
            | OpKind::Pool { .. }
            | OpKind::Resize { .. }
            | OpKind::Copy { .. }
            | OpKind::View
            | OpKind::Loss { .. } => false,
        }
    }
}

/// A file may declare any size; products saturate.
fn product(factors: &[u64]) -> u64 {
    factors.iter().fold(1, |product: u64, factor| product.saturating_mul(*factor))
}
