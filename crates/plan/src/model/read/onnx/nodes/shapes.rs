//! Dimensions of what nodes write that move values or reduce them.

use super::super::file::{MOST_DIMS, Node};
use super::super::values::{State, Value, product};
use super::attributes::{axes, axis, broadcast, int, ints};

/// Dimensions of a node's first output; none where they cannot be worked out, or are more than any tensor has: a chain
/// of lookups could double them with each node.
pub(super) fn dims<'a>(state: &State<'a>, node: &Node<'a>) -> Option<Vec<u64>> {
    worked_out(state, node).filter(|dims| dims.len() <= MOST_DIMS)
}

fn worked_out<'a>(state: &State<'a>, node: &Node<'a>) -> Option<Vec<u64>> {
    let from = state.at(node, 0)?;
    match node.operator {
        "Transpose" | "Concat" | "Gather" | "GatherElements" | "GatherND" | "Expand" | "Tile" => {
            moved(state, node, from)
        }
        "Slice" => sliced(state, node, from),
        "Pad" => padded(state, node, from),
        "DepthToSpace" | "SpaceToDepth" => blocks(node, from),
        "MaxPool" | "AveragePool" | "LpPool" => pooled(node, from),
        "Resize" | "Upsample" => resized(state, node, from),
        _ => computed(state, node, from),
    }
}

/// Dimensions of values that are joined, picked or repeated.
fn moved<'a>(state: &State<'a>, node: &Node<'a>, from: Value) -> Option<Vec<u64>> {
    let rank = from.dims.len();
    let known = |index: usize| state.at(node, index).and_then(|value| value.known);
    match node.operator {
        "Transpose" => {
            let order = ints(node, "perm").unwrap_or((0..rank).rev().map(|at| at as f64).collect());
            order.iter().map(|at| from.dims.get(*at as usize).copied()).collect()
        }
        "Concat" => {
            let at = axis(int(node, "axis", 0), rank).filter(|at| *at < rank)?;
            let mut dims = from.dims;
            dims[at] = 0;
            for index in 0..node.inputs.len() {
                dims[at] = dims[at].saturating_add(*state.at(node, index)?.dims.get(at)?);
            }
            Some(dims)
        }
        "Gather" => {
            let at = axis(int(node, "axis", 0), rank).filter(|at| *at < rank)?;
            let indices = state.at(node, 1)?;
            Some([&from.dims[..at], &indices.dims, &from.dims[at + 1..]].concat())
        }
        "GatherElements" => Some(state.at(node, 1)?.dims),
        "Expand" => {
            let target: Vec<u64> = known(1)?.iter().map(|side| side.max(0.0) as u64).collect();
            Some(broadcast(&from.dims, &target))
        }
        "Tile" => {
            let times = known(1)?;
            from.dims.iter().zip(times).map(|(side, times)| side.checked_mul(times.max(0.0) as u64)).collect()
        }
        "GatherND" => {
            let indices = state.at(node, 1)?.dims;
            let (last, lead) = indices.split_last()?;
            let rest = from.dims.get(usize::try_from(*last).ok()?..)?;
            Some([lead, rest].concat()).filter(|dims| product(dims) > 0)
        }
        _ => None,
    }
}

fn sliced<'a>(state: &State<'a>, node: &Node<'a>, from: Value) -> Option<Vec<u64>> {
    let rank = from.dims.len();
    let known = |index: usize| state.at(node, index).and_then(|value| value.known);
    let (starts, ends) = (known(1).or_else(|| ints(node, "starts"))?, known(2).or_else(|| ints(node, "ends"))?);
    let axes = axes(state, node, 3, rank).unwrap_or((0..starts.len()).collect());
    let steps = known(4).unwrap_or(vec![1.0; starts.len()]);
    let mut dims = from.dims;
    for (index, at) in axes.iter().enumerate() {
        let side = *dims.get(*at)? as f64;
        let step = *steps.get(index)?;
        let bound = |number: f64| (if number < 0.0 { number + side } else { number }).clamp(0.0, side);
        let (start, end) = (bound(*starts.get(index)?), bound(*ends.get(index)?));
        let length = if step < 0.0 { (start - end).max(0.0) } else { (end - start).max(0.0) };
        dims[*at] = (length / step.abs().max(1.0)).ceil() as u64;
    }
    Some(dims)
}

