//! Mamba-2: a decoder whose blocks have a state per head, computed by matrix products over chunks of the sequence (Dao
//! and Gu 2024, "state space duality").

use crate::model::builder::{Builder, Owned, Rows};
use crate::model::graph::{Function, Graph, Norm, OpKind, WeightSplit};

/// A Mamba-2.
#[derive(Debug, Clone, PartialEq)]
pub struct Mamba2 {
    pub layers: u64,
    pub hidden: u64,
    pub heads: u64,
    pub head_width: u64,
    /// Groups of heads that share what enters and leaves the state.
    pub groups: u64,
    /// Values of the state for each value of a head.
    pub state: u64,
    /// Tokens that the convolution sees.
    pub kernel: u64,
    /// Tokens per chunk.
    pub piece: u64,
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

impl Mamba2 {
    /// Builds the graph of one sample of `sequence` tokens with the loss of the next token (Dao and Gu 2024).
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
        let (inner, told) = (self.heads * self.head_width, 2 * self.groups * self.state);
        let rows = from.rows;
        let normal = builder.norm(format!("{name}.norm"), from, Norm::Rms, false);
        let columns = 2 * inner + told + self.heads;
        let all = builder.linear(format!("{name}.in"), normal, columns, self.bias, WeightSplit::Columns);
        let mixed = Rows { width: inner + told, ..all };
        let kind = OpKind::Convolution {
            positions: rows,
            inner: self.kernel,
            columns: 1,
            groups: mixed.width,
            kernel: self.kernel as u32,
        };
        let owned = Owned::parameters(mixed.width * (self.kernel + u64::from(self.convolution_bias)));
        let tensor = builder.add(format!("{name}.convolution"), kind, &[all.tensor], mixed.elements(), owned);
        let mixed = builder.apply(format!("{name}.silu"), Rows { tensor, ..mixed }, Function::Silu);
        let read = self.scan(builder, name, mixed);
        let gate = Rows { tensor: all.tensor, rows, width: inner };
        let open = builder.apply(format!("{name}.gate"), gate, Function::Silu);
        let gated = builder.combine(format!("{name}.product"), read, open, true);
        let normal = builder.norm(format!("{name}.norm2"), gated, Norm::Rms, false);
        let out = builder.linear(format!("{name}.out"), normal, self.hidden, self.bias, WeightSplit::Rows);
        builder.combine(format!("{name}.sum"), out, from, false)
    }

    /// Four products: of what tokens of a piece tell each other, of that with their values, of values into the state that
    /// a piece leaves, and of that state with what later tokens ask.
    fn scan(&self, builder: &mut Builder, name: &str, mixed: Rows) -> Rows {
        let rows = mixed.rows;
        let piece = self.piece.clamp(1, rows.max(1));
        let pieces = rows.div_ceil(piece);
        let (inner, states) = (self.heads * self.head_width, pieces * self.heads * self.head_width * self.state);
        let mut product = |part: &str, batch, [rows, inner, columns]: [u64; 3], inputs: &[_], owned| {
            let kind = OpKind::Product { batch, rows, inner, columns };
            builder.add(format!("{name}.scan.{part}"), kind, inputs, batch * rows * columns, owned)
        };
        let each = pieces * self.heads;
        // A decay, a step and a part of the value that passes by, for each head.
        let owned = Owned::parameters(3 * self.heads);
        let likeness = product("likeness", pieces * self.groups, [piece, self.state, piece], &[mixed.tensor], owned);
        let near = product("near", each, [piece, piece, self.head_width], &[likeness, mixed.tensor], Owned::NOTHING);
        let state = product("state", each, [self.head_width, piece, self.state], &[mixed.tensor], Owned::NOTHING);
        let far = product("far", each, [piece, self.state, self.head_width], &[state, mixed.tensor], Owned::NOTHING);
        let passed = OpKind::Elementwise { elements: states, inputs: 1, product: false };
        builder.add(format!("{name}.scan.passed"), passed, &[state], states, Owned::NOTHING);
        let [near, far] = [near, far].map(|tensor| Rows { tensor, rows, width: inner });
        builder.combine(format!("{name}.scan.sum"), near, far, false)
    }
}
