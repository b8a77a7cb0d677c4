//! BERT and its like: an encoder of whole sequences (Devlin et al. 2018).

use super::super::builder::Builder;
use super::super::graph::{Function, Graph, Norm, Split};
use super::block::{Block, Feed, Order};
use crate::model::builder::Rows;

/// An encoder of tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Bert {
    pub layers: u64,
    pub hidden: u64,
    pub heads: u64,
    pub feed_forward: u64,
    pub function: Function,
    pub vocabulary: u64,
    /// Positions that have an embedding.
    pub positions: u64,
    /// Width of the tables of words, where it differs from that of the blocks; 0 where it does not.
    pub embedding: u64,
    /// All blocks have the same weights, as in ALBERT.
    pub shared: bool,
    /// Kinds of tokens that have an embedding; 0 without.
    pub token_types: u64,
    pub dropout: bool,
    pub head: Head,
    /// Tokens of one sample.
    pub sequence: u64,
}

/// What is asked of the encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// One vector for each sequence, as the bare model gives.
    Pooled,
    /// A class of each sequence, from the pooled vector.
    Sequence { classes: u64 },
    /// A class of each token (2 for the first and last word of an answer).
    Tokens { classes: u64 },
    /// The masked words.
    Words,
    /// The masked words, and whether one sentence follows the other, as BERT is trained at first.
    MaskedWords,
}

impl Bert {
    /// BERT base: 12 layers of 768.
    pub fn base(sequence: u64, head: Head) -> Bert {
        Bert {
            layers: 12,
            hidden: 768,
            heads: 12,
            feed_forward: 3072,
            function: Function::Gelu,
            vocabulary: 30522,
            positions: 512,
            embedding: 0,
            shared: false,
            token_types: 2,
            dropout: true,
            head,
            sequence,
        }
    }

    /// BERT large: 24 layers of 1024.
    pub fn large(sequence: u64, head: Head) -> Bert {
        Bert { layers: 24, hidden: 1024, heads: 16, feed_forward: 4096, ..Bert::base(sequence, head) }
    }

    pub fn graph(&self) -> Graph {
        let mut builder = Builder::new();
        let builder = &mut builder;
        let width = self.embedding_width();
        let mut at = builder.embed("words", self.sequence, self.vocabulary, width, Split::Rows);
        for (name, entries) in [("token_types", self.token_types), ("positions", self.positions)] {
            if entries > 0 {
                let embedded = builder.embed(name, self.sequence, entries, width, Split::Whole);
                at = builder.combine(format!("{name}.sum"), at, embedded, false);
            }
        }
        at = builder.norm("norm", at, Norm::Layer, true);
        if self.dropout {
            at = builder.dropout("dropout", at);
        }
        if width != self.hidden {
            at = builder.linear("widen", at, self.hidden, true, Split::Whole);
        }
        let block = self.block();
        for layer in 0..self.layers {
            at = block.add(builder, at);
            if self.shared && layer == 0 {
                builder.share_weights();
            }
        }
        builder.own_weights();
        builder.end_blocks();
        self.head(builder, at);
        std::mem::take(builder).finish()
    }

    fn block(&self) -> Block {
        Block {
            hidden: self.hidden,
            heads: self.heads,
            key_heads: self.heads,
            head_width: self.hidden / self.heads,
            order: Order::After,
            norm: Norm::Layer,
            norm_bias: true,
            head_norm: false,
            joined: false,
            query_bias: true,
            key_bias: true,
            output_bias: true,
            rotary: false,
            causal: false,
            window: None,
            attention_dropout: self.dropout,
            dropout: self.dropout,
            feed: Feed { width: self.feed_forward, function: self.function, gated: false, bias: true, experts: None },
        }
    }

    fn head(&self, builder: &mut Builder, at: Rows) {
        match self.head {
            Head::Pooled => {
                self.pool(builder, at);
            }
            Head::Sequence { classes } => {
                let pooled = self.pool(builder, at);
                let scores = builder.linear("classifier", pooled, classes, true, Split::Whole);
                builder.loss(scores.tensor, 1, classes);
            }
            Head::Tokens { classes } => {
                let scores = builder.linear("classifier", at, classes, true, Split::Whole);
                builder.loss(scores.tensor, self.sequence, classes);
            }
            Head::Words => self.predict_words(builder, at),
            Head::MaskedWords => {
                let pooled = self.pool(builder, at);
                let follows = builder.linear("follows", pooled, 2, true, Split::Whole);
                builder.loss(follows.tensor, 1, 2);
                self.predict_words(builder, at);
            }
        }
    }

    fn predict_words(&self, builder: &mut Builder, at: Rows) {
        let transformed = builder.linear("transform", at, self.embedding_width(), true, Split::Whole);
        let transformed = builder.apply("transform.activation", transformed, self.function);
        let transformed = builder.norm("transform.norm", transformed, Norm::Layer, true);
        builder.predict_tokens("words.scores", transformed, self.vocabulary, true, true);
    }

    fn embedding_width(&self) -> u64 {
        if self.embedding == 0 { self.hidden } else { self.embedding }
    }

    /// The first token's vector, once more through a linear layer.
    fn pool(&self, builder: &mut Builder, at: Rows) -> Rows {
        let pooled = builder.linear("pooler", Rows { rows: 1, ..at }, self.hidden, true, Split::Whole);
        builder.apply("pooler.activation", pooled, Function::Tanh)
    }
}
