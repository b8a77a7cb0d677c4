//! A one-stage detector of the YOLO family in its anchor-free form (version 8, Jocher et al. 2023; the ideas are those
//! of Redmon et al. 2015, Wang et al. 2019 on cross-stage parts, Liu et al. 2018 on the two ways through the neck).
//!
//! Names of tensors are those that its users' files have, `model.0.conv.weight` to `model.22.cv3.2.2.bias`. What comes
//! out is read by [`crate::detect`].

use std::sync::Arc;

use tch::Tensor;

use super::layer::{BatchNorm, Conv, ConvWindow, max_pool};
use super::{Block, ImageShape, Pass, Weights};
use crate::detect::{BINS, STRIDES};
use crate::torch::{Error, Result};

/// What sets one size of it apart from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    /// Channels of the first convolution; the stages have 2, 4, 8 and 16 times as many.
    pub width: i64,
    /// Units of the four stages.
    pub repeats: [i64; 4],
}

pub(super) struct Yolo {
    stem: Unit,
    /// The stages up to the finest grid.
    pub(super) blocks: Vec<Arc<Block>>,
    /// The stages of the two coarser grids.
    deeper: [YoloStage; 2],
    pool: Pool,
    neck: Neck,
    heads: [Head; 3],
}

/// A convolution without bias, normalised, then `x · sigmoid(x)`.
#[derive(Debug)]
struct Unit {
    conv: Conv,
    bn: BatchNorm,
}

/// Halves height and width, then a cross-stage part.
#[derive(Debug)]
pub struct YoloStage {
    halve: Unit,
    part: Part,
}

/// Half of the channels go through units one after another; all that came by is joined.
#[derive(Debug)]
struct Part {
    cv1: Unit,
    cv2: Unit,
    units: Vec<[Unit; 2]>,
    /// Whether each unit adds to what it was given.
    adds: bool,
    half: i64,
}

/// Sees ever larger surroundings: three poolings one after another, joined.
struct Pool {
    cv1: Unit,
    cv2: Unit,
}

/// From coarse to fine and back, so that each grid knows what the others saw.
struct Neck {
    up: [Part; 2],
    halve: [Unit; 2],
    down: [Part; 2],
}

/// What is said of each cell of one grid.
struct Head {
    edges: [Unit; 2],
    edges_last: Conv,
    classes: [Unit; 2],
    classes_last: Conv,
}

impl Yolo {
    /// For square pictures whose sides are a multiple of the coarsest stride.
    pub(super) fn new(weights: &mut Weights, size: Size, picture: ImageShape, classes: i64) -> Result<Yolo> {
        let Size { width, repeats } = size;
        let coarsest = STRIDES[2];
        if picture.height % coarsest != 0 || picture.width % coarsest != 0 || picture.channels != 3 {
            return Err(Error::new(format!(
                "pictures must have 3 channels and sides that are multiples of {coarsest}"
            )));
        }
        let [c1, c2, c3, c4, c5] = [1, 2, 4, 8, 16].map(|times| times * width);
        let name = |number: i64| format!("model.{number}");
        let stem = Unit::new(weights, &name(0), [3, c1], ConvWindow::new(3, 2))?;
        let mut blocks = Vec::new();
        for (number, channels, repeats) in [(1, [c1, c2], repeats[0]), (3, [c2, c3], repeats[1])] {
            blocks
                .push(weights.block(|weights| Ok(Block::Stage(YoloStage::new(weights, number, channels, repeats)?)))?);
        }
        let deeper =
            [YoloStage::new(weights, 5, [c3, c4], repeats[2])?, YoloStage::new(weights, 7, [c4, c5], repeats[3])?];
        let pool = Pool {
            cv1: Unit::new(weights, &format!("{}.cv1", name(9)), [c5, c5 / 2], ConvWindow::new(1, 1))?,
            cv2: Unit::new(weights, &format!("{}.cv2", name(9)), [2 * c5, c5], ConvWindow::new(1, 1))?,
        };
        let again = repeats[0];
        let neck = Neck {
            up: [
                Part::new(weights, &name(12), [c5 + c4, c4], again, false)?,
                Part::new(weights, &name(15), [c4 + c3, c3], again, false)?,
            ],
            halve: [
                Unit::new(weights, &name(16), [c3, c3], ConvWindow::new(3, 2))?,
                Unit::new(weights, &name(19), [c4, c4], ConvWindow::new(3, 2))?,
            ],
            down: [
                Part::new(weights, &name(18), [c3 + c4, c4], again, false)?,
                Part::new(weights, &name(21), [c4 + c5, c5], again, false)?,
            ],
        };
        let inner = [(c3 / 4).max(4 * BINS).max(16), c3.max(classes.min(100))];
        let head = |weights: &mut Weights, place: usize, inputs| Head::new(weights, place, inputs, inner, classes);
        let heads = [head(weights, 0, c3)?, head(weights, 1, c4)?, head(weights, 2, c5)?];
        Ok(Yolo { stem, blocks, deeper, pool, neck, heads })
    }

