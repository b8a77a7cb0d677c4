//! Object detection: from the predictions of each grid cell to boxes, the loss, and the mean average precision.
//!
//! The network ([`crate::model`]) divides the image by three grids. Each cell predicts the distances to the four edges of
//! its object, each as a distribution over [`BINS`] values, and a logit per class. Read on in `loss` (with `assign`, which
//! matches cells and objects), `suppress` (non-maximum suppression) and `average` (mean average precision).

mod assign;
mod average;
mod boxes;
mod loss;
mod suppress;
#[cfg(test)]
mod tests;

use tch::{Device, Kind, Tensor};

use crate::torch::{self, Result};

pub use average::{Annotated, AveragePrecision, Detected, MeanPrecisions};
pub use loss::{LEAST, LossSums, loss, sums};
pub use suppress::detections;

/// Pixels from one cell to the next, the finest grid first.
pub const STRIDES: [i64; 3] = [8, 16, 32];
/// Distances from 0 to 15 cells that an edge's is a mean of (Li et al. 2020, "Generalized Focal Loss").
pub const BINS: i64 = 16;

/// An annotated object: its class and its box, in pixels of the image as the network gets it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroundTruth {
    /// Number of its class.
    pub class: u32,
    /// Left, top, right and bottom edge of its box, in pixels.
    pub edges: [f32; 4],
}

/// A predicted object.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Detection {
    /// Number of its class.
    pub class: u32,
    /// Its confidence, in 0–1.
    pub score: f32,
    /// Left, top, right and bottom edge of its box, in pixels.
    pub edges: [f32; 4],
}

/// The middles of the cells of all grids, finest first.
#[derive(Debug)]
pub struct Grids {
    /// `cells × 2`: across and down, in cells of their grid.
    middles: Tensor,
    /// `cells × 1`: pixels of a cell.
    strides: Tensor,
}

impl Grids {
    /// For images of this height and width, in pixels.
    pub fn of(height: i64, width: i64, device: Device) -> Result<Grids> {
        let (mut middles, mut strides) = (Vec::new(), Vec::new());
        for stride in STRIDES {
            for row in 0..height / stride {
                for column in 0..width / stride {
                    middles.extend([column as f32 + 0.5, row as f32 + 0.5]);
                    strides.push(stride as f32);
                }
            }
        }
        Ok(Grids {
            middles: torch::upload(&middles, &[middles.len() as i64 / 2, 2], device)?,
            strides: torch::upload(&strides, &[strides.len() as i64, 1], device)?,
        })
    }
}

/// The ground truth of a batch, float32 `images × objects × 5`: class and four edges in pixels; rows of images with fewer
/// objects are padded with class −1. There is at least one row per image.
pub fn ground_truth_tensor(images: &[Vec<GroundTruth>], device: Device) -> Result<Tensor> {
    let most = images.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let mut values = vec![0f32; images.len() * most * 5];
    for (row, place) in values.chunks_exact_mut(5).zip(0..) {
        match images[place / most].get(place % most) {
            Some(GroundTruth { class, edges }) => {
                row[0] = *class as f32;
                row[1..].copy_from_slice(edges);
            }
            None => row[0] = -1.0,
        }
    }
    torch::upload(&values, &[images.len() as i64, most as i64, 5], device)
}

/// The inverse of [`ground_truth_tensor`].
pub fn objects(ground_truth: &Tensor) -> Result<Vec<Vec<GroundTruth>>> {
    let (images, most, _) = ground_truth.size3()?;
    let values =
        Vec::<f32>::try_from(ground_truth.f_to_device(Device::Cpu)?.f_to_kind(Kind::Float)?.f_flatten(0, -1)?)?;
    let object = |row: &[f32]| match row {
        [class, left, top, right, bottom] if *class >= 0.0 => {
            Some(GroundTruth { class: *class as u32, edges: [*left, *top, *right, *bottom] })
        }
        _ => None,
    };
    let image = |rows: &[f32]| rows.chunks_exact(5).filter_map(object).collect();
    let length = (most * 5) as usize;
    Ok((0..images as usize).map(|place| image(&values[place * length..][..length])).collect())
}
