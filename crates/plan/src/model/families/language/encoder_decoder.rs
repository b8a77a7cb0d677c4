//! An encoder and a decoder with cross-attention: T5 (Raffel et al. 2019), BART (Lewis et al. 2019) and similar ones.

use super::super::block::TransformerBlock;
use crate::model::builder::{Builder, Owned, Rows};
use crate::model::graph::{Function, Graph, OpKind, WeightSplit};

/// An encoder and a decoder of tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct EncoderDecoder {
    pub encoder_layers: u64,
    /// 0: the encoder alone.
    pub decoder_layers: u64,
    pub encoder: TransformerBlock,
    pub decoder: TransformerBlock,
    pub vocabulary: u64,
    /// Positions that have an embedding on each side; 0 without.
    pub positions: u64,
    /// Values of a table that biases scores by distance, one on each side; 0 without.
    pub distances: u64,
    /// The embeddings are normalised.
    pub embedding_norm: bool,
    /// What leaves the last block of each side is normalised.
    pub last_norm: bool,
    /// The logits use the token embedding (tied weights).
    pub tied: bool,
    /// Tokens that enter.
    pub source: u64,
    /// Tokens that leave.
    pub target: u64,
    /// Its head.
    pub head: EncoderDecoderHead,
}

/// The head of an encoder-decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncoderDecoderHead {
    /// The next token, at each.
    Tokens,
    /// One of so many classes of the whole, through one more layer.
    Class(u64),
    /// One of so many classes of each token.
    Each(u64),
    /// No head: the bare blocks.
    Nothing,
}

impl EncoderDecoder {
    /// Builds the graph of one sample: tokens that the encoder reads, and tokens that the decoder predicts.
    pub fn graph(&self) -> Graph {
        let mut builder = Builder::new();
        let mut encoded = None;
        if self.encoder_layers > 0 {
            let mut at = self.begin(&mut builder, "encoder", &self.encoder, self.source);
            for _ in 0..self.encoder_layers {
                at = self.encoder.add(&mut builder, at);
            }
            encoded = Some(self.end(&mut builder, "encoder", &self.encoder, at));
        }
        let mut at = match (encoded, self.decoder_layers) {
            (Some(encoded), 0) => encoded,
            (Some(encoded), layers) => self.decode(&mut builder, encoded, layers),
            (None, layers) => self.decode_alone(&mut builder, layers),
        };
        let hidden = self.decoder.hidden;
        match self.head {
            EncoderDecoderHead::Tokens if self.decoder_layers == 0 => {}
            EncoderDecoderHead::Tokens => builder.predict_tokens("scores", at, self.vocabulary, self.tied, false),
            EncoderDecoderHead::Class(classes) => {
                at = builder.linear("classifier.inner", Rows { rows: 1, ..at }, hidden, true, WeightSplit::Whole);
                at = builder.apply("classifier.tanh", at, Function::Tanh);
                let scores = builder.linear("classifier", at, classes, true, WeightSplit::Whole);
                builder.loss(scores.tensor, 1, classes);
            }
            EncoderDecoderHead::Each(classes) => {
                let scores = builder.linear("classifier", at, classes, true, WeightSplit::Whole);
                builder.loss(scores.tensor, at.rows, classes);
            }
            EncoderDecoderHead::Nothing => {}
        }
        builder.finish()
    }

    fn decode(&self, builder: &mut Builder, encoded: Rows, layers: u64) -> Rows {
        // One table of tokens serves both sides.
        builder.share_weights();
        let tokens = builder.embed_tokens("decoder.tokens", self.target, self.vocabulary, self.decoder.hidden);
        builder.own_weights();
        let mut at = self.place(builder, "decoder", &self.decoder, tokens);
        for _ in 0..layers {
            at = self.decoder.add_across(builder, at, encoded);
        }
        self.end(builder, "decoder", &self.decoder, at)
    }

    /// The decoder without an encoder: what would attend to one is there and does nothing.
    fn decode_alone(&self, builder: &mut Builder, layers: u64) -> Rows {
        let mut at = self.begin(builder, "decoder", &self.decoder, self.target);
        for layer in 0..layers {
            let idle = Owned::parameters(self.decoder.across_weights());
            builder.add(format!("across{layer}.idle"), OpKind::View, &[], 0, idle);
            at = self.decoder.add(builder, at);
        }
        self.end(builder, "decoder", &self.decoder, at)
    }

    fn begin(&self, builder: &mut Builder, side: &str, block: &TransformerBlock, rows: u64) -> Rows {
        let tokens = builder.embed_tokens(&format!("{side}.tokens"), rows, self.vocabulary, block.hidden);
        self.place(builder, side, block, tokens)
    }

    fn place(&self, builder: &mut Builder, side: &str, block: &TransformerBlock, tokens: Rows) -> Rows {
        let mut at = tokens;
        if self.positions > 0 {
            let name = format!("{side}.positions");
            let positions = builder.embed(&name, at.rows, self.positions, block.hidden, WeightSplit::Whole);
            at = builder.combine(format!("{side}.sum"), at, positions, false);
        }
        if self.distances > 0 {
            // The biases of one side's scores are looked up once and serve all its blocks.
            builder.embed(&format!("{side}.distances"), 1, self.distances, 1, WeightSplit::Whole);
        }
        if self.embedding_norm {
            at = builder.norm(format!("{side}.embedding.norm"), at, block.norm, block.norm_bias);
        }
        if block.dropout {
            at = builder.dropout(format!("{side}.dropout"), at);
        }
        at
    }

    fn end(&self, builder: &mut Builder, side: &str, block: &TransformerBlock, at: Rows) -> Rows {
        builder.end_blocks();
        match self.last_norm {
            true => builder.norm(format!("{side}.norm"), at, block.norm, block.norm_bias),
            false => at,
        }
    }
}
