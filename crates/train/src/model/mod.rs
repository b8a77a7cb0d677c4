//! The architectures, each a plain struct of layers with a `forward` that follows its paper.
//!
//! Model code is independent of distribution, optimizers and checkpoints. Every tensor has a name; the names are
//! torchvision's if it has the architecture, so that the exported file loads there. [`Network`] is the interface for
//! the rest of the trainer: a stem, blocks and a head. Each folder uses only those before it:
//!
//! ```text
//! shape, nn (layers and their weights) → block → family (the architectures) → Network
//! ```
//!
//! Read next: `family::resnet`, then [`nn::layer`].

mod block;
mod config;
mod family;
pub mod nn;
mod shape;

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use domain::architecture::Architecture;
use domain::train::{MemoryFormat, Model};
use tch::{Device, Tensor};

use family::Family;

use crate::torch::{self, Result};

pub use block::ModelBlock;
pub use config::config;
pub use family::{TokenHead, fingerprint};
pub use nn::{BatchNormMode, BuildHooks, ConvNormPair, Named, OnBlock, Pass, TensorParallel, Weights};
pub use shape::{ImageShape, InputShape, ModelShape, OutputShape, TextShape};

/// A network with its weights.
pub struct Network {
    layers: Family,
    output: OutputShape,
    weights: Weights,
    dropout: Option<f64>,
    tensor_parallel: Option<Rc<TensorParallel>>,
}

impl Network {
    /// A freshly initialised network; the same `seed` gives the same weights on every device.
    ///
    /// # Errors
    /// When `model` does not take `shape`, or libtorch fails.
    pub fn new(model: Model, shape: ModelShape, seed: u64, device: Device, format: MemoryFormat) -> Result<Network> {
        Network::among(BuildHooks::default(), model, shape, seed, device, format)
    }

    /// The same, in which other ranks have a part.
    ///
    /// # Errors
    /// As [`Network::new`].
    pub fn among(
        hooks: BuildHooks,
        model: Model,
        shape: ModelShape,
        seed: u64,
        device: Device,
        format: MemoryFormat,
    ) -> Result<Network> {
        torch::seed(seed)?;
        let mut weights = Weights::new(device, format, hooks);
        let layers = Family::new(&mut weights, Architecture::of(model), shape)?;
        weights.finish()?;
        Ok(Network { layers, output: shape.output, weights, dropout: None, tensor_parallel: None })
    }

    /// Sets the dropout probability of all layers; `None` leaves the architecture's own.
    pub fn set_dropout(&mut self, probability: Option<f64>) {
        self.dropout = probability;
    }

    /// From now on, each forward pass is computed together with the ranks that hold the other parts of the layers.
    pub fn set_tensor_parallel(&mut self, tensor_parallel: Rc<TensorParallel>) {
        self.tensor_parallel = Some(tensor_parallel);
    }

    /// The network of the TorchScript file `path`; `seed` seeds its dropout.
    ///
    /// # Errors
    /// When the file is not a TorchScript module, or its module cannot be trained.
    pub fn of_module(
        path: &Path,
        shape: ModelShape,
        seed: u64,
        device: Device,
        format: MemoryFormat,
    ) -> std::result::Result<Network, crate::Error> {
        torch::seed(seed)?;
        let mut weights = Weights::new(device, format, BuildHooks::default());
        let layers = Family::Module(family::UserModule::open(&mut weights, path)?);
        weights.finish()?;
        Ok(Network { layers, output: shape.output, weights, dropout: None, tensor_parallel: None })
    }

    /// Writes a TorchScript module as it was read, with its present weights; returns false for any other network.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save_module(&self, path: &Path) -> Result<bool> {
        let Family::Module(module) = &self.layers else { return Ok(false) };
        module.save(path).map(|()| true)
    }

    /// Logits: `samples × classes`, or `samples × length × vocabulary` of a language model; of a detector what
    /// [`crate::detect`] decodes.
    ///
    /// `values` are images, float32 `samples × channels × height × width`, or token ids, int64 `samples × length`.
    ///
    /// # Errors
    /// When libtorch, or an exchange between ranks that divide the layers, fails.
    pub fn forward(&self, values: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.forward_through(values, pass, |block, x, pass| block.forward(x, pass))
    }

    /// Like [`Network::forward`], where `through` calls each block in turn, and may wrap the call.
    ///
    /// # Errors
    /// As [`Network::forward`], and whatever `through` returns.
    pub fn forward_through(
        &self,
        values: &Tensor,
        pass: &Pass,
        through: impl FnMut(&Arc<ModelBlock>, &Tensor, &Pass) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let pass = self.own_pass(pass);
        self.layers.head(&self.hidden_through(values, &pass, through)?, &pass)
    }

    /// The same up to the head: what the last block returns.
    ///
    /// # Errors
    /// As [`Network::forward_through`].
    pub fn hidden_through(
        &self,
        values: &Tensor,
        pass: &Pass,
        mut through: impl FnMut(&Arc<ModelBlock>, &Tensor, &Pass) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let pass = &self.own_pass(pass);
        let mut x = self.layers.stem(values, pass)?;
        for block in self.layers.blocks() {
            x = through(block, &x, pass)?;
        }
        Ok(x)
    }

    fn own_pass(&self, pass: &Pass) -> Pass {
        Pass { dropout: self.dropout, tensor_parallel: self.tensor_parallel.clone(), ..pass.clone() }
    }

    /// The head of a network that has logits for each token; `None` for any other.
    pub fn token_head(&self) -> Option<&Rc<TokenHead>> {
        self.layers.token_head()
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        self.layers.blocks().len()
    }

    /// Shape of the output.
    pub fn output(&self) -> OutputShape {
        self.output
    }

    /// Name prefixes of the tensors of the head, whose shapes depend on the number of classes.
    pub fn head_names(&self) -> &'static [&'static str] {
        self.layers.head_names()
    }

    /// Parameters and buffers, by name.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }
}

#[cfg(test)]
mod tests;
