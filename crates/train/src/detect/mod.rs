//! Detection: what a network says of each cell of its grids, and how boxes come of it, are learnt and are scored.
//!
//! The network ([`crate::model`]) looks at the picture through three grids. Each cell says how far the four edges of
//! its object are, as a distribution over [`BINS`] distances, and a score of each class. Read on in `loss` (what is
//! learnt, by whom: `assign`), `suppress` (one box for each object) and `average` (how good they are).

mod assign;
mod average;
mod boxes;
mod loss;
mod suppress;
#[cfg(test)]
mod tests;

use tch::{Device, Kind, Tensor};

use crate::torch::Result;

pub use average::{AveragePrecision, MeanPrecisions};
pub use loss::{LEAST, LossSums, loss, sums};
pub use suppress::detections;

/// Pixels from one cell to the next, of the finest grid first.
pub const STRIDES: [i64; 3] = [8, 16, 32];
/// Distances from 0 to 15 cells that an edge's is a mean of (Li et al. 2020, "Generalized Focal Loss").
pub const BINS: i64 = 16;

/// An object that is there: its class, and left, top, right and bottom edge in pixels of the frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroundTruth {
    /// Number of its class.
    pub class: u32,
    /// Of its box.
    pub edges: [f32; 4],
}

/// An object that was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Detection {
    /// Number of its class.
    pub class: u32,
    /// How sure the network is, in 0–1.
    pub score: f32,
    /// Left, top, right and bottom edge in pixels of the frame.
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
    /// For pictures of this height and width.
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
            middles: Tensor::f_from_slice(&middles)?.f_view([-1, 2])?.f_to_device(device)?,
            strides: Tensor::f_from_slice(&strides)?.f_view([-1, 1])?.f_to_device(device)?,
        })
    }
}

/// What is there in each of a batch's frames, `frames × objects × 5`: class and edges, and a class of −1 where there
/// are fewer. There is room for one object at least.
pub fn ground_truths(frames: &[Vec<GroundTruth>], device: Device) -> Result<Tensor> {
    let most = frames.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let mut values = vec![0f32; frames.len() * most * 5];
    for (row, place) in values.chunks_exact_mut(5).zip(0..) {
        match frames[place / most].get(place % most) {
            Some(GroundTruth { class, edges }) => {
                row[0] = *class as f32;
                row[1..].copy_from_slice(edges);
            }
            None => row[0] = -1.0,
        }
    }
    Ok(Tensor::f_from_slice(&values)?.f_view([frames.len() as i64, most as i64, 5])?.f_to_device(device)?)
}

/// What [`ground_truths`] was given.
pub fn objects(ground_truths: &Tensor) -> Result<Vec<Vec<GroundTruth>>> {
    let (frames, most, _) = ground_truths.size3()?;
    let values =
        Vec::<f32>::try_from(ground_truths.f_to_device(Device::Cpu)?.f_to_kind(Kind::Float)?.f_flatten(0, -1)?)?;
    let object = |row: &[f32]| match row {
        [class, left, top, right, bottom] if *class >= 0.0 => {
            Some(GroundTruth { class: *class as u32, edges: [*left, *top, *right, *bottom] })
        }
        _ => None,
    };
    let frame = |rows: &[f32]| rows.chunks_exact(5).filter_map(object).collect();
    let length = (most * 5) as usize;
    Ok((0..frames as usize).map(|place| frame(&values[place * length..][..length])).collect())
}
