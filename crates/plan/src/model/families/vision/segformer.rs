//! SegFormer: a transformer whose keys and values see a smaller image, in four stages (Xie et al. 2021).

use crate::model::builder::{Builder, Convolution, FeatureMap, Owned, Rows};
use crate::model::graph::{Function, Graph, OpKind, WeightSplit};

/// A SegFormer.
#[derive(Debug, Clone, PartialEq)]
pub struct Segformer {
    /// Channels, height and width of an image.
    pub image: [u64; 3],
    pub stages: Vec<Stage>,
    pub function: Function,
    pub head: SegformerHead,
}

/// What is asked of a [`Segformer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegformerHead {
    /// A class of the image.
    Class {
        classes: u64,
    },
    /// A class of each pixel at a quarter of the size, from a part of this width.
    Pixels {
        classes: u64,
        width: u64,
    },
    Nothing,
}

/// One stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stage {
    pub depth: u64,
    pub width: u64,
    pub heads: u64,
    /// Side of the patches, which overlap, and the step between them.
    pub patch: u64,
    pub stride: u64,
    /// Keys and values are those of an image so many times smaller a side.
    pub reduction: u64,
    /// Width of the feed-forward part over that of the block.
    pub ratio: u64,
}

impl Segformer {
    /// Builds the graph of one image, channels × height × width, up to the loss of its head.
    pub fn graph(&self) -> Graph {
        let mut builder = Builder::new();
        let [channels, height, width] = self.image;
        let mut at = builder.image(channels, height, width);
        let mut left = Vec::new();
        for (index, stage) in self.stages.iter().enumerate() {
            let name = format!("stage{index}");
            let cut = Convolution::new(stage.width, stage.patch, stage.stride).padding(stage.patch / 2).biased();
            at = builder.convolution(&format!("{name}.patches"), at, cut);
            at = builder.norm_pixels(&format!("{name}.patches.norm"), at);
            for block in 0..stage.depth {
                builder.begin_block();
                at = self.block(&mut builder, &format!("{name}.{block}"), at, stage);
            }
            builder.end_blocks();
            at = builder.norm_pixels(&format!("{name}.norm"), at);
            left.push(at);
        }
        match self.head {
            SegformerHead::Class { classes } => {
                let mean = builder.mean("mean", at);
                builder.classify("classifier", mean, classes);
            }
            SegformerHead::Pixels { classes, width } => decode(&mut builder, &left, classes, width),
            SegformerHead::Nothing => {}
        }
        builder.finish()
    }

    fn block(&self, builder: &mut Builder, name: &str, from: FeatureMap, stage: &Stage) -> FeatureMap {
        let rows =
            |image: FeatureMap| Rows { tensor: image.tensor, rows: image.height * image.width, width: image.channels };
        let entering = builder.norm_pixels(&format!("{name}.norm1"), from);
        let small = match stage.reduction {
            0 | 1 => entering,
            reduction => {
                let shrink = Convolution::new(stage.width, reduction, reduction).padding(0).biased();
                let shrunk = builder.convolution(&format!("{name}.reduce"), entering, shrink);
                builder.norm_pixels(&format!("{name}.reduce.norm"), shrunk)
            }
        };
        let mut inputs = Vec::new();
        for (part, seen) in [("query", entering), ("key", small), ("value", small)] {
            let projected =
                builder.linear(format!("{name}.{part}"), rows(seen), stage.width, true, WeightSplit::Columns);
            inputs.push(projected.tensor);
        }
        let kind = OpKind::Attention {
            heads: stage.heads,
            key_heads: stage.heads,
            width: (stage.width / stage.heads).max(1),
            value_width: (stage.width / stage.heads).max(1),
            queries: rows(entering).rows,
            keys: rows(small).rows,
            causal: false,
            dropout: false,
        };
        let tensor = builder.add(format!("{name}.attention"), kind, &inputs, from.elements(), Owned::NOTHING);
        let attended = Rows { tensor, ..rows(from) };
        let attended = builder.linear(format!("{name}.output"), attended, stage.width, true, WeightSplit::Rows);
        let between = builder.sum(&format!("{name}.sum1"), FeatureMap { tensor: attended.tensor, ..from }, from);
        let entering = builder.norm_pixels(&format!("{name}.norm2"), between);
        let wide = stage.width * stage.ratio;
        let up = builder.linear(format!("{name}.up"), rows(entering), wide, true, WeightSplit::Columns);
        let up = FeatureMap { tensor: up.tensor, channels: wide, ..from };
        let deep = Convolution::new(wide, 3, 1).groups(wide).biased();
        let mixed = builder.convolution(&format!("{name}.depthwise"), up, deep);
        let mixed = builder.activate(&format!("{name}.function"), mixed, self.function, false);
        let down = builder.linear(format!("{name}.down"), rows(mixed), stage.width, true, WeightSplit::Rows);
        builder.sum(&format!("{name}.sum2"), FeatureMap { tensor: down.tensor, ..from }, between)
    }
}

/// All stages at one width and size, joined, and a class of each pixel.
fn decode(builder: &mut Builder, stages: &[FeatureMap], classes: u64, width: u64) {
    let Some(first) = stages.first().copied() else { return };
    let mut same = Vec::new();
    for (index, stage) in stages.iter().enumerate() {
        let rows = Rows { tensor: stage.tensor, rows: stage.height * stage.width, width: stage.channels };
        let even = builder.linear(format!("decoder.{index}"), rows, width, true, WeightSplit::Whole);
        let elements = width * first.height * first.width;
        let kind = OpKind::Resize { elements };
        let tensor = builder.add(format!("decoder.{index}.resize"), kind, &[even.tensor], elements, Owned::NOTHING);
        same.push(FeatureMap { tensor, channels: width, ..first });
    }
    let joined = builder.concatenate("decoder.join", &same);
    let mixed = super::resnet::normal(builder, "decoder.mix", joined, Convolution::new(width, 1, 1), true);
    let scores = builder.convolution("decoder.classifier", mixed, Convolution::new(classes, 1, 1).biased());
    builder.loss(scores.tensor, scores.height * scores.width, classes);
}
