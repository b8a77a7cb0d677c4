//! An encoder and a decoder that attends to it: T5 (Raffel et al. 2019), BART (Lewis et al. 2019) and their like.

use super::super::builder::{Builder, Rows};
use super::super::graph::{Graph, Split};
use super::block::Block;

/// An encoder and a decoder of tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct EncoderDecoder {
    pub encoder_layers: u64,
    /// 0: the encoder alone.
    pub decoder_layers: u64,
    pub encoder: Block,
    pub decoder: Block,
    pub vocabulary: u64,
    /// Positions that have an embedding on each side; 0 without.
    pub positions: u64,
    /// Values of a table that biases scores by distance, one on each side; 0 without.
    pub distances: u64,
    /// The embeddings are normalised.
    pub embedding_norm: bool,
    /// What leaves the last block of each side is normalised.
    pub last_norm: bool,
    /// The scores use the table of words.
    pub tied: bool,
    /// Tokens that enter.
    pub source: u64,
    /// Tokens that leave.
    pub target: u64,
}

impl EncoderDecoder {
    pub fn graph(&self) -> Graph {
        let mut builder = Builder::new();
        let mut encoded = self.begin(&mut builder, "encoder", &self.encoder, self.source);
        for _ in 0..self.encoder_layers {
            encoded = self.encoder.add(&mut builder, encoded);
        }
        encoded = self.end(&mut builder, "encoder", &self.encoder, encoded);
        if self.decoder_layers == 0 {
            return builder.finish();
        }
        // One table of words serves both sides.
        builder.share_weights();
        let words = builder.embed("decoder.tokens", self.target, self.vocabulary, self.decoder.hidden, Split::Rows);
        builder.own_weights();
        let mut at = self.place(&mut builder, "decoder", &self.decoder, words);
        for _ in 0..self.decoder_layers {
            at = self.decoder.add_across(&mut builder, at, encoded);
        }
        at = self.end(&mut builder, "decoder", &self.decoder, at);
        builder.predict_tokens("scores", at, self.vocabulary, self.tied, false);
        builder.finish()
    }

    fn begin(&self, builder: &mut Builder, side: &str, block: &Block, rows: u64) -> Rows {
        let words = builder.embed(&format!("{side}.tokens"), rows, self.vocabulary, block.hidden, Split::Rows);
        self.place(builder, side, block, words)
    }

    fn place(&self, builder: &mut Builder, side: &str, block: &Block, words: Rows) -> Rows {
        let mut at = words;
        if self.positions > 0 {
            let name = format!("{side}.positions");
            let positions = builder.embed(&name, at.rows, self.positions, block.hidden, Split::Whole);
            at = builder.combine(format!("{side}.sum"), at, positions, false);
        }
        if self.distances > 0 {
            // The biases of one side's scores are looked up once and serve all its blocks.
            builder.embed(&format!("{side}.distances"), 1, self.distances, 1, Split::Whole);
        }
        if self.embedding_norm {
            at = builder.norm(format!("{side}.embedding.norm"), at, block.norm, block.norm_bias);
        }
        if block.dropout {
            at = builder.dropout(format!("{side}.dropout"), at);
        }
        at
    }

    fn end(&self, builder: &mut Builder, side: &str, block: &Block, at: Rows) -> Rows {
        builder.end_blocks();
        match self.last_norm {
            true => builder.norm(format!("{side}.norm"), at, block.norm, block.norm_bias),
            false => at,
        }
    }
}
