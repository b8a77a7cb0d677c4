//! Batch normalisations that an exporter folded into convolutions.
//!
//! A file made for inference has none left, but the network that is trained has: what they keep for the backward pass
//! is as much as what the convolutions keep. A deep network without any normalisation, whose convolutions all have
//! biases or none of which has one (exporters leave out what is zero, as it is in a new network), is taken for one that
//! lost them, and the graph says so. A file that lists its weights leaves nothing to guess.

use std::collections::BTreeMap;

use super::weights::Missing;
use crate::model::{Graph, Norm, OpKind, Operator};

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
    let channels = |index: usize| (index, channels(&graph.operators[index]));
    let behind = folded.into_iter().map(channels).collect();
    // The convolution's bias, where it has one, is one of its two weights a channel.
    put_behind(graph, &behind, |operator, channels| match operator.parameters > weights(operator) {
        true => channels,
        false => channels.saturating_mul(2),
    });
    graph.unknown.push(format!("batch normalisation, folded into a convolution and put back ×{count}"));
}

/// Gives operators the weights that the file lists and does not hold, and puts the normalisations back that it lists.
pub(super) fn restore(graph: &mut Graph, missing: Missing) {
    for (operator, parameters) in missing.more {
        let last = graph.operators.len().saturating_sub(1);
        if let Some(operator) = graph.operators.get_mut(operator.min(last)) {
            operator.parameters = operator.parameters.saturating_add(parameters);
        }
    }
    put_behind(graph, &missing.folded, |_, channels| channels.saturating_mul(2));
    if !missing.folded.is_empty() {
        let count = missing.folded.len();
        graph.assumed.push(format!("batch normalisations that the file lists, put back behind products ×{count}"));
    }
    graph.unknown.extend(missing.unknown);
}

/// Puts a batch normalisation of so many channels behind each of these operators, with the weights that `trained` says.
fn put_behind(graph: &mut Graph, behind: &BTreeMap<usize, u64>, trained: impl Fn(&Operator, u64) -> u64) {
    let mut operators = Vec::with_capacity(graph.operators.len() + behind.len());
    for (index, mut operator) in std::mem::take(&mut graph.operators).into_iter().enumerate() {
        let Some(channels) = behind.get(&index).copied() else {
            operators.push(operator);
            continue;
        };
        let parameters = trained(&operator, channels);
        let output = operator.output;
        let elements = graph.tensors[output.0 as usize];
        operator.output = crate::model::TensorId(graph.tensors.len() as u32);
        graph.tensors.push(elements);
        let norm = Operator {
            name: format!("{}.norm", operator.name),
            kind: OpKind::Norm { norm: Norm::Batch, elements, groups: channels },
            inputs: vec![operator.output],
            output,
            block: None,
            parameters,
            buffers: channels.saturating_mul(2),
        };
        operators.extend([operator, norm]);
    }
    graph.operators = operators;
}

/// Convolutions that had a normalisation, by what follows them; none in a network that has normalisations.
fn folded(graph: &Graph) -> Vec<usize> {
    let mut next: Vec<Option<&OpKind>> = vec![None; graph.tensors.len()];
    let mut sums = false;
    for operator in graph.operators.iter().rev() {
        for input in &operator.inputs {
            next[input.0 as usize] = Some(&operator.kind);
        }
        sums |= matches!(operator.kind, OpKind::Elementwise { inputs: 2, product: false, .. });
    }
    if graph.operators.iter().any(|operator| matches!(operator.kind, OpKind::Norm { .. })) {
        return Vec::new();
    }
    let followed = |operator: &Operator| match next[operator.output.0 as usize] {
        Some(
            OpKind::Activation { .. } | OpKind::Elementwise { .. } | OpKind::Convolution { .. } | OpKind::Pool { .. },
        ) => true,
        Some(OpKind::Copy { .. } | OpKind::View) => !sums,
        Some(_) | None => false,
    };
    let lost = |operator: &Operator| match operator.kind {
        OpKind::Convolution { positions, .. } => positions > 1 && followed(operator),
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
        OpKind::Convolution { inner, columns, groups, .. } => inner.saturating_mul(columns).saturating_mul(groups),
        _ => 0,
    }
}

fn channels(operator: &Operator) -> u64 {
    match operator.kind {
        OpKind::Convolution { columns, groups, .. } => columns.saturating_mul(groups),
        _ => 0,
    }
}
