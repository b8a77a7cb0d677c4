//! MPT: a decoder without position embeddings or biases (MosaicML 2023); ALiBi biases the scores instead.

use super::super::block::{Feed, TransformerBlock};
use super::decoder::DecoderOnly;
use crate::model::graph::Graph;

/// A decoder without biases.
#[derive(Debug, Clone, PartialEq)]
pub struct Mpt {
    pub hidden: u64,
    pub layers: u64,
    pub heads: u64,
    /// `hidden` times this is the width of the feed-forward part, mostly 4.
    pub expansion: u64,
    pub vocabulary: u64,
    /// Positions that have an embedding; 0 with ALiBi.
    pub positions: u64,
    /// Tokens of one sample.
    pub sequence: u64,
}

impl Mpt {
    /// The network that llm-foundry trains under this name: `125m`, `350m`, `760m`, `1b`, `3b`, `7b`, `13b`, `30b` or
    /// `70b`; figures from its `scripts/train/yamls/pretrain`. Positions are learned, one for each token.
    pub fn sized(size: &str, sequence: u64) -> Option<Mpt> {
        let (hidden, layers, heads) = match size {
            "125m" => (768, 12, 12),
            "350m" => (1024, 24, 16),
            "760m" => (1536, 24, 12),
            "1b" => (2048, 24, 16),
            "3b" => (2560, 32, 20),
            "7b" => (4096, 32, 32),
            "13b" => (5120, 40, 40),
            "30b" => (7168, 48, 56),
            "70b" => (8192, 80, 64),
            _ => return None,
        };
        Some(Mpt { hidden, layers, heads, expansion: 4, vocabulary: 50368, positions: sequence, sequence })
    }

    /// Builds the graph of one sample of `sequence` tokens with the loss of the next token.
    pub fn graph(&self) -> Graph {
        let blocks = DecoderOnly::of_blocks(self.block(), self.layers, self.vocabulary, self.sequence);
        DecoderOnly { positions: self.positions, ..blocks }.graph()
    }

    fn block(&self) -> TransformerBlock {
        TransformerBlock {
            norm_bias: false,
            joined: true,
            query_bias: false,
            output_bias: false,
            causal: true,
            feed: Feed { bias: false, ..Feed::plain(self.hidden * self.expansion) },
            ..TransformerBlock::pre_norm(self.hidden, self.heads)
        }
    }
}
