//! Small computations on shapes: what an exporter writes out to say where a reshape leads.

use super::super::file::{MOST_VALUES, Node};
use super::super::values::{State, Value, product};
use super::attributes::{broadcast, int, ints};
use super::shapes::view_dims;

/// Works out a node whose inputs are known, where it is one of those that shapes are computed with.
pub(super) fn fold<'a>(state: &State<'a>, node: &Node<'a>) -> Option<Value> {
    match node.operator {
        "Shape" | "Size" | "Constant" | "ConstantOfShape" | "Range" => begun(state, node),
        "Identity" | "Cast" | "CastLike" | "Squeeze" | "Unsqueeze" | "Reshape" | "Flatten" | "Concat" | "Gather"
        | "Slice" | "Transpose" => moved(state, node),
        _ => computed(state, node),
    }
}

/// A list of known values, as a vector.
fn list(known: Vec<f64>) -> Option<Value> {
    Some(Value { dims: vec![known.len() as u64], known: Some(known), ..Value::default() })
}

/// Known values that begin at a node: the dimensions of a tensor, constants and ranges.
fn begun<'a>(state: &State<'a>, node: &Node<'a>) -> Option<Value> {
    let input = |index: usize| state.at(node, index);
    let known = |index: usize| input(index).and_then(|value| value.known);
    match node.operator {
        "Shape" => {
            let dims = input(0)?.dims;
            let rank = dims.len() as i64;
            let bound = |at: i64| (if at < 0 { at + rank } else { at }).clamp(0, rank) as usize;
            let (start, end) = (bound(int(node, "start", 0)), bound(int(node, "end", rank)));
            list(dims.get(start..end)?.iter().map(|side| *side as f64).collect())
        }
        "Size" => Some(Value { known: Some(vec![input(0)?.elements() as f64]), ..Value::default() }),
        "Constant" => {
            if let Some(value) = node.attributes.get("value_int").and_then(|attribute| attribute.int) {
                return Some(Value { known: Some(vec![value as f64]), ..Value::default() });
            }
            if let Some(value) = node.attributes.get("value_float").and_then(|attribute| attribute.float) {
                return Some(Value { known: Some(vec![f64::from(value)]), ..Value::default() });
            }
            list(node.attributes.get("value_ints")?.ints.iter().take(MOST_VALUES).map(|value| *value as f64).collect())
        }
        "ConstantOfShape" => {
            let dims: Vec<u64> = known(0)?.iter().map(|side| *side as u64).collect();
            let fill = node.attributes.get("value").and_then(|attribute| attribute.tensor.as_ref()?.values());
            let fill = fill.and_then(|values| values.first().copied()).unwrap_or(0.0);
            let count = usize::try_from(product(&dims)).ok().filter(|count| *count <= MOST_VALUES);
            Some(Value { dims, known: count.map(|count| vec![fill; count]), ..Value::default() })
        }
        "Range" => {
            let (start, limit, delta) = (*known(0)?.first()?, *known(1)?.first()?, *known(2)?.first()?);
            let count = ((limit - start) / delta).ceil().max(0.0);
            if !count.is_finite() || count > 1e9 {
                return None;
            }
            let known = (count <= MOST_VALUES as f64)
                .then(|| (0..count as usize).map(|at| start + at as f64 * delta).collect());
            Some(Value { dims: vec![count as u64], known, ..Value::default() })
        }
        _ => None,
    }
}

/// Known values that a node passes on, views, joins or picks from.
fn moved<'a>(state: &State<'a>, node: &Node<'a>) -> Option<Value> {
    let input = |index: usize| state.at(node, index);
    let known = |index: usize| input(index).and_then(|value| value.known);
    match node.operator {
        "Identity" | "Cast" | "CastLike" => {
            let value = input(0)?;
            let mut known = value.known.clone()?;
            if node.operator == "Cast" && matches!(int(node, "to", 0), 6 | 7) {
                known.iter_mut().for_each(|number| *number = number.trunc());
            }
            Some(Value { known: Some(known), tensor: None, ..value })
        }
        "Squeeze" | "Unsqueeze" | "Reshape" | "Flatten" => {
            let value = input(0)?;
            let known = value.known.clone()?;
            let dims = view_dims(state, node, &value)?;
            Some(Value { dims, known: Some(known), tensor: None, weights: value.weights })
        }
        "Concat" => {
            let mut all = Vec::new();
            for index in 0..node.inputs.len() {
                all.extend(known(index)?);
            }
            Some(all).filter(|all| all.len() <= MOST_VALUES).and_then(list)
        }
        "Gather" => gathered(state, node),
        "Slice" => sliced(state, node),
        "Transpose" => transposed(state, node),
        _ => None,
    }
}

fn gathered<'a>(state: &State<'a>, node: &Node<'a>) -> Option<Value> {
    let input = |index: usize| state.at(node, index);
    let known = |index: usize| input(index).and_then(|value| value.known);
    let (data, indices) = (known(0)?, input(1)?);
    if input(0)?.dims.len() > 1 {
        return None;
    }
    let wanted = indices.known?;
    let picked = wanted.iter().map(|index| {
        let at = if *index < 0.0 { *index + data.len() as f64 } else { *index };
        data.get(at as usize).copied()
    });
    Some(Value { dims: indices.dims, known: Some(picked.collect::<Option<Vec<f64>>>()?), ..Value::default() })
}

