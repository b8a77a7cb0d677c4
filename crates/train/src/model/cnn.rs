//! Two convolutions and a hidden layer: enough for handwritten digits.

use tch::Tensor;

use super::layer::{Conv, Linear, max_pool, relu};
use super::{ImageShape, Pass, Weights};
use crate::torch::Result;

const HIDDEN: i64 = 128;

/// Share of the hidden units that a training step leaves out (Srivastava et al. 2014).
const DROPOUT: f64 = 0.25;

pub(super) struct Cnn {
    conv1: Conv,
    conv2: Conv,
    fc1: Linear,
    fc2: Linear,
}

impl Cnn {
    pub(super) fn new(weights: &mut Weights, picture: ImageShape, classes: i64) -> Result<Cnn> {
        let pooled = (picture.height / 2) * (picture.width / 2);
        Ok(Cnn {
            conv1: Conv::with_bias(weights, "conv1", [picture.channels, 32], 3)?,
            conv2: Conv::with_bias(weights, "conv2", [32, 64], 3)?,
            fc1: Linear::new(weights, "fc1", 64 * pooled, HIDDEN)?,
            fc2: Linear::new(weights, "fc2", HIDDEN, classes)?,
        })
    }

    pub(super) fn stem(&self, images: &Tensor) -> Result<Tensor> {
        let x = relu(self.conv1.forward(images)?)?;
        let x = relu(self.conv2.forward(&x)?)?;
        let x = max_pool(&x, 2, 2, 0)?.f_flatten(1, -1)?;
        relu(self.fc1.forward(&x)?)
    }

    pub(super) fn head(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.fc2.forward(&pass.apply_dropout(x, DROPOUT)?)
    }
}
