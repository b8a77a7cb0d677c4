//! Detection in one pass, as Ultralytics' YOLOv8 does it: features at three scales, passed down and up again, and at each
//! a box and the classes of every place (Jocher et al. 2023).

use crate::model::builder::Owned;
use crate::model::builder::{Builder, Convolution, FeatureMap};
use crate::model::graph::{Function, Graph, OpKind};

/// A detection network.
#[derive(Debug, Clone, PartialEq)]
pub struct Yolo {
    /// Channels, height and width of an image; multiples of 32.
    pub image: [u64; 3],
    pub classes: u64,
    /// How many blocks there are, as a share of those of the large network.
    pub depth: f64,
    /// How many channels.
    pub width: f64,
    /// Most channels, before the share is taken.
    pub most: u64,
}

/// Distances from a place to each side of its box that are told apart.
const DISTANCES: u64 = 16;

impl Yolo {
    /// The network of a size: `n`, `s`, `m`, `l` or `x`.
    pub fn sized(size: &str) -> Option<Yolo> {
        let (depth, width, most) = match size {
            "n" => (0.33, 0.25, 1024),
            "s" => (0.33, 0.5, 1024),
            "m" => (0.67, 0.75, 768),
            "l" => (1.0, 1.0, 512),
            "x" => (1.0, 1.25, 512),
            _ => return None,
        };
        Some(Yolo { image: [3, 640, 640], classes: 80, depth, width, most })
    }

    /// Builds the graph of one image with its predictions on three scales.
    pub fn graph(&self) -> Graph {
        let mut builder = Builder::new();
        let builder = &mut builder;
        let [channels, height, width] = self.image;
        let mut at = builder.image(channels, height, width);
        let (mut features, mut seen) = (Vec::new(), 0);
        for (stage, (channels, blocks)) in [(64, 0), (128, 3), (256, 6), (512, 6), (1024, 3)].into_iter().enumerate() {
            at = mix(builder, &format!("stage{stage}.halve"), at, Convolution::new(self.wide(channels), 3, 2));
            if blocks > 0 {
                at = self.stage(builder, &format!("stage{stage}"), at, channels, blocks, true);
            }
            seen = stage;
            features.push(at);
        }
        let deep = pyramid(builder, &format!("stage{seen}.pools"), at, self.wide(1024));
        let up = self.join(builder, "up0", (deep, true), features[3], 512);
        let fine = self.join(builder, "up1", (up, true), features[2], 256);
        let halved = mix(builder, "down0.halve", fine, Convolution::new(self.wide(256), 3, 2));
        let middle = self.join(builder, "down0", (halved, false), up, 512);
        let halved = mix(builder, "down1.halve", middle, Convolution::new(self.wide(512), 3, 2));
        let coarse = self.join(builder, "down1", (halved, false), deep, 1024);
        builder.end_blocks();
        self.detect(builder, &[fine, middle, coarse]);
        std::mem::take(builder).finish()
    }

    fn wide(&self, channels: u64) -> u64 {
        ((channels.min(self.most) as f64 * self.width / 8.0).ceil() as u64).max(1) * 8
    }

    fn join(
        &self,
        builder: &mut Builder,
        name: &str,
        from: (FeatureMap, bool),
        with: FeatureMap,
        channels: u64,
    ) -> FeatureMap {
        let from = if from.1 { builder.enlarge(&format!("{name}.enlarge"), from.0, 2) } else { from.0 };
        let joined = builder.concatenate(&format!("{name}.join"), &[from, with]);
        self.stage(builder, name, joined, channels, 3, false)
    }

    /// Half of the channels go through blocks, and all that each gives is joined.
    fn stage(
        &self,
        builder: &mut Builder,
        name: &str,
        from: FeatureMap,
        channels: u64,
        blocks: u64,
        sums: bool,
    ) -> FeatureMap {
        builder.begin_block();
        let channels = self.wide(channels);
        let half = channels / 2;
        let first = mix(builder, &format!("{name}.first"), from, Convolution::new(2 * half, 1, 1));
        let elements = half * first.height * first.width;
        let tensor = builder.add(format!("{name}.half"), OpKind::View, &[first.tensor], elements, Owned::NOTHING);
        let mut at = FeatureMap { tensor, channels: half, ..first };
        let mut all = vec![first];
        for block in 0..((blocks as f64 * self.depth).round() as u64).max(1) {
            let name = format!("{name}.{block}");
            let inner = mix(builder, &format!("{name}.0"), at, Convolution::new(half, 3, 1));
            let inner = mix(builder, &format!("{name}.1"), inner, Convolution::new(half, 3, 1));
            at = if sums { builder.sum(&format!("{name}.sum"), inner, at) } else { inner };
            all.push(at);
        }
        let joined = builder.concatenate(&format!("{name}.join"), &all);
        mix(builder, &format!("{name}.last"), joined, Convolution::new(channels, 1, 1))
    }

    fn detect(&self, builder: &mut Builder, scales: &[FeatureMap]) {
        let finest = scales[0].channels;
        let (boxes, classes) = ((finest / 4).max(16).max(4 * DISTANCES), finest.max(self.classes.min(100)));
        for (index, scale) in scales.iter().enumerate() {
            for (part, width, answers) in [("boxes", boxes, 4 * DISTANCES), ("classes", classes, self.classes)] {
                let name = format!("detect{index}.{part}");
                let at = mix(builder, &format!("{name}.0"), *scale, Convolution::new(width, 3, 1));
                let at = mix(builder, &format!("{name}.1"), at, Convolution::new(width, 3, 1));
                let told = builder.convolution(&format!("{name}.last"), at, Convolution::new(answers, 1, 1).biased());
                builder.loss(told.tensor, told.height * told.width, answers);
            }
        }
    }
}

/// A convolution, its normalisation and SiLU.
fn mix(builder: &mut Builder, name: &str, from: FeatureMap, with: Convolution) -> FeatureMap {
    let convolved = builder.convolution(&format!("{name}.convolution"), from, with);
    let normal = builder.batch_norm(&format!("{name}.norm"), convolved);
    builder.activate(&format!("{name}.silu"), normal, Function::Silu, true)
}

/// The largest of ever wider surroundings of each place, joined.
fn pyramid(builder: &mut Builder, name: &str, from: FeatureMap, channels: u64) -> FeatureMap {
    let mut at = mix(builder, &format!("{name}.first"), from, Convolution::new(from.channels / 2, 1, 1));
    let mut all = vec![at];
    for pool in 0..3 {
        at = builder.pool(&format!("{name}.{pool}"), at, 5, 1, true);
        all.push(at);
    }
    let joined = builder.concatenate(&format!("{name}.join"), &all);
    mix(builder, &format!("{name}.last"), joined, Convolution::new(channels, 1, 1))
}
