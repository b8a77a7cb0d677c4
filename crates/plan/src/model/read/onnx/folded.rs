//! Batch normalisations that an exporter folded into convolutions.
//!
//! A file made for inference has none left, but the network that is trained has: what they keep for the backward pass
//! is as much as what the convolutions keep. A deep network without any normalisation, whose convolutions all have
//! biases or none of which has one (exporters leave out what is zero, as it is in a new network), is taken for one that
//! lost them, and the graph says so.

use crate::model::{Graph, Kind, Norm, Operator};

/// Fewer convolutions than this were trained without normalisation too (VGG, AlexNet); and where nothing is summed with
/// what went before, more (SqueezeNet).
const DEEP: usize = 18;
const DEEPER: usize = 30;

/// Puts the normalisations back.
pub(super) fn unfold(graph: &mut Graph) {
    let folded = folded(graph);
    if folded.is_empty() {
        return;
    }
    let count = folded.len();
    let mut folded = folded.into_iter().peekable();
    let mut operators = Vec::with_capacity(graph.operators.len() + count);
    for (index, mut operator) in std::mem::take(&mut graph.operators).into_iter().enumerate() {
        if folded.next_if_eq(&index).is_none() {
            operators.push(operator);
            continue;
        }
        let output = operator.output;
        let elements = graph.tensors[output.0 as usize];
        let channels = channels(&operator);
        let has_bias = operator.parameters > weights(&operator);
        operator.output = crate::model::Tensor(graph.tensors.len() as u32);
        graph.tensors.push(elements);
        let norm = Operator {
            name: format!("{}.norm", operator.name),
            kind: Kind::Norm { norm: Norm::Batch, elements, groups: channels },
            inputs: vec![operator.output],
            output,
            block: None,
            // The convolution's bias, where it has one, is one of its two weights a channel.
            parameters: if has_bias { channels } else { channels.saturating_mul(2) },
            buffers: channels.saturating_mul(2),
        };
        operators.extend([operator, norm]);
    }
    graph.operators = operators;
    graph.unknown.push(format!("batch normalisation, folded into a convolution and put back ×{count}"));
}

/// Convolutions that had a normalisation, by what follows them; none in a network that has normalisations.
fn folded(graph: &Graph) -> Vec<usize> {
    let mut next: Vec<Option<&Kind>> = vec![None; graph.tensors.len()];
    let mut sums = false;
    for operator in graph.operators.iter().rev() {
        for input in &operator.inputs {
            next[input.0 as usize] = Some(&operator.kind);
        }
        sums |= matches!(operator.kind, Kind::Elementwise { inputs: 2, product: false, .. });
    }
    if graph.operators.iter().any(|operator| matches!(operator.kind, Kind::Norm { .. })) {
        return Vec::new();
    }
    let followed = |operator: &Operator| match next[operator.output.0 as usize] {
        Some(Kind::Activation { .. } | Kind::Elementwise { .. } | Kind::Convolution { .. } | Kind::Pool { .. }) => true,
        Some(Kind::Copy { .. } | Kind::View) => !sums,
        Some(_) | None => false,
    };
    let lost = |operator: &Operator| match operator.kind {
        Kind::Convolution { positions, .. } => positions > 1 && followed(operator),
        _ => false,
    };
    let found: Vec<usize> =
        graph.operators.iter().enumerate().filter(|(_, operator)| lost(operator)).map(|(index, _)| index).collect();
    let has_bias = |index: &&usize| graph.operators[**index].parameters > weights(&graph.operators[**index]);
    let biased = found.iter().filter(has_bias).count();
    // A network that mixes both says by its biases which had a normalisation.
    let found = match biased * 4 > found.len() {
        true => found.iter().filter(has_bias).copied().collect(),
        false => found,
    };
    let deep = if sums { DEEP } else { DEEPER };
    if found.len() < deep { Vec::new() } else { found }
}

fn weights(operator: &Operator) -> u64 {
    match operator.kind {
        Kind::Convolution { inner, columns, groups, .. } => inner.saturating_mul(columns).saturating_mul(groups),
        _ => 0,
    }
}

fn channels(operator: &Operator) -> u64 {
    match operator.kind {
        Kind::Convolution { columns, groups, .. } => columns.saturating_mul(groups),
        _ => 0,
    }
}
