//! Which layers an architecture has, and how they are divided into a stem, blocks and a head.

use std::sync::Arc;

use domain::architecture::Architecture;
use tch::Tensor;

use super::cnn::Cnn;
use super::mlp::Mlp;
use super::mobilenet::Mobilenet;
use super::resnet::Resnet;
use super::vit::{self, Vit};
use super::{Block, Pass, Shape, Weights};
use crate::torch::Result;

/// An architecture with its layers.
pub(super) enum Family {
    Mlp(Mlp),
    Cnn(Cnn),
    Resnet(Resnet),
    Mobilenet(Mobilenet),
    Vit(Vit),
}

impl Family {
    pub(super) fn new(weights: &mut Weights, architecture: Architecture, shape: Shape) -> Result<Family> {
        match architecture {
            Architecture::Mlp => Ok(Family::Mlp(Mlp::new(weights, shape)?)),
            Architecture::Cnn => Ok(Family::Cnn(Cnn::new(weights, shape)?)),
            Architecture::SmallResnet { blocks } => Ok(Family::Resnet(Resnet::small(weights, blocks, shape)?)),
            Architecture::Resnet { block, blocks } => Ok(Family::Resnet(Resnet::large(weights, block, blocks, shape)?)),
            Architecture::MobilenetV2 => Ok(Family::Mobilenet(Mobilenet::v2(weights, shape)?)),
            Architecture::MobilenetV3 { large } => Ok(Family::Mobilenet(Mobilenet::v3(weights, large, shape)?)),
            Architecture::Vit { patch, layers, width, heads } => {
                Ok(Family::Vit(Vit::new(weights, vit::Size { patch, layers, width, heads }, shape)?))
            }
        }
    }

    pub(super) fn stem(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        match self {
            Family::Mlp(layers) => layers.stem(x),
            Family::Cnn(layers) => layers.stem(x),
            Family::Resnet(layers) => layers.stem(x, pass.train),
            Family::Mobilenet(layers) => layers.stem(x, pass.train),
            Family::Vit(layers) => layers.stem(x),
        }
    }

    pub(super) fn blocks(&self) -> &[Arc<Block>] {
        match self {
            Family::Mlp(_) | Family::Cnn(_) => &[],
            Family::Resnet(layers) => &layers.blocks,
            Family::Mobilenet(layers) => &layers.blocks,
            Family::Vit(layers) => &layers.blocks,
        }
    }

    pub(super) fn head(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        match self {
            Family::Mlp(layers) => layers.head(x),
            Family::Cnn(layers) => layers.head(x, pass.train),
            Family::Resnet(layers) => layers.head(x),
            Family::Mobilenet(layers) => layers.head(x, pass.train),
            Family::Vit(layers) => layers.head(x),
        }
    }

    /// Beginnings of the names of the tensors that know the classes: with other classes they are other tensors.
    pub(super) fn head_names(&self) -> &'static [&'static str] {
        match self {
            Family::Mlp(_) => &["fc3."],
            Family::Cnn(_) => &["fc2."],
            Family::Resnet(_) => &["fc."],
            Family::Mobilenet(layers) => layers.head_names(),
            Family::Vit(_) => &["heads.head."],
        }
    }
}
