//! The repeated parts of a network that a file does not name: what lies between two places where a single tensor is
//! all that passes on.

use crate::model::{Graph, OpKind};

/// Gives operators their blocks.
pub(super) fn find(graph: &mut Graph) {
    let count = graph.operators.len();
    let mut last_read = vec![0; graph.tensors.len()];
    for (index, operator) in graph.operators.iter().enumerate() {
        operator.inputs.iter().for_each(|input| last_read[input.0 as usize] = index);
    }
    // Inputs of the network never count: they are there anyway.
    let mut alive = 0usize;
    let mut ends: Vec<Vec<u32>> = vec![Vec::new(); count];
    let mut written = vec![false; graph.tensors.len()];
    let mut start = 0;
    let mut branched = false;
    let mut block = None;
    for index in 0..count {
        let output = graph.operators[index].output.0;
        if last_read[output as usize] > index {
            alive += 1;
            written[output as usize] = true;
            ends[last_read[output as usize]].push(output);
        }
        alive -= ends[index].len();
        branched |= alive > 1;
        if alive > 1 && index + 1 < count {
            continue;
        }
        // One tensor passes from here: what was since the last such place is a block if it branched and computes.
        let products = graph.operators[start..=index].iter().filter(|operator| is_product(&operator.kind)).count();
        if branched && products >= 2 {
            block = Some(block.map_or(0, |block: u32| block + 1));
            graph.operators[start..=index].iter_mut().for_each(|operator| operator.block = block);
        } else if index + 1 < count {
            graph.operators[start..=index].iter_mut().for_each(|operator| operator.block = block);
        }
        start = index + 1;
        branched = false;
    }
    // What follows the last block belongs to none.
    let tail = graph
        .operators
        .iter()
        .rposition(|operator| matches!(operator.kind, OpKind::Elementwise { .. } | OpKind::Attention { .. }));
    let tail = tail.map_or(0, |tail| tail + 1);
    graph.operators[tail..].iter_mut().for_each(|operator| operator.block = None);
}

fn is_product(kind: &OpKind) -> bool {
    kind.is_weighted() || matches!(kind, OpKind::Attention { .. })
}
