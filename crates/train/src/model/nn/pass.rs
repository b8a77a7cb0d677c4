//! The state of one forward pass, which is passed from layer to layer.

use std::rc::Rc;

use tch::Tensor;

use super::tensor_parallel::TensorParallel;
use crate::torch::Result;

/// The state of one forward pass.
#[derive(Debug)]
pub struct Pass {
    /// Training mode, as `module.train()`: batch normalisation uses the batch's statistics, and dropout is on.
    pub train: bool,
    /// For text, `samples × length`: boolean, `true` for a token and `false` for padding. Or, if several documents
    /// share a row and must not attend to each other, the position of each token within its document, int64.
    pub mask: Option<Tensor>,
    /// How batch normalization treats its running statistics in training mode.
    pub running: BatchNormMode,
    /// Dropout probability; `None` for the architecture's own.
    pub dropout: Option<f64>,
    /// The ranks that divide each layer's heads and hidden features; `None` without tensor parallelism.
    pub tensor_parallel: Option<Rc<TensorParallel>>,
}

/// How batch normalization treats its running statistics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BatchNormMode {
    /// They follow the batches, by the momentum of each layer.
    UpdateRunning,
    /// They stay as they are: this pass repeats another.
    KeepRunning,
    /// They move by this fraction towards those of the batch.
    Blend(f64),
}

impl Pass {
    /// A pass without a mask, by an undivided network.
    pub fn whole(train: bool) -> Pass {
        Pass { train, mask: None, running: BatchNormMode::UpdateRunning, dropout: None, tensor_parallel: None }
    }

    /// The dropout probability of a layer: `default` unless the job sets one, and 0 in evaluation mode.
    pub(in crate::model) fn dropout(&self, default: f64) -> f64 {
        if self.train { self.dropout.unwrap_or(default) } else { 0.0 }
    }

    /// `torch.nn.functional.dropout` of `x`.
    pub(in crate::model) fn apply_dropout(&self, x: &Tensor, default: f64) -> Result<Tensor> {
        Ok(x.f_dropout(self.dropout(default), self.train)?)
    }
}

/// Shares the mask.
impl Clone for Pass {
    fn clone(&self) -> Pass {
        let Pass { train, running, dropout, mask: _, tensor_parallel: _ } = *self;
        let mask = self.mask.as_ref().map(Tensor::shallow_clone);
        Pass { train, mask, running, dropout, tensor_parallel: self.tensor_parallel.clone() }
    }
}