    pub(super) fn stem(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.stem.forward(x, pass)
    }

    /// `samples × cells of all grids × (4 · BINS + classes)`, the finest grid first.
    pub(super) fn head(&self, fine: &Tensor, pass: &Pass) -> Result<Tensor> {
        let middle = self.deeper[0].forward(fine, pass)?;
        let coarse = self.deeper[1].forward(&middle, pass)?;
        let coarse = self.pool.forward(&coarse, pass)?;
        let Neck { up, halve, down } = &self.neck;
        let joined = |one: &Tensor, other: &Tensor| -> Result<Tensor> { Ok(Tensor::f_cat(&[one, other], 1)?) };
        let towards = up[0].forward(&joined(&doubled(&coarse)?, &middle)?, pass)?;
        let fine = up[1].forward(&joined(&doubled(&towards)?, fine)?, pass)?;
        let middle = down[0].forward(&joined(&halve[0].forward(&fine, pass)?, &towards)?, pass)?;
        let coarse = down[1].forward(&joined(&halve[1].forward(&middle, pass)?, &coarse)?, pass)?;
        let mut said = Vec::new();
        for (head, x) in self.heads.iter().zip([&fine, &middle, &coarse]) {
            said.push(head.forward(x, pass)?);
        }
        Ok(Tensor::f_cat(&said, 2)?.f_transpose(1, 2)?)
    }
}

impl Unit {
    fn new(weights: &mut Weights, name: &str, channels: [i64; 2], window: ConvWindow) -> Result<Unit> {
        Ok(Unit {
            conv: Conv::plain(weights, &format!("{name}.conv"), channels, window)?,
            // Of the published networks.
            bn: BatchNorm::with(weights, &format!("{name}.bn"), channels[1], [0.03, 1e-3])?,
        })
    }

    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        Ok(self.bn.forward(&self.conv.forward(x)?, pass)?.f_silu()?)
    }
}

impl YoloStage {
    fn new(weights: &mut Weights, number: i64, channels: [i64; 2], repeats: i64) -> Result<YoloStage> {
        let outputs = [channels[1]; 2];
        Ok(YoloStage {
            halve: Unit::new(weights, &format!("model.{number}"), channels, ConvWindow::new(3, 2))?,
            part: Part::new(weights, &format!("model.{}", number + 1), outputs, repeats, true)?,
        })
    }

    pub(super) fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.part.forward(&self.halve.forward(x, pass)?, pass)
    }
}

impl Part {
    fn new(weights: &mut Weights, name: &str, [inputs, outputs]: [i64; 2], repeats: i64, adds: bool) -> Result<Part> {
        let half = outputs / 2;
        let (one, three) = (ConvWindow::new(1, 1), ConvWindow::new(3, 1));
        let mut units = Vec::new();
        for place in 0..repeats {
            units.push([
                Unit::new(weights, &format!("{name}.m.{place}.cv1"), [half, half], three)?,
                Unit::new(weights, &format!("{name}.m.{place}.cv2"), [half, half], three)?,
            ]);
        }
        Ok(Part {
            cv1: Unit::new(weights, &format!("{name}.cv1"), [inputs, 2 * half], one)?,
            cv2: Unit::new(weights, &format!("{name}.cv2"), [(2 + repeats) * half, outputs], one)?,
            units,
            adds,
            half,
        })
    }

    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let both = self.cv1.forward(x, pass)?;
        let mut last = both.f_narrow(1, self.half, self.half)?;
        let mut all = vec![both];
        for [first, second] in &self.units {
            let out = second.forward(&first.forward(&last, pass)?, pass)?;
            last = if self.adds { out.f_add(&last)? } else { out };
            all.push(last.shallow_clone());
        }
        self.cv2.forward(&Tensor::f_cat(&all, 1)?, pass)
    }
}

impl Pool {
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
            Unit::new(weights, &format!("model.22.{branch}.{place}.{layer}"), channels, ConvWindow::new(3, 1))
        };
        // A cell begins by constant_bias that its object is a few cells wide, and that it is of no class: of all cells of a
        // picture of 640 about five hold one.
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
        let through = |units: &[Unit; 2]| units[1].forward(&units[0].forward(x, pass)?, pass);
        let edges = self.edges_last.forward(&through(&self.edges)?)?;
        let classes = self.classes_last.forward(&through(&self.classes)?)?;
        Ok(Tensor::f_cat(&[edges, classes], 1)?.f_flatten(2, 3)?)
    }
}

/// Each pixel as four.
fn doubled(x: &Tensor) -> Result<Tensor> {
    let (_, _, height, width) = x.size4()?;
    Ok(x.f_upsample_nearest2d([2 * height, 2 * width], None, None)?)
}
