//! A decoder over tokens: token and optional position embeddings, blocks, a final normalization, next-token logits.
//!
//! GPT, Llama, MPT and most of their successors are instances of it; so is ModernBERT, an encoder, whose attention is
//! bidirectional.

use super::super::block::{Feed, TransformerBlock};
use crate::model::builder::{Builder, Owned};
use crate::model::graph::{Function, Graph, WeightSplit};

/// A decoder of tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct DecoderOnly {
    pub layers: u64,
    pub block: TransformerBlock,
    /// So many blocks have one feed-forward part of this width instead of several to choose from: blocks, width.
    pub plain: (u64, u64),
    pub vocabulary: u64,
    /// Width of the token embedding, if it differs from that of the blocks.
    pub embedding: u64,
    /// Positions that have an embedding; 0 without.
    pub positions: u64,
    /// The embeddings are normalised.
    pub embedding_norm: bool,
    /// The last block's output is normalised.
    pub last_norm: bool,
    /// The logits use the token embedding (tied weights).
    pub tied: bool,
    /// The logits are bounded by a tanh, as in Gemma 2.
    pub bounded: bool,
    /// The scores have a bias.
    pub score_bias: bool,
    /// One more linear layer without bias, an activation and a normalisation stand before what is answered.
    pub transform: bool,
    /// Its head.
    pub head: DecoderHead,
    /// Tokens of one sample.
    pub sequence: u64,
}

/// The head of a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DecoderHead {
    /// The next token, at each.
    #[default]
    Tokens,
    /// A class at each token; one of them counts where the class is one of the whole sequence.
    Classes { classes: u64, bias: bool },
    /// No head: the bare blocks.
    Nothing,
}

impl DecoderOnly {
    /// A decoder of these blocks whose logits use the token embedding, without embeddings of positions.
    pub fn of_blocks(block: TransformerBlock, layers: u64, vocabulary: u64, sequence: u64) -> DecoderOnly {
        DecoderOnly {
            layers,
            embedding: block.hidden,
            block,
            plain: (0, 0),
            vocabulary,
            positions: 0,
            embedding_norm: false,
            last_norm: true,
            tied: true,
            bounded: false,
            score_bias: false,
            transform: false,
            head: DecoderHead::Tokens,
            sequence,
        }
    }

    /// Builds the graph of one sample of `sequence` tokens, up to the loss of its head.
    pub fn graph(&self) -> Graph {
        let mut builder = Builder::new();
        let (norm, norm_bias) = (self.block.norm, self.block.norm_bias);
        let mut at = builder.embed_tokens("tokens", self.sequence, self.vocabulary, self.embedding);
        if self.embedding != self.block.hidden {
            at = builder.linear("tokens.widen", at, self.block.hidden, false, WeightSplit::Whole);
        }
        if self.positions > 0 {
            let positions =
                builder.embed("positions", self.sequence, self.positions, self.block.hidden, WeightSplit::Whole);
            at = builder.combine("sum", at, positions, false);
        }
        if self.embedding_norm {
            at = builder.norm("embedding.norm", at, norm, norm_bias);
        }
        if self.block.dropout {
            at = builder.dropout("dropout", at);
        }
        let (count, width) = self.plain;
        let plain = TransformerBlock { feed: Feed { width, experts: None, ..self.block.feed }, ..self.block.clone() };
        for layer in 0..self.layers {
            at = if layer < count { plain.add(&mut builder, at) } else { self.block.add(&mut builder, at) };
        }
        builder.end_blocks();
        if self.last_norm {
            at = builder.norm("norm", at, norm, norm_bias);
        }
        if self.embedding != self.block.hidden {
            at = builder.linear("scores.narrow", at, self.embedding, false, WeightSplit::Whole);
        }
        if self.transform && self.head != DecoderHead::Nothing {
            at = builder.linear("transform", at, self.block.hidden, false, WeightSplit::Whole);
            at = builder.apply("transform.activation", at, self.block.feed.function);
            at = builder.norm("transform.norm", at, norm, norm_bias);
        }
        match self.head {
            DecoderHead::Tokens if self.bounded => {
                let biases = if self.score_bias { self.vocabulary } else { 0 };
                let weights = if self.tied { 0 } else { at.width * self.vocabulary };
                let owned = Owned::parameters(weights + biases);
                let scores = builder.linear_with("scores", at, self.vocabulary, owned, WeightSplit::Columns);
                let scores = builder.apply("scores.bound", scores, Function::Tanh);
                builder.loss(scores.tensor, at.rows, self.vocabulary);
            }
            DecoderHead::Tokens => builder.predict_tokens("scores", at, self.vocabulary, self.tied, self.score_bias),
            DecoderHead::Classes { classes, bias } => {
                let scores = builder.linear("classifier", at, classes, bias, WeightSplit::Whole);
                builder.loss(scores.tensor, 1, classes);
            }
            DecoderHead::Nothing => {}
        }
        builder.finish()
    }
}
