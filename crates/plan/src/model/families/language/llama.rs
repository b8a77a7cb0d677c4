//! Llama and its like: a decoder with rotated positions, RMS normalisation and a gated feed-forward part (Touvron et
//! al. 2023). Mistral and Qwen2 are the same with other figures.

use super::super::block::{Experts, Feed, TransformerBlock};
use super::decoder::DecoderOnly;
use crate::model::graph::{Function, Graph, Norm};

/// A decoder with rotated positions.
#[derive(Debug, Clone, PartialEq)]
pub struct Llama {
    pub hidden: u64,
    pub layers: u64,
    pub heads: u64,
    pub key_heads: u64,
    pub head_width: u64,
    pub feed_forward: u64,
    pub experts: Option<Experts>,
    pub vocabulary: u64,
    /// The scores use the embedding's table.
    pub tied: bool,
    /// Biases of queries, keys and values.
    pub query_bias: bool,
    pub window: Option<u64>,
    /// Tokens of one sample.
    pub sequence: u64,
}

impl Llama {
    /// Llama 3.1 with 8 thousand million parameters.
    pub fn three_8b(sequence: u64) -> Llama {
        Llama {
            hidden: 4096,
            layers: 32,
            heads: 32,
            key_heads: 8,
            head_width: 128,
            feed_forward: 14336,
            experts: None,
            vocabulary: 128_256,
            tied: false,
            query_bias: false,
            window: None,
            sequence,
        }
    }

    /// Llama 3.1 with 70 thousand million parameters.
    pub fn three_70b(sequence: u64) -> Llama {
        Llama { hidden: 8192, layers: 80, heads: 64, feed_forward: 28672, ..Llama::three_8b(sequence) }
    }

    /// Llama 3.1 with 405 thousand million parameters.
    pub fn three_405b(sequence: u64) -> Llama {
        Llama { hidden: 16384, layers: 126, heads: 128, feed_forward: 53248, ..Llama::three_8b(sequence) }
    }

    /// Builds the graph of one sample of `sequence` tokens with the loss of the next token.
    pub fn graph(&self) -> Graph {
        let blocks = DecoderOnly::of_blocks(self.block(), self.layers, self.vocabulary, self.sequence);
        DecoderOnly { tied: self.tied, ..blocks }.graph()
    }

    fn block(&self) -> TransformerBlock {
        TransformerBlock {
            key_heads: self.key_heads,
            head_width: self.head_width,
            norm: Norm::Rms,
            norm_bias: false,
            query_bias: self.query_bias,
            output_bias: false,
            rotary: true,
            causal: true,
            window: self.window,
            feed: Feed {
                function: Function::Silu,
                gated: true,
                bias: false,
                experts: self.experts,
                ..Feed::plain(self.feed_forward)
            },
            ..TransformerBlock::pre_norm(self.hidden, self.heads)
        }
    }
}
