//! Mamba: a decoder without attention, whose blocks have a recurrent state (Gu and Dao 2023).

use crate::model::builder::{Builder, Owned, Rows};
use crate::model::graph::{Function, Graph, Norm, OpKind, WeightSplit};

/// A Mamba.
#[derive(Debug, Clone, PartialEq)]
pub struct Mamba {
    pub layers: u64,
    pub hidden: u64,
    /// Width of the inner part.
    pub inner: u64,
    /// Values of the state for each of it.
    pub state: u64,
    /// Width through which the step in time is told.
    pub rank: u64,
    /// Tokens that the convolution sees.
    pub kernel: u64,
    pub bias: bool,
    pub convolution_bias: bool,
    pub vocabulary: u64,
    /// The logits use the token embedding (tied weights).
    pub tied: bool,
    /// The next token is scored.
    pub scores: bool,
    /// Tokens of one sample.
    pub sequence: u64,
}

impl Mamba {
    /// Builds the graph of one sample of `sequence` tokens with the loss of the next token (Gu and Dao 2023).
    pub fn graph(&self) -> Graph {
        let mut builder = Builder::new();
        let mut at = builder.embed_tokens("tokens", self.sequence, self.vocabulary, self.hidden);
        for _ in 0..self.layers {
            let block = builder.begin_block();
            at = self.block(&mut builder, &format!("block{block}"), at);
        }
        builder.end_blocks();
        at = builder.norm("norm", at, Norm::Rms, false);
        if self.scores {
            builder.predict_tokens("scores", at, self.vocabulary, self.tied, false);
        }
        builder.finish()
    }

    fn block(&self, builder: &mut Builder, name: &str, from: Rows) -> Rows {
        let (inner, rows) = (self.inner, from.rows);
        let normal = builder.norm(format!("{name}.norm"), from, Norm::Rms, false);
        let both = builder.linear(format!("{name}.in"), normal, 2 * inner, self.bias, WeightSplit::Columns);
        let half = Rows { width: inner, ..both };
        let kind = OpKind::Convolution {
            positions: rows,
            inner: self.kernel,
            columns: 1,
            groups: inner,
            kernel: self.kernel as u32,
        };
        let owned = Owned::parameters(inner * (self.kernel + u64::from(self.convolution_bias)));
        let mixed = builder.add(format!("{name}.convolution"), kind, &[half.tensor], rows * inner, owned);
        let mixed = builder.apply(format!("{name}.silu"), Rows { tensor: mixed, ..half }, Function::Silu);
        let told = builder.linear(format!("{name}.tell"), mixed, self.rank + 2 * self.state, false, WeightSplit::Rows);
        let step = Rows { width: self.rank, ..told };
        let step = builder.linear(format!("{name}.step"), step, inner, true, WeightSplit::Columns);
        // The state of every token is a product of a few values and the one before; a fused scan writes only what is
        // read from it: each channel's state with what the token asks.
        let kind = OpKind::Product { batch: inner, rows, inner: self.state, columns: 1 };
        let owned = Owned::parameters(inner * (self.state + 1));
        let read =
            builder.add(format!("{name}.scan"), kind, &[mixed.tensor, told.tensor, step.tensor], rows * inner, owned);
        let read = Rows { tensor: read, ..half };
        let open = builder.apply(format!("{name}.gate"), half, Function::Silu);
        let gated = builder.combine(format!("{name}.product"), read, open, true);
        let out = builder.linear(format!("{name}.out"), gated, self.hidden, self.bias, WeightSplit::Rows);
        builder.combine(format!("{name}.sum"), out, from, false)
    }
}
