//! The residual networks: a stem, stages of blocks that halve the image and widen the channels, global average
//! pooling and a linear layer.
//!
//! [`Resnet::large`] is tensor for tensor torchvision's `resnet18` to `resnet152`, whose bottlenecks have their stride
//! in the middle ("v1.5"). Images below 64 pixels would be a single pixel after the usual stem (7×7, stride 2,
//! pooled), so they get a 3×3 convolution without pooling. [`Resnet::small`] is the network for 32×32 images of He
//! et al. 2015, section 4.2. Read next: [`crate::model::block::residual`], the blocks.

use std::sync::Arc;

use domain::architecture::ResidualBlock;
use tch::Tensor;

use crate::model::block::ModelBlock;
use crate::model::block::residual::{BasicBlock, Bottleneck, Shortcut};
use crate::model::nn::layer::{Activation, BatchNorm, Conv, ConvWindow, Linear, global_average, max_pool};
use crate::model::nn::{Pass, Weights};
use crate::model::shape::ImageShape;
use crate::torch::Result;

/// Configuration of a residual network of four stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) struct Size {
    pub block: ResidualBlock,
    /// Blocks of each stage.
    pub blocks: [usize; 4],
    /// Channels of the first stage; each further one has twice those of the one before.
    pub width: i64,
}

pub(in crate::model) struct Resnet {
    conv1: Conv,
    bn1: BatchNorm,
    pooled_stem: bool,
    pub(in crate::model) blocks: Vec<Arc<ModelBlock>>,
    fc: Linear,
}

impl Resnet {
    /// Four stages, of 64 to 512 channels in the paper.
    pub(in crate::model) fn large(
        weights: &mut Weights,
        size: Size,
        image: ImageShape,
        classes: i64,
    ) -> Result<Resnet> {
        let Size { block, blocks: [first, second, third, fourth], width } = size;
        let pooled_stem = !image.needs_small_stem();
        let stem = if pooled_stem { ConvWindow::new(7, 2) } else { ConvWindow::new(3, 1) };
        let stages = [(width, first), (2 * width, second), (4 * width, third), (8 * width, fourth)];
        let network = Resnet::new(weights, [image.channels, classes], stem, block, Shortcut::Convolved, &stages)?;
        Ok(Resnet { pooled_stem, ..network })
    }

    /// Three stages of 16 to 64 channels, with `count` blocks each: 6 · `count` + 2 layers.
    pub(in crate::model) fn small(
        weights: &mut Weights,
        count: usize,
        image: ImageShape,
        classes: i64,
    ) -> Result<Resnet> {
        let stages = [(16, count), (32, count), (64, count)];
        Resnet::new(
            weights,
            [image.channels, classes],
            ConvWindow::new(3, 1),
            ResidualBlock::Basic,
            Shortcut::Padded,
            &stages,
        )
    }

    fn new(
        weights: &mut Weights,
        [channels, classes]: [i64; 2],
        stem: ConvWindow,
        kind: ResidualBlock,
        shortcut: Shortcut,
        stages: &[(i64, usize)],
    ) -> Result<Resnet> {
        let width = stages.first().map_or(0, |stage| stage.0);
        let conv1 = Conv::residual(weights, "conv1", [channels, width], stem)?;
        let bn1 = BatchNorm::new(weights, "bn1", width)?;
        let mut blocks = Vec::new();
        let mut inputs = width;
        for (stage, (width, count)) in stages.iter().enumerate() {
            for place in 0..*count {
                let name = format!("layer{}.{place}", stage + 1);
                let stride = if stage > 0 && place == 0 { 2 } else { 1 };
                let channels = [inputs, *width];
                let block = weights.block(|weights| match kind {
                    ResidualBlock::Basic => {
                        Ok(ModelBlock::Basic(BasicBlock::new(weights, &name, channels, stride, shortcut)?))
                    }
                    ResidualBlock::Bottleneck => {
                        Ok(ModelBlock::Bottleneck(Bottleneck::new(weights, &name, channels, stride)?))
                    }
                });
                blocks.push(block?);
                inputs = match kind {
                    ResidualBlock::Basic => *width,
                    ResidualBlock::Bottleneck => *width * Bottleneck::WIDENS,
                };
            }
        }
        let fc = Linear::new(weights, "fc", inputs, classes)?;
        Ok(Resnet { conv1, bn1, pooled_stem: false, blocks, fc })
    }

    pub(in crate::model) fn stem(&self, images: &Tensor, pass: &Pass) -> Result<Tensor> {
        let x = self.bn1.activated(&self.conv1.forward(images)?, None, Activation::Relu, pass)?;
        if self.pooled_stem { max_pool(&x, 3, 2, 1) } else { Ok(x) }
    }

    pub(in crate::model) fn head(&self, x: &Tensor) -> Result<Tensor> {
        self.fc.forward(&global_average(x)?)
    }
}
