//! The vision transformer: patches of 16×16 pixels as words, and one more word that learns to say the class
//! (Dosovitskiy et al. 2020). Tensor for tensor torchvision's `VisionTransformer`, of which `vit_s_16` has 12 layers of
//! width 384 and 6 heads.

use std::sync::Arc;

use tch::{Kind, Tensor};

use super::attention::{Sight, attend};
use super::layer::{LayerNorm, Linear};
use super::{Block, ImageShape, Pass, Weights};
use crate::torch::{Error, Result};

const EPS: f64 = 1e-6;

/// What sets one vision transformer apart from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    /// Height and width of a patch.
    pub patch: i64,
    pub layers: i64,
    pub width: i64,
    pub heads: i64,
}

pub(super) struct Vit {
    patches: Tensor,
    patches_bias: Tensor,
    class_token: Tensor,
    positions: Tensor,
    patch: i64,
    pub(super) blocks: Vec<Arc<Block>>,
    norm: LayerNorm,
    head: Linear,
    classes: i64,
}

/// One layer: attention, then two linear layers, each after a normalisation and added to what came in.
#[derive(Debug)]
pub struct VitBlock {
    ln_1: LayerNorm,
    in_proj_weight: Tensor,
    in_proj_bias: Tensor,
    out_proj: Linear,
    ln_2: LayerNorm,
    first: Linear,
    second: Linear,
    head_width: i64,
}

impl Vit {
    pub(super) fn new(weights: &mut Weights, size: Size, picture: ImageShape, classes: i64) -> Result<Vit> {
        let Size { patch, layers, width, .. } = size;
        let words = 1 + (picture.height / patch) * (picture.width / patch);
        let deviation = 1.0 / ((picture.channels * patch * patch) as f64).sqrt();
        let window = [width, picture.channels, patch, patch];
        let patches = weights.normal("conv_proj.weight".into(), &window, deviation)?;
        let patches_bias = weights.zeros("conv_proj.bias".into(), &[width])?;
        let class_token = weights.zeros("class_token".into(), &[1, 1, width])?;
        let positions = weights.normal("encoder.pos_embedding".into(), &[1, words, width], 0.02)?;
        let mut blocks = Vec::new();
        for layer in 0..layers {
            let name = format!("encoder.layers.encoder_layer_{layer}");
            blocks.push(weights.block(|weights| Ok(Block::Vision(VitBlock::new(weights, &name, size)?)))?);
        }
        let norm = LayerNorm::new(weights, "encoder.ln", width, EPS)?;
        // Zeros, as torchvision begins: all classes are equally likely.
        let head = Linear::normal(weights, "heads.head", [width, classes], 0.0)?;
        Ok(Vit { patches, patches_bias, class_token, positions, patch, blocks, norm, head, classes })
    }

    pub(super) fn stem(&self, images: &Tensor) -> Result<Tensor> {
        let x = images.f_conv2d(&self.patches, Some(&self.patches_bias), [self.patch; 2], [0; 2], [1; 2], 1)?;
        let x = x.f_flatten(2, 3)?.f_transpose(1, 2)?;
        let token = self.class_token.f_expand([x.size()[0], -1, -1], false)?;
        // Under autocast the convolution's values are narrower than the token's.
        let x = Tensor::f_cat(&[token, x.f_to_kind(Kind::Float)?], 1)?;
        Ok(x.f_add(&self.positions)?)
    }

    pub(super) fn head(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.head.scores(&self.norm.forward(x)?.f_select(1, 0)?, self.classes, pass)
    }
}

impl VitBlock {
    fn new(weights: &mut Weights, name: &str, Size { width, heads, .. }: Size) -> Result<VitBlock> {
        let attention = format!("{name}.self_attention");
        Ok(VitBlock {
            ln_1: LayerNorm::new(weights, &format!("{name}.ln_1"), width, EPS)?,
            in_proj_weight: xavier(weights, format!("{attention}.in_proj_weight"), [width, 3 * width])?,
            in_proj_bias: weights.zeros(format!("{attention}.in_proj_bias"), &[3 * width])?,
            out_proj: Linear::of(
                // `nn.MultiheadAttention` draws it as `nn.Linear` does and sets only the bias.
                weights.uniform(
                    format!("{attention}.out_proj.weight"),
                    &[width, width],
                    1.0 / (width as f64).sqrt(),
                )?,
                weights.zeros(format!("{attention}.out_proj.bias"), &[width])?,
            ),
            ln_2: LayerNorm::new(weights, &format!("{name}.ln_2"), width, EPS)?,
            first: mlp(weights, &format!("{name}.mlp.0"), [width, 4 * width])?,
            second: mlp(weights, &format!("{name}.mlp.3"), [4 * width, width])?,
            head_width: width / heads,
        })
    }

    pub(super) fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let normal = pass.fork(&self.ln_1.forward(x)?)?;
        let all = normal.f_linear(&self.in_proj_weight, Some(&self.in_proj_bias))?.f_chunk(3, -1)?;
        let [queries, keys, values] = &all[..] else { return Err(Error::new("attention needs three parts")) };
        let seen = attend([queries, keys, values], self.head_width, Sight::All, 0.0)?;
        let x = self.out_proj.join(&seen, pass)?.f_add(x)?;
        let hidden = self.first.forward(&pass.fork(&self.ln_2.forward(&x)?)?)?.f_gelu("none")?;
        Ok(self.second.join(&hidden, pass)?.f_add(&x)?)
    }
}

/// A linear layer even by fan-in and fan-out (Glorot and Bengio 2010), its bias next to nothing.
fn mlp(weights: &mut Weights, name: &str, channels: [i64; 2]) -> Result<Linear> {
    let weight = xavier(weights, format!("{name}.weight"), channels)?;
    Ok(Linear::of(weight, weights.normal(format!("{name}.bias"), &[channels[1]], 1e-6)?))
}

fn xavier(weights: &mut Weights, name: String, [inputs, outputs]: [i64; 2]) -> Result<Tensor> {
    weights.uniform(name, &[outputs, inputs], (6.0 / (inputs + outputs) as f64).sqrt())
}
