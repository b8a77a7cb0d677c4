//! MobileNets: a convolution a channel between two that mix channels (Howard et al. 2017; Sandler et al. 2018; Howard et
//! al. 2019).

use crate::model::builder::Owned;
use crate::model::builder::{Builder, Convolution, FeatureMap, Rows};
use crate::model::graph::{Function, Graph, OpKind, WeightSplit};

/// A MobileNet.
#[derive(Debug, Clone, PartialEq)]
pub struct Mobilenet {
    /// Channels, height and width of an image.
    pub image: [u64; 3],
    /// Classes of the last layer; 0 without one.
    pub classes: u64,
    /// Channels of the first convolution, which halves height and width.
    pub stem: u64,
    pub stem_function: Function,
    pub blocks: Vec<Inverted>,
    /// Channels of the last 1×1 convolution; 0 without one.
    pub last: u64,
    /// Width of a layer before the classes; 0 without one.
    pub hidden: u64,
}

/// A block: wide, each channel for itself, narrow again.
#[derive(Debug, Clone, PartialEq)]
pub struct Inverted {
    pub kernel: u64,
    pub stride: u64,
    /// Channels between; none: the block does not widen.
    pub expanded: Option<u64>,
    pub channels: u64,
    /// Channels of the two layers that weigh channels by their means; 0 without.
    pub squeeze: u64,
    pub function: Function,
    /// What leaves it goes through the function too, and nothing is added.
    pub plain: bool,
    /// Where it halves the image, one pixel less is padded before than after.
    pub uneven: bool,
}

impl Mobilenet {
    /// The same with ReLU cut at six by an operator of its own, which keeps its input, as `transformers` has it.
    pub fn clipped(mut self) -> Mobilenet {
        self.stem_function = Function::Other;
        self.blocks.iter_mut().for_each(|block| block.function = Function::Other);
        self
    }

    /// The first version; `wide` gives the channels of a network of another width.
    pub fn first(image: [u64; 3], classes: u64, wide: impl Fn(u64) -> u64) -> Mobilenet {
        let steps: [(u64, u64); 13] = [
            (64, 1),
            (128, 2),
            (128, 1),
            (256, 2),
            (256, 1),
            (512, 2),
            (512, 1),
            (512, 1),
            (512, 1),
            (512, 1),
            (512, 1),
            (1024, 2),
            (1024, 1),
        ];
        let block = |(channels, stride): (u64, u64)| Inverted {
            kernel: 3,
            stride,
            expanded: None,
            channels: wide(channels),
            squeeze: 0,
            function: Function::Relu,
            plain: true,
            uneven: false,
        };
        Mobilenet {
            image,
            classes,
            stem: wide(32),
            stem_function: Function::Relu,
            blocks: steps.map(block).to_vec(),
            last: 0,
            hidden: 0,
        }
    }

    /// The second version; `expand` gives the channels between those of a block.
    pub fn second(image: [u64; 3], classes: u64, wide: impl Fn(u64) -> u64, expand: impl Fn(u64) -> u64) -> Mobilenet {
        let stages: [(u64, u64, u64); 7] =
            [(16, 1, 1), (24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2), (320, 1, 1)];
        let mut blocks: Vec<Inverted> = Vec::new();
        for (stage, (channels, count, stride)) in stages.into_iter().enumerate() {
            for index in 0..count {
                let from = blocks.last().map_or(0, |last| last.channels);
                blocks.push(Inverted {
                    kernel: 3,
                    stride: if index == 0 { stride } else { 1 },
                    expanded: (stage > 0).then(|| expand(from)),
                    channels: wide(channels),
                    squeeze: 0,
                    function: Function::Relu,
                    plain: false,
                    uneven: false,
                });
            }
        }
        let stem = wide(32);
        Mobilenet { image, classes, stem, stem_function: Function::Relu, blocks, last: wide(1280), hidden: 0 }
    }

    /// The third version, large or small.
    pub fn third(image: [u64; 3], classes: u64, large: bool, wide: impl Fn(u64) -> u64) -> Mobilenet {
        /// Kernel, channels between, channels, whether channels are weighed, whether the function is h-swish, stride.
        type Step = (u64, u64, u64, bool, bool, u64);
        const LARGE: [Step; 15] = [
            (3, 16, 16, false, false, 1),
            (3, 64, 24, false, false, 2),
            (3, 72, 24, false, false, 1),
            (5, 72, 40, true, false, 2),
            (5, 120, 40, true, false, 1),
            (5, 120, 40, true, false, 1),
            (3, 240, 80, false, true, 2),
            (3, 200, 80, false, true, 1),
            (3, 184, 80, false, true, 1),
            (3, 184, 80, false, true, 1),
            (3, 480, 112, true, true, 1),
            (3, 672, 112, true, true, 1),
            (5, 672, 160, true, true, 2),
            (5, 960, 160, true, true, 1),
            (5, 960, 160, true, true, 1),
        ];
        const SMALL: [Step; 11] = [
            (3, 16, 16, true, false, 2),
            (3, 72, 24, false, false, 2),
            (3, 88, 24, false, false, 1),
            (5, 96, 40, true, true, 2),
            (5, 240, 40, true, true, 1),
            (5, 240, 40, true, true, 1),
            (5, 120, 48, true, true, 1),
            (5, 144, 48, true, true, 1),
            (5, 288, 96, true, true, 2),
            (5, 576, 96, true, true, 1),
            (5, 576, 96, true, true, 1),
        ];
        let (steps, hidden): (&[Step], u64) = if large { (&LARGE, 1280) } else { (&SMALL, 1024) };
        let stem = wide(16);
        let mut from = stem;
        let mut blocks = Vec::new();
        for (kernel, between, channels, weighed, swish, stride) in steps.iter().copied() {
            let between = wide(between);
            blocks.push(Inverted {
                kernel,
                stride,
                expanded: (between != from).then_some(between),
                channels: wide(channels),
                squeeze: if weighed { eighth(between / 4) } else { 0 },
                function: if swish { Function::HardSwish } else { Function::Relu },
                plain: false,
                uneven: false,
            });
            from = wide(channels);
        }
        let last = 6 * from;
        Mobilenet { image, classes, stem, stem_function: Function::HardSwish, blocks, last, hidden: wide(hidden) }
    }

