//! EfficientNet-B0: inverted residual blocks with squeeze-and-excitation, tensor for tensor torchvision's (Tan and Le 2019).

use std::sync::Arc;

use tch::Tensor;

use crate::model::block::ModelBlock;
use crate::model::block::inverted::{ConvNormActivation, InvertedConfig, InvertedResidual};
use crate::model::nn::layer::{Activation, ConvWindow, Linear, global_average};
use crate::model::nn::{Pass, Weights};
use crate::model::shape::ImageShape;
use crate::torch::Result;

/// `[momentum, eps]` of every normalisation.
const NORM: [f64; 2] = [0.1, 1e-5];
/// Channels of the stem, and before the average.
const STEM: i64 = 32;
const LAST: i64 = 1280;
/// Dropout probability of the features before the last layer.
const DROPOUT: f64 = 0.2;
/// Probability that the branch of a block behind the last one would be left out.
const DROP: f64 = 0.2;
/// Expansion, kernel, first stride, outputs and repeats: table 1 of Tan and Le.
const STAGES: [[i64; 5]; 7] = [
    [1, 3, 1, 16, 1],
    [6, 3, 2, 24, 2],
    [6, 5, 2, 40, 2],
    [6, 3, 2, 80, 3],
    [6, 5, 1, 112, 3],
    [6, 5, 2, 192, 4],
    [6, 3, 1, 320, 1],
];

pub(in crate::model) struct Efficientnet {
    stem: ConvNormActivation,
    pub(in crate::model) blocks: Vec<Arc<ModelBlock>>,
    last: ConvNormActivation,
    classifier: Linear,
}

impl Efficientnet {
    pub(in crate::model) fn b0(weights: &mut Weights, image: ImageShape, classes: i64) -> Result<Efficientnet> {
        let unit = |weights: &mut Weights, name: &str, channels: [i64; 2], window: ConvWindow| {
            ConvNormActivation::new(weights, name, channels, window, NORM, Activation::Silu)
        };
        let stem = unit(weights, "features.0", [image.channels, STEM], ConvWindow::new(3, 2))?;
        let count: i64 = STAGES.iter().map(|stage| stage[4]).sum();
        let (mut blocks, mut inputs) = (Vec::new(), STEM);
        for (stage, [expansion, kernel, stride, outputs, repeats]) in STAGES.into_iter().enumerate() {
            for place in 0..repeats {
                let config = InvertedConfig {
                    inputs,
                    expanded: expansion * inputs,
                    outputs,
                    window: ConvWindow::new(kernel, if place == 0 { stride } else { 1 }),
                    squeezes: true,
                    activation: Activation::Silu,
                    norm: NORM,
                };
                let drop = DROP * blocks.len() as f64 / count as f64;
                let name = format!("features.{}.{place}.block", stage + 1);
                let block = |weights: &mut Weights| InvertedResidual::efficient(weights, &name, config, drop);
                blocks.push(weights.block(|weights| Ok(ModelBlock::Inverted(block(weights)?)))?);
                inputs = outputs;
            }
        }
        let last = unit(weights, &format!("features.{}", STAGES.len() + 1), [inputs, LAST], ConvWindow::new(1, 1))?;
        let bound = 1.0 / (classes as f64).sqrt();
        weights.mark_cast("classifier.1.weight".into());
        let weight = weights.uniform("classifier.1.weight".into(), &[classes, LAST], bound)?;
        let classifier = Linear::of(weight, weights.zeros("classifier.1.bias".into(), &[classes])?);
        Ok(Efficientnet { stem, blocks, last, classifier })
    }

    pub(in crate::model) fn stem(&self, images: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.stem.forward(images, pass)
    }

    pub(in crate::model) fn head(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let x = global_average(&self.last.forward(x, pass)?)?;
        self.classifier.forward(&pass.apply_dropout(&x, DROPOUT)?)
    }
}
