//! ConvNeXt: convolutions arranged as transformers are (Liu et al. 2022), and its second version, which has channels
//! compete (Woo et al. 2023).

use crate::model::builder::{Builder, Convolution, FeatureMap, Owned, Rows};
use crate::model::graph::{Function, Graph, Norm, OpKind, WeightSplit};

/// A ConvNeXt.
#[derive(Debug, Clone, PartialEq)]
pub struct Convnext {
    /// Channels, height and width of an image.
    pub image: [u64; 3],
    /// Side of a patch of the stem.
    pub patch: u64,
    /// Blocks of each stage.
    pub depths: Vec<u64>,
    /// Channels of each stage.
    pub widths: Vec<u64>,
    /// Each residual branch is scaled by a learned value a channel.
    pub scaled: bool,
    /// The second version: channels compete by their norms, and nothing is scaled.
    pub second: bool,
    /// Classes of the last layer; 0 without one.
    pub classes: u64,
}

impl Convnext {
    /// Builds the graph of one image, channels × height × width, up to the loss of its head.
    pub fn graph(&self) -> Graph {
        let mut builder = Builder::new();
        let [channels, height, width] = self.image;
        let mut at = builder.image(channels, height, width);
        for (stage, (depth, width)) in self.depths.iter().zip(&self.widths).enumerate() {
            let name = format!("stage{stage}");
            if stage == 0 {
                let cut = Convolution::new(*width, self.patch, self.patch).padding(0).biased();
                at = builder.convolution("stem", at, cut);
                at = builder.norm_pixels("stem.norm", at);
            } else {
                at = builder.norm_pixels(&format!("{name}.norm"), at);
                let halve = Convolution::new(*width, 2, 2).padding(0).biased();
                at = builder.convolution(&format!("{name}.halve"), at, halve);
            }
            for block in 0..*depth {
                builder.begin_block();
                at = self.block(&mut builder, &format!("{name}.{block}"), at);
            }
            builder.end_blocks();
        }
        let mean = builder.mean("mean", at);
        let mean = Rows { tensor: mean.tensor, rows: 1, width: mean.channels };
        let mean = builder.norm("norm", mean, Norm::Layer, true);
        if self.classes > 0 {
            let scores = builder.linear("classifier", mean, self.classes, true, WeightSplit::Whole);
            builder.loss(scores.tensor, 1, self.classes);
        }
        builder.finish()
    }

    fn block(&self, builder: &mut Builder, name: &str, from: FeatureMap) -> FeatureMap {
        let deep = Convolution::new(from.channels, 7, 1).groups(from.channels).biased();
        let mixed = builder.convolution(&format!("{name}.depthwise"), from, deep);
        let mixed = builder.norm_pixels(&format!("{name}.norm"), mixed);
        let pixels = Rows { tensor: mixed.tensor, rows: from.height * from.width, width: from.channels };
        let wide = builder.linear(format!("{name}.up"), pixels, 4 * from.channels, true, WeightSplit::Whole);
        let mut wide = builder.apply(format!("{name}.gelu"), wide, Function::Gelu);
        if self.second {
            let (elements, channels) = (wide.elements(), wide.width);
            let kind = OpKind::Norm { norm: Norm::Group, elements, groups: channels };
            wide.tensor = builder.add(format!("{name}.compete"), kind, &[wide.tensor], elements, Owned::NOTHING);
            let kind = OpKind::Elementwise { elements, inputs: 1, product: true };
            let owned = Owned::parameters(2 * channels);
            wide.tensor = builder.add(format!("{name}.compete.scale"), kind, &[wide.tensor], elements, owned);
        }
        let narrow = builder.linear(format!("{name}.down"), wide, from.channels, true, WeightSplit::Whole);
        let mut last = narrow.tensor;
        if self.scaled {
            let elements = from.elements();
            let kind = OpKind::Elementwise { elements, inputs: 1, product: true };
            let owned = Owned::parameters(from.channels);
            last = builder.add(format!("{name}.scale"), kind, &[last], elements, owned);
        }
        builder.sum(&format!("{name}.sum"), FeatureMap { tensor: last, ..from }, from)
    }
}
