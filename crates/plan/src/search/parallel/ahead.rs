//! Estimates that an answer will ask for, made before it: each kind of machines on its own, so a caller with several cores
//! makes them side by side.

use std::collections::BTreeMap;

use super::{Estimator, Infeasible, ParallelConfig, fastest};
use crate::search::workload::TrainingSpec;
use crate::search::{Constraints, MarketIndex, Search, admit};

/// A kind of hardware, as an index of [`MarketIndex::hardware`], and how many machines.
pub type HardwareCount = (usize, u32);

/// The fastest configuration on each, or why there is none.
pub type ParallelConfigs = BTreeMap<HardwareCount, Result<ParallelConfig, Infeasible>>;

/// The machines under the index that their estimate has: a single machine uses no network, so kinds of hardware that differ
/// only in it are one.
pub(in crate::search) fn estimated_as(market: &MarketIndex, hardware: usize, nodes: u32) -> HardwareCount {
    (if nodes == 1 { market.hardware[hardware].alone } else { hardware }, nodes)
}

/// The fastest configuration on some machines. An estimator for the same network returns the same, whatever it was asked
/// before.
///
/// # Errors
/// Why there is none.
pub fn estimate(
    spec: &TrainingSpec,
    market: &MarketIndex,
    (hardware, nodes): HardwareCount,
    estimator: &mut impl Estimator,
) -> Result<ParallelConfig, Infeasible> {
    let device = crate::estimate::Device { nodes, ..market.hardware[hardware].device.clone() };
    fastest(spec, &device, estimator)
}

impl<E: Estimator> Search<'_, E> {
    /// The machines that [`Search::answer`] will estimate, those of one GPU together, because they share figures.
    pub fn unestimated(&self, constraints: &Constraints) -> Vec<Vec<HardwareCount>> {
        let mut by_gpu: BTreeMap<&str, Vec<HardwareCount>> = BTreeMap::new();
        let mut is_listed = vec![false; self.market.hardware.len()];
        for (index, _) in admit(self.market, &constraints.admission).offers {
            let hardware = self.market.listings[index].hardware;
            if std::mem::replace(&mut is_listed[hardware], true) {
                continue;
            }
            let group = by_gpu.entry(&self.market.hardware[hardware].device.gpu.name).or_default();
            for nodes in &constraints.nodes {
                let one = estimated_as(self.market, hardware, *nodes);
                if !self.configs.contains_key(&one) && !group.contains(&one) {
                    group.push(one);
                }
            }
        }
        by_gpu.into_values().filter(|group| !group.is_empty()).collect()
    }

    /// Takes estimates that were made ahead by [`estimate`].
    pub fn learn(&mut self, configs: ParallelConfigs) {
        self.configs.extend(configs);
    }
}
