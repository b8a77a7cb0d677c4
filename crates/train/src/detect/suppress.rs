//! One box for each object: of boxes of a class that overlap, only the surest stays.

use tch::{Device, Kind, Tensor};

use super::boxes::{decoded, overlap};
use super::{BINS, Detection, Grids};
use crate::torch::Result;

/// Less sure boxes are not looked at: they still count a little where precision is averaged over all recalls.
const LEAST_SCORE: f32 = 1e-3;
/// Boxes of one class that overlap more than this are of one object.
const SAME: f32 = 0.7;
/// Boxes of a frame that are compared.
const COMPARED: usize = 3000;
/// Maximum number of boxes per class in a frame; the COCO evaluation uses no more.
const KEPT: usize = 100;

/// The detections in each frame, by decreasing score. `predictions` and the size are those of [`super::loss`].
pub fn detections(predictions: &Tensor, [height, width]: [i64; 2]) -> Result<Vec<Vec<Detection>>> {
    let grids = Grids::of(height, width, predictions.device())?;
    let (frames, cells, channels) = predictions.size3()?;
    let classes = channels - 4 * BINS;
    let boxes = decoded(&predictions.f_narrow(-1, 0, 4 * BINS)?, &grids)?.f_mul(&grids.strides)?;
    let scores = predictions.f_narrow(-1, 4 * BINS, classes)?.f_sigmoid()?;
    let plain = |tensor: Tensor| -> Result<Vec<f32>> {
        Ok(Vec::try_from(tensor.f_to_kind(Kind::Float)?.f_to_device(Device::Cpu)?.f_contiguous()?.f_view([-1])?)?)
    };
    let (boxes, scores) = (plain(boxes)?, plain(scores)?);
    let (cells, classes) = (cells as usize, classes as usize);
    let frame = |place: usize| {
        let mut found = Vec::new();
        for (at, score) in scores[place * cells * classes..][..cells * classes].iter().enumerate() {
            if *score > LEAST_SCORE {
                let edges = &boxes[(place * cells + at / classes) * 4..][..4];
                let edges = [edges[0], edges[1], edges[2], edges[3]];
                found.push(Detection { class: (at % classes) as u32, score: *score, edges });
            }
        }
        suppressed(found)
    };
    Ok((0..frames as usize).map(frame).collect())
}

/// Non-maximum suppression: removes boxes that overlap one of the same class with a higher score.
pub(super) fn suppressed(mut found: Vec<Detection>) -> Vec<Detection> {
    // Stable, so that of equal scores the earlier cell is first on every machine.
    found.sort_by(|left, right| right.score.total_cmp(&left.score));
    found.truncate(COMPARED);
    let mut kept: Vec<Detection> = Vec::new();
    for detection in found {
        let is_same =
            |other: &Detection| other.class == detection.class && overlap(other.edges, detection.edges) > SAME;
        let of_class = kept.iter().filter(|other| other.class == detection.class).count();
        if of_class < KEPT && !kept.iter().any(is_same) {
            kept.push(detection);
        }
    }
    kept
}
