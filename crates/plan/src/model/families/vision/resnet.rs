//! Residual networks (He et al. 2015; the stride stands in the 3×3 convolution, "v1.5"), with groups and widths
//! (ResNeXt, Wide ResNet), for ImageNet and for small images.

use crate::model::builder::Owned;
use crate::model::builder::{Builder, Convolution, FeatureMap};
use crate::model::graph::{Function, Graph, OpKind};

/// A residual network.
#[derive(Debug, Clone, PartialEq)]
pub struct Resnet {
    /// Channels, height and width of an image.
    pub image: [u64; 3],
    /// Classes of the last layer; 0 without one.
    pub classes: u64,
    pub stem: Stem,
    pub block: ResnetBlock,
    /// Blocks of each stage; every stage after the first halves height and width.
    pub stages: Vec<u64>,
    /// Channels of the first stage's 3×3 convolutions; each stage has twice those of the last.
    pub channels: u64,
    /// Groups of a bottleneck's 3×3 convolution (32 in ResNeXt).
    pub groups: u64,
    /// Channels of a bottleneck's 3×3 convolution for each group and 64 of `channels` (64 in a plain network).
    pub group_width: u64,
    pub variation: Variation,
}

/// What some residual networks do otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Variation {
    /// Channels that leave each stage; empty: those that follow from `channels`.
    pub widths: Vec<u64>,
    /// The first stage halves height and width too.
    pub first_halves: bool,
    /// The stride stands in a bottleneck's first 1×1 convolution, as in the paper ("v1").
    pub early: bool,
    /// Normalisations stay as they are: their values are no weights, and nothing is kept for them.
    pub frozen: bool,
}

/// How a network begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stem {
    /// 7×7 with stride 2, then a pool with stride 2.
    Large,
    /// 3×3 with stride 1.
    Small,
}

/// A residual block (He et al. 2015).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResnetBlock {
    /// Two 3×3 convolutions; where the shape changes, a 1×1 convolution takes the input along.
    Basic,
    /// Two 3×3 convolutions; where the shape changes, the input is thinned out and padded with zeros.
    Padded,
    /// 1×1, 3×3 and 1×1 to four times the channels.
    Bottleneck,
}

impl Resnet {
    /// The network of `depth` 18, 34, 50, 101 or 152 layers for 1,000 classes of 224 × 224 pixels.
    pub fn imagenet(depth: u64) -> Option<Resnet> {
        let (block, stages) = match depth {
            18 => (ResnetBlock::Basic, vec![2, 2, 2, 2]),
            34 => (ResnetBlock::Basic, vec![3, 4, 6, 3]),
            50 => (ResnetBlock::Bottleneck, vec![3, 4, 6, 3]),
            101 => (ResnetBlock::Bottleneck, vec![3, 4, 23, 3]),
            152 => (ResnetBlock::Bottleneck, vec![3, 8, 36, 3]),
            _ => return None,
        };
        Some(Resnet {
            image: [3, 224, 224],
            classes: 1000,
            stem: Stem::Large,
            block,
            stages,
            channels: 64,
            groups: 1,
            group_width: 64,
            variation: Variation::default(),
        })
    }

    /// The thin network of `depth` = 6n + 2 layers for 32 × 32 pixels (He et al. 2015, section 4.2).
    pub fn thin(depth: u64) -> Option<Resnet> {
        let blocks = depth.checked_sub(2).filter(|inner| inner % 6 == 0)? / 6;
        Some(Resnet {
            image: [3, 32, 32],
            classes: 10,
            stem: Stem::Small,
            block: ResnetBlock::Padded,
            stages: vec![blocks; 3],
            channels: 16,
            groups: 1,
            group_width: 64,
            variation: Variation::default(),
        })
    }

    /// Builds the graph of one image, channels × height × width, up to the loss of its head.
    pub fn graph(&self) -> Graph {
        let mut builder = Builder::new();
        let at = self.features(&mut builder);
        let mean = builder.mean("mean", at);
        if self.classes > 0 {
            builder.classify("classifier", mean, self.classes);
        }
        builder.finish()
    }

