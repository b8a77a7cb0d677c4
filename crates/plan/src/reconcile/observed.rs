//! Observations outside of the log.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::rental::ProviderTraits;
use domain::run::{InstanceState, Sight};
use domain::{Elapsed, InstanceId, Money, RunId, SweepId, Timestamp};

use crate::world::{Instance, Run, World, spent_on_released};

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
    /// Its end was requested, and is not to be requested again yet.
    pub is_end_asked: bool,
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
    is_end_asked: false,
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

    /// A machine with what is known of it.
    pub(super) fn live<'a>(&'a self, id: &'a InstanceId, instance: &'a Instance) -> LiveMachine<'a> {
        LiveMachine { id, instance, seen: self.machine(id), traits: self.traits_of(instance) }
    }

    /// Rent until now of every instance that is not released.
    pub(crate) fn rents(&self, world: &World) -> BTreeMap<InstanceId, Elapsed> {
        world
            .live_instances()
            .filter_map(|(id, instance)| Some((id.clone(), self.live(id, instance).rent()?)))
            .collect()
    }
}

/// A machine that is not released, with what is known of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LiveMachine<'a> {
    /// Its name.
    pub id: &'a InstanceId,
    /// As it is in the log.
    pub instance: &'a Instance,
    /// As it was observed.
    pub seen: &'a ObservedMachine,
    /// What its provider promises; an unknown one promises nothing.
    pub traits: Option<&'a ProviderTraits>,
}

impl LiveMachine<'_> {
    /// Rented time until now: as reported by its agent, or the time since the request while it boots. `None` if nothing
    /// was rented as far as is known.
    pub fn rent(&self) -> Option<Elapsed> {
        let is_booting = self.is_rented() && self.instance.started.is_none();
        self.seen.rent.or_else(|| self.seen.silence.filter(|_| is_booting))
    }

    /// The same, but at most: one whose agent has not called since the loop began counts by wall clocks, and so does one
    /// that may have been rented.
    pub fn rent_at_most(&self, now: Timestamp) -> Option<Elapsed> {
        let may_be = || self.is_rented() || self.may_be_rented();
        let by_wall = || Elapsed(now.since(self.instance.intended).0.saturating_sub(self.instance.before.0));
        self.seen.rent.or_else(|| may_be().then(by_wall))
    }

    /// Rent until now if it was rented, of one of which nobody knows whether it was.
    pub fn rent_in_doubt(&self, now: Timestamp) -> Option<Elapsed> {
        self.may_be_rented().then(|| now.since(self.instance.intended))
    }

    /// Whether it has been missing for so long that its provider cannot list it later.
    pub fn is_gone_by_absence(&self) -> bool {
        let is_missing = |traits: &ProviderTraits| self.seen.missing.is_some_and(|time| time >= traits.visible_within);
        !self.seen.is_launching && self.traits.is_some_and(is_missing)
    }

    fn is_rented(&self) -> bool {
        self.instance.is_accepted || self.seen.sight == Some(Sight::Alive)
    }

    /// Whether a launch was asked for, or may have been, and neither an answer nor a view shows whether it took effect.
    fn may_be_rented(&self) -> bool {
        let is_told = self.is_rented() || matches!(self.seen.sight, Some(Sight::Gone(_)));
        let is_asked = self.instance.state == InstanceState::Releasing || self.seen.in_doubt.is_some();
        is_asked && !is_told && self.seen.rent.is_none()
    }
}

/// A run with its machines that are not released, oldest first. They are found once for all that is decided about the run:
/// to find them again takes longer than to decide.
pub(crate) struct RunFacts<'a> {
    /// All that is known.
    pub world: &'a World,
    /// All that was observed.
    pub facts: &'a ObservedState,
    /// The run.
    pub run: &'a Run,
    /// Its machines.
    pub machines: Vec<LiveMachine<'a>>,
    /// What it has spent on others.
    released: OnceCell<Money>,
}

impl<'a> RunFacts<'a> {
    /// Finds the run's machines.
    pub fn new(world: &'a World, facts: &'a ObservedState, run: &'a Run) -> RunFacts<'a> {
        let machines = world.live_instances_of(run).map(|(id, instance)| facts.live(id, instance)).collect();
        RunFacts { world, facts, run, machines, released: OnceCell::new() }
    }

    /// The cost of the run until now, by the rent of its machines.
    pub fn spent(&self, rent: impl Fn(&LiveMachine<'_>) -> Option<Elapsed>) -> Money {
        let released = *self.released.get_or_init(|| spent_on_released(self.world, self.run));
        let cost = |one: &LiveMachine<'_>| one.instance.cost_of_all(rent(one).unwrap_or_default());
        self.machines.iter().map(cost).sum::<Money>() + released
    }

    /// The same, as far as it is known.
    pub fn spent_so_far(&self) -> Money {
        self.spent(|one| one.rent())
    }

    /// The same, with that of machines of which nobody knows whether they were rented.
    pub fn spent_with_doubts(&self) -> Money {
        self.spent(|one| one.rent().or_else(|| one.rent_in_doubt(self.facts.now)))
    }

    /// The same, at most.
    pub fn spent_at_most(&self) -> Money {
        self.spent(|one| one.rent_at_most(self.facts.now))
    }
}
