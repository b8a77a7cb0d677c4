//! The parts that a YOLO detector repeats: its convolution unit, its C2f module and its stage.

use tch::Tensor;

use crate::model::nn::layer::{Activation, BatchNorm, Conv, ConvWindow};
use crate::model::nn::{Pass, Weights};
use crate::torch::Result;

/// A convolution without bias, normalised, then `x · sigmoid(x)`.
#[derive(Debug)]
pub(in crate::model) struct ConvBnSilu {
    conv: Conv,
    bn: BatchNorm,
}

/// A convolution that halves height and width, then a C2f module.
#[derive(Debug)]
pub struct YoloStage {
    halve: ConvBnSilu,
    part: C2f,
}

/// A cross-stage partial module: half of the channels go through bottlenecks one after another, and all of their
/// outputs are concatenated.
#[derive(Debug)]
pub(in crate::model) struct C2f {
    cv1: ConvBnSilu,
    cv2: ConvBnSilu,
    units: Vec<[ConvBnSilu; 2]>,
    /// Whether each bottleneck adds its input to its output.
    adds: bool,
    half: i64,
}

impl ConvBnSilu {
    pub(in crate::model) fn new(
        weights: &mut Weights,
        name: &str,
        channels: [i64; 2],
        window: ConvWindow,
    ) -> Result<ConvBnSilu> {
        Ok(ConvBnSilu {
            conv: Conv::plain(weights, &format!("{name}.conv"), channels, window)?,
            // Momentum and epsilon of the published networks.
            bn: BatchNorm::with(weights, &format!("{name}.bn"), channels[1], [0.03, 1e-3])?,
        })
    }

    pub(in crate::model) fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.bn.activated(&self.conv.forward(x)?, None, Activation::Silu, pass)
    }
}

impl YoloStage {
    pub(in crate::model) fn new(
        weights: &mut Weights,
        number: i64,
        channels: [i64; 2],
        repeats: i64,
    ) -> Result<YoloStage> {
        let outputs = [channels[1]; 2];
        Ok(YoloStage {
            halve: ConvBnSilu::new(weights, &format!("model.{number}"), channels, ConvWindow::new(3, 2))?,
            part: C2f::new(weights, &format!("model.{}", number + 1), outputs, repeats, true)?,
        })
    }

    pub(in crate::model) fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.part.forward(&self.halve.forward(x, pass)?, pass)
    }
}

impl C2f {
    pub(in crate::model) fn new(
        weights: &mut Weights,
        name: &str,
        [inputs, outputs]: [i64; 2],
        repeats: i64,
        adds: bool,
    ) -> Result<C2f> {
        let half = outputs / 2;
        let (one, three) = (ConvWindow::new(1, 1), ConvWindow::new(3, 1));
        let mut units = Vec::new();
        for place in 0..repeats {
            units.push([
                ConvBnSilu::new(weights, &format!("{name}.m.{place}.cv1"), [half, half], three)?,
                ConvBnSilu::new(weights, &format!("{name}.m.{place}.cv2"), [half, half], three)?,
            ]);
        }
        Ok(C2f {
            cv1: ConvBnSilu::new(weights, &format!("{name}.cv1"), [inputs, 2 * half], one)?,
            cv2: ConvBnSilu::new(weights, &format!("{name}.cv2"), [(2 + repeats) * half, outputs], one)?,
            units,
            adds,
            half,
        })
    }

    pub(in crate::model) fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let both = self.cv1.forward(x, pass)?;
        let mut last = both.f_narrow(1, self.half, self.half)?;
        let mut all = vec![both];
        for [first, second] in &self.units {
            let out = second.forward(&first.forward(&last, pass)?, pass)?;
            last = if self.adds { out.f_add(&last)? } else { out };
            all.push(last.shallow_clone());
        }
        self.cv2.forward(&Tensor::f_cat(&all, 1)?, pass)
    }
}
