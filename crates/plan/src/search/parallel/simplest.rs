//! Which of two layouts is simpler, and which of the simpler ones are as good as the fastest.
//!
//! Estimates of two layouts on the same machines are compared by steps that no program has run in both, so the order of
//! two that are close says little, while each further kind of parallelism is more to set up, to debug and to save. The
//! margin is less than half the P10–P90 band of every class (`docs/estimate.md`).

use std::collections::BTreeMap;

use super::ParallelConfig;
use crate::estimate::{ParallelDegrees, Zero};

/// How much longer a simpler layout may take, and how much more it may cost, and still be recommended: a tenth. Assumed,
/// and within half the band of every class.
pub const LAYOUT_MARGIN: f64 = 0.10;

/// The kinds of parallelism that a layout has, the most complex first, so that the simpler of two layouts is the lesser:
/// experts, pipeline, context, tensor, sharded gradients or weights (FSDP), and replicas.
pub(super) type Complexity = [bool; 6];

/// How complex a layout is. Programs switch ZeRO-1 on with an option, so it is no kind of its own.
pub(super) fn complexity(parallel: &ParallelDegrees) -> Complexity {
    let has_replicas = parallel.replicas() > 1;
    [
        parallel.expert > 1,
        parallel.pipeline > 1,
        parallel.context > 1,
        parallel.tensor > 1,
        has_replicas && parallel.zero >= Zero::Gradients,
        has_replicas,
    ]
}

/// The fastest of the best configurations of each complexity, with those that are simpler and take at most
/// [`LAYOUT_MARGIN`] longer.
pub(super) fn ranked(best: BTreeMap<Complexity, ParallelConfig>) -> Option<ParallelConfig> {
    let configs: Vec<ParallelConfig> = best.into_values().collect();
    let (place, fastest) = configs.iter().enumerate().min_by(|(_, one), (_, other)| one.step.total_cmp(&other.step))?;
    let (most, fastest) = (fastest.step * (1.0 + LAYOUT_MARGIN), fastest.clone());
    let simpler = configs.into_iter().take(place).filter(|config| config.step <= most).collect();
    Some(ParallelConfig { simpler, ..fastest })
}
