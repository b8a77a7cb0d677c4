//! Nodes that multiply by weights, or activations by each other.

use super::super::file::Node;
use super::super::values::{State, Value, product};
use super::attributes::{broadcast, int, ints};
use crate::model::{OpKind, WeightSplit};

/// A convolution of any number of dimensions, forwards or transposed.
pub(super) fn convolution<'a>(state: &mut State<'a>, node: &Node<'a>, transposed: bool) -> Option<Value> {
    let (from, weight) = (state.at(node, 0)?, state.at(node, 1)?);
    let rank = from.dims.len().checked_sub(2).filter(|rank| *rank > 0 && weight.dims.len() == rank + 2)?;
    let groups = u64::try_from(int(node, "group", 1)).ok().filter(|groups| *groups > 0)?;
    let list = |name: &str, otherwise: f64, length: usize| {
        ints(node, name).filter(|list| list.len() == length).unwrap_or(vec![otherwise; length])
    };
    let strides = list("strides", 1.0, rank);
    let dilations = list("dilations", 1.0, rank);
    let pads = list("pads", 0.0, 2 * rank);
    let more = list("output_padding", 0.0, rank);
    let same = node.attributes.get("auto_pad").is_some_and(|attribute| attribute.text.starts_with(b"SAME"));
    let channels = if transposed { weight.dims[1].checked_mul(groups)? } else { weight.dims[0] };
    let mut dims = vec![from.dims[0], channels];
    for at in 0..rank {
        let (side, kernel) = (from.dims[at + 2] as f64, weight.dims[at + 2] as f64);
        let (stride, padded) = (strides[at].max(1.0), pads[at] + pads[at + rank]);
        let window = dilations[at] * (kernel - 1.0) + 1.0;
        let length = match (transposed, same) {
            (true, true) => side * stride,
            (true, false) => (side - 1.0) * stride + window - padded + more[at],
            (false, true) => (side / stride).ceil(),
            (false, false) => ((side + padded - window) / stride).floor() + 1.0,
        };
        dims.push(length.clamp(0.0, 1e12) as u64);
    }
    let kernel = product(&weight.dims[2..]);
    let kind = match transposed {
        false => OpKind::Convolution {
            positions: from.dims[0].saturating_mul(product(&dims[2..])),
            inner: weight.dims[1].saturating_mul(kernel),
            columns: channels / groups,
            groups,
            kernel: side(&weight.dims),
        },
        true => OpKind::Convolution {
            positions: from.dims[0].saturating_mul(product(&from.dims[2..])),
            inner: weight.dims[0] / groups,
            columns: weight.dims[1].saturating_mul(kernel),
            groups,
            kernel: side(&weight.dims),
        },
    };
    let bias = state.at(node, 2).unwrap_or_default();
    state.product(&weight, channels);
    let owned = state.own(&[&weight, &bias]);
    let inputs: Vec<_> = from.tensor.into_iter().collect();
    let tensor = state.builder.add(node.name, kind, &inputs, product(&dims), owned);
    Some(Value { dims, tensor: Some(tensor), ..Value::default() })
}

fn side(dims: &[u64]) -> u32 {
    dims[2..].iter().copied().max().map_or(1, |side| side.min(u64::from(u32::MAX)) as u32)
}

pub(super) fn gemm<'a>(state: &mut State<'a>, node: &Node<'a>) -> Option<Value> {
    let turned = |value: Value, name: &str| match int(node, name, 0) {
        0 => value,
        _ => Value { dims: value.dims.iter().rev().copied().collect(), ..value },
    };
    let left = turned(state.at(node, 0)?, "transA");
    let right = turned(state.at(node, 1)?, "transB");
    let bias = state.at(node, 2).unwrap_or_default();
    multiply(state, node, left, right, bias)
}

pub(super) fn matmul<'a>(state: &mut State<'a>, node: &Node<'a>) -> Option<Value> {
    let (left, right) = (state.at(node, 0)?, state.at(node, 1)?);
    multiply(state, node, left, right, Value::default())
}

fn multiply<'a>(state: &mut State<'a>, node: &Node<'a>, left: Value, right: Value, bias: Value) -> Option<Value> {
    let inner = left.last();
    let (rows, columns) = match (left.dims.len(), right.dims.len()) {
        (0, _) | (_, 0) => return None,
        (1, 1) => (1, 1),
        (1, rank) => (1, right.dims[rank - 1]),
        (rank, 1) => (left.dims[rank - 2], 1),
        (rank, other) => (left.dims[rank - 2], right.dims[other - 1]),
    };
    let lead = |value: &Value| value.dims[..value.dims.len().saturating_sub(2)].to_vec();
    let mut dims = broadcast(&lead(&left), &lead(&right));
    let batch = product(&dims);
    if left.dims.len() > 1 {
        dims.push(rows);
    }
    if right.dims.len() > 1 {
        dims.push(columns);
    }
    let elements = product(&dims);
    let inputs: Vec<_> = left.tensor.into_iter().chain(right.tensor).collect();
    let kind = match (left.is_fixed(), right.is_fixed()) {
        (false, false) => OpKind::Product { batch, rows, inner, columns },
        // A weight on the left multiplies columns: the same work, turned.
        (true, _) => {
            OpKind::Linear { rows: batch.saturating_mul(columns), inner, columns: rows, split: WeightSplit::Whole }
        }
        (false, true) => OpKind::Linear { rows: batch.saturating_mul(rows), inner, columns, split: WeightSplit::Whole },
    };
    match (left.is_fixed(), right.is_fixed()) {
        (false, false) => {}
        (true, _) => state.product(&left, rows),
        (false, true) => state.product(&right, columns),
    }
    let owned = state.own(&[&left, &right, &bias]);
    let tensor = state.builder.add(node.name, kind, &inputs, elements, owned);
    Some(Value { dims, tensor: Some(tensor), ..Value::default() })
}

