//! The architectures, each a plain struct of layers with a `forward` that reads like its paper.
//!
//! Model code knows nothing of devices in the plural, optimisers or checkpoints. Every tensor has a name; the names are
//! torchvision's where torchvision has the architecture, so that the exported file loads there. [`Network`] is what
//! the rest of the trainer sees. Read next: [`layer`], then [`mod@resnet18`].

mod cnn;
pub mod layer;
mod mlp;
mod resnet18;
mod resnet20;
mod weights;

use domain::train::{MemoryFormat, Model};
use tch::{Device, Tensor};

use crate::torch::{self, Result};

pub use weights::{Named, Weights};

/// What goes into a network and what comes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Values of a pixel.
    pub channels: i64,
    /// Height of a picture.
    pub height: i64,
    /// Width of a picture.
    pub width: i64,
    /// Classes to tell apart.
    pub classes: i64,
}

/// A network with its weights.
pub struct Network {
    layers: Layers,
    weights: Weights,
}

enum Layers {
    Mlp(mlp::Mlp),
    Cnn(cnn::Cnn),
    Resnet20(resnet20::Resnet20),
    Resnet18(resnet18::Resnet18),
}

impl Network {
    /// A freshly initialised network; the same `seed` gives the same weights on every device.
    pub fn new(model: Model, shape: Shape, seed: u64, device: Device, format: MemoryFormat) -> Result<Network> {
        torch::seed(seed)?;
        let mut weights = Weights::new(device, format);
        let layers = match model {
            Model::Mlp => Layers::Mlp(mlp::Mlp::new(&mut weights, shape)?),
            Model::Cnn => Layers::Cnn(cnn::Cnn::new(&mut weights, shape)?),
            Model::Resnet20 => Layers::Resnet20(resnet20::Resnet20::new(&mut weights, shape)?),
            Model::Resnet18 => Layers::Resnet18(resnet18::Resnet18::new(&mut weights, shape)?),
        };
        weights.sort();
        Ok(Network { layers, weights })
    }

    /// Scores of every class, `samples × classes`, for pictures of `samples × channels × height × width`.
    ///
    /// With `train`, batch normalisation uses the batch's statistics and updates the running ones, and dropout drops.
    pub fn forward(&self, images: &Tensor, train: bool) -> Result<Tensor> {
        match &self.layers {
            Layers::Mlp(layers) => layers.forward(images),
            Layers::Cnn(layers) => layers.forward(images, train),
            Layers::Resnet20(layers) => layers.forward(images, train),
            Layers::Resnet18(layers) => layers.forward(images, train),
        }
    }

    /// Everything that is trained or kept, by name.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }
}

#[cfg(test)]
mod tests;
