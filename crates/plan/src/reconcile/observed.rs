//! Observations outside of the log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::rental::ProviderTraits;
use domain::run::{InstanceState, Sight};
use domain::{Elapsed, InstanceId, RunId, SweepId, Timestamp};

use crate::world::{Instance, Run, World};

/// The observations for one decision, collected by the shell.
#[derive(Debug, Clone, Default)]
pub struct ObservedState {
    /// What is known of each instance that is not released.
    pub machines: BTreeMap<InstanceId, ObservedMachine>,
    /// Runs that a process waits for. Others are neither rented for nor started, only cleaned up.
    pub attended: BTreeSet<RunId>,
    /// Sweeps that a process waits for, with all of their trials.
    pub attended_sweeps: BTreeSet<SweepId>,
    /// The traits of each provider, by its name. Shared, because they hardly ever change.
    pub traits: Arc<BTreeMap<String, ProviderTraits>>,
    /// Offers that were refused lately, by provider and kind, and for how long they are not asked for again.
    pub shortages: BTreeMap<(String, String), Elapsed>,
    /// How long nothing has happened to a run, on a clock that never goes back.
    pub quiet: BTreeMap<RunId, Elapsed>,
    /// The wall clock, for deadlines.
    pub now: Timestamp,
}

/// What is known of a machine outside of the log; times are on a monotonic clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObservedMachine {
    /// What its provider sees of it.
    pub sight: Option<Sight>,
    /// Rented time, as last reported by its agent.
    pub rent: Option<Elapsed>,
    /// The rent of the machine, with that of runs before, that its provider has certainly counted; none unless exactly one
    /// machine has its name, and that one's agent has called a moment ago.
    pub certain_rent: Option<Elapsed>,
    /// Time since its agent last called, or since the loop began.
    pub silence: Option<Elapsed>,
    /// Whether its agent has not called since the loop began.
    pub is_unheard: bool,
    /// How long it has been continuously missing from its provider's views, since the last launch request must have taken
    /// effect.
    pub missing: Option<Elapsed>,
    /// Time since its end was first requested.
    pub ending: Option<Elapsed>,
    /// Its launch was requested and is not answered yet.
    pub is_launching: bool,
    /// Its launch has an unknown outcome.
    pub in_doubt: Option<LaunchDoubt>,
}

/// Of a machine of which nothing is known.
static UNOBSERVED: ObservedMachine = ObservedMachine {
    sight: None,
    rent: None,
    certain_rent: None,
    silence: None,
    is_unheard: false,
    missing: None,
    ending: None,
    is_launching: false,
    in_doubt: None,
};

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
    /// What is known of a machine.
    pub fn machine(&self, id: &InstanceId) -> &ObservedMachine {
        self.machines.get(id).unwrap_or(&UNOBSERVED)
    }

    /// The same, to be changed.
    pub fn machine_mut(&mut self, id: &InstanceId) -> &mut ObservedMachine {
        self.machines.entry(id.clone()).or_default()
    }

    /// The traits of providers, to be changed.
    pub fn traits_mut(&mut self) -> &mut BTreeMap<String, ProviderTraits> {
        Arc::make_mut(&mut self.traits)
    }

    pub(super) fn traits_of(&self, instance: &Instance) -> Option<&ProviderTraits> {
        self.traits.get(&instance.offer.provider)
    }

    /// What its provider bills for a rent of this length.
    pub(super) fn billed(&self, instance: &Instance, rent: Elapsed) -> Elapsed {
        let Some(traits) = self.traits_of(instance) else { return rent };
        let whole = traits.billing.billed(Elapsed(rent.0.saturating_add(instance.before.0)));
        Elapsed(whole.0.saturating_sub(instance.before.0))
    }

    /// Whether an instance has been missing for so long that its provider cannot list it later. An unknown provider
    /// promises nothing.
    pub(super) fn is_gone_by_absence(&self, id: &InstanceId, instance: &Instance) -> bool {
        let machine = self.machine(id);
        let is_missing = |traits: &ProviderTraits| machine.missing.is_some_and(|time| time >= traits.visible_within);
        !machine.is_launching && self.traits_of(instance).is_some_and(is_missing)
    }

    /// Rented time of an instance until now: as reported by its agent, or the time since the request while it boots.
    /// `None` if nothing was rented as far as is known.
    pub(super) fn rent(&self, id: &InstanceId, instance: &Instance) -> Option<Elapsed> {
        let machine = self.machine(id);
        let is_rented = instance.is_accepted || machine.sight == Some(Sight::Alive);
        machine.rent.or_else(|| machine.silence.filter(|_| is_rented && instance.started.is_none()))
    }

    /// Rent until now of a run's instances that are not released.
    pub(super) fn rents_of(&self, world: &World, run: &Run) -> BTreeMap<InstanceId, Elapsed> {
        world.live_instances_of(run).filter_map(|(id, instance)| Some((id.clone(), self.rent(id, instance)?))).collect()
    }

    /// The same, but at most: one whose agent has not called since the loop began counts by wall clocks, and so does one
    /// that may have been rented.
    pub(crate) fn rents_at_most(&self, world: &World, run: &Run) -> BTreeMap<InstanceId, Elapsed> {
        let rent = |id: &InstanceId, instance: &Instance| {
            let machine = self.machine(id);
            let is_rented = instance.is_accepted || machine.sight == Some(Sight::Alive);
            let may_be = is_rented || self.may_be_rented(id, instance);
            let by_wall = || Elapsed(self.now.since(instance.intended).0.saturating_sub(instance.before.0));
            machine.rent.or_else(|| may_be.then(by_wall))
        };
        world.live_instances_of(run).filter_map(|(id, instance)| Some((id.clone(), rent(id, instance)?))).collect()
    }

    /// Rent until now of a run's machines of which nobody knows whether they were rented, if they were.
    pub(super) fn rents_in_doubt(&self, world: &World, run: &Run) -> BTreeMap<InstanceId, Elapsed> {
        let doubted = world.live_instances_of(run).filter(|(id, instance)| self.may_be_rented(id, instance));
        doubted.map(|(id, instance)| (id.clone(), self.now.since(instance.intended))).collect()
    }

    /// Whether a launch was asked for, or may have been, and neither an answer nor a view shows whether it took effect.
    fn may_be_rented(&self, id: &InstanceId, instance: &Instance) -> bool {
        let machine = self.machine(id);
        let is_told = instance.is_accepted || matches!(machine.sight, Some(Sight::Alive | Sight::Gone(_)));
        let is_asked = instance.state == InstanceState::Releasing || machine.in_doubt.is_some();
        is_asked && !is_told && machine.rent.is_none()
    }

    /// Rent until now of every instance that is not released.
    pub(crate) fn rents(&self, world: &World) -> BTreeMap<InstanceId, Elapsed> {
        world.live_instances().filter_map(|(id, instance)| Some((id.clone(), self.rent(id, instance)?))).collect()
    }
}
