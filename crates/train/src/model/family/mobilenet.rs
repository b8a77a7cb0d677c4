//! The mobile networks: inverted residual blocks, tensor for tensor torchvision's `mobilenet_v2` and `mobilenet_v3_*`
//! (Sandler et al. 2018; Howard et al. 2019).
//!
//! Each is one table of blocks. Read next: [`crate::model::block::inverted`], the block.

use std::sync::Arc;

use tch::Tensor;

use crate::model::block::ModelBlock;
use crate::model::block::inverted::{ConvNormActivation, InvertedConfig, InvertedResidual};
use crate::model::nn::layer::{Activation, ConvWindow, Linear, global_average};
use crate::model::nn::{Pass, Weights};
use crate::model::shape::ImageShape;
use crate::torch::Result;

/// `[momentum, eps]` of every normalisation, as torchvision trains them.
const V2_NORM: [f64; 2] = [0.1, 1e-5];
const V3_NORM: [f64; 2] = [0.01, 1e-3];

pub(in crate::model) struct Mobilenet {
    stem: ConvNormActivation,
    pub(in crate::model) blocks: Vec<Arc<ModelBlock>>,
    last: ConvNormActivation,
    classifier: Classifier,
}

enum Classifier {
    /// Dropout and one layer.
    Single(Linear),
    /// A hidden layer with hard-swish, dropout, and the last layer.
    Double(Linear, Linear),
}

/// Dropout probability of the features before the last layer.
const DROPOUT: f64 = 0.2;
/// Channels before the average of V2.
const V2_LAST: i64 = 1280;

/// Expansion, outputs, repeats and first stride: table 2 of Sandler et al.
const V2: [[i64; 4]; 7] =
    [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 3, 2], [6, 64, 4, 2], [6, 96, 3, 1], [6, 160, 3, 2], [6, 320, 1, 1]];

/// Kernel, expanded channels, outputs, squeeze-and-excitation (0 or 1), hard-swish (0 or 1) and stride: tables 1 and 2
/// of Howard et al.
const V3_LARGE: [[i64; 6]; 15] = [
    [3, 16, 16, 0, 0, 1],
    [3, 64, 24, 0, 0, 2],
    [3, 72, 24, 0, 0, 1],
    [5, 72, 40, 1, 0, 2],
    [5, 120, 40, 1, 0, 1],
    [5, 120, 40, 1, 0, 1],
    [3, 240, 80, 0, 1, 2],
    [3, 200, 80, 0, 1, 1],
    [3, 184, 80, 0, 1, 1],
    [3, 184, 80, 0, 1, 1],
    [3, 480, 112, 1, 1, 1],
    [3, 672, 112, 1, 1, 1],
    [5, 672, 160, 1, 1, 2],
    [5, 960, 160, 1, 1, 1],
    [5, 960, 160, 1, 1, 1],
];
const V3_SMALL: [[i64; 6]; 11] = [
    [3, 16, 16, 1, 0, 2],
    [3, 72, 24, 0, 0, 2],
    [3, 88, 24, 0, 0, 1],
    [5, 96, 40, 1, 1, 2],
    [5, 240, 40, 1, 1, 1],
    [5, 240, 40, 1, 1, 1],
    [5, 120, 48, 1, 1, 1],
    [5, 144, 48, 1, 1, 1],
    [5, 288, 96, 1, 1, 2],
    [5, 576, 96, 1, 1, 1],
    [5, 576, 96, 1, 1, 1],
];

impl Mobilenet {
    pub(in crate::model) fn v2(weights: &mut Weights, image: ImageShape, classes: i64) -> Result<Mobilenet> {
        let unit = |weights: &mut Weights, name: &str, channels: [i64; 2], window: ConvWindow| {
            ConvNormActivation::new(weights, name, channels, window, V2_NORM, Activation::Relu6)
        };
        let stem = unit(weights, "features.0", [image.channels, 32], ConvWindow::new(3, 2))?;
        let mut blocks = Vec::new();
        let mut inputs = 32;
        for [expansion, outputs, repeats, first_stride] in V2 {
            for place in 0..repeats {
                let plan = InvertedConfig {
                    inputs,
                    expanded: inputs * expansion,
                    outputs,
                    window: ConvWindow::new(3, if place == 0 { first_stride } else { 1 }),
                    squeezes: false,
                    activation: Activation::Relu6,
                    norm: V2_NORM,
                };
                let name = format!("features.{}.conv", blocks.len() + 1);
                blocks.push(
                    weights.block(|weights| Ok(ModelBlock::Inverted(InvertedResidual::v2(weights, &name, plan)?)))?,
                );
                inputs = outputs;
            }
        }
        let name = format!("features.{}", blocks.len() + 1);
        let last = unit(weights, &name, [inputs, V2_LAST], ConvWindow::new(1, 1))?;
        let classifier = Classifier::Single(Linear::normal(weights, "classifier.1", [V2_LAST, classes], 0.01)?);
        Ok(Mobilenet { stem, blocks, last, classifier })
    }

    pub(in crate::model) fn v3(
        weights: &mut Weights,
        large: bool,
        image: ImageShape,
        classes: i64,
    ) -> Result<Mobilenet> {
        let (table, hidden) = if large { (&V3_LARGE[..], 1280) } else { (&V3_SMALL[..], 1024) };
        let unit = |weights: &mut Weights, name: &str, channels: [i64; 2], window: ConvWindow| {
            ConvNormActivation::new(weights, name, channels, window, V3_NORM, Activation::HardSwish)
        };
        let stem = unit(weights, "features.0", [image.channels, 16], ConvWindow::new(3, 2))?;
        let mut blocks = Vec::new();
        let mut inputs = 16;
        for [kernel, expanded, outputs, squeezes, swish, stride] in table.iter().copied() {
            let plan = InvertedConfig {
                inputs,
                expanded,
                outputs,
                window: ConvWindow::new(kernel, stride),
                squeezes: squeezes == 1,
                activation: if swish == 1 { Activation::HardSwish } else { Activation::Relu },
                norm: V3_NORM,
            };
            let name = format!("features.{}.block", blocks.len() + 1);
            blocks
                .push(weights.block(|weights| Ok(ModelBlock::Inverted(InvertedResidual::v3(weights, &name, plan)?)))?);
            inputs = outputs;
        }
        let (name, wide) = (format!("features.{}", blocks.len() + 1), 6 * inputs);
        let last = unit(weights, &name, [inputs, wide], ConvWindow::new(1, 1))?;
        let first = Linear::normal(weights, "classifier.0", [wide, hidden], 0.01)?;
        let second = Linear::normal(weights, "classifier.3", [hidden, classes], 0.01)?;
        Ok(Mobilenet { stem, blocks, last, classifier: Classifier::Double(first, second) })
    }

    /// Name prefixes of the tensors whose shape depends on the number of classes.
    pub(in crate::model) fn head_names(&self) -> &'static [&'static str] {
        match self.classifier {
            Classifier::Single(_) => &["classifier.1."],
            Classifier::Double(_, _) => &["classifier.3."],
        }
    }

    pub(in crate::model) fn stem(&self, images: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.stem.forward(images, pass)
    }

    pub(in crate::model) fn head(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let x = global_average(&self.last.forward(x, pass)?)?;
        match &self.classifier {
            Classifier::Single(layer) => layer.forward(&pass.apply_dropout(&x, DROPOUT)?),
            Classifier::Double(first, second) => {
                let x = Activation::HardSwish.of(first.forward(&x)?)?;
                second.forward(&pass.apply_dropout(&x, DROPOUT)?)
            }
        }
    }
}
