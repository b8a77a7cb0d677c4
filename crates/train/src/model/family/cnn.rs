//! Two convolutions and a hidden layer: enough for handwritten digits.

use tch::Tensor;

use crate::model::nn::layer::{Conv, Linear, max_pool, relu};
use crate::model::nn::{Pass, Weights};
use crate::model::shape::ImageShape;
use crate::torch::Result;

const HIDDEN: i64 = 128;

/// Dropout probability of the hidden units (Srivastava et al. 2014).
const DROPOUT: f64 = 0.25;

pub(in crate::model) struct Cnn {
    conv1: Conv,
    conv2: Conv,
    fc1: Linear,
    fc2: Linear,
}

impl Cnn {
    pub(in crate::model) fn new(weights: &mut Weights, image: ImageShape, classes: i64) -> Result<Cnn> {
        let pooled = (image.height / 2) * (image.width / 2);
        Ok(Cnn {
            conv1: Conv::with_bias(weights, "conv1", [image.channels, 32], 3)?,
            conv2: Conv::with_bias(weights, "conv2", [32, 64], 3)?,
            fc1: Linear::new(weights, "fc1", 64 * pooled, HIDDEN)?,
            fc2: Linear::new(weights, "fc2", HIDDEN, classes)?,
        })
    }

    pub(in crate::model) fn stem(&self, images: &Tensor) -> Result<Tensor> {
        let x = relu(self.conv1.forward(images)?)?;
        let x = relu(self.conv2.forward(&x)?)?;
        let x = max_pool(&x, 2, 2, 0)?.f_flatten(1, -1)?;
        relu(self.fc1.forward(&x)?)
    }

    pub(in crate::model) fn head(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.fc2.forward(&pass.apply_dropout(x, DROPOUT)?)
    }
}
