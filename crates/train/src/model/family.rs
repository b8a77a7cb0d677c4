//! Which layers an architecture has, and how they are divided into a stem, blocks and a head.

use std::sync::Arc;

use domain::architecture::Architecture;
use tch::Tensor;

use super::bert::{self, Bert};
use super::cnn::Cnn;
use super::gpt::{self, Gpt};
use super::mlp::Mlp;
use super::mobilenet::Mobilenet;
use super::module::UserModule;
use super::resnet::{self, Resnet};
use super::vit::{self, Vit};
use super::yolo::{self, Yolo};
use super::{Block, ImageShape, InputShape, ModelShape, OutputShape, Pass, TextShape, Weights};
use crate::torch::{Error, Result};

/// An architecture with its layers.
pub(super) enum Family {
    Mlp(Mlp),
    Cnn(Cnn),
    Resnet(Resnet),
    Mobilenet(Mobilenet),
    Vit(Vit),
    Yolo(Box<Yolo>),
    Bert(Bert),
    Gpt(Gpt),
    /// Of the user's own.
    Module(UserModule),
}

impl Family {
    pub(super) fn new(weights: &mut Weights, architecture: Architecture, shape: ModelShape) -> Result<Family> {
        match architecture {
            Architecture::Bert { layers, width, heads } => {
                let positions = architecture.positions().unwrap_or(0);
                let size = bert::Size { layers, width, heads, positions };
                Ok(Family::Bert(Bert::new(weights, size, text(shape)?, shape.output)?))
            }
            Architecture::Gpt { layers, width, heads, positions } => {
                let size = gpt::Size { layers, width, heads, positions };
                Ok(Family::Gpt(Gpt::new(weights, size, text(shape)?)?))
            }
            Architecture::Yolo { width, repeats } => {
                let (InputShape::Image(picture), OutputShape::Boxes(classes)) = (shape.input, shape.output) else {
                    return Err(Error::new("this model finds objects in pictures"));
                };
                let layers = Yolo::new(weights, yolo::Size { width, repeats }, picture, classes)?;
                Ok(Family::Yolo(Box::new(layers)))
            }
            Architecture::Mlp => {
                let (picture, classes) = picture(shape)?;
                Ok(Family::Mlp(Mlp::new(weights, picture, classes)?))
            }
            Architecture::Cnn => {
                let (picture, classes) = picture(shape)?;
                Ok(Family::Cnn(Cnn::new(weights, picture, classes)?))
            }
            Architecture::SmallResnet { blocks } => {
                let (picture, classes) = picture(shape)?;
                Ok(Family::Resnet(Resnet::small(weights, blocks, picture, classes)?))
            }
            Architecture::Resnet { block, blocks, width } => {
                let (picture, classes) = picture(shape)?;
                let size = resnet::Size { block, blocks, width: width as i64 };
                Ok(Family::Resnet(Resnet::large(weights, size, picture, classes)?))
            }
            Architecture::MobilenetV2 => {
                let (picture, classes) = picture(shape)?;
                Ok(Family::Mobilenet(Mobilenet::v2(weights, picture, classes)?))
            }
            Architecture::MobilenetV3 { large } => {
                let (picture, classes) = picture(shape)?;
                Ok(Family::Mobilenet(Mobilenet::v3(weights, large, picture, classes)?))
            }
            Architecture::Vit { patch, layers, width, heads } => {
                let (picture, classes) = picture(shape)?;
                let size = vit::Size { patch, layers, width, heads };
                Ok(Family::Vit(Vit::new(weights, size, picture, classes)?))
            }
        }
    }

    pub(super) fn stem(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        match self {
            Family::Mlp(layers) => layers.stem(x),
            Family::Cnn(layers) => layers.stem(x),
            Family::Resnet(layers) => layers.stem(x, pass),
            Family::Mobilenet(layers) => layers.stem(x, pass),
            Family::Vit(layers) => layers.stem(x),
            Family::Yolo(layers) => layers.stem(x, pass),
            Family::Bert(layers) => layers.stem(x, pass),
            Family::Gpt(layers) => layers.stem(x, pass),
            Family::Module(_) => Ok(x.shallow_clone()),
        }
    }

    pub(super) fn blocks(&self) -> &[Arc<Block>] {
        match self {
            Family::Mlp(_) | Family::Cnn(_) | Family::Module(_) => &[],
            Family::Resnet(layers) => &layers.blocks,
            Family::Mobilenet(layers) => &layers.blocks,
            Family::Vit(layers) => &layers.blocks,
            Family::Yolo(layers) => &layers.blocks,
            Family::Bert(layers) => &layers.blocks,
            Family::Gpt(layers) => &layers.blocks,
        }
    }

    pub(super) fn head(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        match self {
            Family::Mlp(layers) => layers.head(x),
            Family::Cnn(layers) => layers.head(x, pass),
            Family::Resnet(layers) => layers.head(x),
            Family::Mobilenet(layers) => layers.head(x, pass),
            Family::Vit(layers) => layers.head(x, pass),
            Family::Yolo(layers) => layers.head(x, pass),
            Family::Bert(layers) => layers.head(x, pass),
            Family::Gpt(layers) => layers.head(x, pass),
            Family::Module(module) => module.forward(x, pass),
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
            Family::Yolo(_) => &["model.22.cv3."],
            // Of any task: a file made for one is begun with for another.
            Family::Bert(_) => &["classifier.", "cls.", "bert.pooler."],
            Family::Gpt(_) | Family::Module(_) => &[],
        }
    }
}

fn picture(shape: ModelShape) -> Result<(ImageShape, i64)> {
    match (shape.input, shape.output) {
        (InputShape::Image(picture), OutputShape::Classes(classes)) => Ok((picture, classes)),
        (
            InputShape::Image(_) | InputShape::Text(_),
            OutputShape::Classes(_) | OutputShape::Tokens | OutputShape::Boxes(_),
        ) => Err(Error::new("this model tells classes of pictures apart")),
    }
}

fn text(shape: ModelShape) -> Result<TextShape> {
    match shape.input {
        InputShape::Text(text) => Ok(text),
        InputShape::Image(_) => Err(Error::new("this model reads text")),
    }
}
