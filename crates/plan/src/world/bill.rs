//! The cost of a run: usage as metered by the provider, at the rented price.

use std::collections::BTreeMap;

use domain::run::{Bill, BillAdjustment, BillLine, InstanceState};
use domain::{Elapsed, InstanceId, Money, RunId};

use super::{Instance, Run, World};

/// The bill of a run, or `None` while one of its instances is not released.
pub fn bill(world: &World, run: &Run) -> Option<Bill> {
    let mut lines = Vec::new();
    for id in &run.instances {
        let instance = world.instances.get(id)?;
        let InstanceState::Released { usage } = instance.state else { return None };
        let rate = instance.offer.rate;
        let doubles = instance.doubles.values().map(|usage| (*usage, rate.cost(usage.elapsed)));
        for (usage, amount) in std::iter::once((usage, instance.cost(usage.elapsed))).chain(doubles) {
            let (kind, race) = (instance.offer.kind.clone(), instance.lost_race);
            lines.push(BillLine { instance: id.clone(), kind, usage, rate, amount, race });
        }
    }
    let total: Money = lines.iter().map(|line| line.amount).sum();
    // A run that was adjusted and resumed has spent its budget as adjusted.
    let spent = total + run.adjusted();
    let beyond = run.job.budget.map_or(0, |budget| spent.micros().saturating_sub(budget.max.micros()));
    Some(Bill { lines, total, adjustment: Money::from_micros(beyond.max(0)) })
}

impl World {
    /// Adds the difference to the provider's bill. It was computed from adjustments of this sum: the same bill that is
    /// accepted by two processes at once counts once.
    pub(super) fn bill_adjusted(
        &mut self,
        id: &RunId,
        before: Money,
        adjustments: &[BillAdjustment],
    ) -> Result<(), String> {
        let run = self.run_mut(id)?;
        if run.bill.is_none() {
            return Err(format!("run `{id}` is not billed"));
        }
        let known = run.adjusted();
        if known != before {
            return Err(format!("run `{id}` is adjusted by {known}, and not by {before}"));
        }
        if let Some(other) = adjustments.iter().find(|adjustment| !run.instances.contains(&adjustment.instance)) {
            return Err(format!("run `{id}` has no machine `{}`", other.instance));
        }
        run.adjustments.extend_from_slice(adjustments);
        let sweep = run.trial.as_ref().map(|trial| trial.sweep.clone());
        // One that is not over has no total yet.
        let total = sweep.and_then(|id| self.sweeps.get_mut(&id)).and_then(|sweep| sweep.total.as_mut());
        if let Some(total) = total {
            *total += adjustments.iter().map(|adjustment| adjustment.amount).sum();
        }
        Ok(())
    }
}

/// The cost of a run until now, with adjustments to its provider's bill; `meters` has the rented time of instances that are not
/// released.
pub fn spent(world: &World, run: &Run, meters: &BTreeMap<InstanceId, Elapsed>) -> Money {
    let rent = |id: &InstanceId| meters.get(id).copied().unwrap_or_default();
    let live = world.live_instances_of(run).map(|(id, instance)| instance.cost_of_all(rent(id)));
    live.sum::<Money>() + spent_on_released(world, run)
}

/// The part of it that no machine adds to any more: the cost of those that are released, and adjustments.
pub(crate) fn spent_on_released(world: &World, run: &Run) -> Money {
    let cost = |id: &InstanceId| {
        let instance = world.instances.get(id)?;
        match &instance.state {
            InstanceState::Released { usage } => Some(instance.cost_of_all(usage.elapsed)),
            InstanceState::Intended | InstanceState::Launching => None,
            InstanceState::Up | InstanceState::Releasing => None,
        }
    };
    run.instances.iter().filter_map(cost).sum::<Money>() + run.adjusted()
}

impl Instance {
    /// The cost of its run's part of the rent, with that of other machines that the same request has rented.
    pub(crate) fn cost_of_all(&self, elapsed: Elapsed) -> Money {
        let doubles = self.doubles.values().map(|usage| self.offer.rate.cost(usage.elapsed));
        self.cost(elapsed) + doubles.sum()
    }
}
