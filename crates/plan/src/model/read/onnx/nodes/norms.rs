//! Normalisations.

use super::super::file::Node;
use super::super::values::{State, Value, product};
use super::attributes::{axis, int};
use crate::model::builder::Owned;
use crate::model::{Norm, OpKind, TensorId};

pub(super) fn batch_norm<'a>(state: &mut State<'a>, node: &Node<'a>) -> Option<()> {
    let from = state.at(node, 0)?;
    let groups = from.dims.get(1).copied().unwrap_or(1);
    let trained: Vec<Value> = (1..3).filter_map(|index| state.at(node, index)).collect();
    let running: u64 =
        (3..5).filter_map(|index| state.at(node, index)).map(|value| value.elements()).fold(0, u64::saturating_add);
    let owned = state.own(&trained.iter().collect::<Vec<_>>());
    let kind = OpKind::Norm { norm: Norm::Batch, elements: from.elements(), groups };
    let owned = Owned { buffers: running, ..owned };
    let tensor = state.builder.add(node.name, kind, &[from.tensor?], from.elements(), owned);
    state.set(node, 0, Value { dims: from.dims, tensor: Some(tensor), ..Value::default() });
    Some(())
}

pub(super) fn layer_norm<'a>(state: &mut State<'a>, node: &Node<'a>) -> Option<()> {
    let mut from = state.at(node, 0)?;
    let norm = if node.operator.starts_with(['R', 'M']) || node.operator.starts_with("Simpl") {
        Norm::Rms
    } else {
        Norm::Layer
    };
    let mut first = 1;
    if node.operator.starts_with("Skip") {
        // A residual sum and a normalisation in one.
        let other = state.at(node, 1)?;
        let elements = from.elements();
        let inputs: Vec<TensorId> = from.tensor.into_iter().chain(other.tensor).collect();
        let kind = OpKind::Elementwise { elements, inputs: 2, product: false };
        from.tensor = Some(state.builder.add(node.name, kind, &inputs, elements, Owned::NOTHING));
        first = 2;
    }
    let rank = from.dims.len();
    let axis = axis(int(node, "axis", -1), rank)?;
    let groups = product(&from.dims[..axis]);
    let weights: Vec<Value> = (first..node.inputs.len()).filter_map(|index| state.at(node, index)).collect();
    normalise(state, node, &from, norm, groups, &weights)
}

pub(super) fn normalise<'a>(
    state: &mut State<'a>,
    node: &Node<'a>,
    from: &Value,
    norm: Norm,
    groups: u64,
    weights: &[Value],
) -> Option<()> {
    let owned = state.own(&weights.iter().collect::<Vec<_>>());
    let kind = OpKind::Norm { norm, elements: from.elements(), groups };
    let tensor = state.builder.add(node.name, kind, &[from.tensor?], from.elements(), owned);
    state.set(node, 0, Value { dims: from.dims.clone(), tensor: Some(tensor), ..Value::default() });
    Some(())
}
