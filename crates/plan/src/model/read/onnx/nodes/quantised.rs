//! Weights in few bits, and operators over them. They are counted as the weights that they stand for: what is trained is a
//! network with all of their bits.

use super::super::file::Node;
use super::super::values::{State, Value, product};
use super::products::{convolution, matmul};
use crate::model::builder::Owned;
use crate::model::{OpKind, WeightSplit};

/// What is said of such a file.
const SAID: &str = "weight in few bits, counted as one that is trained";

/// Reads a node that quantises or computes with whole numbers. None where it is another; within, none where it is not
/// understood.
pub(super) fn read<'a>(state: &mut State<'a>, node: &Node<'a>) -> Option<Option<()>> {
    let plain = |inputs: &[usize]| Node {
        inputs: inputs.iter().filter_map(|index| node.inputs.get(*index).copied()).collect(),
        ..node.clone()
    };
    Some(match node.operator {
        "QuantizeLinear" | "DequantizeLinear" if state.at(node, 0)?.is_fixed() => {
            let from = state.at(node, 0)?;
            if node.operator == "DequantizeLinear" && state.computed_with(&from) {
                state.unknown(SAID);
            }
            // Scales are not trained.
            state.set(node, 0, Value { known: None, ..from });
            Some(())
        }
        "ConvInteger" | "QLinearConv" => {
            let node = plain(if node.operator == "ConvInteger" { &[0, 1] } else { &[0, 3, 8] });
            computes(state, &node);
            convolution(state, &node, false).map(|written| state.set(&node, 0, written))
        }
        "MatMulInteger" | "QLinearMatMul" => {
            let node = plain(if node.operator == "MatMulInteger" { &[0, 1] } else { &[0, 3] });
            computes(state, &node);
            matmul(state, &node).map(|written| state.set(&node, 0, written))
        }
        "MatMulNBits" => packed(state, node),
        "DynamicQuantizeLinear" => {
            let from = state.at(node, 0)?;
            let small = Value { dims: Vec::new(), tensor: from.tensor, ..Value::default() };
            state.set(node, 0, from);
            state.set(node, 1, small.clone());
            state.set(node, 2, small);
            Some(())
        }
        _ => return None,
    })
}

fn computes<'a>(state: &mut State<'a>, node: &Node<'a>) {
    for index in 1..node.inputs.len() {
        if let Some(value) = state.at(node, index)
            && state.computed_with(&value)
        {
            state.unknown(SAID);
        }
    }
}

/// A product with a matrix of which several values share a byte: only attributes say its sides.
fn packed<'a>(state: &mut State<'a>, node: &Node<'a>) -> Option<()> {
    let side = |name: &str| {
        let side = node.attributes.get(name)?.int?;
        u64::try_from(side).ok().filter(|side| (1..=1 << 32).contains(side))
    };
    let (inner, columns) = (side("K")?, side("N")?);
    let from = state.at(node, 0)?;
    let mut dims = from.dims.clone();
    *dims.last_mut()? = columns;
    let rows = from.elements() / inner;
    let kind = OpKind::Linear { rows, inner, columns, split: WeightSplit::Whole };
    let owned = Owned::parameters(inner.saturating_mul(columns));
    let tensor = state.builder.add(node.name, kind, &[from.tensor?], product(&dims), owned);
    state.unknown(SAID);
    state.set(node, 0, Value { dims, tensor: Some(tensor), ..Value::default() });
    Some(())
}