    /// Adds all but what stands behind the last stage, and returns what leaves that.
    pub fn features(&self, builder: &mut Builder) -> FeatureMap {
        let [channels, height, width] = self.image;
        let image = builder.image(channels, height, width);
        let mut at = match self.stem {
            Stem::Large => {
                let wide = self.normal(builder, "stem", image, Convolution::new(self.channels, 7, 2), true);
                builder.pool("stem.pool", wide, 3, 2, true)
            }
            Stem::Small => self.normal(builder, "stem", image, Convolution::new(self.channels, 3, 1), true),
        };
        for (stage, blocks) in self.stages.iter().enumerate() {
            let (channels, outputs) = self.widths(stage);
            for block in 0..*blocks {
                let halves = block == 0 && (stage > 0 || self.variation.first_halves);
                let stride = if halves { 2 } else { 1 };
                builder.begin_block();
                at = self.block(builder, &format!("stage{stage}.{block}"), at, (channels, outputs), stride);
            }
        }
        builder.end_blocks();
        at
    }

    /// A convolution, its normalisation and maybe a ReLU that overwrites its input.
    fn normal(&self, builder: &mut Builder, name: &str, from: FeatureMap, with: Convolution, relu: bool) -> FeatureMap {
        if !self.variation.frozen {
            return normal(builder, name, from, with, relu);
        }
        let convolved = builder.convolution(&format!("{name}.convolution"), from, with);
        let kind = OpKind::Elementwise { elements: convolved.elements(), inputs: 1, product: true };
        let owned = Owned { parameters: 0, buffers: 4 * convolved.channels };
        let tensor = builder.add(format!("{name}.scale"), kind, &[convolved.tensor], convolved.elements(), owned);
        let scaled = FeatureMap { tensor, ..convolved };
        if relu { builder.activate(&format!("{name}.relu"), scaled, Function::Relu, true) } else { scaled }
    }

    /// Channels of a stage's 3×3 convolutions, and those that leave it.
    fn widths(&self, stage: usize) -> (u64, u64) {
        let factor = match self.block {
            ResnetBlock::Basic | ResnetBlock::Padded => 1,
            ResnetBlock::Bottleneck => 4,
        };
        match self.variation.widths.get(stage) {
            Some(outputs) => ((outputs / factor).max(1), *outputs),
            None => (self.channels << stage, factor * (self.channels << stage)),
        }
    }

    fn block(&self, builder: &mut Builder, name: &str, from: FeatureMap, wide: (u64, u64), stride: u64) -> FeatureMap {
        let (channels, outputs) = wide;
        let inner = match self.block {
            ResnetBlock::Basic | ResnetBlock::Padded => {
                let first =
                    self.normal(builder, &format!("{name}.0"), from, Convolution::new(channels, 3, stride), true);
                self.normal(builder, &format!("{name}.1"), first, Convolution::new(channels, 3, 1), false)
            }
            ResnetBlock::Bottleneck => {
                let thin = channels * self.group_width / 64 * self.groups;
                let (early, late) = if self.variation.early { (stride, 1) } else { (1, stride) };
                let first = self.normal(builder, &format!("{name}.0"), from, Convolution::new(thin, 1, early), true);
                let middle = Convolution::new(thin, 3, late).groups(self.groups);
                let second = self.normal(builder, &format!("{name}.1"), first, middle, true);
                self.normal(builder, &format!("{name}.2"), second, Convolution::new(outputs, 1, 1), false)
            }
        };
        let shortcut = match (from.channels == outputs && stride == 1, self.block) {
            (true, _) => from,
            (false, ResnetBlock::Basic | ResnetBlock::Bottleneck) => {
                self.normal(builder, &format!("{name}.shortcut"), from, Convolution::new(outputs, 1, stride), false)
            }
            (false, ResnetBlock::Padded) => {
                let elements = inner.elements();
                let name = format!("{name}.shortcut");
                FeatureMap {
                    tensor: builder.add(name, OpKind::Copy { elements }, &[from.tensor], elements, Owned::NOTHING),
                    ..inner
                }
            }
        };
        let sum = builder.sum(&format!("{name}.sum"), inner, shortcut);
        builder.activate(&format!("{name}.relu"), sum, Function::Relu, true)
    }
}

/// A convolution, its normalisation and maybe a ReLU that overwrites its input.
pub(super) fn normal(builder: &mut Builder, name: &str, from: FeatureMap, with: Convolution, relu: bool) -> FeatureMap {
    let convolved = builder.convolution(&format!("{name}.convolution"), from, with);
    let normal = builder.batch_norm(&format!("{name}.norm"), convolved);
    match relu {
        true => builder.activate(&format!("{name}.relu"), normal, Function::Relu, true),
        false => normal,
    }
}