/// A sum over products, by labels of dimensions.
pub(super) fn einsum<'a>(state: &mut State<'a>, node: &Node<'a>) -> Option<Value> {
    let equation = std::str::from_utf8(node.attributes.get("equation")?.text).ok()?;
    let equation: String = equation.chars().filter(|letter| !letter.is_whitespace()).collect();
    let (sources, target) = equation.split_once("->")?;
    let [one, other] = sources.split(',').collect::<Vec<_>>()[..] else { return None };
    let (left, right) = (state.at(node, 0)?, state.at(node, 1)?);
    if equation.contains('.') || one.chars().count() != left.dims.len() || other.chars().count() != right.dims.len() {
        return None;
    }
    let size = |label: char| {
        let of = |labels: &str, value: &Value| labels.chars().position(|each| each == label).map(|at| value.dims[at]);
        of(one, &left).max(of(other, &right)).unwrap_or(1)
    };
    let all = |wanted: &dyn Fn(char) -> bool| -> u64 {
        let labels: std::collections::BTreeSet<char> = one.chars().chain(other.chars()).collect();
        product(&labels.into_iter().filter(|label| wanted(*label)).map(size).collect::<Vec<u64>>())
    };
    let (in_one, in_other, stays) =
        (|label: char| one.contains(label), |label: char| other.contains(label), |label: char| target.contains(label));
    let batch = all(&|label| in_one(label) && in_other(label) && stays(label));
    let inner = all(&|label| in_one(label) && in_other(label) && !stays(label));
    let rows = all(&|label| in_one(label) && !in_other(label));
    let columns = all(&|label| !in_one(label) && in_other(label));
    let dims: Vec<u64> = target.chars().map(size).collect();
    let kind = match (left.is_fixed(), right.is_fixed()) {
        (false, false) => OpKind::Product { batch, rows, inner, columns },
        (true, _) => {
            OpKind::Linear { rows: batch.saturating_mul(columns), inner, columns: rows, split: WeightSplit::Whole }
        }
        (false, true) => OpKind::Linear { rows: batch.saturating_mul(rows), inner, columns, split: WeightSplit::Whole },
    };
    let owned = state.own(&[&left, &right]);
    let inputs: Vec<_> = left.tensor.into_iter().chain(right.tensor).collect();
    let tensor = state.builder.add(node.name, kind, &inputs, product(&dims), owned);
    Some(Value { dims, tensor: Some(tensor), ..Value::default() })
}

/// An LSTM (4 gates), a GRU (3) or a plain recurrent layer (1).
pub(super) fn recurrent<'a>(state: &mut State<'a>, node: &Node<'a>, gates: u64) -> Option<()> {
    let (from, weight, again) = (state.at(node, 0)?, state.at(node, 1)?, state.at(node, 2)?);
    let [steps, batch, inner] = from.dims[..] else { return None };
    let (directions, hidden) = (*weight.dims.first()?, again.last());
    // Several samples at once take as many steps, and each sample has its own share of what is kept.
    let (steps, batch) = if int(node, "layout", 0) == 1 { (batch, steps) } else { (steps, batch) };
    // Several sequences of one sample, such as the rows of an image, take as much as several directions.
    let sequences = (batch / state.batch.max(1)).max(1);
    let kind = OpKind::Recurrent { steps, inner, hidden, gates, directions: directions.saturating_mul(sequences) };
    let bias = state.at(node, 3).unwrap_or_default();
    let owned = state.own(&[&weight, &again, &bias]);
    let dims = vec![steps, directions, batch, hidden];
    let inputs: Vec<_> = from.tensor.into_iter().collect();
    let tensor = state.builder.add(node.name, kind, &inputs, product(&dims), owned);
    state.set(node, 0, Value { dims, tensor: Some(tensor), ..Value::default() });
    for index in [1, 2] {
        let dims = vec![directions, batch, hidden];
        let kind = OpKind::Copy { elements: product(&dims) };
        if node.outputs.get(index).is_some_and(|name| !name.is_empty()) {
            let tensor = state.builder.add(node.name, kind, &[tensor], product(&dims), Default::default());
            state.set(node, index, Value { dims, tensor: Some(tensor), ..Value::default() });
        }
    }
    Some(())
}
