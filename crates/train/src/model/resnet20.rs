//! The 20-layer residual network for small pictures (He et al. 2015, section 4.2).
//!
//! Three stages of three blocks with 16, 32 and 64 channels. Where a stage halves the picture, the shortcut takes
//! every second pixel and pads the new channels with zeros (the paper's option A), so it has no weights.

use tch::Tensor;

use super::layer::{BatchNorm, Conv, Linear, global_average, relu};
use super::{Shape, Weights};
use crate::torch::Result;

pub(super) struct Resnet20 {
    conv1: Conv,
    bn1: BatchNorm,
    blocks: Vec<Block>,
    fc: Linear,
}

struct Block {
    conv1: Conv,
    bn1: BatchNorm,
    conv2: Conv,
    bn2: BatchNorm,
    /// Channels that the shortcut adds, and by which it halves the picture; 0 for a plain shortcut.
    widens: i64,
}

impl Resnet20 {
    pub(super) fn new(weights: &mut Weights, shape: Shape) -> Result<Resnet20> {
        let conv1 = Conv::residual(weights, "conv1", [shape.channels, 16], 3, 1)?;
        let bn1 = BatchNorm::new(weights, "bn1", 16)?;
        let mut blocks = Vec::new();
        let mut inputs = 16;
        for (stage, outputs) in [16, 32, 64].into_iter().enumerate() {
            for place in 0..3 {
                let name = format!("layer{}.{place}", stage + 1);
                blocks.push(Block::new(weights, &name, inputs, outputs)?);
                inputs = outputs;
            }
        }
        Ok(Resnet20 { conv1, bn1, blocks, fc: Linear::new(weights, "fc", 64, shape.classes)? })
    }

    pub(super) fn forward(&self, images: &Tensor, train: bool) -> Result<Tensor> {
        let mut x = relu(self.bn1.forward(&self.conv1.forward(images)?, train)?)?;
        for block in &self.blocks {
            x = block.forward(&x, train)?;
        }
        self.fc.forward(&global_average(&x)?)
    }
}

impl Block {
    fn new(weights: &mut Weights, name: &str, inputs: i64, outputs: i64) -> Result<Block> {
        let stride = if inputs == outputs { 1 } else { 2 };
        Ok(Block {
            conv1: Conv::residual(weights, &format!("{name}.conv1"), [inputs, outputs], 3, stride)?,
            bn1: BatchNorm::new(weights, &format!("{name}.bn1"), outputs)?,
            conv2: Conv::residual(weights, &format!("{name}.conv2"), [outputs, outputs], 3, 1)?,
            bn2: BatchNorm::new(weights, &format!("{name}.bn2"), outputs)?,
            widens: outputs - inputs,
        })
    }

    fn forward(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        let out = relu(self.bn1.forward(&self.conv1.forward(x)?, train)?)?;
        let mut out = self.bn2.forward(&self.conv2.forward(&out)?, train)?;
        relu(out.f_add_(&self.shortcut(x)?)?)
    }

    fn shortcut(&self, x: &Tensor) -> Result<Tensor> {
        if self.widens == 0 {
            return Ok(x.shallow_clone());
        }
        let halved = x.f_slice(2, 0, None, 2)?.f_slice(3, 0, None, 2)?;
        let (before, after) = (self.widens / 2, self.widens - self.widens / 2);
        Ok(halved.f_constant_pad_nd([0, 0, 0, 0, before, after])?)
    }
}