fn padded<'a>(state: &State<'a>, node: &Node<'a>, from: Value) -> Option<Vec<u64>> {
    let rank = from.dims.len();
    let known = |index: usize| state.at(node, index).and_then(|value| value.known);
    let pads = known(1).or_else(|| ints(node, "pads"))?;
    let axes = axes(state, node, 3, rank).unwrap_or((0..rank).collect());
    let mut dims = from.dims;
    for (index, at) in axes.iter().enumerate() {
        let more = pads.get(index)? + pads.get(index + axes.len())?;
        let side = dims.get_mut(*at)?;
        *side = (*side as f64 + more).max(0.0) as u64;
    }
    Some(dims)
}

/// Dimensions of an image whose blocks become channels, or the other way round.
fn blocks(node: &Node, from: Value) -> Option<Vec<u64>> {
    let block = u64::try_from(int(node, "blocksize", 1)).ok().filter(|block| (1..1 << 16).contains(block))?;
    let [batch, channels, height, width] = from.dims[..] else { return None };
    Some(match node.operator {
        "DepthToSpace" => {
            vec![batch, channels / (block * block), height.checked_mul(block)?, width.checked_mul(block)?]
        }
        _ => vec![batch, channels.checked_mul(block * block)?, height / block, width / block],
    })
}

/// Dimensions of a pooled image: a window of `kernel` moves by `strides` over what `pads` enlarge.
fn pooled(node: &Node, from: Value) -> Option<Vec<u64>> {
    let rank = from.dims.len();
    let kernel = ints(node, "kernel_shape")?;
    let spatial = rank.checked_sub(2).filter(|spatial| *spatial == kernel.len())?;
    let list = |name: &str, otherwise: f64, length: usize| {
        ints(node, name).filter(|list| list.len() == length).unwrap_or(vec![otherwise; length])
    };
    let (strides, pads) = (list("strides", 1.0, spatial), list("pads", 0.0, 2 * spatial));
    let dilations = list("dilations", 1.0, spatial);
    let same = node.attributes.get("auto_pad").is_some_and(|attribute| attribute.text.starts_with(b"SAME"));
    let mut dims = from.dims[..2].to_vec();
    for at in 0..spatial {
        let side = from.dims[at + 2] as f64;
        let window = dilations[at] * (kernel[at] - 1.0) + 1.0;
        let steps = (side + pads[at] + pads[at + spatial] - window) / strides[at].max(1.0);
        let length = match (same, int(node, "ceil_mode", 0)) {
            (true, _) => (side / strides[at].max(1.0)).ceil(),
            (false, 0) => steps.floor() + 1.0,
            (false, _) => steps.ceil() + 1.0,
        };
        dims.push(length.max(0.0) as u64);
    }
    Some(dims)
}

fn resized<'a>(state: &State<'a>, node: &Node<'a>, from: Value) -> Option<Vec<u64>> {
    let rank = from.dims.len();
    let known = |index: usize| state.at(node, index).and_then(|value| value.known);
    let sizes = known(3).filter(|sizes| sizes.len() == rank);
    let scales = known(2).or_else(|| known(1)).or_else(|| {
        let floats = &node.attributes.get("scales")?.floats;
        Some(floats.iter().map(|scale| f64::from(*scale)).collect())
    });
    match (sizes, scales.filter(|scales| scales.len() == rank)) {
        (Some(sizes), _) => Some(sizes.iter().map(|side| side.max(0.0) as u64).collect()),
        (None, Some(scales)) => {
            Some(from.dims.iter().zip(scales).map(|(side, scale)| (*side as f64 * scale).floor() as u64).collect())
        }
        (None, None) => state.told(node.outputs.first()?),
    }
}

