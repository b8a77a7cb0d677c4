//! A block: the part of a network that repeats, and that a wrapper may call again or elsewhere.
//!
//! A network is a stem, blocks one after another, and a head. Whoever recomputes activations or counts time goes
//! through [`super::Network::forward_through`] and is handed each block; the network does not know.

use std::rc::Rc;

use tch::Tensor;

use super::bert::BertLayer;
use super::gpt::GptBlock;
use super::inverted::InvertedResidual;
use super::parts::TensorParallel;
use super::residual::{BasicBlock, Bottleneck};
use super::vit::VitBlock;
use super::yolo::YoloStage;
use crate::torch::Result;

/// A repeated part of a network, values in and values of the same kind out.
#[derive(Debug)]
pub enum Block {
    /// Two convolutions of a residual network.
    Basic(BasicBlock),
    /// Three convolutions of a deeper residual network.
    Bottleneck(Bottleneck),
    /// Of a mobile network.
    Inverted(InvertedResidual),
    /// Of a detector.
    Stage(YoloStage),
    /// A layer of a vision transformer.
    Vision(VitBlock),
    /// A layer of BERT.
    Bert(BertLayer),
    /// A layer of GPT-2.
    Gpt(GptBlock),
}

/// What holds throughout one forward pass.
#[derive(Debug)]
pub struct Pass {
    /// Whether batch normalisation uses the batch's statistics and updates the running ones, and dropout drops.
    pub train: bool,
    /// Where there is text: `samples × length`, true for a token, false for what only fills the row. Or, where documents
    /// share a row and do not see each other, how far each token is from the beginning of its own, int64.
    pub mask: Option<Tensor>,
    /// What becomes of the running statistics of batch normalisations while training.
    pub running: BatchNormMode,
    /// Share of values that dropout leaves out, where it is not the model's own.
    pub dropout: Option<f64>,
    /// The ranks that a layer's heads and hidden values are divided among; none where all are here.
    pub parts: Option<Rc<TensorParallel>>,
}

/// What becomes of the running statistics of batch normalisations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BatchNormMode {
    /// They follow the batches, each layer at its own pace.
    UpdateRunning,
    /// They stay, for this pass repeats another.
    KeepRunning,
    /// The batch's take this share of them.
    Blend(f64),
}

impl Pass {
    /// Over values that are all meant.
    pub fn whole(train: bool) -> Pass {
        Pass { train, mask: None, running: BatchNormMode::UpdateRunning, dropout: None, parts: None }
    }

    /// Share of values to leave out, `usual` unless something else was said.
    pub(super) fn dropout(&self, usual: f64) -> f64 {
        if self.train { self.dropout.unwrap_or(usual) } else { 0.0 }
    }

    /// Some of the values left out, and the others so much larger.
    pub(super) fn apply_dropout(&self, x: &Tensor, usual: f64) -> Result<Tensor> {
        Ok(x.f_dropout(self.dropout(usual), self.train)?)
    }
}

/// Shares the mask.
impl Clone for Pass {
    fn clone(&self) -> Pass {
        let Pass { train, running, dropout, mask: _, parts: _ } = *self;
        let (mask, parts) = (self.mask.as_ref().map(Tensor::shallow_clone), self.parts.clone());
        Pass { train, mask, running, dropout, parts }
    }
}

impl Block {
    /// What comes out for `x`.
    pub fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        match self {
            Block::Basic(block) => block.forward(x, pass),
            Block::Bottleneck(block) => block.forward(x, pass),
            Block::Inverted(block) => block.forward(x, pass),
            Block::Stage(block) => block.forward(x, pass),
            Block::Vision(block) => block.forward(x, pass),
            Block::Bert(block) => block.forward(x, pass),
            Block::Gpt(block) => block.forward(x, pass),
        }
    }
}
