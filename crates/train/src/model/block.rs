//! A block: the part of a network that repeats, and that a wrapper may call again or elsewhere.
//!
//! A network is a stem, blocks one after another, and a head. Whoever recomputes activations or counts time goes
//! through [`super::Network::forward_through`] and is handed each block; the network does not know.

use std::sync::Arc;

use tch::Tensor;

use super::bert::Encoder as BertEncoder;
use super::gpt::Decoder;
use super::inverted::Inverted;
use super::residual::{Basic, Bottleneck};
use super::vit::Encoder as VisionEncoder;
use super::yolo::Stage;
use crate::torch::Result;

/// A repeated part of a network, values in and values of the same kind out.
#[derive(Debug)]
pub enum Block {
    /// Two convolutions of a residual network.
    Basic(Basic),
    /// Three convolutions of a deeper residual network.
    Bottleneck(Bottleneck),
    /// Of a mobile network.
    Inverted(Inverted),
    /// Of a detector.
    Stage(Stage),
    /// A layer of a vision transformer.
    Vision(VisionEncoder),
    /// A layer of BERT.
    Bert(BertEncoder),
    /// A layer of GPT-2.
    Gpt(Decoder),
}

/// What holds throughout one forward pass.
#[derive(Debug)]
pub struct Pass {
    /// Whether batch normalisation uses the batch's statistics and updates the running ones, and dropout drops.
    pub train: bool,
    /// Where there is text: `samples × length`, true for a token, false for what only fills the row.
    pub mask: Option<Tensor>,
    /// What becomes of the running statistics of batch normalisations while training.
    pub running: Running,
}

/// What becomes of the running statistics of batch normalisations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Running {
    /// They follow the batches, each layer at its own pace.
    Follow,
    /// They stay, for this pass repeats another.
    Stay,
    /// The batch's take this share of them.
    Take(f64),
}

impl Pass {
    /// Over values that are all meant.
    pub fn whole(train: bool) -> Pass {
        Pass { train, mask: None, running: Running::Follow }
    }
}

/// Shares the mask.
impl Clone for Pass {
    fn clone(&self) -> Pass {
        let Pass { train, running, mask: _ } = *self;
        Pass { train, mask: self.mask.as_ref().map(Tensor::shallow_clone), running }
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
            Block::Vision(block) => block.forward(x),
            Block::Bert(block) => block.forward(x, pass),
            Block::Gpt(block) => block.forward(x, pass),
        }
    }

    #[expect(clippy::arc_with_non_send_sync, reason = "a backward pass may want the block after its network is lent")]
    pub(super) fn shared(self) -> Arc<Block> {
        Arc::new(self)
    }
}