/// Dimensions of what is viewed, computed value by value, or reduced.
fn computed<'a>(state: &State<'a>, node: &Node<'a>, from: Value) -> Option<Vec<u64>> {
    let rank = from.dims.len();
    let known = |index: usize| state.at(node, index).and_then(|value| value.known);
    match node.operator {
        "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" => {
            view_dims(state, node, &from).or_else(|| state.told(node.outputs.first()?))
        }
        "GlobalAveragePool" | "GlobalMaxPool" => {
            Some(from.dims.iter().enumerate().map(|(at, side)| if at < 2 { *side } else { 1 }).collect())
        }
        "Where" => {
            let (left, right) = (state.at(node, 1)?, state.at(node, 2)?);
            Some(broadcast(&from.dims, &broadcast(&left.dims, &right.dims)))
        }
        "Equal" | "Greater" | "Less" | "GreaterOrEqual" | "LessOrEqual" | "And" | "Or" | "Add" | "Sub" | "Mul"
        | "Div" | "Pow" | "Mod" | "Min" | "Max" => Some(broadcast(&from.dims, &state.at(node, 1)?.dims)),
        "ArgMax" | "ArgMin" => {
            let at = axis(int(node, "axis", 0), rank).filter(|at| *at < rank)?;
            reduce(&from.dims, &[at], int(node, "keepdims", 1) == 1)
        }
        operator if operator.starts_with("Reduce") => {
            let all = (0..rank).collect();
            let axes = axes(state, node, 1, rank).filter(|axes| !axes.is_empty()).unwrap_or(all);
            reduce(&from.dims, &axes, int(node, "keepdims", 1) == 1)
        }
        "Shape" => Some(vec![rank as u64]),
        "OneHot" => {
            let depth = known(1)?.first().copied()?;
            Some([from.dims.as_slice(), &[depth.max(0.0) as u64]].concat())
        }
        "MatMul" => {
            let other = state.at(node, 1)?.dims;
            let (rows, columns) = (from.dims.get(rank.checked_sub(2)?)?, other.last()?);
            let lead = broadcast(&from.dims[..rank - 2], other.get(..other.len().checked_sub(2)?)?);
            Some([lead.as_slice(), &[*rows, *columns]].concat())
        }
        // What changes values one by one keeps their dimensions.
        _ => Some(from.dims),
    }
}

fn reduce(dims: &[u64], axes: &[usize], keep: bool) -> Option<Vec<u64>> {
    let sides = dims.iter().enumerate().filter_map(|(at, side)| match (axes.contains(&at), keep) {
        (true, true) => Some(1),
        (true, false) => None,
        (false, _) => Some(*side),
    });
    Some(sides.collect())
}

/// Dimensions of a view.
pub(super) fn view_dims<'a>(state: &State<'a>, node: &Node<'a>, from: &Value) -> Option<Vec<u64>> {
    let rank = from.dims.len();
    match node.operator {
        "Reshape" => {
            let target = state.at(node, 1)?.known.or_else(|| ints(node, "shape"))?;
            let mut dims = Vec::new();
            let mut open = None;
            for (index, side) in target.iter().enumerate() {
                dims.push(match *side {
                    0.0 if int(node, "allowzero", 0) == 0 => *from.dims.get(index)?,
                    side if side < 0.0 => {
                        open = Some(index);
                        1
                    }
                    side => side as u64,
                });
            }
            if let Some(open) = open {
                dims[open] = from.elements().checked_div(product(&dims)).unwrap_or(0);
            }
            Some(dims)
        }
        "Flatten" => {
            let axis = axis(int(node, "axis", 1), rank)?;
            Some(vec![product(&from.dims[..axis]), product(&from.dims[axis..])])
        }
        "Squeeze" => {
            let axes = axes(state, node, 1, rank);
            let goes = |at: usize| axes.as_ref().map_or(from.dims[at] == 1, |axes| axes.contains(&at));
            Some((0..rank).filter(|at| !goes(*at)).map(|at| from.dims[at]).collect())
        }
        "Unsqueeze" => {
            let count = ints(node, "axes").or_else(|| state.at(node, 1)?.known)?.len();
            if count > MOST_DIMS {
                return None;
            }
            let axes = axes(state, node, 1, rank + count)?;
            let mut rest = from.dims.iter();
            (0..rank + count).map(|at| if axes.contains(&at) { Some(1) } else { rest.next().copied() }).collect()
        }
        _ => None,
    }
}
