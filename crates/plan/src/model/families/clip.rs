//! CLIP: an image encoder and a text encoder with a common embedding space (Radford et al. 2021).

use super::super::builder::{Builder, Convolution, Owned, Rows};
use super::super::graph::{Graph, Norm, OpKind, WeightSplit};
use super::block::TransformerBlock;

/// A CLIP, or one of its halves.
#[derive(Debug, Clone, PartialEq)]
pub struct Clip {
    pub sees: Option<Sees>,
    pub reads: Option<TextTower>,
    /// Width of the common embedding space; 0 without.
    pub projection: u64,
    /// Trained scale and bias of the similarity.
    pub sharpened: u64,
    /// Classes of a head on the mean of the patches; 0 where there is no such head.
    pub classes: u64,
}

/// The image encoder.
#[derive(Debug, Clone, PartialEq)]
pub struct Sees {
    /// Channels, height and width of an image.
    pub image: [u64; 3],
    /// Side of a patch.
    pub patch: u64,
    pub layers: u64,
    pub block: TransformerBlock,
    /// One token more stands for the whole image, and what enters the blocks is normalised; else patches have a bias.
    pub token: bool,
    /// A learned token looks at the patches at the end, through attention and a feed-forward part of its own.
    pub pools: bool,
}

/// The text encoder.
#[derive(Debug, Clone, PartialEq)]
pub struct TextTower {
    pub vocabulary: u64,
    pub positions: u64,
    /// Tokens of one text.
    pub sequence: u64,
    pub layers: u64,
    pub block: TransformerBlock,
    /// Width of a last layer over the last token; 0 without.
    pub projection: u64,
}

impl Clip {
    /// Builds the graph of one sample: an image, a text, or a pair of both with the loss over their likeness.
    pub fn graph(&self) -> Graph {
        let mut builder = Builder::new();
        let mut ends = Vec::new();
        if let Some(reads) = &self.reads {
            let mut at = reads.add(&mut builder);
            if self.projection > 0 {
                let last = Rows { rows: 1, ..at };
                at = builder.linear("reads.projection", last, self.projection, false, WeightSplit::Whole);
            }
            ends.push(at);
        }
        if let Some(sees) = &self.sees {
            let mut at = sees.add(&mut builder);
            if self.classes > 0 {
                let scores =
                    builder.linear("classifier", Rows { rows: 1, ..at }, self.classes, true, WeightSplit::Whole);
                builder.loss(scores.tensor, 1, self.classes);
            } else if self.projection > 0 {
                let first = Rows { rows: 1, ..at };
                at = builder.linear("sees.projection", first, self.projection, false, WeightSplit::Whole);
            }
            ends.push(at);
        }
        if let [one, other] = ends[..]
            && self.sharpened > 0
        {
            // Likeness of each image to each text of the batch, sharpened by one learned value.
            let kind = OpKind::Product { batch: 1, rows: 1, inner: one.width, columns: 1 };
            let alike =
                builder.add("likeness", kind, &[one.tensor, other.tensor], 1, Owned::parameters(self.sharpened));
            builder.loss(alike, 1, 1);
        }
        builder.finish()
    }
}

impl Sees {
    fn add(&self, builder: &mut Builder) -> Rows {
        let [channels, height, width] = self.image;
        let hidden = self.block.hidden;
        let image = builder.image(channels, height, width);
        let cut = Convolution::new(hidden, self.patch, self.patch).padding(0);
        let cut = if self.token { cut } else { cut.biased() };
        let patches = builder.convolution("sees.patches", image, cut);
        let rows = patches.height * patches.width + u64::from(self.token);
        let elements = rows * hidden;
        let owned = Owned::parameters(if self.token { hidden } else { 0 });
        let joined = builder.add("sees.tokens", OpKind::Copy { elements }, &[patches.tensor], elements, owned);
        let kind = OpKind::Elementwise { elements, inputs: 1, product: false };
        let placed = builder.add("sees.positions", kind, &[joined], elements, Owned::parameters(elements));
        let mut at = Rows { tensor: placed, rows, width: hidden };
        if self.token {
            at = builder.norm("sees.norm1", at, Norm::Layer, true);
        }
        for _ in 0..self.layers {
            at = self.block.add(builder, at);
        }
        builder.end_blocks();
        at = builder.norm("sees.norm2", at, Norm::Layer, true);
        if self.pools { self.pool(builder, at) } else { at }
    }

    fn pool(&self, builder: &mut Builder, patches: Rows) -> Rows {
        let hidden = self.block.hidden;
        let kind = OpKind::Copy { elements: hidden };
        let probe = builder.add("sees.probe", kind, &[], hidden, Owned::parameters(hidden));
        let probe = Rows { tensor: probe, rows: 1, width: hidden };
        let block = TransformerBlock { causal: false, ..self.block.clone() };
        let attended = block.look(builder, "sees.pool", probe, patches);
        let normal = builder.norm("sees.pool.norm", attended, Norm::Layer, true);
        let wide = builder.linear("sees.pool.up", normal, block.feed.width, true, WeightSplit::Columns);
        let wide = builder.apply("sees.pool.activation", wide, block.feed.function);
        let fed = builder.linear("sees.pool.down", wide, hidden, true, WeightSplit::Rows);
        builder.combine("sees.pool.sum", fed, attended, false)
    }
}

impl TextTower {
    fn add(&self, builder: &mut Builder) -> Rows {
        let hidden = self.block.hidden;
        let tokens = builder.embed_tokens("reads.tokens", self.sequence, self.vocabulary, hidden);
        let places = builder.embed("reads.positions", self.sequence, self.positions, hidden, WeightSplit::Whole);
        let mut at = builder.combine("reads.sum", tokens, places, false);
        for _ in 0..self.layers {
            at = self.block.add(builder, at);
        }
        builder.end_blocks();
        at = builder.norm("reads.norm", at, Norm::Layer, true);
        match self.projection {
            0 => at,
            width => builder.linear("reads.head", Rows { rows: 1, ..at }, width, true, WeightSplit::Whole),
        }
    }
}
