//! Observations outside of the log.

use std::collections::{BTreeMap, BTreeSet};

use domain::rental::ProviderTraits;
use domain::run::Sight;
use domain::{Elapsed, InstanceId, RunId, SweepId, Timestamp};

use crate::world::{Instance, Run, World};

/// The observations for one decision, collected by the shell.
#[derive(Debug, Clone, Default)]
pub struct ObservedState {
    /// What providers see of each instance that is not released.
    pub sights: BTreeMap<InstanceId, Sight>,
    /// Rented time, as last reported by each agent.
    pub meters: BTreeMap<InstanceId, Elapsed>,
    /// Runs that a process waits for. Others are neither rented for nor started, only cleaned up.
    pub attended: BTreeSet<RunId>,
    /// Sweeps that a process waits for, with all of their trials.
    pub attended_sweeps: BTreeSet<SweepId>,
    /// Time since each agent last called, on a monotonic clock.
    pub silence: BTreeMap<InstanceId, Elapsed>,
    /// How long each instance has been continuously missing from its provider's views, since the last launch request
    /// must have taken effect, on a monotonic clock.
    pub missing: BTreeMap<InstanceId, Elapsed>,
    /// Time since the end of each instance was first requested, on a monotonic clock.
    pub ending: BTreeMap<InstanceId, Elapsed>,
    /// Launches that were requested and not answered yet.
    pub launching: BTreeSet<InstanceId>,
    /// Launches with unknown outcome.
    pub in_doubt: BTreeMap<InstanceId, LaunchDoubt>,
    /// The traits of each provider, by its name.
    pub traits: BTreeMap<String, ProviderTraits>,
    /// Offers that were refused lately, by provider and kind, and for how long they are not asked for again.
    pub shortages: BTreeMap<(String, String), Elapsed>,
    /// How long nothing has happened to a run, on a clock that never goes back.
    pub quiet: BTreeMap<RunId, Elapsed>,
    /// The wall clock, for deadlines.
    pub now: Timestamp,
}

/// A launch with unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchDoubt {
    /// Number of requests.
    pub requests: u32,
    /// Time since the last request, on a monotonic clock.
    pub since: Elapsed,
    /// Whether the same token may rent another machine by now, so that the provider must be queried first.
    pub is_token_void: bool,
}

impl ObservedState {
    pub(super) fn traits_of(&self, instance: &Instance) -> Option<&ProviderTraits> {
        self.traits.get(&instance.offer.provider)
    }

    /// What its provider bills for a rent of this length.
    pub(super) fn billed(&self, instance: &Instance, rent: Elapsed) -> Elapsed {
        self.traits_of(instance).map_or(rent, |traits| traits.billing.billed(rent))
    }

    /// Whether an instance has been missing for so long that its provider cannot list it later. An unknown provider
    /// promises nothing.
    pub(super) fn is_gone_by_absence(&self, id: &InstanceId, instance: &Instance) -> bool {
        if self.launching.contains(id) {
            return false;
        }
        let missing = self.missing.get(id).copied();
        self.traits_of(instance).is_some_and(|traits| missing.is_some_and(|missing| missing >= traits.visible_within))
    }

    /// Rented time of an instance until now: as reported by its agent, or the time since the request while it boots.
    /// `None` if nothing was rented as far as is known.
    pub(super) fn rent(&self, id: &InstanceId, instance: &Instance) -> Option<Elapsed> {
        let is_rented = instance.is_accepted || matches!(self.sights.get(id), Some(Sight::Alive));
        let booting = || self.silence.get(id).copied().filter(|_| is_rented && instance.started.is_none());
        self.meters.get(id).copied().or_else(booting)
    }

    /// Rent until now of a run's instances that are not released.
    pub(super) fn rents_of(&self, world: &World, run: &Run) -> BTreeMap<InstanceId, Elapsed> {
        world.live_instances_of(run).filter_map(|(id, instance)| Some((id.clone(), self.rent(id, instance)?))).collect()
    }

    /// The same, but at most: one whose agent has not called since the loop began counts by wall clocks.
    pub(super) fn rents_at_most(&self, world: &World, run: &Run) -> BTreeMap<InstanceId, Elapsed> {
        let rent = |id: &InstanceId, instance: &Instance| {
            let is_rented = instance.is_accepted || matches!(self.sights.get(id), Some(Sight::Alive));
            let by_wall = || is_rented.then(|| self.now.since(instance.intended));
            self.meters.get(id).copied().or_else(by_wall)
        };
        world.live_instances_of(run).filter_map(|(id, instance)| Some((id.clone(), rent(id, instance)?))).collect()
    }

    /// Rent until now of every instance that is not released.
    pub(crate) fn rents(&self, world: &World) -> BTreeMap<InstanceId, Elapsed> {
        world.live_instances().filter_map(|(id, instance)| Some((id.clone(), self.rent(id, instance)?))).collect()
    }
}
