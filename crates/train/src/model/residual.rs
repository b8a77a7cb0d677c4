//! Residual blocks: what is learnt is added to what came in (He et al. 2015, "Deep Residual Learning").

use tch::Tensor;

use super::layer::{BatchNorm, Conv, ConvWindow, relu};
use super::{Pass, Weights};
use crate::torch::Result;

/// How a block's input reaches its end where the picture shrinks or the channels grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shortcut {
    /// Every second pixel, the new channels zero: the paper's option A, without weights.
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
    way: Transport,
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
    way: Transport,
}

/// The way around a block.
#[derive(Debug)]
enum Transport {
    Straight,
    /// Channels that are added.
    Padded(i64),
    Convolved(Conv, BatchNorm),
}

impl BasicBlock {
    pub(super) fn new(
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
            way: Transport::new(weights, name, [inputs, outputs], stride, shortcut)?,
        })
    }

    pub(super) fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let out = relu(self.bn1.forward(&self.conv1.forward(x)?, pass)?)?;
        let out = self.bn2.forward(&self.conv2.forward(&out)?, pass)?;
        self.way.join(x, out, pass)
    }
}

impl Bottleneck {
    /// Channels of the output for each of the middle.
    pub(super) const WIDENS: i64 = 4;

    /// `width` is that of the middle.
    pub(super) fn new(weights: &mut Weights, name: &str, [inputs, width]: [i64; 2], stride: i64) -> Result<Bottleneck> {
        let outputs = Bottleneck::WIDENS * width;
        Ok(Bottleneck {
            conv1: Conv::residual(weights, &format!("{name}.conv1"), [inputs, width], ConvWindow::new(1, 1))?,
            bn1: BatchNorm::new(weights, &format!("{name}.bn1"), width)?,
            conv2: Conv::residual(weights, &format!("{name}.conv2"), [width, width], ConvWindow::new(3, stride))?,
            bn2: BatchNorm::new(weights, &format!("{name}.bn2"), width)?,
            conv3: Conv::residual(weights, &format!("{name}.conv3"), [width, outputs], ConvWindow::new(1, 1))?,
            bn3: BatchNorm::new(weights, &format!("{name}.bn3"), outputs)?,
            way: Transport::new(weights, name, [inputs, outputs], stride, Shortcut::Convolved)?,
        })
    }

    pub(super) fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let out = relu(self.bn1.forward(&self.conv1.forward(x)?, pass)?)?;
        let out = relu(self.bn2.forward(&self.conv2.forward(&out)?, pass)?)?;
        let out = self.bn3.forward(&self.conv3.forward(&out)?, pass)?;
        self.way.join(x, out, pass)
    }
}

impl Transport {
    fn new(
        weights: &mut Weights,
        name: &str,
        [inputs, outputs]: [i64; 2],
        stride: i64,
        shortcut: Shortcut,
    ) -> Result<Transport> {
        if stride == 1 && inputs == outputs {
            return Ok(Transport::Straight);
        }
        match shortcut {
            Shortcut::Padded => Ok(Transport::Padded(outputs - inputs)),
            Shortcut::Convolved => {
                let window = ConvWindow::new(1, stride);
                let conv = Conv::residual(weights, &format!("{name}.downsample.0"), [inputs, outputs], window)?;
                Ok(Transport::Convolved(conv, BatchNorm::new(weights, &format!("{name}.downsample.1"), outputs)?))
            }
        }
    }

    /// `max(out + what came in, 0)`.
    fn join(&self, x: &Tensor, mut out: Tensor, pass: &Pass) -> Result<Tensor> {
        let shortcut = match self {
            Transport::Straight => x.shallow_clone(),
            Transport::Padded(widens) => {
                let halved = x.f_slice(2, 0, None, 2)?.f_slice(3, 0, None, 2)?;
                halved.f_constant_pad_nd([0, 0, 0, 0, widens / 2, widens - widens / 2])?
            }
            Transport::Convolved(conv, norm) => norm.forward(&conv.forward(x)?, pass)?,
        };
        relu(out.f_add_(&shortcut)?)
    }
}
