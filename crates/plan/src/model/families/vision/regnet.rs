//! RegNet: residual networks whose stages were found by search, of plain bottlenecks with groups of one width
//! (Radosavovic et al. 2020).

use super::mobilenet::weigh;
use super::resnet::normal;
use crate::model::builder::{Builder, Convolution, FeatureMap};
use crate::model::graph::{Function, Graph};

/// A RegNet.
#[derive(Debug, Clone, PartialEq)]
pub struct Regnet {
    /// Channels, height and width of an image.
    pub image: [u64; 3],
    /// Channels of the first convolution, which halves height and width.
    pub stem: u64,
    /// Blocks of each stage.
    pub depths: Vec<u64>,
    /// Channels of each stage.
    pub widths: Vec<u64>,
    /// Channels of a group.
    pub group_width: u64,
    /// Channels are weighed by their means (the "Y" networks).
    pub weighs: bool,
    /// The first stage halves height and width too.
    pub first_halves: bool,
    /// Classes of the last layer; 0 without one.
    pub classes: u64,
}

impl Regnet {
    /// Builds the graph of one image, channels × height × width, up to the loss of its head.
    pub fn graph(&self) -> Graph {
        let mut builder = Builder::new();
        let [channels, height, width] = self.image;
        let image = builder.image(channels, height, width);
        let mut at = normal(&mut builder, "stem", image, Convolution::new(self.stem, 3, 2), true);
        for (stage, (depth, width)) in self.depths.iter().zip(&self.widths).enumerate() {
            for block in 0..*depth {
                let halves = block == 0 && (stage > 0 || self.first_halves);
                builder.begin_block();
                at = self.block(&mut builder, &format!("stage{stage}.{block}"), at, *width, if halves { 2 } else { 1 });
            }
        }
        builder.end_blocks();
        let mean = builder.mean("mean", at);
        if self.classes > 0 {
            builder.classify("classifier", mean, self.classes);
        }
        builder.finish()
    }

    fn block(&self, builder: &mut Builder, name: &str, from: FeatureMap, width: u64, stride: u64) -> FeatureMap {
        let groups = (width / self.group_width.max(1)).max(1);
        let first = normal(builder, &format!("{name}.0"), from, Convolution::new(width, 1, 1), true);
        let middle = Convolution::new(width, 3, stride).groups(groups);
        let mut at = normal(builder, &format!("{name}.1"), first, middle, true);
        if self.weighs {
            // A quarter of what enters, a half to the even neighbour.
            let squeeze = (from.channels as f64 / 4.0).round_ties_even() as u64;
            at = weigh(builder, &format!("{name}.weigh"), at, squeeze.max(1));
        }
        let last = normal(builder, &format!("{name}.2"), at, Convolution::new(width, 1, 1), false);
        let shortcut = match from.channels == width && stride == 1 {
            true => from,
            false => normal(builder, &format!("{name}.shortcut"), from, Convolution::new(width, 1, stride), false),
        };
        let sum = builder.sum(&format!("{name}.sum"), last, shortcut);
        builder.activate(&format!("{name}.relu"), sum, Function::Relu, true)
    }
}
