//! BERT and similar encoders of complete sequences (Devlin et al. 2018).

use super::super::block::{Feed, Order, TransformerBlock};
use crate::model::builder::{Builder, Owned, Rows};
use crate::model::graph::{Function, Graph, Norm, OpKind, WeightSplit};

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
    /// Width of the token embedding, where it differs from that of the blocks; 0 where it does not.
    pub embedding: u64,
    /// All blocks have the same weights, as in ALBERT.
    pub shared: bool,
    /// Kinds of tokens that have an embedding; 0 without.
    pub token_types: u64,
    pub dropout: bool,
    /// Probabilities of attention are dropped out.
    pub attention_dropout: bool,
    /// Tokens that each one sees, where it does not see all, as in Longformer; a few see all, by products of their own.
    pub window: Option<u64>,
    /// Scores depend on distances, as in DeBERTa.
    pub distances: Option<Distances>,
    pub head: Head,
    /// Tokens of one sample.
    pub sequence: u64,
}

/// How scores depend on distances between tokens (He et al. 2020).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Distances {
    /// Distances that have an embedding, in both directions together.
    pub entries: u64,
    /// Those that a sample's scores are looked up among.
    pub seen: u64,
    /// How often scores of distances are added in each block: of queries with keys' distances, and the other way round.
    pub looks: u64,
    /// Products of those embeddings in each block: for keys and for queries, those that are not the tokens' own.
    pub products: u64,
    /// Biases of those products, all together in hidden widths.
    pub biases: u64,
    /// The embeddings are normalised.
    pub norm: bool,
    /// Tokens that a convolution beside the first block sees; 0 without.
    pub kernel: u64,
    pub key_bias: bool,
    /// The first version: queries, keys and values from one product, normalisations written out.
    pub first: bool,
}

