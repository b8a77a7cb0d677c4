//! RWKV, the fourth version: a decoder whose tokens see what came before through one decaying sum a channel (Peng et al.
//! 2023).

use crate::model::builder::{Builder, Owned, Rows};
use crate::model::graph::{Function, Graph, Norm, OpKind, WeightSplit};

/// An RWKV.
#[derive(Debug, Clone, PartialEq)]
pub struct Rwkv {
    pub layers: u64,
    pub hidden: u64,
    /// Width of the part that sees what came before.
    pub inner: u64,
    pub feed_forward: u64,
    pub vocabulary: u64,
    /// The logits use the token embedding (tied weights).
    pub tied: bool,
    /// The next token is scored.
    pub scores: bool,
    /// Tokens of one sample.
    pub sequence: u64,
}

impl Rwkv {
    /// Builds the graph of one sample of `sequence` tokens with the loss of the next token (Peng et al. 2023).
    pub fn graph(&self) -> Graph {
        let mut builder = Builder::new();
        let mut at = builder.embed_tokens("tokens", self.sequence, self.vocabulary, self.hidden);
        for layer in 0..self.layers {
            let block = builder.begin_block();
            if layer == 0 {
                at = builder.norm("block0.norm0", at, Norm::Layer, true);
            }
            let name = |part: &str| format!("block{block}.{part}");
            let normal = builder.norm(name("norm1"), at, Norm::Layer, true);
            let seen = self.look(&mut builder, &name("attention"), normal);
            at = builder.combine(name("sum1"), seen, at, false);
            let normal = builder.norm(name("norm2"), at, Norm::Layer, true);
            let fed = self.feed(&mut builder, &name("feed"), normal);
            at = builder.combine(name("sum2"), fed, at, false);
        }
        builder.end_blocks();
        at = builder.norm("norm", at, Norm::Layer, true);
        if self.scores {
            builder.predict_tokens("scores", at, self.vocabulary, self.tied, false);
        }
        builder.finish()
    }

    /// Each channel of a token mixed with that of the one before, by a learned share.
    fn mix(&self, builder: &mut Builder, name: String, from: Rows) -> Rows {
        let kind = OpKind::Elementwise { elements: from.elements(), inputs: 2, product: true };
        let owned = Owned::parameters(from.width);
        Rows { tensor: builder.add(name, kind, &[from.tensor], from.elements(), owned), ..from }
    }

    fn look(&self, builder: &mut Builder, name: &str, from: Rows) -> Rows {
        let [key, value, open] = ["key", "value", "receptance"].map(|part| {
            let mixed = self.mix(builder, format!("{name}.{part}.mix"), from);
            builder.linear(format!("{name}.{part}"), mixed, self.inner, false, WeightSplit::Columns)
        });
        let open = builder.apply(format!("{name}.open"), open, Function::Sigmoid);
        // A decay and a first share for each channel; the sum is computed token by token, and nothing of it is written
        // but what is read.
        let kind = OpKind::Elementwise { elements: key.elements(), inputs: 2, product: true };
        let owned = Owned::parameters(2 * self.inner);
        let tensor = builder.add(format!("{name}.sum"), kind, &[key.tensor, value.tensor], key.elements(), owned);
        let gated = builder.combine(format!("{name}.product"), open, Rows { tensor, ..key }, true);
        builder.linear(format!("{name}.output"), gated, self.hidden, false, WeightSplit::Rows)
    }

    fn feed(&self, builder: &mut Builder, name: &str, from: Rows) -> Rows {
        let mixed = self.mix(builder, format!("{name}.key.mix"), from);
        let up = builder.linear(format!("{name}.key"), mixed, self.feed_forward, false, WeightSplit::Columns);
        let up = builder.apply(format!("{name}.function"), up, Function::SquaredRelu);
        let down = builder.linear(format!("{name}.value"), up, self.hidden, false, WeightSplit::Rows);
        let mixed = self.mix(builder, format!("{name}.receptance.mix"), from);
        let open = builder.linear(format!("{name}.receptance"), mixed, self.hidden, false, WeightSplit::Whole);
        let open = builder.apply(format!("{name}.open"), open, Function::Sigmoid);
        builder.combine(format!("{name}.product"), open, down, true)
    }
}
