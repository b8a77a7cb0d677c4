//! What is seen of the world outside of the log.

use std::collections::{BTreeMap, BTreeSet};

use domain::rental::ProviderTraits;
use domain::run::{InstanceState, Sight};
use domain::{Elapsed, InstanceId, RunId, SweepId, Timestamp};

use crate::world::{Instance, Run, World};

/// What the shell has gathered for one decision.
#[derive(Debug, Clone, Default)]
pub struct ObservedState {
    /// What providers see of each instance that is not released.
    pub sights: BTreeMap<InstanceId, Sight>,
    /// Rent so far, as each agent last said.
    pub meters: BTreeMap<InstanceId, Elapsed>,
    /// Runs that somebody is waiting for. Others are neither rented for nor started, only cleaned up.
    pub attended: BTreeSet<RunId>,
    /// Sweeps that somebody is waiting for, and with them all of their trials.
    pub attended_sweeps: BTreeSet<SweepId>,
    /// How long each agent has not spoken, on a clock that never goes back.
    pub silence: BTreeMap<InstanceId, Elapsed>,
    /// How long each instance has been missing without a break in what its provider lists, since the last request to
    /// launch it must have had its effect, on a clock that never goes back.
    pub missing: BTreeMap<InstanceId, Elapsed>,
    /// How long the end of each instance has been asked for, on a clock that never goes back.
    pub ending: BTreeMap<InstanceId, Elapsed>,
    /// Launches that were asked for and not answered yet.
    pub launching: BTreeSet<InstanceId>,
    /// Launches that were asked for and left open.
    pub in_doubt: BTreeMap<InstanceId, LaunchDoubt>,
    /// What each provider promises, by its name.
    pub traits: BTreeMap<String, ProviderTraits>,
    /// Offers that were refused lately, by provider and kind, and for how long they are not asked for again.
    pub shortages: BTreeMap<(String, String), Elapsed>,
    /// How long nothing has happened to a run, on a clock that never goes back.
    pub quiet: BTreeMap<RunId, Elapsed>,
    /// The wall clock, for deadlines.
    pub now: Timestamp,
}

/// A launch of which it is not known whether it went through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchDoubt {
    /// How often the provider was asked.
    pub requests: u32,
    /// How long ago it was asked last, on a clock that never goes back.
    pub since: Elapsed,
    /// Whether the same token may rent another machine by now, so that what is in doubt has to be looked for first.
    pub is_token_void: bool,
}

impl ObservedState {
    pub(super) fn traits_of(&self, instance: &Instance) -> Option<&ProviderTraits> {
        self.traits.get(&instance.offer.provider)
    }

    /// Whether an instance has been missing for so long that its provider cannot list it later. A provider that is not
    /// there promises nothing.
    pub(super) fn is_gone_by_absence(&self, id: &InstanceId, instance: &Instance) -> bool {
        if self.launching.contains(id) {
            return false;
        }
        let missing = self.missing.get(id).copied();
        self.traits_of(instance).is_some_and(|traits| missing.is_some_and(|missing| missing >= traits.visible_within))
    }

    /// Rent of an instance until now: what its agent said, or the time since it was asked for while it boots. None where
    /// nothing was rented as far as is known.
    pub(super) fn rent(&self, id: &InstanceId, instance: &Instance) -> Option<Elapsed> {
        let is_rented = instance.is_accepted || matches!(self.sights.get(id), Some(Sight::Alive));
        let booting = || self.silence.get(id).copied().filter(|_| is_rented && instance.started.is_none());
        self.meters.get(id).copied().or_else(booting)
    }

    /// Rent until now of a run's instances that are not released.
    pub(super) fn rents_of(&self, world: &World, run: &Run) -> BTreeMap<InstanceId, Elapsed> {
        let known = run.instances.iter().filter_map(|id| Some((id, world.instances.get(id)?)));
        let live = known.filter(|(_, instance)| !matches!(instance.state, InstanceState::Released { .. }));
        live.filter_map(|(id, instance)| Some((id.clone(), self.rent(id, instance)?))).collect()
    }

    /// Rent until now of every instance that is not released.
    pub(crate) fn rents(&self, world: &World) -> BTreeMap<InstanceId, Elapsed> {
        world.live_instances().filter_map(|(id, instance)| Some((id.clone(), self.rent(id, instance)?))).collect()
    }
}
