//! What nodes say of themselves: numbers, lists and axes, and the dimensions that two tensors have together.

use super::super::file::Node;
use super::super::values::State;

/// An attribute that is a number; `otherwise` where the node has none of the name.
pub(super) fn int(node: &Node, name: &str, otherwise: i64) -> i64 {
    node.attributes.get(name).and_then(|attribute| attribute.int).unwrap_or(otherwise)
}

/// An attribute that is a list of numbers; none where the node has none of the name.
pub(super) fn ints(node: &Node, name: &str) -> Option<Vec<f64>> {
    node.attributes.get(name).map(|attribute| attribute.ints.iter().map(|number| *number as f64).collect())
}

/// An axis, counted from the end where it is negative.
pub(super) fn axis(axis: i64, rank: usize) -> Option<usize> {
    let from_start = if axis < 0 { axis.checked_add(rank as i64)? } else { axis };
    usize::try_from(from_start).ok().filter(|axis| *axis <= rank)
}

/// Dimensions of what two tensors give together.
pub(super) fn broadcast(left: &[u64], right: &[u64]) -> Vec<u64> {
    let rank = left.len().max(right.len());
    let side = |dims: &[u64], at: usize| (at + dims.len()).checked_sub(rank).map_or(1, |at| dims[at]);
    (0..rank).map(|at| side(left, at).max(side(right, at))).collect()
}

/// The axes that a node names, in an attribute or, in later versions, in an input; none where it names none.
pub(super) fn axes<'a>(state: &State<'a>, node: &Node<'a>, at: usize, rank: usize) -> Option<Vec<usize>> {
    let named = ints(node, "axes").or_else(|| state.at(node, at).and_then(|value| value.known))?;
    named.iter().map(|number| axis(*number as i64, rank)).collect()
}
