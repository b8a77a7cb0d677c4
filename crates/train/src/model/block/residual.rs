//! Residual blocks: the output of the convolutions is added to the input (He et al. 2015, "Deep Residual Learning").

use tch::Tensor;

use crate::model::nn::layer::{Activation, BatchNorm, Conv, ConvWindow};
use crate::model::nn::{Pass, Weights};
use crate::torch::Result;

/// The shortcut of a block where the image shrinks or the channels grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum Shortcut {
    /// Every second pixel, with zeros in the new channels: the paper's option A, without weights.
    Padded,
    /// A 1×1 convolution with normalisation: option B.
    Convolved,
}

/// Two 3×3 convolutions.
#[derive(Debug)]
pub struct BasicBlock {
    conv1: Conv,
    bn1: BatchNorm,
    conv2: Conv,
    bn2: BatchNorm,
    shortcut: Skip,
}

/// 1×1, 3×3 and 1×1 convolutions; the stride is in the middle one, as in torchvision ("v1.5").
#[derive(Debug)]
pub struct Bottleneck {
    conv1: Conv,
    bn1: BatchNorm,
    conv2: Conv,
    bn2: BatchNorm,
    conv3: Conv,
    bn3: BatchNorm,
    shortcut: Skip,
}

/// The path around a block.
#[derive(Debug)]
enum Skip {
    Identity,
    /// Number of channels added.
    Padded(i64),
    Convolved(Conv, BatchNorm),
}

impl BasicBlock {
    pub(in crate::model) fn new(
        weights: &mut Weights,
        name: &str,
        [inputs, outputs]: [i64; 2],
        stride: i64,
        shortcut: Shortcut,
    ) -> Result<BasicBlock> {
        Ok(BasicBlock {
            conv1: Conv::residual(weights, &format!("{name}.conv1"), [inputs, outputs], ConvWindow::new(3, stride))?,
            bn1: BatchNorm::new(weights, &format!("{name}.bn1"), outputs)?,
            conv2: Conv::residual(weights, &format!("{name}.conv2"), [outputs, outputs], ConvWindow::new(3, 1))?,
            bn2: BatchNorm::new(weights, &format!("{name}.bn2"), outputs)?,
            shortcut: Skip::new(weights, name, [inputs, outputs], stride, shortcut)?,
        })
    }

    pub(in crate::model) fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let out = self.bn1.activated(&self.conv1.forward(x)?, None, Activation::Relu, pass)?;
        self.bn2.activated(&self.conv2.forward(&out)?, Some(&self.shortcut.of(x, pass)?), Activation::Relu, pass)
    }
}

impl Bottleneck {
    /// Output channels per channel of the middle convolution.
    pub(in crate::model) const WIDENS: i64 = 4;

    /// `width` is the number of channels of the middle convolution.
    pub(in crate::model) fn new(
        weights: &mut Weights,
        name: &str,
        [inputs, width]: [i64; 2],
        stride: i64,
    ) -> Result<Bottleneck> {
        let outputs = Bottleneck::WIDENS * width;
        Ok(Bottleneck {
            conv1: Conv::residual(weights, &format!("{name}.conv1"), [inputs, width], ConvWindow::new(1, 1))?,
            bn1: BatchNorm::new(weights, &format!("{name}.bn1"), width)?,
            conv2: Conv::residual(weights, &format!("{name}.conv2"), [width, width], ConvWindow::new(3, stride))?,
            bn2: BatchNorm::new(weights, &format!("{name}.bn2"), width)?,
            conv3: Conv::residual(weights, &format!("{name}.conv3"), [width, outputs], ConvWindow::new(1, 1))?,
            bn3: BatchNorm::new(weights, &format!("{name}.bn3"), outputs)?,
            shortcut: Skip::new(weights, name, [inputs, outputs], stride, Shortcut::Convolved)?,
        })
    }

    pub(in crate::model) fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let out = self.bn1.activated(&self.conv1.forward(x)?, None, Activation::Relu, pass)?;
        let out = self.bn2.activated(&self.conv2.forward(&out)?, None, Activation::Relu, pass)?;
        self.bn3.activated(&self.conv3.forward(&out)?, Some(&self.shortcut.of(x, pass)?), Activation::Relu, pass)
    }
}

impl Skip {
    fn new(
        weights: &mut Weights,
        name: &str,
        [inputs, outputs]: [i64; 2],
        stride: i64,
        shortcut: Shortcut,
    ) -> Result<Skip> {
        if stride == 1 && inputs == outputs {
            return Ok(Skip::Identity);
        }
        match shortcut {
            Shortcut::Padded => Ok(Skip::Padded(outputs - inputs)),
            Shortcut::Convolved => {
                let window = ConvWindow::new(1, stride);
                let conv = Conv::residual(weights, &format!("{name}.downsample.0"), [inputs, outputs], window)?;
                Ok(Skip::Convolved(conv, BatchNorm::new(weights, &format!("{name}.downsample.1"), outputs)?))
            }
        }
    }

    /// What is added to the output of the convolutions.
    fn of(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        match self {
            Skip::Identity => Ok(x.shallow_clone()),
            Skip::Padded(widens) => {
                let halved = x.f_slice(2, 0, None, 2)?.f_slice(3, 0, None, 2)?;
                Ok(halved.f_constant_pad_nd([0, 0, 0, 0, widens / 2, widens - widens / 2])?)
            }
            Skip::Convolved(conv, norm) => norm.forward(&conv.forward(x)?, pass),
        }
    }
}
