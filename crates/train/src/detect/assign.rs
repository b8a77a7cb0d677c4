//! Task-aligned assignment of cells to objects (Feng et al. 2021, "TOOD", section 3.2).
//!
//! A cell is a candidate for an object whose box contains its centre. Of these, the ten with the best alignment, score to
//! the power of 0.5 times overlap to the power of 6, are assigned; a cell with two objects gets the one that it overlaps
//! more.

use tch::{Kind, Tensor};

use super::boxes::complete_overlap;
use crate::torch::Result;

/// Cells assigned to one object.
const CELLS: i64 = 10;
/// Exponents of score and overlap in the alignment.
const SCORE_POWER: f64 = 0.5;
const OVERLAP_POWER: f64 = 6.0;
const EPS: f64 = 1e-9;

/// The targets of each cell.
pub(super) struct Assigned {
    /// `images × cells × 4`, in pixels; arbitrary if no object is assigned.
    pub boxes: Tensor,
    /// `images × cells × classes`: the target score; zero if no object is assigned.
    pub scores: Tensor,
}

/// `scores` (in 0–1) and `boxes` (pixels) are the present predictions, `middles` the centres of the cells in pixels, and
/// `ground_truth` is a [`super::ground_truth_tensor`].
pub(super) fn assign(scores: &Tensor, boxes: &Tensor, middles: &Tensor, ground_truth: &Tensor) -> Result<Assigned> {
    let (_, cells, classes) = scores.size3()?;
    let is_object = ground_truth.f_select(-1, 0)?.f_ge(0.0)?.f_to_kind(Kind::Float)?.f_unsqueeze(-1)?;
    let labels = ground_truth.f_select(-1, 0)?.f_clamp_min(0.0)?.f_to_kind(Kind::Int64)?;
    let edges = ground_truth.f_narrow(-1, 1, 4)?;

    // All that follows is images × objects × cells.
    let [first, last] = [edges.f_narrow(-1, 0, 2)?.f_unsqueeze(2)?, edges.f_narrow(-1, 2, 2)?.f_unsqueeze(2)?];
    let inner = Tensor::f_cat(&[middles.f_sub(&first)?, last.f_sub(middles)?], -1)?;
    let candidate = inner.f_amin([-1], false)?.f_gt(EPS)?.f_to_kind(Kind::Float)?.f_mul(&is_object)?;
    let overlap = complete_overlap(&edges.f_unsqueeze(2)?, &boxes.f_unsqueeze(1)?)?;
    let overlap = overlap.f_clamp_min(0.0)?.f_mul(&candidate)?;
    let index = labels.f_unsqueeze(-1)?.f_expand([-1, -1, cells], false)?;
    let score = scores.f_transpose(1, 2)?.f_gather(1, &index, false)?;
    let agreement = score.f_pow_tensor_scalar(SCORE_POWER)?.f_mul(&overlap.f_pow_tensor_scalar(OVERLAP_POWER)?)?;
    let agreement = agreement.f_mul(&candidate)?;

    let (_, best) = agreement.f_topk(CELLS.min(cells), -1, true, true)?;
    let chosen = agreement.f_zeros_like()?.f_scatter_value(-1, &best, 1.0)?.f_mul(&candidate)?;
    let is_contested = chosen.f_sum_dim_intlist([1].as_slice(), true, Kind::Float)?.f_gt(1.0)?;
    let closest = overlap.f_argmax(1, true)?;
    let only = overlap.f_zeros_like()?.f_scatter_value(1, &closest, 1.0)?;
    let chosen = only.f_where_self(&is_contested, &chosen)?.f_mul(&candidate)?;

    let object = chosen.f_argmax(1, false)?;
    let is_assigned =
        chosen.f_sum_dim_intlist([1].as_slice(), false, Kind::Float)?.f_gt(0.0)?.f_to_kind(Kind::Float)?;
    let of_object = object.f_unsqueeze(-1)?.f_expand([-1, -1, 4], false)?;
    let boxes = edges.f_gather(1, &of_object, false)?;
    let label = labels.f_gather(1, &object, false)?;

    // The target of the best cell of an object is the overlap of its box; the others are in proportion.
    let agreement = agreement.f_mul(&chosen)?;
    let most = agreement.f_amax([-1], true)?;
    let widest = overlap.f_mul(&chosen)?.f_amax([-1], true)?;
    let target = agreement.f_mul(&widest)?.f_div(&most.f_add_scalar(EPS)?)?.f_amax([1], false)?.f_mul(&is_assigned)?;
    let scores = label.f_one_hot(classes)?.f_to_kind(Kind::Float)?.f_mul(&target.f_unsqueeze(-1)?)?;
    Ok(Assigned { boxes, scores })
}
