//! What a detector is to learn: the right boxes, by their overlap and by where their edges are, and the right scores.

use tch::{Kind, Reduction, Tensor};

use super::assign::{Assigned, assign};
use super::boxes::{complete_overlap, decoded, distances};
use super::{BINS, Grids};
use crate::torch::Result;

/// Weights of the three parts, those that the published networks were trained with.
const BOXES: f64 = 7.5;
const SCORES: f64 = 0.5;
const EDGES: f64 = 1.5;
/// Where nothing is to be found, sums are not divided by less.
pub const LEAST: f64 = 1.0;

/// A loss before it is a mean.
#[derive(Debug)]
pub struct LossSums {
    /// The sum over what is to be found.
    pub loss: Tensor,
    /// How much that is: the scores that are wanted, added up. They depend on what the network says by now.
    pub scores: Tensor,
}

/// The loss of what was `predictions` (`frames × cells × (4 · BINS + classes)`) of frames of `[height, width]` pixels in which
/// `ground_truths` are to be seen. It is a mean over what is to be found: neither the number of frames nor that of their
/// objects changes its size.
pub fn loss(predictions: &Tensor, ground_truths: &Tensor, size: [i64; 2]) -> Result<Tensor> {
    let LossSums { loss, scores } = sums(predictions, ground_truths, size)?;
    Ok(loss.f_div(&scores.f_clamp_min(LEAST)?)?)
}

/// The same as the sums of which it is the mean, so that those of parts of a batch add up to those of the whole.
pub fn sums(predictions: &Tensor, ground_truths: &Tensor, [height, width]: [i64; 2]) -> Result<LossSums> {
    let grids = Grids::of(height, width, predictions.device())?;
    let classes = predictions.size3()?.2 - 4 * BINS;
    let (edges, scores) = (predictions.f_narrow(-1, 0, 4 * BINS)?, predictions.f_narrow(-1, 4 * BINS, classes)?);
    let boxes = decoded(&edges, &grids)?;
    let Assigned { boxes: wanted, scores: sure } = tch::no_grad(|| {
        let in_pixels = boxes.f_detach()?.f_mul(&grids.strides)?;
        let middles = grids.middles.f_mul(&grids.strides)?;
        assign(&scores.f_detach()?.f_sigmoid()?, &in_pixels, &middles, ground_truths)
    })?;
    let weight = sure.f_sum_dim_intlist([-1].as_slice(), false, Kind::Float)?;
    let all = |values: Tensor| -> Result<Tensor> { Ok(values.f_mul(&weight)?.f_sum(Kind::Float)?) };

    let wanted = wanted.f_div(&grids.strides)?;
    let apart = complete_overlap(&boxes, &wanted)?.f_neg()?.f_add_scalar(1.0)?;
    let scored = scores.f_binary_cross_entropy_with_logits::<Tensor>(&sure, None, None, Reduction::Sum)?;
    let edges = by_edge(&edges, &distances(&wanted, &grids.middles)?)?;
    let parts = [(all(apart)?, BOXES), (scored, SCORES), (all(edges)?, EDGES)];
    let mut sum = Tensor::f_zeros([0i64; 0], (Kind::Float, predictions.device()))?;
    for (part, weight) in parts {
        sum = sum.f_add(&part.f_mul_scalar(weight)?)?;
    }
    Ok(LossSums { loss: sum, scores: weight.f_sum(Kind::Float)? })
}

/// How unlikely the two distances next to the true one are, mean over a cell's four edges (Li et al. 2020, equation 6).
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
