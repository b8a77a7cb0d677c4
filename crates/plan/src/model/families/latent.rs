//! Multi-head latent attention: keys and values, and optionally queries, are compressed to few values per token and
//! expanded per head (DeepSeek-AI 2024, arXiv 2405.04434).

use super::super::builder::{Builder, Owned, Rows};
use super::super::graph::{OpKind, WeightSplit};
use super::block::TransformerBlock;

/// The widths of the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latent {
    /// Values that tell queries; 0: they come from one product.
    pub queries: u64,
    /// Values that tell keys and values.
    pub keys: u64,
    /// Values of a head's key that are turned by position; all heads share them.
    pub turned: u64,
    /// Values of a head's value.
    pub value: u64,
}

impl Latent {
    /// Adds the attention of `from` to itself and returns what leaves it. `block` says heads, the width of a head's key,
    /// biases and normalisation.
    pub fn add(&self, block: &TransformerBlock, builder: &mut Builder, name: &str, from: Rows) -> Rows {
        let name = |part: &str| format!("{name}.{part}");
        let wide = block.heads * block.head_width;
        let bias = block.query_bias;
        let query = match self.queries {
            0 => builder.linear(name("query"), from, wide, false, WeightSplit::Columns),
            rank => {
                let few = builder.linear(name("query.few"), from, rank, bias, WeightSplit::Whole);
                let few = builder.norm(name("query.norm"), few, block.norm, block.norm_bias);
                builder.linear(name("query"), few, wide, false, WeightSplit::Columns)
            }
        };
        let query = builder.rotate(name("query_rotation"), query);
        let few = builder.linear(name("key_value.few"), from, self.keys + self.turned, bias, WeightSplit::Whole);
        let turned = builder.rotate(name("key_rotation"), Rows { width: self.turned, ..few });
        let few = builder.norm(name("key_value.norm"), Rows { width: self.keys, ..few }, block.norm, block.norm_bias);
        let still = block.head_width.saturating_sub(self.turned);
        let both =
            builder.linear(name("key_value"), few, block.heads * (still + self.value), false, WeightSplit::Columns);
        let kind = OpKind::Attention {
            heads: block.heads,
            key_heads: block.heads,
            width: block.head_width,
            value_width: self.value,
            queries: from.rows,
            keys: from.rows,
            causal: block.causal,
            dropout: block.attention_dropout,
        };
        let width = block.heads * self.value;
        let inputs = [query.tensor, both.tensor, turned.tensor];
        let tensor = builder.add(name("scores"), kind, &inputs, from.rows * width, Owned::NOTHING);
        let attended = Rows { tensor, rows: from.rows, width };
        builder.linear(name("output"), attended, block.hidden, block.output_bias, WeightSplit::Rows)
    }
}
