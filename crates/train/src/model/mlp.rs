//! Two hidden layers over the flattened picture.

use tch::Tensor;

use super::layer::{Linear, relu};
use super::{ImageShape, Weights};
use crate::torch::Result;

const HIDDEN: i64 = 128;

pub(super) struct Mlp {
    fc1: Linear,
    fc2: Linear,
    fc3: Linear,
}

impl Mlp {
    pub(super) fn new(weights: &mut Weights, picture: ImageShape, classes: i64) -> Result<Mlp> {
        Ok(Mlp {
            fc1: Linear::new(weights, "fc1", picture.channels * picture.height * picture.width, HIDDEN)?,
            fc2: Linear::new(weights, "fc2", HIDDEN, HIDDEN)?,
            fc3: Linear::new(weights, "fc3", HIDDEN, classes)?,
        })
    }

    pub(super) fn stem(&self, images: &Tensor) -> Result<Tensor> {
        let x = images.f_flatten(1, -1)?;
        let x = relu(self.fc1.forward(&x)?)?;
        relu(self.fc2.forward(&x)?)
    }

    pub(super) fn head(&self, x: &Tensor) -> Result<Tensor> {
        self.fc3.forward(x)
    }
}
