//! The loss of a detector: of boxes, by their overlap (complete IoU) and by their edges (distribution focal loss), and of
//! class scores (binary cross-entropy).

use tch::{Kind, Reduction, Tensor};

use super::assign::{Assigned, assign};
use super::boxes::{complete_overlap, decoded, distances};
use super::{BINS, Grids};
use crate::torch::Result;

/// Weights of the three terms, those that the published networks were trained with.
const BOXES: f64 = 7.5;
const SCORES: f64 = 0.5;
const EDGES: f64 = 1.5;
/// The least divisor of the sums, for batches without objects.
pub const LEAST: f64 = 1.0;

/// A loss before it is divided by the sum of target scores.
#[derive(Debug)]
pub struct LossSums {
    /// The sum over all assigned cells, a scalar.
    pub loss: Tensor,
    /// The sum of target scores, a scalar. It depends on the present predictions.
    pub scores: Tensor,
}

/// The loss of `predictions` (`images × cells × (4 · BINS + classes)`) for images of `[height, width]` pixels with this
/// `ground_truth` ([`super::ground_truth_tensor`]). It is a mean over target scores, so that neither the number of images
/// nor that of their objects changes its scale.
pub fn loss(predictions: &Tensor, ground_truth: &Tensor, size: [i64; 2]) -> Result<Tensor> {
    let LossSums { loss, scores } = sums(predictions, ground_truth, size)?;
    Ok(loss.f_div(&scores.f_clamp_min(LEAST)?)?)
}

/// The numerator and denominator of [`loss`]; those of micro-batches add up to those of the batch.
pub fn sums(predictions: &Tensor, ground_truth: &Tensor, [height, width]: [i64; 2]) -> Result<LossSums> {
    let grids = Grids::of(height, width, predictions.device())?;
    let classes = predictions.size3()?.2 - 4 * BINS;
    let (edges, scores) = (predictions.f_narrow(-1, 0, 4 * BINS)?, predictions.f_narrow(-1, 4 * BINS, classes)?);
    let boxes = decoded(&edges, &grids)?;
    let Assigned { boxes: target_boxes, scores: target_scores } = tch::no_grad(|| {
        let in_pixels = boxes.f_detach()?.f_mul(&grids.strides)?;
        let middles = grids.middles.f_mul(&grids.strides)?;
        assign(&scores.f_detach()?.f_sigmoid()?, &in_pixels, &middles, ground_truth)
    })?;
    let weight = target_scores.f_sum_dim_intlist([-1].as_slice(), false, Kind::Float)?;
    let all = |values: Tensor| -> Result<Tensor> { Ok(values.f_mul(&weight)?.f_sum(Kind::Float)?) };

    let target_boxes = target_boxes.f_div(&grids.strides)?;
    let apart = complete_overlap(&boxes, &target_boxes)?.f_neg()?.f_add_scalar(1.0)?;
    let scored = scores.f_binary_cross_entropy_with_logits::<Tensor>(&target_scores, None, None, Reduction::Sum)?;
    let edges = by_edge(&edges, &distances(&target_boxes, &grids.middles)?)?;
    let parts = [(all(apart)?, BOXES), (scored, SCORES), (all(edges)?, EDGES)];
    let mut sum = Tensor::f_zeros([0i64; 0], (Kind::Float, predictions.device()))?;
    for (part, weight) in parts {
        sum = sum.f_add(&part.f_mul_scalar(weight)?)?;
    }
    Ok(LossSums { loss: sum, scores: weight.f_sum(Kind::Float)? })
}

/// Distribution focal loss: the cross-entropy of the two bins next to the true distance, averaged over a cell's four edges
/// (Li et al. 2020, equation 6).
fn by_edge(predictions: &Tensor, distances: &Tensor) -> Result<Tensor> {
    let size = distances.size();
    let split = [&size[..], &[BINS]].concat();
    let likely = predictions.f_view(split.as_slice())?.f_log_softmax(-1, Kind::Float)?;
    let distances = distances.f_clamp(0.0, BINS as f64 - 1.01)?;
    let below = distances.f_floor()?;
    let above_share = distances.f_sub(&below)?;
    let index = below.f_to_kind(Kind::Int64)?.f_unsqueeze(-1)?;
    let at = |index: &Tensor| -> Result<Tensor> { Ok(likely.f_gather(-1, index, false)?.f_squeeze_dim(-1)?) };
    let above = at(&index.f_add_scalar(1)?)?.f_mul(&above_share)?;
    let below = at(&index)?.f_mul(&above_share.f_neg()?.f_add_scalar(1.0)?)?;
    Ok(above.f_add(&below)?.f_neg()?.f_mean_dim([-1].as_slice(), false, Kind::Float)?)
}
