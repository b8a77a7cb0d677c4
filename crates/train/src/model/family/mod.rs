//! Which layers an architecture has, and how they are divided into a stem, blocks and a head.

pub(super) mod bert;
mod cnn;
mod convnext;
mod efficientnet;
mod gpt;
mod mlp;
mod mobilenet;
mod module;
mod resnet;
mod vit;
mod yolo;

use std::rc::Rc;
use std::sync::Arc;

use domain::architecture::Architecture;
use tch::Tensor;

use bert::Bert;
use cnn::Cnn;
use convnext::Convnext;
use efficientnet::Efficientnet;
use gpt::Gpt;
pub use gpt::TokenHead;
use mlp::Mlp;
use mobilenet::Mobilenet;
use resnet::Resnet;
use vit::Vit;
use yolo::Yolo;

pub(super) use module::UserModule;
pub use module::fingerprint;

use super::block::ModelBlock;
use super::nn::{Pass, Weights};
use super::shape::{ImageShape, InputShape, ModelShape, OutputShape, TextShape};
use crate::torch::{Error, Result};

/// An architecture with its layers.
pub(in crate::model) enum Family {
    Mlp(Mlp),
    Cnn(Cnn),
    Resnet(Resnet),
    Mobilenet(Mobilenet),
    Vit(Vit),
    Convnext(Convnext),
    Efficientnet(Efficientnet),
    Yolo(Box<Yolo>),
    Bert(Bert),
    Gpt(Gpt),
    /// A TorchScript module of the user's own.
    Module(UserModule),
}

