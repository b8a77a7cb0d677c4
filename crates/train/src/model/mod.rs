//! The architectures, each a plain struct of layers with a `forward` that reads like its paper.
//!
//! Model code knows nothing of devices in the plural, optimisers or checkpoints. Every tensor has a name; the names are
//! torchvision's where torchvision has the architecture, so that the exported file loads there. [`Network`] is what
//! the rest of the trainer sees: a stem, blocks and a head. Read next: `resnet`, then [`layer`]; `family` lists all.

mod attention;
mod bert;
mod block;
mod cnn;
mod config;
mod family;
mod gpt;
mod inverted;
pub mod layer;
mod mlp;
mod mobilenet;
mod module;
mod parts;
mod residual;
mod resnet;
mod vit;
mod weights;
mod yolo;

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use domain::architecture::Architecture;
use domain::rank::Sample;
use domain::train::{MemoryFormat, Model};
use tch::{Device, Tensor};

use family::Family;

use crate::torch::group::ProcessGroup;
use crate::torch::{self, Result};

pub use block::{BatchNormMode, Block, Pass};
pub use config::config;
pub use module::fingerprint;
pub use parts::TensorParallel;
pub use weights::{ConvNormPair, Named, Weights};

/// What goes into a network and what comes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelShape {
    /// What goes in.
    pub input: InputShape,
    /// What comes out.
    pub output: OutputShape,
}

/// What goes into a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputShape {
    /// Pictures of one size.
    Image(ImageShape),
    /// Rows of words.
    Text(TextShape),
}

/// The form of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageShape {
    /// Values of a pixel.
    pub channels: i64,
    /// Pixels from top to bottom.
    pub height: i64,
    /// Pixels from left to right.
    pub width: i64,
}

/// The form of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextShape {
    /// Different words.
    pub vocabulary: i64,
    /// Words of the longest row.
    pub length: i64,
}

/// What comes out of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputShape {
    /// A score of each class, of which there are so many.
    Classes(i64),
    /// At each place a score of each word.
    Tokens,
    /// Boxes of objects of so many classes.
    Boxes(i64),
}

impl ModelShape {
    /// Pictures of `[channels, height, width]`, to be told apart into classes.
    pub fn images([channels, height, width]: [i64; 3], classes: i64) -> ModelShape {
        ModelShape {
            input: InputShape::Image(ImageShape { channels, height, width }),
            output: OutputShape::Classes(classes),
        }
    }

    /// One sample, as others are told of it.
    pub fn sample(&self) -> Sample {
        let number = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
        match self.input {
            InputShape::Image(ImageShape { channels, height, width }) => {
                Sample::Picture { channels: number(channels), height: number(height), width: number(width) }
            }
            InputShape::Text(TextShape { vocabulary, length }) => {
                Sample::Text { vocabulary: number(vocabulary), length: number(length) }
            }
        }
    }
}

/// A network with its weights.
pub struct Network {
    layers: Family,
    output: OutputShape,
    weights: Weights,
    dropout: Option<f64>,
    parts: Option<Rc<TensorParallel>>,
}

impl Network {
    /// A freshly initialised network; the same `seed` gives the same weights on every device.
    pub fn new(model: Model, shape: ModelShape, seed: u64, device: Device, format: MemoryFormat) -> Result<Network> {
        Network::over(None, model, shape, seed, device, format)
    }

    /// The same, whose batch normalisation takes its statistics over the samples of all ranks of a group.
    pub fn over(
        moments: Option<Rc<ProcessGroup>>,
        model: Model,
        shape: ModelShape,
        seed: u64,
        device: Device,
        format: MemoryFormat,
    ) -> Result<Network> {
        torch::seed(seed)?;
        let mut weights = Weights::new(device, format, moments);
        let layers = Family::new(&mut weights, Architecture::of(model), shape)?;
        weights.sort();
        Ok(Network { layers, output: shape.output, weights, dropout: None, parts: None })
    }

    /// From now on, dropout leaves this share of values out instead of the model's own.
    pub fn apply_dropout(&mut self, share: Option<f64>) {
        self.dropout = share;
    }

    /// From now on, the layers work together with those of other ranks, each with its part of the weights.
    pub fn divide(&mut self, parts: Rc<TensorParallel>) {
        self.parts = Some(parts);
    }

    /// A network that the user has built, from the TorchScript file `path`; `seed` is of what its dropout draws.
    ///
    /// # Errors
    /// When the file is no module, or one that cannot be trained.
    pub fn of_module(
        path: &Path,
        shape: ModelShape,
        seed: u64,
        device: Device,
        format: MemoryFormat,
    ) -> std::result::Result<Network, crate::Error> {
        torch::seed(seed)?;
        let mut weights = Weights::new(device, format, None);
        let layers = Family::Module(module::UserModule::open(&mut weights, path)?);
        weights.sort();
        Ok(Network { layers, output: shape.output, weights, dropout: None, parts: None })
    }

    /// Writes a network that the user has built as it was read, with its present weights; false of one built here.
    pub fn save_module(&self, path: &Path) -> Result<bool> {
        let Family::Module(module) = &self.layers else { return Ok(false) };
        module.save(path).map(|()| true)
    }

    /// Scores: `samples × classes`, or `samples × length × vocabulary` where words come out; of a detector what
    /// [`crate::detect`] reads.
    ///
    /// `values` are pictures, `samples × channels × height × width`, or numbers of words, `samples × length`, int64.
    pub fn forward(&self, values: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.forward_through(values, pass, |block, x, pass| block.forward(x, pass))
    }

    /// The same, where `through` does the work of each block in turn, by itself or around it, with the pass that it is
    /// given.
    pub fn forward_through(
        &self,
        values: &Tensor,
        pass: &Pass,
        mut through: impl FnMut(&Arc<Block>, &Tensor, &Pass) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let pass = &Pass { dropout: self.dropout, parts: self.parts.clone(), ..pass.clone() };
        let mut x = self.layers.stem(values, pass)?;
        for block in self.layers.blocks() {
            x = through(block, &x, pass)?;
        }
        self.layers.head(&x, pass)
    }

    /// How many blocks it has.
    pub fn blocks(&self) -> usize {
        self.layers.blocks().len()
    }

    /// What comes out.
    pub fn output(&self) -> OutputShape {
        self.output
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
