//! Box geometry, over tensors whose last dimension is left, top, right and bottom.

use std::f64::consts::PI;

use tch::{Kind, Tensor};

use super::average::CocoBox;
use super::{BINS, Grids};
use crate::torch::Result;

/// Keeps quotients finite.
const EPS: f64 = 1e-7;

/// Decodes the boxes predicted by cells, in units of cells: `edges` is `… × cells × 4 · BINS`.
pub(super) fn decoded(edges: &Tensor, grids: &Grids) -> Result<Tensor> {
    let size = edges.size();
    let split = [&size[..size.len() - 1], &[4, BINS]].concat();
    let shares = edges.f_view(split.as_slice())?.f_softmax(-1, Kind::Float)?;
    let numbers = Tensor::f_arange(BINS, (Kind::Float, edges.device()))?;
    let distances = shares.f_matmul(&numbers)?;
    let (before, after) = (distances.f_narrow(-1, 0, 2)?, distances.f_narrow(-1, 2, 2)?);
    Ok(Tensor::f_cat(&[grids.middles.f_sub(&before)?, grids.middles.f_add(&after)?], -1)?)
}

/// How far each edge is from the middles, in cells.
pub(super) fn distances(boxes: &Tensor, middles: &Tensor) -> Result<Tensor> {
    let (first, last) = (boxes.f_narrow(-1, 0, 2)?, boxes.f_narrow(-1, 2, 2)?);
    Ok(Tensor::f_cat(&[middles.f_sub(&first)?, last.f_sub(middles)?], -1)?)
}

/// The overlap over the union, less the distance of the middles and the difference of the shapes (Zheng et al. 2019,
/// "Distance-IoU Loss", equation 10).
pub(super) fn complete_overlap(one: &Tensor, other: &Tensor) -> Result<Tensor> {
    let edge = |boxes: &Tensor, place: i64| boxes.f_select(-1, place);
    let [l1, t1, r1, b1] = [edge(one, 0)?, edge(one, 1)?, edge(one, 2)?, edge(one, 3)?];
    let [l2, t2, r2, b2] = [edge(other, 0)?, edge(other, 1)?, edge(other, 2)?, edge(other, 3)?];
    let [w1, h1, w2, h2] = [r1.f_sub(&l1)?, b1.f_sub(&t1)?, r2.f_sub(&l2)?, b2.f_sub(&t2)?];
    let shared_width = r1.f_minimum(&r2)?.f_sub(&l1.f_maximum(&l2)?)?.f_clamp_min(0.0)?;
    let shared_height = b1.f_minimum(&b2)?.f_sub(&t1.f_maximum(&t2)?)?.f_clamp_min(0.0)?;
    let shared = shared_width.f_mul(&shared_height)?;
    let union = w1.f_mul(&h1)?.f_add(&w2.f_mul(&h2)?)?.f_sub(&shared)?.f_add_scalar(EPS)?;
    let overlap = shared.f_div(&union)?;

    let around_width = r1.f_maximum(&r2)?.f_sub(&l1.f_minimum(&l2)?)?;
    let around_height = b1.f_maximum(&b2)?.f_sub(&t1.f_minimum(&t2)?)?;
    let diagonal = around_width.f_square()?.f_add(&around_height.f_square()?)?.f_add_scalar(EPS)?;
    let across = l2.f_add(&r2)?.f_sub(&l1)?.f_sub(&r1)?.f_square()?;
    let down = t2.f_add(&b2)?.f_sub(&t1)?.f_sub(&b1)?.f_square()?;
    let distance = across.f_add(&down)?.f_div_scalar(4.0)?.f_div(&diagonal)?;

    let slope =
        |width: &Tensor, height: &Tensor| -> Result<Tensor> { Ok(width.f_div(&height.f_add_scalar(EPS)?)?.f_atan()?) };
    let shape = slope(&w2, &h2)?.f_sub(&slope(&w1, &h1)?)?.f_square()?.f_mul_scalar(4.0 / (PI * PI))?;
    let share = {
        // No gradient flows through the weight of the shape.
        let (shape, overlap) = (shape.f_detach()?, overlap.f_detach()?);
        shape.f_div(&shape.f_sub(&overlap)?.f_add_scalar(1.0 + EPS)?)?
    };
    Ok(overlap.f_sub(&distance)?.f_sub(&shape.f_mul(&share)?)?)
}

/// The overlap of two boxes over their union, or over the first one where the other is a region of many: pycocotools'
/// `bbIou`.
pub(super) fn coco_overlap(found: CocoBox, there: CocoBox, is_crowd: bool) -> f64 {
    let along = |axis: usize| {
        let end = (found[axis] + found[axis + 2]).min(there[axis] + there[axis + 2]);
        end - found[axis].max(there[axis])
    };
    let (width, height) = (along(0), along(1));
    if width <= 0.0 || height <= 0.0 {
        return 0.0;
    }
    let (shared, area) = (width * height, found[2] * found[3]);
    shared / if is_crowd { area } else { area + there[2] * there[3] - shared }
}

/// The overlap over the union of two boxes.
pub(super) fn overlap(one: [f32; 4], other: [f32; 4]) -> f32 {
    let area = |[left, top, right, bottom]: [f32; 4]| (right - left).max(0.0) * (bottom - top).max(0.0);
    let shared = area([one[0].max(other[0]), one[1].max(other[1]), one[2].min(other[2]), one[3].min(other[3])]);
    let union = area(one) + area(other) - shared;
    if union > 0.0 { shared / union } else { 0.0 }
}
