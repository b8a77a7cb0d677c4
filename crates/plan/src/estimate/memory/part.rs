//! What one rank of our own trainer holds of a network on a processor, where ranks may divide its layers.
//!
//! The same rules and the same walk as for a GPU, without what only a GPU's driver and allocator take.

use super::kept::{Rules, Storage};
use super::walk::walk;
use crate::estimate::{Precision, Recompute};
use crate::model::{Graph, Kind};

/// How a rank computes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Way {
    /// Products of matrices are in 16 bits.
    pub half: bool,
    /// Values are left out at random while training; the fused attention of processors cannot, so that scores are kept.
    pub dropout: bool,
    /// Ranks that divide each layer.
    pub tensor: u32,
    /// Of the blocks, the share that is computed again on the way back.
    pub recomputed: f64,
}

/// What a rank holds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Part {
    /// Trained values.
    pub parameters: f64,
    /// Trained values of the largest block.
    pub block: f64,
    /// Trained values of all blocks; the rest stands around them.
    pub blocks: f64,
    /// Bytes of one sample's activations and their gradients at the fullest moment.
    pub activations: f64,
}

/// Counts one rank's part of `graph`.
pub fn part(graph: &Graph, way: Way) -> Part {
    let plain = without_dropout(graph, way);
    let graph = plain.as_ref().unwrap_or(graph);
    let precision = if way.half { Precision::AmpBf16 } else { Precision::Fp32 };
    let rules = Rules::of_processor(precision, !way.dropout, way.tensor);
    let storage = Storage::new(graph, &rules);
    let fullest = |recompute| walk(graph, 0..graph.operators.len(), &storage, &rules, recompute).fullest;
    let mut activations = fullest(Recompute::None);
    if way.recomputed > 0.0 {
        activations += way.recomputed * (fullest(Recompute::Full) - activations);
    }
    let mut part = Part { activations, ..Part::default() };
    let mut blocks = vec![0.0; graph.blocks() as usize];
    for operator in &graph.operators {
        let parameters = operator.parameters as f64 / storage.divided(operator, &rules);
        part.parameters += parameters;
        if let Some(block) = operator.block.and_then(|block| blocks.get_mut(block as usize)) {
            *block += parameters;
        }
    }
    part.block = blocks.iter().copied().fold(0.0, f64::max);
    part.blocks = blocks.iter().sum();
    part
}

/// The graph of a run that leaves nothing out; none where it is that already.
fn without_dropout(graph: &Graph, way: Way) -> Option<Graph> {
    let drops = |kind: &Kind| matches!(kind, Kind::Dropout { .. });
    if way.dropout || !graph.operators.iter().any(|operator| drops(&operator.kind)) {
        return None;
    }
    let mut graph = graph.clone();
    graph.operators.iter_mut().filter(|operator| drops(&operator.kind)).for_each(|operator| operator.kind = Kind::View);
    Some(graph)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::families::Gpt;

    const WAY: Way = Way { half: false, dropout: false, tensor: 1, recomputed: 0.0 };

    #[test]
    fn ranks_that_divide_layers_have_half_of_what_is_divided() {
        let graph = Gpt::megatron(128, 4, 4, 8_000, 128).graph();
        let (whole, half) = (part(&graph, WAY), part(&graph, Way { tensor: 2, ..WAY }));
        assert_eq!(whole.parameters, graph.parameters() as f64);
        // Positions, normalisations and biases of the second products are whole at each rank.
        let share = half.parameters / whole.parameters;
        assert!((0.5..0.52).contains(&share), "{share}");
        assert!(half.block < 0.52 * whole.block && (4.0 * half.block - half.blocks).abs() < 1e-6, "{half:?}");
        assert!(half.activations < 0.75 * whole.activations, "{half:?} of {whole:?}");
    }

    #[test]
    fn what_is_kept_depends_on_how_it_is_computed() {
        let graph = Gpt::megatron(128, 4, 4, 1_000, 256).graph();
        let activations = |way| part(&graph, way).activations;
        let plain = activations(WAY);
        assert!(activations(Way { dropout: true, ..WAY }) > 1.3 * plain);
        assert!(activations(Way { half: true, ..WAY }) < plain);
        let (some, all) = (activations(Way { recomputed: 0.5, ..WAY }), activations(Way { recomputed: 1.0, ..WAY }));
        assert!(all < some && some < plain, "{all} {some} {plain}");
    }
}
