//! Attention as exporters write it out: scores from a product, scaled and masked, a softmax, and a product with the values.

use crate::model::{Graph, OpKind, Operator, TensorId};

/// How many small operators may stand between the products and the softmax.
const BETWEEN: usize = 8;

/// Replaces what is attention by one operator.
pub(super) fn fuse(graph: &mut Graph) {
    let mut writer: Vec<Option<usize>> = vec![None; graph.tensors.len()];
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); graph.tensors.len()];
    for (index, operator) in graph.operators.iter().enumerate() {
        writer[operator.output.0 as usize] = Some(index);
        operator.inputs.iter().for_each(|input| readers[input.0 as usize].push(index));
    }
    let mut gone = vec![false; graph.operators.len()];
    for index in 0..graph.operators.len() {
        if !matches!(graph.operators[index].kind, OpKind::Softmax { .. }) {
            continue;
        }
        let Some(found) = around(graph, index, &writer, &readers) else { continue };
        let (before, after) = (&graph.operators[found.scores], &graph.operators[found.values]);
        let OpKind::Product { batch, rows, inner, columns } = before.kind else { continue };
        let value_width = match after.kind {
            // Values may stand on either side of the product.
            OpKind::Product { batch: products, rows: above, columns: beside, .. } => {
                products.saturating_mul(above).saturating_mul(beside) / batch.saturating_mul(rows).max(1)
            }
            _ => inner,
        };
        let probabilities = found.probabilities;
        let mut inputs = before.inputs.clone();
        inputs.extend(after.inputs.iter().filter(|input| **input != probabilities));
        let kind = OpKind::Attention {
            heads: batch,
            key_heads: batch,
            width: inner,
            value_width,
            queries: rows,
            keys: columns,
            causal: false,
            dropout: found.dropout,
        };
        // A table that biases the scores goes along.
        let along = found.within.iter().map(|within| graph.operators[*within].parameters);
        let parameters = along.fold(0, u64::saturating_add);
        let fused = Operator { kind, inputs, parameters, ..after.clone() };
        graph.operators[found.values] = fused;
        found.within.iter().for_each(|within| gone[*within] = true);
    }
    let mut gone = gone.into_iter();
    graph.operators.retain(|_| !gone.next().unwrap_or(false));
}

struct Found {
    scores: usize,
    values: usize,
    probabilities: TensorId,
    dropout: bool,
    within: Vec<usize>,
}

fn around(graph: &Graph, softmax: usize, writer: &[Option<usize>], readers: &[Vec<usize>]) -> Option<Found> {
    let mut within = vec![softmax];
    let mut at = *graph.operators[softmax].inputs.first()?;
    let mut scores = None;
    for _ in 0..BETWEEN {
        let index = writer[at.0 as usize]?;
        let operator = &graph.operators[index];
        if readers[operator.output.0 as usize].len() != 1 {
            return None;
        }
        within.push(index);
        match operator.kind {
            OpKind::Product { .. } => {
                scores = Some(index);
                break;
            }
            OpKind::Elementwise { .. } | OpKind::View | OpKind::Copy { .. } => {
                // The scores are the largest of what is summed: masks are no larger.
                at = *operator
                    .inputs
                    .iter()
                    .max_by_key(|input| (writer[input.0 as usize].is_some(), graph.tensors[input.0 as usize]))?;
            }
            _ => return None,
        }
    }
    let scores = scores?;
    let mut at = graph.operators[softmax].output;
    let mut dropout = false;
    for _ in 0..BETWEEN {
        let [index] = readers[at.0 as usize].as_slice() else { return None };
        let operator = &graph.operators[*index];
        match operator.kind {
            OpKind::Product { .. } => {
                return Some(Found { scores, values: *index, probabilities: at, dropout, within });
            }
            OpKind::Dropout { .. } => dropout = true,
            OpKind::View | OpKind::Copy { .. } | OpKind::Elementwise { .. } => {}
            _ => return None,
        }
        within.push(*index);
        at = operator.output;
    }
    None
}
