//! GPT-2 and Megatron's GPT: a decoder with learned positions (Radford et al. 2019; Shoeybi et al. 2019).

use super::super::block::{Feed, TransformerBlock};
use super::decoder::DecoderOnly;
use crate::model::graph::Graph;

/// A decoder with learned positions.
#[derive(Debug, Clone, PartialEq)]
pub struct Gpt {
    pub hidden: u64,
    pub layers: u64,
    pub heads: u64,
    /// Mostly `4 · hidden`.
    pub feed_forward: u64,
    pub vocabulary: u64,
    /// Positions that have an embedding.
    pub positions: u64,
    pub dropout: bool,
    /// Tokens of one sample.
    pub sequence: u64,
}

impl Gpt {
    /// A network as Megatron-LM trains it, with dropout and one position for each token.
    pub fn megatron(hidden: u64, layers: u64, heads: u64, vocabulary: u64, sequence: u64) -> Gpt {
        let feed_forward = 4 * hidden;
        Gpt { hidden, layers, heads, feed_forward, vocabulary, positions: sequence, dropout: true, sequence }
    }

    /// Builds the graph of one sample of `sequence` tokens with the loss of the next token.
    pub fn graph(&self) -> Graph {
        let blocks = DecoderOnly::of_blocks(self.block(), self.layers, self.vocabulary, self.sequence);
        DecoderOnly { positions: self.positions, ..blocks }.graph()
    }

    fn block(&self) -> TransformerBlock {
        TransformerBlock {
            joined: true,
            causal: true,
            attention_dropout: self.dropout,
            dropout: self.dropout,
            feed: Feed::plain(self.feed_forward),
            ..TransformerBlock::pre_norm(self.hidden, self.heads)
        }
    }
}
