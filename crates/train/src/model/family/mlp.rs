//! Two hidden layers over the flattened image.

use tch::Tensor;

use crate::model::nn::Weights;
use crate::model::nn::layer::{Linear, relu};
use crate::model::shape::ImageShape;
use crate::torch::Result;

const HIDDEN: i64 = 128;

pub(in crate::model) struct Mlp {
    fc1: Linear,
    fc2: Linear,
    fc3: Linear,
}

impl Mlp {
    pub(in crate::model) fn new(weights: &mut Weights, image: ImageShape, classes: i64) -> Result<Mlp> {
        Ok(Mlp {
            fc1: Linear::new(weights, "fc1", image.channels * image.height * image.width, HIDDEN)?,
            fc2: Linear::new(weights, "fc2", HIDDEN, HIDDEN)?,
            fc3: Linear::new(weights, "fc3", HIDDEN, classes)?,
        })
    }

    pub(in crate::model) fn stem(&self, images: &Tensor) -> Result<Tensor> {
        let x = images.f_flatten(1, -1)?;
        let x = relu(self.fc1.forward(&x)?)?;
        relu(self.fc2.forward(&x)?)
    }

    pub(in crate::model) fn head(&self, x: &Tensor) -> Result<Tensor> {
        self.fc3.forward(x)
    }
}
