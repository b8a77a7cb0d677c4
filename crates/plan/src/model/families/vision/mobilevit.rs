//! MobileViT: MobileNet's blocks, and between them transformers whose tokens are pixels of like place in their patches
//! (Mehta and Rastegari 2021).

use super::super::block::{Feed, TransformerBlock};
use super::mobilenet::{Inverted, mix};
use crate::model::builder::{Builder, Convolution, FeatureMap, Owned, Rows};
use crate::model::graph::{Function, Graph, Norm, OpKind};

/// A MobileViT.
#[derive(Debug, Clone, PartialEq)]
pub struct Mobilevit {
    /// Channels, height and width of an image.
    pub image: [u64; 3],
    /// Side of a patch, of whose pixels each sees those of like place only.
    pub patch: u64,
    /// Channels of the first convolution, of the five stages and of the last convolution.
    pub channels: [u64; 7],
    /// Widths of the transformers of the last three stages.
    pub widths: [u64; 3],
    pub heads: u64,
    /// Width of the feed-forward part over that of the block.
    pub ratio: f64,
    /// Channels between those of an inverted block, of those that enter it.
    pub expand: f64,
    /// Side of the convolutions around a transformer.
    pub kernel: u64,
    pub query_bias: bool,
    pub dropout: bool,
    pub attention_dropout: bool,
    pub function: Function,
    /// Classes of the last layer; 0 without one.
    pub classes: u64,
}

/// Transformer blocks of the last three stages.
const DEPTHS: [u64; 3] = [2, 4, 3];

impl Mobilevit {
    /// Builds the graph of one image, channels × height × width, up to the loss of its head.
    pub fn graph(&self) -> Graph {
        let mut builder = Builder::new();
        let [channels, height, width] = self.image;
        let image = builder.image(channels, height, width);
        let [first, one, two, inner @ .., last] = self.channels;
        let mut at = mix(&mut builder, "stem", image, Convolution::new(first, 3, 2), Some(self.function));
        at = self.halve(&mut builder, "stage0.0", at, one, 1);
        for index in 0..3 {
            at = self.halve(&mut builder, &format!("stage1.{index}"), at, two, if index == 0 { 2 } else { 1 });
        }
        for (stage, channels) in inner.into_iter().enumerate() {
            let name = format!("stage{}", stage + 2);
            at = self.halve(&mut builder, &format!("{name}.halve"), at, channels, 2);
            builder.end_blocks();
            at = self.attend(&mut builder, &name, at, self.widths[stage], DEPTHS[stage]);
        }
        at = mix(&mut builder, "last", at, Convolution::new(last, 1, 1), Some(self.function));
        let mean = builder.mean("mean", at);
        if self.classes > 0 {
            builder.classify("classifier", mean, self.classes);
        }
        builder.finish()
    }

    fn halve(&self, builder: &mut Builder, name: &str, from: FeatureMap, channels: u64, stride: u64) -> FeatureMap {
        let wanted = (from.channels as f64 * self.expand).round_ties_even() as u64;
        let nearest = ((wanted + 4) / 8 * 8).max(8);
        let expanded = if nearest * 10 < wanted * 9 { nearest + 8 } else { nearest };
        let block = Inverted {
            kernel: 3,
            stride,
            expanded: Some(expanded),
            channels,
            squeeze: 0,
            function: self.function,
            plain: false,
            uneven: false,
        };
        builder.begin_block();
        block.add(builder, name, from)
    }

    fn attend(&self, builder: &mut Builder, name: &str, from: FeatureMap, width: u64, depth: u64) -> FeatureMap {
        let near = Convolution::new(from.channels, self.kernel, 1);
        let mixed = mix(builder, &format!("{name}.near"), from, near, Some(self.function));
        let wide = builder.convolution(&format!("{name}.widen"), mixed, Convolution::new(width, 1, 1));
        let rows = wide.height * wide.width;
        let kind = OpKind::Copy { elements: wide.elements() };
        let sorted = builder.add(format!("{name}.sort"), kind, &[wide.tensor], wide.elements(), Owned::NOTHING);
        let block = TransformerBlock {
            head_width: (width / self.heads).max(1),
            query_bias: self.query_bias,
            window: Some((rows / (self.patch * self.patch)).max(1)),
            attention_dropout: self.attention_dropout,
            dropout: self.dropout,
            feed: Feed { function: self.function, ..Feed::plain((width as f64 * self.ratio) as u64) },
            ..TransformerBlock::pre_norm(width, self.heads)
        };
        let mut at = Rows { tensor: sorted, rows, width };
        for _ in 0..depth {
            at = block.add(builder, at);
        }
        builder.end_blocks();
        at = builder.norm(format!("{name}.norm"), at, Norm::Layer, true);
        let far = FeatureMap { tensor: at.tensor, channels: width, ..from };
        let thin = Convolution::new(from.channels, 1, 1);
        let far = mix(builder, &format!("{name}.narrow"), far, thin, Some(self.function));
        let both = builder.concatenate(&format!("{name}.join"), &[from, far]);
        let fuse = Convolution::new(from.channels, self.kernel, 1);
        mix(builder, &format!("{name}.fuse"), both, fuse, Some(self.function))
    }
}