/// The head of the encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// The vectors of all tokens, and no weight more.
    Nothing,
    /// One vector for each sequence, as the bare model gives.
    Pooled,
    /// A class of each sequence, from the pooled vector.
    Sequence { classes: u64 },
    /// A class of each token (2 for the first and last word of an answer).
    Tokens { classes: u64 },
    /// Masked language modelling.
    MaskedLanguage,
    /// Of each token whether it was replaced, as ELECTRA is trained at first.
    Replaced,
    /// Masked language modelling and next sentence prediction, as in BERT's pre-training.
    PreTraining,
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
            attention_dropout: true,
            window: None,
            distances: None,
            head,
            sequence,
        }
    }

    /// BERT large: 24 layers of 1024.
    pub fn large(sequence: u64, head: Head) -> Bert {
        Bert { layers: 24, hidden: 1024, heads: 16, feed_forward: 4096, ..Bert::base(sequence, head) }
    }

    /// Builds the graph of one sample of `sequence` tokens, up to the loss of its head.
    pub fn graph(&self) -> Graph {
        let mut builder = Builder::new();
        let builder = &mut builder;
        let width = self.embedding_width();
        let mut at = builder.embed_tokens("words", self.sequence, self.vocabulary, width);
        for (name, entries) in [("token_types", self.token_types), ("positions", self.positions)] {
            if entries > 0 {
                let embedded = builder.embed(name, self.sequence, entries, width, WeightSplit::Whole);
                at = builder.combine(format!("{name}.sum"), at, embedded, false);
            }
        }
        at = match self.distances.is_some_and(|distances| distances.first) {
            true => builder.norm_steps("norm", at),
            false => builder.norm("norm", at, Norm::Layer, true),
        };
        if self.dropout {
            at = builder.dropout("dropout", at);
        }
        if width != self.hidden {
            at = builder.linear("widen", at, self.hidden, true, WeightSplit::Whole);
        }
        let block = self.block();
        let table = self.distances.map(|distances| self.table(builder, distances));
        for layer in 0..self.layers {
            let from = at;
            at = block.add(builder, at);
            if self.window.is_some() {
                for part in ["query", "key", "value"] {
                    let rows = if part == "query" { Rows { rows: 1, ..from } } else { from };
                    builder.linear(format!("block{layer}.all.{part}"), rows, self.hidden, true, WeightSplit::Columns);
                }
            }
            if let (Some(distances), Some(table)) = (self.distances, table) {
                self.look_up(builder, layer, distances, table, from);
            }
            if self.shared && layer == 0 {
                builder.share_weights();
            }
        }
        builder.own_weights();
        builder.end_blocks();
        self.head(builder, at);
        std::mem::take(builder).finish()
    }

    /// The embeddings of distances, which all blocks share.
    fn table(&self, builder: &mut Builder, distances: Distances) -> Rows {
        let owned = Owned::parameters(distances.entries * self.hidden);
        // It stands once for all samples of a batch.
        let tensor = builder.add("distances", OpKind::View, &[], 0, owned);
        let table = Rows { tensor, rows: 0, width: self.hidden };
        if distances.norm { builder.norm("distances.norm", table, Norm::Layer, true) } else { table }
    }

    /// What a block does with distances. Products of their embeddings are the same for all samples of a batch, and so no
    /// part of what a sample takes; products of those with its queries and keys are.
    fn look_up(&self, builder: &mut Builder, layer: u64, distances: Distances, table: Rows, from: Rows) {
        let hidden = self.hidden;
        for look in 0..distances.looks {
            let weights = if look < distances.products { hidden * hidden } else { 0 };
            let biases = if look == 0 { distances.biases * hidden } else { 0 };
            let name = format!("block{layer}.distances{look}");
            // The embeddings stand once more for each sample.
            let elements = distances.seen * hidden;
            let kind = OpKind::Copy { elements };
            let owned = Owned::parameters(weights + biases);
            let repeated = builder.add(&name, kind, &[table.tensor], elements, owned);
            let kind = OpKind::Product {
                batch: self.heads,
                rows: from.rows,
                inner: hidden / self.heads,
                columns: distances.seen,
            };
            let elements = self.heads * from.rows * distances.seen;
            let copied = OpKind::Copy { elements: from.elements() };
            let queries =
                builder.add(format!("{name}.queries"), copied, &[from.tensor], from.elements(), Owned::NOTHING);
            let inputs = [queries, repeated];
            let scores = builder.add(format!("{name}.scores"), kind, &inputs, elements, Owned::NOTHING);
            // Each pair of tokens takes the score of its distance, and which it was is told apart backwards.
            let elements = self.heads * from.rows * from.rows;
            let kind = OpKind::Elementwise { elements, inputs: 2, product: true };
            builder.add(format!("{name}.taken"), kind, &[scores, scores], elements, Owned::NOTHING);
        }
        if layer == 0 && distances.kernel > 0 {
            let kernel = distances.kernel;
            let kind = OpKind::Convolution {
                positions: from.rows,
                inner: kernel * hidden,
                columns: hidden,
                groups: 1,
                kernel: kernel as u32,
            };
            let owned = Owned::parameters(kernel * hidden * hidden + hidden);
            let mixed = builder.add("convolution", kind, &[from.tensor], from.elements(), owned);
            let mixed = builder.apply("convolution.function", Rows { tensor: mixed, ..from }, Function::Tanh);
            builder.norm("convolution.norm", mixed, Norm::Layer, true);
        }
    }

    fn block(&self) -> TransformerBlock {
        TransformerBlock {
            order: Order::After,
            key_bias: self.distances.is_none_or(|distances| distances.key_bias),
            window: self.window,
            attention_dropout: self.attention_dropout,
            dropout: self.dropout,
            feed: Feed { function: self.function, ..Feed::plain(self.feed_forward) },
            norm_steps: self.distances.is_some_and(|distances| distances.first),
            ..TransformerBlock::pre_norm(self.hidden, self.heads)
        }
    }

    fn head(&self, builder: &mut Builder, at: Rows) {
        match self.head {
            Head::Nothing => {}
            Head::Pooled => {
                self.pool(builder, at);
            }
            Head::Sequence { classes } => {
                let pooled = self.pool(builder, at);
                let scores = builder.linear("classifier", pooled, classes, true, WeightSplit::Whole);
                builder.loss(scores.tensor, 1, classes);
            }
            Head::Tokens { classes } => {
                let scores = builder.linear("classifier", at, classes, true, WeightSplit::Whole);
                builder.loss(scores.tensor, self.sequence, classes);
            }
            Head::MaskedLanguage => self.predict_masked(builder, at),
            Head::Replaced => {
                let inner = builder.linear("replaced.inner", at, self.hidden, true, WeightSplit::Whole);
                let inner = builder.apply("replaced.activation", inner, self.function);
                let scores = builder.linear("replaced", inner, 1, true, WeightSplit::Whole);
                builder.loss(scores.tensor, self.sequence, 2);
            }
            Head::PreTraining => {
                let pooled = self.pool(builder, at);
                let follows = builder.linear("follows", pooled, 2, true, WeightSplit::Whole);
                builder.loss(follows.tensor, 1, 2);
                self.predict_masked(builder, at);
            }
        }
    }

    fn predict_masked(&self, builder: &mut Builder, at: Rows) {
        let transformed = builder.linear("transform", at, self.embedding_width(), true, WeightSplit::Whole);
        let transformed = builder.apply("transform.activation", transformed, self.function);
        let transformed = builder.norm("transform.norm", transformed, Norm::Layer, true);
        builder.predict_tokens("words.scores", transformed, self.vocabulary, true, true);
    }

    fn embedding_width(&self) -> u64 {
        if self.embedding == 0 { self.hidden } else { self.embedding }
    }

    /// The first token's vector, once more through a linear layer.
    fn pool(&self, builder: &mut Builder, at: Rows) -> Rows {
        let pooled = builder.linear("pooler", Rows { rows: 1, ..at }, self.hidden, true, WeightSplit::Whole);
        builder.apply("pooler.activation", pooled, Function::Tanh)
    }
}