fn sliced<'a>(state: &State<'a>, node: &Node<'a>) -> Option<Value> {
    let input = |index: usize| state.at(node, index);
    let known = |index: usize| input(index).and_then(|value| value.known);
    let data = known(0)?;
    let (starts, ends) = (known(1).or_else(|| ints(node, "starts"))?, known(2).or_else(|| ints(node, "ends"))?);
    let step = known(4).and_then(|steps| steps.first().copied()).unwrap_or(1.0);
    let dims = input(0)?.dims;
    if step == -1.0 && dims.len() == 2 && starts.len() == 1 && known(3)? == [0.0] {
        // Paddings are turned round, pair by pair.
        let turned = data.chunks(dims[1].max(1) as usize).rev().flatten().copied().collect();
        return Some(Value { dims, known: Some(turned), ..Value::default() });
    }
    if dims.len() != 1 || step != 1.0 {
        return None;
    }
    let length = data.len() as f64;
    let bound = |at: f64| (if at < 0.0 { at + length } else { at }).clamp(0.0, length) as usize;
    list(data.get(bound(*starts.first()?)..bound(*ends.first()?))?.to_vec())
}

fn transposed<'a>(state: &State<'a>, node: &Node<'a>) -> Option<Value> {
    let input = |index: usize| state.at(node, index);
    let known = |index: usize| input(index).and_then(|value| value.known);
    let (data, dims) = (known(0)?, input(0)?.dims);
    let [rows, columns] = dims[..] else { return None };
    // As many values as the dimensions say, so neither is 0 where there is one, and no product overflows.
    if product(&dims) != data.len() as u64 {
        return None;
    }
    let (down, across) = (rows as usize, columns as usize);
    let turned = (0..data.len()).map(|at| data.get(at / down + at % down * across));
    let known = turned.map(|number| number.copied()).collect::<Option<Vec<f64>>>()?;
    Some(Value { dims: vec![columns, rows], known: Some(known), ..Value::default() })
}

/// Known values that a node computes from known ones: reductions, and arithmetic value by value.
fn computed<'a>(state: &State<'a>, node: &Node<'a>) -> Option<Value> {
    let input = |index: usize| state.at(node, index);
    let known = |index: usize| input(index).and_then(|value| value.known);
    match node.operator {
        "ReduceProd" | "ReduceMax" | "ReduceMin" | "ReduceSum" => {
            let data = known(0)?;
            let value = match node.operator {
                "ReduceProd" => data.iter().product(),
                "ReduceSum" => data.iter().sum(),
                "ReduceMax" => data.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                _ => data.iter().copied().fold(f64::INFINITY, f64::min),
            };
            let dims = if int(node, "keepdims", 1) == 1 { vec![1; input(0)?.dims.len()] } else { Vec::new() };
            Some(Value { dims, known: Some(vec![value]), ..Value::default() })
        }
        "Neg" | "Floor" | "Ceil" | "Round" | "Sqrt" | "Abs" | "Not" => {
            let value = input(0)?;
            let apply = |number: f64| match node.operator {
                "Neg" => -number,
                "Floor" => number.floor(),
                "Ceil" => number.ceil(),
                "Round" => number.round(),
                "Sqrt" => number.sqrt(),
                "Abs" => number.abs(),
                _ => f64::from(number == 0.0),
            };
            Some(Value { known: Some(value.known.clone()?.into_iter().map(apply).collect()), ..value })
        }
        "Where" => {
            let (condition, left, right) = (known(0)?, known(1)?, known(2)?);
            let count = condition.len().max(left.len()).max(right.len());
            let pick = |list: &Vec<f64>, at: usize| list.get(at).or(list.first()).copied();
            let mut picked = Vec::new();
            for at in 0..count {
                picked.push(if pick(&condition, at)? != 0.0 { pick(&left, at)? } else { pick(&right, at)? });
            }
            list(picked)
        }
        "Add" | "Sub" | "Mul" | "Div" | "Mod" | "Min" | "Max" | "Pow" | "Equal" | "Greater" | "Less" => {
            two(node.operator, input(0)?, input(1)?)
        }
        _ => None,
    }
}

/// The result of an operator over two lists of known values, of which one may be a single value.
fn two(operator: &str, left: Value, right: Value) -> Option<Value> {
    let (one, other) = (left.known?, right.known?);
    if one.len() != other.len() && one.len() != 1 && other.len() != 1 {
        return None;
    }
    let pick = |list: &Vec<f64>, at: usize| list.get(at).or(list.first()).copied();
    let mut results = Vec::new();
    for at in 0..one.len().max(other.len()) {
        let (left, right) = (pick(&one, at)?, pick(&other, at)?);
        let whole = left.fract() == 0.0 && right.fract() == 0.0;
        results.push(match operator {
            "Add" => left + right,
            "Sub" => left - right,
            "Mul" => left * right,
            "Div" if whole => (left / right).trunc(),
            "Div" => left / right,
            "Mod" => left.rem_euclid(right),
            "Min" => left.min(right),
            "Max" => left.max(right),
            "Pow" => left.powf(right),
            "Equal" => f64::from(left == right),
            "Greater" => f64::from(left > right),
            _ => f64::from(left < right),
        });
    }
    Some(Value { dims: broadcast(&left.dims, &right.dims), known: Some(results), ..Value::default() })
}
