//! The inverted residual block: a 1×1 expansion, a depthwise convolution and a 1×1 projection without activation; input
//! and output are added where they have the same shape (Sandler et al. 2018).

use tch::Tensor;

use crate::model::nn::layer::{Activation, BatchNorm, Conv, ConvWindow, relu};
use crate::model::nn::stochastic_depth::stochastic_depth;
use crate::model::nn::{Pass, Weights};
use crate::torch::Result;

/// A convolution, its normalisation and an activation: `0` and `1` of torchvision's `Conv2dNormActivation`.
#[derive(Debug)]
pub(in crate::model) struct ConvNormActivation {
    conv: Conv,
    norm: BatchNorm,
    activation: Activation,
}

impl ConvNormActivation {
    pub(in crate::model) fn new(
        weights: &mut Weights,
        name: &str,
        channels: [i64; 2],
        window: ConvWindow,
        norm: [f64; 2],
        activation: Activation,
    ) -> Result<ConvNormActivation> {
        Ok(ConvNormActivation {
            conv: Conv::residual(weights, &format!("{name}.0"), channels, window)?,
            norm: BatchNorm::with(weights, &format!("{name}.1"), channels[1], norm)?,
            activation,
        })
    }

    pub(in crate::model) fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.norm.activated(&self.conv.forward(x)?, None, self.activation, pass)
    }
}

/// Squeeze-and-excitation (Hu et al. 2017).
#[derive(Debug)]
struct Squeeze {
    fc1: Conv,
    fc2: Conv,
    gate: Gate,
}

/// The functions after the two layers of a squeeze-and-excitation.
#[derive(Debug, Clone, Copy)]
enum Gate {
    /// ReLU, and a sigmoid of straight lines.
    Hard,
    /// SiLU, and a sigmoid.
    Smooth,
}

impl Squeeze {
    fn new(weights: &mut Weights, name: &str, channels: i64, squeezed: i64, gate: Gate) -> Result<Squeeze> {
        Ok(Squeeze {
            fc1: Conv::pointwise(weights, &format!("{name}.fc1"), [channels, squeezed])?,
            fc2: Conv::pointwise(weights, &format!("{name}.fc2"), [squeezed, channels])?,
            gate,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let squeezed = self.fc1.forward(&x.f_adaptive_avg_pool2d([1, 1])?)?;
        match self.gate {
            Gate::Hard => Ok(self.fc2.forward(&relu(squeezed)?)?.f_hardsigmoid()?.f_mul(x)?),
            Gate::Smooth => Ok(self.fc2.forward(&squeezed.f_silu()?)?.f_sigmoid()?.f_mul(x)?),
        }
    }
}

/// The nearest multiple of 8, at least 8 and not more than a tenth below `channels`.
fn divisible(channels: i64) -> i64 {
    let near = ((channels + 4) / 8 * 8).max(8);
    if 10 * near < 9 * channels { near + 8 } else { near }
}

/// How one block is built.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) struct InvertedConfig {
    pub inputs: i64,
    pub expanded: i64,
    pub outputs: i64,
    /// Of the depthwise convolution; it gets as many groups as there are channels.
    pub window: ConvWindow,
    pub squeezes: bool,
    pub activation: Activation,
    pub norm: [f64; 2],
}

/// One block of a mobile network.
#[derive(Debug)]
pub struct InvertedResidual {
    widen: Option<ConvNormActivation>,
    filter: ConvNormActivation,
    squeeze: Option<Squeeze>,
    narrow: ConvNormActivation,
    adds: bool,
    /// Probability that the branch is left out, where it is added.
    drop: f64,
}

impl InvertedResidual {
    /// With the names of `mobilenet_v2`, where the last convolution and normalisation stand side by side.
    pub(in crate::model) fn v2(weights: &mut Weights, name: &str, plan: InvertedConfig) -> Result<InvertedResidual> {
        let (widen, filter) = InvertedResidual::front(weights, name, plan)?;
        let place = 1 + i64::from(widen.is_some());
        let channels = [plan.expanded, plan.outputs];
        let narrow = ConvNormActivation {
            conv: Conv::residual(weights, &format!("{name}.{place}"), channels, ConvWindow::new(1, 1))?,
            norm: BatchNorm::with(weights, &format!("{name}.{}", place + 1), plan.outputs, plan.norm)?,
            activation: Activation::None,
        };
        Ok(InvertedResidual { widen, filter, squeeze: None, narrow, adds: plan.adds(), drop: 0.0 })
    }

    /// With the names of `mobilenet_v3`.
    pub(in crate::model) fn v3(weights: &mut Weights, name: &str, plan: InvertedConfig) -> Result<InvertedResidual> {
        InvertedResidual::squeezed(weights, name, plan, divisible(plan.expanded / 4), Gate::Hard)
    }

    /// With the names of `efficientnet_b0`, whose branch is left out with probability `drop`.
    pub(in crate::model) fn efficient(
        weights: &mut Weights,
        name: &str,
        plan: InvertedConfig,
        drop: f64,
    ) -> Result<InvertedResidual> {
        let squeezed = (plan.inputs / 4).max(1);
        Ok(InvertedResidual { drop, ..InvertedResidual::squeezed(weights, name, plan, squeezed, Gate::Smooth)? })
    }

    fn squeezed(
        weights: &mut Weights,
        name: &str,
        plan: InvertedConfig,
        squeezed: i64,
        gate: Gate,
    ) -> Result<InvertedResidual> {
        let (widen, filter) = InvertedResidual::front(weights, name, plan)?;
        let mut place = 1 + i64::from(widen.is_some());
        let mut squeeze = None;
        if plan.squeezes {
            squeeze = Some(Squeeze::new(weights, &format!("{name}.{place}"), plan.expanded, squeezed, gate)?);
            place += 1;
        }
        let (name, channels) = (format!("{name}.{place}"), [plan.expanded, plan.outputs]);
        let narrow =
            ConvNormActivation::new(weights, &name, channels, ConvWindow::new(1, 1), plan.norm, Activation::None)?;
        Ok(InvertedResidual { widen, filter, squeeze, narrow, adds: plan.adds(), drop: 0.0 })
    }

    /// The first 1×1 convolution, unless it would not widen, and the filter.
    fn front(
        weights: &mut Weights,
        name: &str,
        plan: InvertedConfig,
    ) -> Result<(Option<ConvNormActivation>, ConvNormActivation)> {
        let InvertedConfig { inputs, expanded, window, norm, activation, .. } = plan;
        let mut widen = None;
        if expanded != inputs {
            let channels = [inputs, expanded];
            widen = Some(ConvNormActivation::new(
                weights,
                &format!("{name}.0"),
                channels,
                ConvWindow::new(1, 1),
                norm,
                activation,
            )?);
        }
        let name = format!("{name}.{}", i64::from(widen.is_some()));
        let window = ConvWindow { groups: expanded, ..window };
        let filter = ConvNormActivation::new(weights, &name, [expanded, expanded], window, norm, activation)?;
        Ok((widen, filter))
    }

    pub(in crate::model) fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let mut out = match &self.widen {
            Some(widen) => widen.forward(x, pass)?,
            None => x.shallow_clone(),
        };
        out = self.filter.forward(&out, pass)?;
        if let Some(squeeze) = &self.squeeze {
            out = squeeze.forward(&out)?;
        }
        out = self.narrow.forward(&out, pass)?;
        Ok(if self.adds { stochastic_depth(out, self.drop, pass)?.f_add_(x)? } else { out })
    }
}

impl InvertedConfig {
    fn adds(&self) -> bool {
        self.window.stride == 1 && self.inputs == self.outputs
    }
}
