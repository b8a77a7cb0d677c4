//! Sequences and experts that ranks share: context parallelism and expert parallelism.

use super::Micro;
use crate::estimate::collective::Ring;
use crate::estimate::fitted::rates::Shared;
use crate::estimate::ops::{OpBreakdown, OpGroup, OpProfile};
use crate::estimate::setup::Setup;
use crate::model::graph::{OpKind, WeightSplit};

/// Trained weights of which this rank's group exchanges gradients: all but the experts that other ranks hold.
pub(super) fn held(work: &OpProfile, setup: &Setup) -> f64 {
    let OpBreakdown::Groups(groups) = &work.form else { return work.parameters };
    let elsewhere = |group: &OpGroup| match f64::from(setup.parallel.expert.max(1)).min(group.copies()) {
        share if share > 1.0 && !group.frozen => group.count * group.parameters * (1.0 - 1.0 / share),
        _ => 0.0,
    };
    work.parameters - groups.iter().map(elsewhere).sum::<f64>()
}

/// A micro-batch of which each rank computes its part of every sequence, with what that exchanges: keys and values go round
/// (Liu et al. 2023), at most as wide as what leaves a block, and tokens go to their experts and back, in both passes.
pub(super) fn divided(micro: Micro, work: &OpProfile, setup: &Setup, shared: &Shared) -> Micro {
    let parallel = &setup.parallel;
    let (context, expert) = (f64::from(parallel.context.max(1)), f64::from(parallel.expert.max(1)));
    if context <= 1.0 && expert <= 1.0 {
        return micro;
    }
    let stages = f64::from(parallel.pipeline.max(1));
    let bytes =
        setup.micro_batch as f64 * setup.precision.compute_bytes() / context / f64::from(parallel.tensor.max(1));
    let stride = parallel.tensor.max(1);
    let mut computed = Micro {
        forward: micro.forward / context,
        backward: micro.backward / context,
        recompute: micro.recompute / context,
        tensor: micro.tensor / context,
        started: micro.started,
    };
    if context > 1.0 {
        let ring = Ring::of(&setup.device, parallel.context, stride, shared);
        let moved = 3.0 * f64::from(work.blocks) / stages * work.boundary * bytes * (context - 1.0);
        // Attention over one part hides the way of the next.
        let hidden = 0.5 * (computed.forward + computed.backward);
        computed.tensor += (moved / ring.bandwidth - hidden).max(0.0);
    }
    if let (true, OpBreakdown::Groups(groups)) = (expert > 1.0, &work.form) {
        let ring = Ring::of(&setup.device, parallel.expert, stride, shared);
        let sent: f64 = groups.iter().map(|group| group.count * sent(group)).sum();
        computed.tensor += 4.0 * sent * bytes * (expert - 1.0) / expert / stages / ring.bandwidth;
    }
    computed
}

/// Values that tokens take to the experts of a block, counted where they come back.
fn sent(group: &OpGroup) -> f64 {
    match group.kind {
        OpKind::Linear { rows, columns, split: WeightSplit::Rows, .. } if group.copies() > 1.0 => {
            (rows * columns) as f64
        }
        _ => 0.0,
    }
}