    /// Builds the graph of one image, channels × height × width, up to the loss of its head.
    pub fn graph(&self) -> Graph {
        let mut builder = Builder::new();
        let [channels, height, width] = self.image;
        let image = builder.image(channels, height, width);
        let mut at = mix(&mut builder, "stem", image, Convolution::new(self.stem, 3, 2), Some(self.stem_function));
        let mut function = self.stem_function;
        for (index, block) in self.blocks.iter().enumerate() {
            builder.begin_block();
            at = block.add(&mut builder, &format!("block{index}"), at);
            function = block.function;
        }
        builder.end_blocks();
        if self.last > 0 {
            at = mix(&mut builder, "last", at, Convolution::new(self.last, 1, 1), Some(function));
        }
        let mean = builder.mean("mean", at);
        let mut vector = Rows { tensor: mean.tensor, rows: 1, width: mean.channels };
        if self.hidden > 0 {
            vector = builder.linear("hidden", vector, self.hidden, true, WeightSplit::Whole);
            vector = builder.apply("hidden.function", vector, function);
        }
        if self.classes > 0 {
            let scores = builder.linear("classifier", vector, self.classes, true, WeightSplit::Whole);
            builder.loss(scores.tensor, 1, self.classes);
        }
        builder.finish()
    }
}

impl Inverted {
    pub(super) fn add(&self, builder: &mut Builder, name: &str, from: FeatureMap) -> FeatureMap {
        let mut at = from;
        if let Some(expanded) = self.expanded {
            at = mix(builder, &format!("{name}.widen"), at, Convolution::new(expanded, 1, 1), Some(self.function));
        }
        let uneven = self.uneven && self.stride > 1;
        let deep = Convolution::new(at.channels, self.kernel, self.stride).groups(at.channels).uneven(uneven);
        at = mix(builder, &format!("{name}.depthwise"), at, deep, Some(self.function));
        if self.squeeze > 0 {
            at = weigh(builder, &format!("{name}.weigh"), at, self.squeeze);
        }
        let function = self.plain.then_some(self.function);
        let narrow = mix(builder, &format!("{name}.narrow"), at, Convolution::new(self.channels, 1, 1), function);
        match !self.plain && self.stride == 1 && from.channels == self.channels {
            true => builder.sum(&format!("{name}.sum"), narrow, from),
            false => narrow,
        }
    }
}

/// The next multiple of eight that is no more than a tenth less.
fn eighth(channels: u64) -> u64 {
    let nearest = ((channels + 4) / 8 * 8).max(8);
    if nearest * 10 < channels * 9 { nearest + 8 } else { nearest }
}

/// A convolution, its normalisation and maybe a function.
pub(super) fn mix(
    builder: &mut Builder,
    name: &str,
    from: FeatureMap,
    with: Convolution,
    function: Option<Function>,
) -> FeatureMap {
    let convolved = builder.convolution(&format!("{name}.convolution"), from, with);
    let normal = builder.batch_norm(&format!("{name}.norm"), convolved);
    match function {
        Some(function) => {
            let in_place = function != Function::Other;
            builder.activate(&format!("{name}.function"), normal, function, in_place)
        }
        None => normal,
    }
}

/// Channels weighed by what two layers make of their means.
pub(super) fn weigh(builder: &mut Builder, name: &str, from: FeatureMap, squeeze: u64) -> FeatureMap {
    let mean = builder.mean(&format!("{name}.mean"), from);
    let thin = builder.convolution(&format!("{name}.thin"), mean, Convolution::new(squeeze, 1, 1).biased());
    let thin = builder.activate(&format!("{name}.relu"), thin, Function::Relu, true);
    let wide = builder.convolution(&format!("{name}.wide"), thin, Convolution::new(from.channels, 1, 1).biased());
    let weights = builder.activate(&format!("{name}.gate"), wide, Function::Sigmoid, false);
    let elements = from.elements();
    let kind = OpKind::Elementwise { elements, inputs: 2, product: true };
    let inputs = [from.tensor, weights.tensor];
    FeatureMap { tensor: builder.add(format!("{name}.product"), kind, &inputs, elements, Owned::NOTHING), ..from }
}
