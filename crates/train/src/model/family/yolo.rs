//! A one-stage detector of the YOLO family in its anchor-free form (version 8, Jocher et al. 2023; the ideas are those
//! of Redmon et al. 2015, Wang et al. 2019 on cross-stage partial networks, Liu et al. 2018 on path aggregation).
//!
//! Tensors have the names of Ultralytics' files, `model.0.conv.weight` to `model.22.cv3.2.2.bias`. Its output is decoded by
//! [`crate::detect`].

use std::sync::Arc;

use tch::Tensor;

use crate::detect::{BINS, STRIDES};
use crate::model::block::ModelBlock;
use crate::model::block::yolo::{C2f, ConvBnSilu, YoloStage};
use crate::model::nn::layer::{Conv, ConvWindow, max_pool};
use crate::model::nn::{Pass, Weights};
use crate::model::shape::ImageShape;
use crate::torch::{Error, Result};

/// Configuration of a size of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) struct Size {
    /// Channels of the first convolution; the stages have 2, 4, 8 and 16 times as many.
    pub width: i64,
    /// Bottlenecks of each of the four stages.
    pub repeats: [i64; 4],
}

pub(in crate::model) struct Yolo {
    stem: ConvBnSilu,
    /// The stages up to the finest grid.
    pub(in crate::model) blocks: Vec<Arc<ModelBlock>>,
    /// The stages of the two coarser grids.
    deeper: [YoloStage; 2],
    pool: Sppf,
    neck: Neck,
    heads: [Head; 3],
}

/// Spatial pyramid pooling, fast (SPPF): three consecutive poolings, concatenated, for increasing receptive fields.
struct Sppf {
    cv1: ConvBnSilu,
    cv2: ConvBnSilu,
}

/// Path aggregation: from coarse to fine and back, so that each grid has features of the others.
struct Neck {
    up: [C2f; 2],
    halve: [ConvBnSilu; 2],
    down: [C2f; 2],
}

/// The predictions for each cell of one grid.
struct Head {
    edges: [ConvBnSilu; 2],
    edges_last: Conv,
    classes: [ConvBnSilu; 2],
    classes_last: Conv,
}

impl Yolo {
    /// For square images whose sides are a multiple of the coarsest stride.
    pub(in crate::model) fn new(weights: &mut Weights, size: Size, image: ImageShape, classes: i64) -> Result<Yolo> {
        let Size { width, repeats } = size;
        let coarsest = STRIDES[2];
        if image.height % coarsest != 0 || image.width % coarsest != 0 || image.channels != 3 {
            return Err(Error::new(format!("images must have 3 channels and sides that are multiples of {coarsest}")));
        }
        let [c1, c2, c3, c4, c5] = [1, 2, 4, 8, 16].map(|times| times * width);
        let name = |number: i64| format!("model.{number}");
        let stem = ConvBnSilu::new(weights, &name(0), [3, c1], ConvWindow::new(3, 2))?;
        let mut blocks = Vec::new();
        for (number, channels, repeats) in [(1, [c1, c2], repeats[0]), (3, [c2, c3], repeats[1])] {
            blocks.push(
                weights.block(|weights| Ok(ModelBlock::Stage(YoloStage::new(weights, number, channels, repeats)?)))?,
            );
        }
        let deeper =
            [YoloStage::new(weights, 5, [c3, c4], repeats[2])?, YoloStage::new(weights, 7, [c4, c5], repeats[3])?];
        let pool = Sppf {
            cv1: ConvBnSilu::new(weights, &format!("{}.cv1", name(9)), [c5, c5 / 2], ConvWindow::new(1, 1))?,
            cv2: ConvBnSilu::new(weights, &format!("{}.cv2", name(9)), [2 * c5, c5], ConvWindow::new(1, 1))?,
        };
        let neck_repeats = repeats[0];
        let neck = Neck {
            up: [
                C2f::new(weights, &name(12), [c5 + c4, c4], neck_repeats, false)?,
                C2f::new(weights, &name(15), [c4 + c3, c3], neck_repeats, false)?,
            ],
            halve: [
                ConvBnSilu::new(weights, &name(16), [c3, c3], ConvWindow::new(3, 2))?,
                ConvBnSilu::new(weights, &name(19), [c4, c4], ConvWindow::new(3, 2))?,
            ],
            down: [
                C2f::new(weights, &name(18), [c3 + c4, c4], neck_repeats, false)?,
                C2f::new(weights, &name(21), [c4 + c5, c5], neck_repeats, false)?,
            ],
        };
        let inner = [(c3 / 4).max(4 * BINS).max(16), c3.max(classes.min(100))];
        let head = |weights: &mut Weights, place: usize, inputs| Head::new(weights, place, inputs, inner, classes);
        let heads = [head(weights, 0, c3)?, head(weights, 1, c4)?, head(weights, 2, c5)?];
        Ok(Yolo { stem, blocks, deeper, pool, neck, heads })
    }

