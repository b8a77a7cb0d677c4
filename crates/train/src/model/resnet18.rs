//! The 18-layer residual network, tensor for tensor torchvision's `resnet18`.
//!
//! Four stages of two blocks with 64, 128, 256 and 512 channels. Pictures below 64 pixels would be a single pixel after
//! the usual stem (7×7, stride 2, pooled), so they get a 3×3 convolution without pooling.

use tch::Tensor;

use super::layer::{BatchNorm, Conv, Linear, global_average, max_pool, relu};
use super::{Shape, Weights};
use crate::torch::Result;

/// Height and width from which the usual stem is used.
const LARGE: i64 = 64;

pub(super) struct Resnet18 {
    conv1: Conv,
    bn1: BatchNorm,
    pooled_stem: bool,
    blocks: Vec<Block>,
    fc: Linear,
}

struct Block {
    conv1: Conv,
    bn1: BatchNorm,
    conv2: Conv,
    bn2: BatchNorm,
    downsample: Option<(Conv, BatchNorm)>,
}

impl Resnet18 {
    pub(super) fn new(weights: &mut Weights, shape: Shape) -> Result<Resnet18> {
        let pooled_stem = shape.height.min(shape.width) >= LARGE;
        let (kernel, stride) = if pooled_stem { (7, 2) } else { (3, 1) };
        let conv1 = Conv::residual(weights, "conv1", [shape.channels, 64], kernel, stride)?;
        let bn1 = BatchNorm::new(weights, "bn1", 64)?;
        let mut blocks = Vec::new();
        let mut inputs = 64;
        for (stage, outputs) in [64, 128, 256, 512].into_iter().enumerate() {
            for place in 0..2 {
                let name = format!("layer{}.{place}", stage + 1);
                blocks.push(Block::new(weights, &name, inputs, outputs)?);
                inputs = outputs;
            }
        }
        Ok(Resnet18 { conv1, bn1, pooled_stem, blocks, fc: Linear::new(weights, "fc", 512, shape.classes)? })
    }

    pub(super) fn forward(&self, images: &Tensor, train: bool) -> Result<Tensor> {
        let mut x = relu(self.bn1.forward(&self.conv1.forward(images)?, train)?)?;
        if self.pooled_stem {
            x = max_pool(&x, 3, 2, 1)?;
        }
        for block in &self.blocks {
            x = block.forward(&x, train)?;
        }
        self.fc.forward(&global_average(&x)?)
    }
}

impl Block {
    fn new(weights: &mut Weights, name: &str, inputs: i64, outputs: i64) -> Result<Block> {
        let stride = if inputs == outputs { 1 } else { 2 };
        let conv1 = Conv::residual(weights, &format!("{name}.conv1"), [inputs, outputs], 3, stride)?;
        let bn1 = BatchNorm::new(weights, &format!("{name}.bn1"), outputs)?;
        let conv2 = Conv::residual(weights, &format!("{name}.conv2"), [outputs, outputs], 3, 1)?;
        let bn2 = BatchNorm::new(weights, &format!("{name}.bn2"), outputs)?;
        let mut downsample = None;
        if stride > 1 {
            let conv = Conv::residual(weights, &format!("{name}.downsample.0"), [inputs, outputs], 1, stride)?;
            let norm = BatchNorm::new(weights, &format!("{name}.downsample.1"), outputs)?;
            downsample = Some((conv, norm));
        }
        Ok(Block { conv1, bn1, conv2, bn2, downsample })
    }

    fn forward(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        let out = relu(self.bn1.forward(&self.conv1.forward(x)?, train)?)?;
        let mut out = self.bn2.forward(&self.conv2.forward(&out)?, train)?;
        let shortcut = match &self.downsample {
            Some((conv, norm)) => norm.forward(&conv.forward(x)?, train)?,
            None => x.shallow_clone(),
        };
        relu(out.f_add_(&shortcut)?)
    }
}
