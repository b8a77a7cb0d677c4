//! Batch normalisations that an exporter folded into convolutions.
//!
//! A file made for inference has none left, but the network that is trained has: what they keep for the backward pass
//! is as much as what the convolutions keep. A deep network with residual sums and without any normalisation, whose
//! convolutions all have biases, is taken for one that lost them, and the graph says so.

use crate::model::{Graph, Kind, Norm, Operator};

/// Fewer convolutions than this were trained without normalisation too (VGG, AlexNet).
const DEEP: usize = 18;

/// Puts the normalisations back.
pub(super) fn unfold(graph: &mut Graph) {
    let folded = folded(graph);
    if folded.len() < DEEP {
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
        operator.output = crate::model::Tensor(graph.tensors.len() as u32);
        graph.tensors.push(elements);
        let norm = Operator {
            name: format!("{}.norm", operator.name),
            kind: Kind::Norm { norm: Norm::Batch, elements, groups: channels },
            inputs: vec![operator.output],
            output,
            block: None,
            // The convolution's bias is one of its two weights a channel.
            parameters: channels,
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
    if !sums || graph.operators.iter().any(|operator| matches!(operator.kind, Kind::Norm { .. })) {
        return Vec::new();
    }
    let followed = |operator: &Operator| match next[operator.output.0 as usize] {
        Some(Kind::Activation { .. } | Kind::Elementwise { .. } | Kind::Convolution { .. } | Kind::Pool { .. }) => true,
        Some(_) | None => false,
    };
    let lost = |operator: &Operator| match operator.kind {
        Kind::Convolution { positions, inner, columns, groups, .. } => {
            let weights = inner.saturating_mul(columns).saturating_mul(groups);
            positions > 1 && operator.parameters > weights && followed(operator)
        }
        _ => false,
    };
    graph.operators.iter().enumerate().filter(|(_, operator)| lost(operator)).map(|(index, _)| index).collect()
}

fn channels(operator: &Operator) -> u64 {
    match operator.kind {
        Kind::Convolution { columns, groups, .. } => columns.saturating_mul(groups),
        _ => 0,
    }
}
