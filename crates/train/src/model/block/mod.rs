//! A block: the repeated unit of a network, which a wrapper may recompute or run on another thread.
//!
//! A network is a stem, consecutive blocks, and a head. Activation checkpointing and the profiler use
//! [`super::Network::forward_through`], which passes them each block; the network is unaware of them.

pub(super) mod bert;
pub(super) mod convnext;
pub(super) mod gpt;
pub(super) mod inverted;
pub(super) mod residual;
pub(super) mod vit;
pub(super) mod yolo;

use tch::Tensor;

use bert::BertLayer;
use convnext::ConvnextBlock;
use gpt::GptBlock;
use inverted::InvertedResidual;
use residual::{BasicBlock, Bottleneck};
use vit::VitBlock;
use yolo::YoloStage;

use super::nn::Pass;
use crate::torch::Result;

/// A repeated part of a network, values in and values of the same kind out.
#[derive(Debug)]
pub enum ModelBlock {
    /// Two convolutions of a residual network.
    Basic(BasicBlock),
    /// Three convolutions of a deeper residual network.
    Bottleneck(Bottleneck),
    /// An inverted residual block of a MobileNet.
    Inverted(InvertedResidual),
    /// A block of a ConvNeXt.
    Convnext(ConvnextBlock),
    /// A stage of a YOLO backbone.
    Stage(YoloStage),
    /// A layer of a vision transformer.
    Vision(VitBlock),
    /// A layer of BERT.
    Bert(BertLayer),
    /// A layer of GPT-2.
    Gpt(GptBlock),
}

impl ModelBlock {
    /// The block's output for `x`: feature maps `samples × channels × height × width`, or hidden states
    /// `samples × length × width`.
    ///
    /// # Errors
    /// When an operation of libtorch, or an exchange between ranks that divide the block, fails.
    pub fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        match self {
            ModelBlock::Basic(block) => block.forward(x, pass),
            ModelBlock::Bottleneck(block) => block.forward(x, pass),
            ModelBlock::Inverted(block) => block.forward(x, pass),
            ModelBlock::Convnext(block) => block.forward(x, pass),
            ModelBlock::Stage(block) => block.forward(x, pass),
            ModelBlock::Vision(block) => block.forward(x, pass),
            ModelBlock::Bert(block) => block.forward(x, pass),
            ModelBlock::Gpt(block) => block.forward(x, pass),
        }
    }
}
