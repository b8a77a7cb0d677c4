//! The vision transformer: patches of 16×16 pixels as tokens, and a class token whose output the head classifies
//! (Dosovitskiy et al. 2020). Tensor for tensor torchvision's `VisionTransformer`, of which `vit_s_16` has 12 layers of
//! width 384 and 6 heads.

use std::sync::Arc;

use tch::{Kind, Tensor};

use crate::model::block::ModelBlock;
use crate::model::block::vit::{EPS, VitBlock};
use crate::model::nn::layer::{LayerNorm, Linear};
use crate::model::nn::{Pass, Weights};
use crate::model::shape::ImageShape;
use crate::torch::Result;

/// Configuration of a vision transformer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) struct Size {
    /// Height and width of a patch, in pixels.
    pub patch: i64,
    pub layers: i64,
    pub width: i64,
    pub heads: i64,
}

pub(in crate::model) struct Vit {
    patches: Tensor,
    patches_bias: Tensor,
    class_token: Tensor,
    positions: Tensor,
    patch: i64,
    pub(in crate::model) blocks: Vec<Arc<ModelBlock>>,
    norm: LayerNorm,
    head: Linear,
    classes: i64,
}

impl Vit {
    pub(in crate::model) fn new(weights: &mut Weights, size: Size, image: ImageShape, classes: i64) -> Result<Vit> {
        let Size { patch, layers, width, heads } = size;
        let tokens = 1 + (image.height / patch) * (image.width / patch);
        let deviation = 1.0 / ((image.channels * patch * patch) as f64).sqrt();
        let window = [width, image.channels, patch, patch];
        weights.mark_cast("conv_proj.weight".into());
        let patches = weights.normal("conv_proj.weight".into(), &window, deviation)?;
        let patches_bias = weights.zeros("conv_proj.bias".into(), &[width])?;
        let class_token = weights.zeros("class_token".into(), &[1, 1, width])?;
        let positions = weights.normal("encoder.pos_embedding".into(), &[1, tokens, width], 0.02)?;
        let mut blocks = Vec::new();
        for layer in 0..layers {
            let name = format!("encoder.layers.encoder_layer_{layer}");
            blocks.push(weights.block(|weights| Ok(ModelBlock::Vision(VitBlock::new(weights, &name, width, heads)?)))?);
        }
        let norm = LayerNorm::new(weights, "encoder.ln", width, EPS)?;
        // Zeros, as in torchvision: at first all classes are equally likely.
        let head = Linear::normal(weights, "heads.head", [width, classes], 0.0)?;
        Ok(Vit { patches, patches_bias, class_token, positions, patch, blocks, norm, head, classes })
    }

    pub(in crate::model) fn stem(&self, images: &Tensor) -> Result<Tensor> {
        let x = images.f_conv2d(&self.patches, Some(&self.patches_bias), [self.patch; 2], [0; 2], [1; 2], 1)?;
        let x = x.f_flatten(2, 3)?.f_transpose(1, 2)?;
        let token = self.class_token.f_expand_as(&x.f_narrow(1, 0, 1)?)?;
        // Under autocast the convolution's output is in 16 bits and the class token is not.
        let x = Tensor::f_cat(&[token, x.f_to_kind(Kind::Float)?], 1)?;
        Ok(x.f_add(&self.positions)?)
    }

    pub(in crate::model) fn head(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.head.logits(&self.norm.forward(x)?.f_select(1, 0)?, self.classes, pass)
    }
}