impl Family {
    pub(in crate::model) fn new(
        weights: &mut Weights,
        architecture: Architecture,
        shape: ModelShape,
    ) -> Result<Family> {
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
            Architecture::Yolo { width, repeats } => detector(weights, yolo::Size { width, repeats }, shape),
            Architecture::Mlp => {
                let (image, classes) = image(shape)?;
                Ok(Family::Mlp(Mlp::new(weights, image, classes)?))
            }
            Architecture::Cnn => {
                let (image, classes) = image(shape)?;
                Ok(Family::Cnn(Cnn::new(weights, image, classes)?))
            }
            Architecture::SmallResnet { blocks } => {
                let (image, classes) = image(shape)?;
                Ok(Family::Resnet(Resnet::small(weights, blocks, image, classes)?))
            }
            Architecture::Resnet { block, blocks, width } => {
                let (image, classes) = image(shape)?;
                let size = resnet::Size { block, blocks, width: width as i64 };
                Ok(Family::Resnet(Resnet::large(weights, size, image, classes)?))
            }
            Architecture::MobilenetV2 => {
                let (image, classes) = image(shape)?;
                Ok(Family::Mobilenet(Mobilenet::v2(weights, image, classes)?))
            }
            Architecture::MobilenetV3 { large } => {
                let (image, classes) = image(shape)?;
                Ok(Family::Mobilenet(Mobilenet::v3(weights, large, image, classes)?))
            }
            Architecture::Vit { patch, layers, width, heads } => {
                let (image, classes) = image(shape)?;
                let size = vit::Size { patch, layers, width, heads };
                Ok(Family::Vit(Vit::new(weights, size, image, classes)?))
            }
            Architecture::Convnext { depths, widths, drop } => {
                let (image, classes) = image(shape)?;
                let size = convnext::Size { depths, widths, drop: f64::from(drop) / 100.0 };
                Ok(Family::Convnext(Convnext::new(weights, size, image, classes)?))
            }
            Architecture::EfficientnetB0 => {
                let (image, classes) = image(shape)?;
                Ok(Family::Efficientnet(Efficientnet::b0(weights, image, classes)?))
            }
        }
    }

    pub(in crate::model) fn stem(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        match self {
            Family::Mlp(layers) => layers.stem(x),
            Family::Cnn(layers) => layers.stem(x),
            Family::Resnet(layers) => layers.stem(x, pass),
            Family::Mobilenet(layers) => layers.stem(x, pass),
            Family::Vit(layers) => layers.stem(x),
            Family::Convnext(layers) => layers.stem(x),
            Family::Efficientnet(layers) => layers.stem(x, pass),
            Family::Yolo(layers) => layers.stem(x, pass),
            Family::Bert(layers) => layers.stem(x, pass),
            Family::Gpt(layers) => layers.stem(x, pass),
            Family::Module(_) => Ok(x.shallow_clone()),
        }
    }

    pub(in crate::model) fn blocks(&self) -> &[Arc<ModelBlock>] {
        match self {
            Family::Mlp(_) | Family::Cnn(_) | Family::Module(_) => &[],
            Family::Resnet(layers) => &layers.blocks,
            Family::Mobilenet(layers) => &layers.blocks,
            Family::Vit(layers) => &layers.blocks,
            Family::Convnext(layers) => &layers.blocks,
            Family::Efficientnet(layers) => &layers.blocks,
            Family::Yolo(layers) => &layers.blocks,
            Family::Bert(layers) => &layers.blocks,
            Family::Gpt(layers) => &layers.blocks,
        }
    }

    pub(in crate::model) fn head(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        match self {
            Family::Mlp(layers) => layers.head(x),
            Family::Cnn(layers) => layers.head(x, pass),
            Family::Resnet(layers) => layers.head(x),
            Family::Mobilenet(layers) => layers.head(x, pass),
            Family::Vit(layers) => layers.head(x, pass),
            Family::Convnext(layers) => layers.head(x),
            Family::Efficientnet(layers) => layers.head(x, pass),
            Family::Yolo(layers) => layers.head(x, pass),
            Family::Bert(layers) => layers.head(x, pass),
            Family::Gpt(layers) => layers.head.forward(x, pass),
            Family::Module(module) => module.forward(x, pass),
        }
    }

    /// The head of a network that has logits for each token of its own.
    pub(in crate::model) fn token_head(&self) -> Option<&Rc<TokenHead>> {
        match self {
            Family::Gpt(layers) => Some(&layers.head),
            _ => None,
        }
    }

    /// Name prefixes of the tensors of the head, whose shapes depend on the number of classes.
    pub(in crate::model) fn head_names(&self) -> &'static [&'static str] {
        match self {
            Family::Mlp(_) => &["fc3."],
            Family::Cnn(_) => &["fc2."],
            Family::Resnet(_) => &["fc."],
            Family::Mobilenet(layers) => layers.head_names(),
            Family::Vit(_) => &["heads.head."],
            Family::Convnext(_) => &["classifier.2."],
            Family::Efficientnet(_) => &["classifier.1."],
            Family::Yolo(_) => &["model.22.cv3."],
            // The heads of all tasks: a run may start from weights of another task.
            Family::Bert(_) => &["classifier.", "cls.", "bert.pooler."],
            Family::Gpt(_) | Family::Module(_) => &[],
        }
    }
}

fn image(shape: ModelShape) -> Result<(ImageShape, i64)> {
    match (shape.input, shape.output.units()) {
        (InputShape::Image(image), Some(units)) => Ok((image, units)),
        (InputShape::Image(_) | InputShape::Text(_), _) => Err(Error::new("this model classifies images")),
    }
}

fn detector(weights: &mut Weights, size: yolo::Size, shape: ModelShape) -> Result<Family> {
    let (InputShape::Image(image), OutputShape::Boxes(classes)) = (shape.input, shape.output) else {
        return Err(Error::new("this model detects objects in images"));
    };
    Ok(Family::Yolo(Box::new(Yolo::new(weights, size, image, classes)?)))
}

fn text(shape: ModelShape) -> Result<TextShape> {
    match shape.input {
        InputShape::Text(text) => Ok(text),
        InputShape::Image(_) => Err(Error::new("this model reads text")),
    }
}
