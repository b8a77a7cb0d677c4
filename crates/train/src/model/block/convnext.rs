//! The block of ConvNeXt: a depthwise convolution, a normalisation and two linear layers over the channels of each pixel
//! (Liu et al. 2022, "A ConvNet for the 2020s").

use tch::{Device, Kind, Tensor};

use crate::model::nn::layer::{LayerNorm, Linear};
use crate::model::nn::stochastic_depth::stochastic_depth;
use crate::model::nn::{Pass, Weights};
use crate::torch::Result;

/// Added to the variance of every layer normalisation.
const EPS: f64 = 1e-6;
/// Deviation of the first weights.
const DEVIATION: f64 = 0.02;
/// What a block's branch is multiplied by at first.
const LAYER_SCALE: f64 = 1e-6;
/// Height and width of the depthwise convolution.
const KERNEL: i64 = 7;

/// A linear layer as torchvision initialises it here.
pub(in crate::model) fn linear(weights: &mut Weights, name: &str, channels: [i64; 2]) -> Result<Linear> {
    Linear::normal(weights, name, channels, DEVIATION)
}

/// Normalisation of each pixel over its channels: torchvision's `LayerNorm2d`.
#[derive(Debug)]
pub(in crate::model) struct PixelNorm(LayerNorm);

impl PixelNorm {
    pub(in crate::model) fn new(weights: &mut Weights, name: &str, channels: i64) -> Result<PixelNorm> {
        Ok(PixelNorm(LayerNorm::new(weights, name, channels, EPS)?))
    }

    pub(in crate::model) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(self.0.forward(&x.f_permute([0, 2, 3, 1])?)?.f_permute([0, 3, 1, 2])?)
    }
}

/// A convolution whose windows stand side by side.
#[derive(Debug)]
pub(in crate::model) struct Patches {
    weight: Tensor,
    bias: Tensor,
    kernel: i64,
}

impl Patches {
    pub(in crate::model) fn new(
        weights: &mut Weights,
        name: &str,
        [inputs, outputs]: [i64; 2],
        kernel: i64,
    ) -> Result<Patches> {
        weights.mark_cast(format!("{name}.weight"));
        let weight = weights.normal(format!("{name}.weight"), &[outputs, inputs, kernel, kernel], DEVIATION)?;
        Ok(Patches { weight, bias: weights.zeros(format!("{name}.bias"), &[outputs])?, kernel })
    }

    pub(in crate::model) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.f_conv2d(&self.weight, Some(&self.bias), [self.kernel; 2], [0; 2], [1; 2], 1)?)
    }
}

/// What stands before the blocks of a stage after the first: half the height and width.
#[derive(Debug)]
struct Downsample {
    norm: PixelNorm,
    patches: Patches,
}

/// One block, after the reduction to its stage's size if it is the first one there.
#[derive(Debug)]
pub struct ConvnextBlock {
    downsample: Option<Downsample>,
    depthwise: Tensor,
    depthwise_bias: Tensor,
    norm: LayerNorm,
    first: Linear,
    second: Linear,
    layer_scale: Tensor,
    /// Probability that the branch is left out.
    drop: f64,
}

impl ConvnextBlock {
    /// `name` is that of the block, and `from` the name and the channels of the reduction before it.
    pub(in crate::model) fn new(
        weights: &mut Weights,
        name: &str,
        width: i64,
        drop: f64,
        from: Option<(String, i64)>,
    ) -> Result<ConvnextBlock> {
        let downsample = match from {
            Some((before, channels)) => Some(Downsample {
                norm: PixelNorm::new(weights, &format!("{before}.0"), channels)?,
                patches: Patches::new(weights, &format!("{before}.1"), [channels, width], 2)?,
            }),
            None => None,
        };
        weights.mark_cast(format!("{name}.block.0.weight"));
        let depthwise = weights.normal(format!("{name}.block.0.weight"), &[width, 1, KERNEL, KERNEL], DEVIATION)?;
        let depthwise_bias = weights.zeros(format!("{name}.block.0.bias"), &[width])?;
        let norm = LayerNorm::new(weights, &format!("{name}.block.2"), width, EPS)?;
        let first = linear(weights, &format!("{name}.block.3"), [width, 4 * width])?;
        let second = linear(weights, &format!("{name}.block.5"), [4 * width, width])?;
        let scale = Tensor::f_full([width, 1, 1], LAYER_SCALE, (Kind::Float, Device::Cpu))?;
        let layer_scale = weights.parameter(format!("{name}.layer_scale"), scale)?;
        Ok(ConvnextBlock { downsample, depthwise, depthwise_bias, norm, first, second, layer_scale, drop })
    }

    pub(in crate::model) fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let x = match &self.downsample {
            Some(Downsample { norm, patches }) => patches.forward(&norm.forward(x)?)?,
            None => x.shallow_clone(),
        };
        let (width, padding) = (self.depthwise.size()[0], KERNEL / 2);
        let mixed = x.f_conv2d(&self.depthwise, Some(&self.depthwise_bias), [1; 2], [padding; 2], [1; 2], width)?;
        let pixels = self.norm.forward(&mixed.f_permute([0, 2, 3, 1])?)?;
        let hidden = self.first.forward(&pixels)?.f_gelu("none")?;
        let branch = self.second.forward(&hidden)?.f_permute([0, 3, 1, 2])?;
        let branch = stochastic_depth(self.layer_scale.f_mul(&branch)?, self.drop, pass)?;
        Ok(branch.f_add(&x)?)
    }
}
