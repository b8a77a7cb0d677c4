//! ConvNeXt: convolutions arranged as transformers are, tensor for tensor torchvision's (Liu et al. 2022).

use std::sync::Arc;

use tch::Tensor;

use crate::model::block::ModelBlock;
use crate::model::block::convnext::{ConvnextBlock, Patches, PixelNorm, linear};
use crate::model::nn::Weights;
use crate::model::nn::layer::Linear;
use crate::model::shape::ImageShape;
use crate::torch::Result;

/// What sets one ConvNeXt apart from another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::model) struct Size {
    /// Blocks of each stage.
    pub depths: [usize; 4],
    /// Channels of each stage.
    pub widths: [i64; 4],
    /// Probability that the last block's branch is left out.
    pub drop: f64,
}

/// Height and width of the patches of the stem.
const PATCH: i64 = 4;

pub(in crate::model) struct Convnext {
    patches: Patches,
    patches_norm: PixelNorm,
    pub(in crate::model) blocks: Vec<Arc<ModelBlock>>,
    norm: PixelNorm,
    head: Linear,
}

impl Convnext {
    pub(in crate::model) fn new(
        weights: &mut Weights,
        size: Size,
        image: ImageShape,
        classes: i64,
    ) -> Result<Convnext> {
        let Size { depths, widths, drop } = size;
        let patches = Patches::new(weights, "features.0.0", [image.channels, widths[0]], PATCH)?;
        let patches_norm = PixelNorm::new(weights, "features.0.1", widths[0])?;
        let last = (depths.iter().sum::<usize>().max(2) - 1) as f64;
        let mut blocks = Vec::new();
        for (stage, (depth, width)) in depths.into_iter().zip(widths).enumerate() {
            for place in 0..depth {
                let name = format!("features.{}.{place}", 2 * stage + 1);
                let before = (stage > 0 && place == 0).then(|| (format!("features.{}", 2 * stage), widths[stage - 1]));
                let drop = drop * blocks.len() as f64 / last;
                let block = |weights: &mut Weights| ConvnextBlock::new(weights, &name, width, drop, before);
                blocks.push(weights.block(|weights| Ok(ModelBlock::Convnext(block(weights)?)))?);
            }
        }
        let norm = PixelNorm::new(weights, "classifier.0", widths[3])?;
        let head = linear(weights, "classifier.2", [widths[3], classes])?;
        Ok(Convnext { patches, patches_norm, blocks, norm, head })
    }

    pub(in crate::model) fn stem(&self, images: &Tensor) -> Result<Tensor> {
        self.patches_norm.forward(&self.patches.forward(images)?)
    }

    pub(in crate::model) fn head(&self, x: &Tensor) -> Result<Tensor> {
        self.head.forward(&self.norm.forward(&x.f_adaptive_avg_pool2d([1, 1])?)?.f_flatten(1, -1)?)
    }
}