    pub(in crate::model) fn stem(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.stem.forward(x, pass)
    }

    /// `samples × cells of all grids × (4 · BINS + classes)`, the finest grid first.
    pub(in crate::model) fn head(&self, fine: &Tensor, pass: &Pass) -> Result<Tensor> {
        let middle = self.deeper[0].forward(fine, pass)?;
        let coarse = self.deeper[1].forward(&middle, pass)?;
        let coarse = self.pool.forward(&coarse, pass)?;
        let Neck { up, halve, down } = &self.neck;
        let concat = |one: &Tensor, other: &Tensor| -> Result<Tensor> { Ok(Tensor::f_cat(&[one, other], 1)?) };
        let towards = up[0].forward(&concat(&doubled(&coarse)?, &middle)?, pass)?;
        let fine = up[1].forward(&concat(&doubled(&towards)?, fine)?, pass)?;
        let middle = down[0].forward(&concat(&halve[0].forward(&fine, pass)?, &towards)?, pass)?;
        let coarse = down[1].forward(&concat(&halve[1].forward(&middle, pass)?, &coarse)?, pass)?;
        let mut predictions = Vec::new();
        for (head, x) in self.heads.iter().zip([&fine, &middle, &coarse]) {
            predictions.push(head.forward(x, pass)?);
        }
        Ok(Tensor::f_cat(&predictions, 2)?.f_transpose(1, 2)?)
    }
}

impl Sppf {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let mut all = vec![self.cv1.forward(x, pass)?];
        for place in 0..3 {
            all.push(max_pool(&all[place], 5, 1, 2)?);
        }
        self.cv2.forward(&Tensor::f_cat(&all, 1)?, pass)
    }
}

impl Head {
    fn new(weights: &mut Weights, place: usize, inputs: i64, inner: [i64; 2], classes: i64) -> Result<Head> {
        let unit = |weights: &mut Weights, branch: &str, layer: i64, channels| {
            ConvBnSilu::new(weights, &format!("model.22.{branch}.{place}.{layer}"), channels, ConvWindow::new(3, 1))
        };
        // Initial biases: an object is a few cells wide, and a cell is of no class, as about five cells of an image of
        // 640 pixels hold an object.
        let cells = (640.0 / STRIDES[place] as f64).powi(2);
        let rare = (5.0 / classes as f64 / cells).ln();
        let last = |weights: &mut Weights, branch: &str, channels, bias: f64| {
            Conv::constant_bias(weights, &format!("model.22.{branch}.{place}.2"), channels, bias)
        };
        let [box_width, class_width] = inner;
        Ok(Head {
            edges: [unit(weights, "cv2", 0, [inputs, box_width])?, unit(weights, "cv2", 1, [box_width, box_width])?],
            edges_last: last(weights, "cv2", [box_width, 4 * BINS], 1.0)?,
            classes: [
                unit(weights, "cv3", 0, [inputs, class_width])?,
                unit(weights, "cv3", 1, [class_width, class_width])?,
            ],
            classes_last: last(weights, "cv3", [class_width, classes], rare)?,
        })
    }

    /// `samples × (4 · BINS + classes) × cells`.
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let through = |units: &[ConvBnSilu; 2]| units[1].forward(&units[0].forward(x, pass)?, pass);
        let edges = self.edges_last.forward(&through(&self.edges)?)?;
        let classes = self.classes_last.forward(&through(&self.classes)?)?;
        Ok(Tensor::f_cat(&[edges, classes], 1)?.f_flatten(2, 3)?)
    }
}

/// Nearest-neighbour upsampling by two.
fn doubled(x: &Tensor) -> Result<Tensor> {
    let (_, _, height, width) = x.size4()?;
    Ok(x.f_upsample_nearest2d([2 * height, 2 * width], None, None)?)
}
