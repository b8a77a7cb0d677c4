//! The architectures, each a plain struct of layers with a `forward` that reads like its paper.
//!
//! Model code knows nothing of devices in the plural, optimisers or checkpoints. Every tensor has a name; the names are
//! torchvision's where torchvision has the architecture, so that the exported file loads there. [`Network`] is what
//! the rest of the trainer sees: a stem, blocks and a head. Read next: `resnet`, then [`layer`]; `family` lists all.

mod attention;
mod block;
mod cnn;
mod family;
mod inverted;
pub mod layer;
mod mlp;
mod mobilenet;
mod residual;
mod resnet;
mod vit;
mod weights;

use std::sync::Arc;

use domain::architecture::Architecture;
use domain::train::{MemoryFormat, Model};
use tch::{Device, Tensor};

use family::Family;

use crate::torch::{self, Result};

pub use block::{Block, Pass};
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
    layers: Family,
    weights: Weights,
}

impl Network {
    /// A freshly initialised network; the same `seed` gives the same weights on every device.
    pub fn new(model: Model, shape: Shape, seed: u64, device: Device, format: MemoryFormat) -> Result<Network> {
        torch::seed(seed)?;
        let mut weights = Weights::new(device, format);
        let layers = Family::new(&mut weights, Architecture::of(model), shape)?;
        weights.sort();
        Ok(Network { layers, weights })
    }

    /// Scores of every class, `samples × classes`, for pictures of `samples × channels × height × width`.
    ///
    /// With `train`, batch normalisation uses the batch's statistics and updates the running ones, and dropout drops.
    pub fn forward(&self, images: &Tensor, train: bool) -> Result<Tensor> {
        let pass = Pass::new(train);
        self.forward_through(images, &pass, |block, x| block.forward(x, &pass))
    }

    /// The same, where `through` does the work of each block in turn, by itself or around it.
    pub fn forward_through(
        &self,
        images: &Tensor,
        pass: &Pass,
        mut through: impl FnMut(&Arc<Block>, &Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let mut x = self.layers.stem(images, pass)?;
        for block in self.layers.blocks() {
            x = through(block, &x)?;
        }
        self.layers.head(&x, pass)
    }

    /// Beginnings of the names of the tensors that know the classes: with other classes they are other tensors.
    pub fn head_names(&self) -> &'static [&'static str] {
        self.layers.head_names()
    }

    /// Everything that is trained or kept, by name.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }
}

#[cfg(test)]
mod tests;
