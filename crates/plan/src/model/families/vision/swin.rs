//! Swin: transformers over images that attend within windows, which every second block moves (Liu et al. 2021), and
//! its second version, which normalises after each part (Liu et al. 2022).

use super::super::block::{Feed, Order, TransformerBlock};
use crate::model::builder::{Builder, Convolution, Owned, Rows};
use crate::model::graph::{Function, Graph, Norm, OpKind, WeightSplit};

/// A Swin transformer.
#[derive(Debug, Clone, PartialEq)]
pub struct Swin {
    /// Channels, height and width of an image.
    pub image: [u64; 3],
    /// Side of a patch.
    pub patch: u64,
    /// Width of the first stage; each has twice that of the last.
    pub width: u64,
    /// Blocks of each stage.
    pub depths: Vec<u64>,
    /// Heads of each stage.
    pub heads: Vec<u64>,
    /// Side of a window in patches.
    pub window: u64,
    /// Width of the feed-forward part over that of the block.
    pub ratio: f64,
    pub function: Function,
    /// Queries, keys and values have biases.
    pub query_bias: bool,
    /// Each patch has a learned position.
    pub positions: bool,
    pub dropout: bool,
    pub attention_dropout: bool,
    /// The second version: attention by angles, scores biased by a small network of distances.
    pub second: bool,
    /// Classes of the last layer; 0 without one.
    pub classes: u64,
}

/// Width of the second version's network of distances.
const DISTANCES: u64 = 512;

impl Swin {
    /// Builds the graph of one image, channels × height × width, up to the loss of its head.
    pub fn graph(&self) -> Graph {
        let mut builder = Builder::new();
        let [channels, height, width] = self.image;
        let image = builder.image(channels, height, width);
        let cut = Convolution::new(self.width, self.patch, self.patch).padding(0).biased();
        let patches = builder.convolution("patches", image, cut);
        let mut sides = [patches.height, patches.width];
        let mut at = Rows { tensor: patches.tensor, rows: patches.height * patches.width, width: self.width };
        at = builder.norm("patches.norm", at, Norm::Layer, true);
        if self.positions {
            let elements = at.elements();
            let kind = OpKind::Elementwise { elements, inputs: 1, product: false };
            at.tensor = builder.add("positions", kind, &[at.tensor], elements, Owned::parameters(elements));
        }
        for (stage, (depth, heads)) in self.depths.iter().zip(&self.heads).enumerate() {
            if stage > 0 {
                (at, sides) = self.merge(&mut builder, &format!("merge{stage}"), at, sides);
            }
            // The second version's windows are no larger than the image; the first cuts them only when it runs.
            let inside = self.window.min(sides[0]).min(sides[1]).max(1);
            let stated = if self.second { inside } else { self.window };
            let block = self.block(at.width, *heads, inside);
            for index in 0..*depth {
                at = block.add(&mut builder, at);
                self.windows(&mut builder, &format!("stage{stage}.{index}"), at, *heads, stated);
            }
            builder.end_blocks();
        }
        at = builder.norm("norm", at, Norm::Layer, true);
        let kind = OpKind::Pool { maximum: false, inputs: at.elements(), outputs: at.width };
        let mean = builder.add("mean", kind, &[at.tensor], at.width, Owned::NOTHING);
        if self.classes > 0 {
            let mean = Rows { tensor: mean, rows: 1, width: at.width };
            let scores = builder.linear("classifier", mean, self.classes, true, WeightSplit::Whole);
            builder.loss(scores.tensor, 1, self.classes);
        }
        builder.finish()
    }

    fn block(&self, width: u64, heads: u64, window: u64) -> TransformerBlock {
        TransformerBlock {
            head_width: (width / heads).max(1),
            order: if self.second { Order::Within } else { Order::Before },
            query_bias: self.query_bias,
            key_bias: !self.second,
            window: Some(window * window),
            attention_dropout: self.attention_dropout,
            dropout: self.dropout,
            feed: Feed { function: self.function, ..Feed::plain((width as f64 * self.ratio) as u64) },
            ..TransformerBlock::pre_norm(width, heads)
        }
    }

    /// What a block has for its windows: the table of relative position biases, and the copies that partition windows and undo it.
    fn windows(&self, builder: &mut Builder, name: &str, at: Rows, heads: u64, window: u64) {
        let distances = (2 * window - 1) * (2 * window - 1);
        match self.second {
            // Two distances to a bias for each head, and a temperature of each.
            true => {
                let table = Rows { tensor: builder.input(2 * distances), rows: distances, width: 2 };
                let wide = builder.linear(format!("{name}.distances.0"), table, DISTANCES, true, WeightSplit::Whole);
                let owned = Owned::parameters(DISTANCES * heads + heads);
                builder.linear_with(format!("{name}.distances.1"), wide, heads, owned, WeightSplit::Whole);
            }
            false => {
                builder.embed(&format!("{name}.distances"), 1, distances, heads, WeightSplit::Whole);
            }
        }
        for part in ["part", "join"] {
            let kind = OpKind::Copy { elements: at.elements() };
            builder.add(format!("{name}.{part}"), kind, &[at.tensor], at.elements(), Owned::NOTHING);
        }
    }

    /// Four neighbours become one of twice the width.
    fn merge(&self, builder: &mut Builder, name: &str, from: Rows, sides: [u64; 2]) -> (Rows, [u64; 2]) {
        let sides = sides.map(|side| side.div_ceil(2));
        let rows = sides[0] * sides[1];
        let elements = rows * 4 * from.width;
        let kind = OpKind::Copy { elements };
        let tensor = builder.add(format!("{name}.gather"), kind, &[from.tensor], elements, Owned::NOTHING);
        let four = Rows { tensor, rows, width: 4 * from.width };
        let merged = match self.second {
            true => {
                let thin = builder.linear(format!("{name}.thin"), four, 2 * from.width, false, WeightSplit::Whole);
                builder.norm(format!("{name}.norm"), thin, Norm::Layer, true)
            }
            false => {
                let normal = builder.norm(format!("{name}.norm"), four, Norm::Layer, true);
                builder.linear(format!("{name}.thin"), normal, 2 * from.width, false, WeightSplit::Whole)
            }
        };
        (merged, sides)
    }
}
