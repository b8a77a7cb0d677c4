//! The inputs of decisions: reports, observations and requests, as durations until now.

use std::collections::BTreeMap;

use domain::rental::ProviderTraits;
use domain::run::{InstanceState, Sight};
use domain::{Elapsed, InstanceId, RunId};
use plan::{Instance, LaunchDoubt, ObservedMachine, ObservedState, Scope};

use super::Controller;
use super::memory::{Heard, LastEvents, MachineMemory};

/// What a look at machines has shown.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// Each machine, as decisions rest on it.
    pub machines: Vec<(InstanceId, ObservedMachine)>,
    /// Those that are lost, in the order of their names.
    pub lost: Vec<InstanceId>,
    /// Those that are not noted for their providers as they are.
    pub unnoted: Vec<InstanceId>,
    /// When the first machine of each run needs an action that is not a decision, beside what is due now.
    pub due: BTreeMap<RunId, Elapsed>,
}

impl Controller {
    /// What decisions on some runs and sweeps rest on.
    pub(super) fn facts(&mut self, scope: &Scope) -> ObservedState {
        let look = self.look_at(scope, self.look_at_releasing());
        self.facts_of(scope, look.machines)
    }

    /// The same, where machines were just looked at.
    pub(super) fn facts_of(&mut self, scope: &Scope, machines: Vec<(InstanceId, ObservedMachine)>) -> ObservedState {
        let mut facts = self.state_of(machines);
        let now = self.now.monotonic;
        for id in scope.runs.iter().filter(|id| self.world.is_open(id)).cloned().collect::<Vec<RunId>>() {
            if self.is_watched(&id) {
                facts.attended.insert(id.clone());
            }
            let since = self.run_memory(&id).since;
            facts.quiet.insert(id, Elapsed(now.0.saturating_sub(since.0)));
        }
        let watched = scope.sweeps.iter().filter(|id| self.watched.all || self.watched.sweeps.contains(id));
        facts.attended_sweeps = watched.cloned().collect();
        facts
    }

    /// The observed state of machines: of those of some runs, of all trials of some sweeps, and of all that are being
    /// released.
    pub(super) fn machine_facts(&self, scope: &Scope) -> ObservedState {
        self.state_of(self.look_at(scope, self.look_at_releasing()).machines)
    }

    fn state_of(&self, machines: Vec<(InstanceId, ObservedMachine)>) -> ObservedState {
        let shortages = self.shortages.left(self.now.monotonic);
        let (now, traits) = (self.now.wall, self.traits.clone());
        ObservedState { machines: machines.into_iter().collect(), now, traits, shortages, ..ObservedState::default() }
    }

    /// Looks at all machines that are being released.
    pub(super) fn look_at_releasing(&self) -> Look {
        let mut look = Look::default();
        self.world.releasing_instances().for_each(|(id, instance)| self.look(&mut look, id, instance));
        look
    }

    /// Looks at the other machines of some runs, and of all trials of some sweeps.
    pub(super) fn look_at(&self, scope: &Scope, mut look: Look) -> Look {
        let world = &self.world;
        let trials = scope.sweeps.iter().filter_map(|id| world.sweeps.get(id)).flat_map(|sweep| world.trials(sweep));
        // Those in the scope are looked at once.
        let trials = trials.filter(|(id, _)| !scope.runs.contains(*id)).map(|(_, run)| run);
        let runs = scope.runs.iter().filter_map(|id| world.runs.get(id)).chain(trials);
        for (id, instance) in runs.flat_map(|run| world.live_instances_of(run)) {
            if instance.state != InstanceState::Releasing {
                self.look(&mut look, id, instance);
            }
        }
        look
    }

    fn look(&self, look: &mut Look, id: &InstanceId, instance: &Instance) {
        let Some(memory) = self.machines.get(id) else { return };
        let traits = self.providers.get(&instance.offer.provider).map(|provider| &provider.traits);
        let seen = self.machine(instance, memory, traits);
        if plan::is_lost(traits, &self.policy, instance, &seen) {
            look.lost.push(id.clone());
        }
        if memory.noted != Some(self.is_changing(instance, memory)) {
            look.unnoted.push(id.clone());
        }
        if let Some(at) = self.machine_due(instance, memory, traits) {
            match look.due.get_mut(&instance.run) {
                Some(first) => *first = at.min(*first),
                None => {
                    look.due.insert(instance.run.clone(), at);
                }
            }
        }
        look.machines.push((id.clone(), seen));
    }

    /// Takes in what was done about a machine since.
    pub(super) fn look_again(&self, facts: &mut ObservedState, id: &InstanceId) {
        if let Some((instance, memory)) = self.world.instances.get(id).zip(self.machines.get(id)) {
            let traits = self.providers.get(&instance.offer.provider).map(|provider| &provider.traits);
            facts.machines.insert(id.clone(), self.machine(instance, memory, traits));
        }
    }

    fn machine(&self, instance: &Instance, memory: &MachineMemory, traits: Option<&ProviderTraits>) -> ObservedMachine {
        let now = self.now.monotonic;
        let since = |at: Elapsed| Elapsed(now.0.saturating_sub(at.0));
        let launch = &memory.launch;
        // A view taken while a request could still have its effect proves nothing.
        let missing =
            memory.missing.and_then(|(first, newest)| newest.0.checked_sub(first.max(launch.effective_until).0));
        let is_in_doubt = launch.requests > 0 && instance.state == InstanceState::Intended;
        let silence = self.silence_of(memory);
        let rent = self.rent(instance, memory, (silence, traits));
        ObservedMachine {
            sight: self.believed(instance, memory, traits),
            rent: rent.map(|rent| Elapsed(rent.0.saturating_sub(instance.before.0))),
            certain_rent: self.certain_rent(instance, memory, (silence, traits)),
            silence: Some(silence),
            is_unheard: memory.heard.is_none(),
            missing: missing.map(Elapsed),
            ending: memory.end.first.map(since),
            is_end_asked: traits.is_some_and(|traits| self.is_end_asked(memory, traits)),
            is_launching: launch.pending.is_some() || now < launch.not_before,
            in_doubt: is_in_doubt.then(|| LaunchDoubt {
                requests: launch.requests,
                since: since(launch.last),
                is_token_void: self.is_token_void(memory, traits),
            }),
        }
    }

    /// Rented time of a machine until now.
    fn rent(
        &self,
        instance: &Instance,
        memory: &MachineMemory,
        (silence, traits): (Elapsed, Option<&ProviderTraits>),
    ) -> Option<Elapsed> {
        let now = self.now.monotonic;
        if let Some(heard) = memory.heard {
            // It also grows between two calls, and starts with the machine, before its agent.
            let running = heard.rent.0.saturating_add(now.0.saturating_sub(heard.at.0));
            return Some(Elapsed(running.saturating_add(booting(memory, heard, traits).0)));
        }
        let is_rented = instance.is_accepted || memory.sight == Some(Sight::Alive);
        // A loop that has just started waits for it to call, for wall clocks may be wrong. After that, rather too much.
        (is_rented && silence >= self.policy.suspect).then(|| age(memory, now))
    }

    /// The rent that an agent has metered, while it is certain that no other machine has its name. As of its last call: the
    /// machine may have ended since.
    fn certain_rent(
        &self,
        instance: &Instance,
        memory: &MachineMemory,
        (silence, traits): (Elapsed, Option<&ProviderTraits>),
    ) -> Option<Elapsed> {
        let launch = &memory.launch;
        let is_settled = launch.pending.is_none() && launch.requests == 0 && memory.end.first.is_none();
        let is_one = instance.handle.is_some() && memory.machines.len() <= 1 && !self.may_be_double(memory, traits);
        Some(memory.heard.filter(|_| is_settled && is_one && silence < self.policy.suspect)?.rent)
    }

    /// The provider's view of a machine, once it may be acted on: the end of a machine only after its agent's last
    /// events were read, because the work may be complete.
    fn believed(&self, instance: &Instance, memory: &MachineMemory, traits: Option<&ProviderTraits>) -> Option<Sight> {
        let sight = memory.sight?;
        let keeps = traits.is_some_and(|traits| traits.keeps_events);
        let is_read = !keeps || memory.last_events == LastEvents::Read;
        let may_act = is_read && !self.may_be_double(memory, traits);
        match sight {
            Sight::Gone(usage) => may_act.then(|| Sight::Gone(usage.map(|usage| instance.part_of(usage)))),
            Sight::Alive | Sight::Unknown => Some(sight),
        }
    }

    /// Whether a second machine of the same request may still appear. Only if the provider does not support tokens.
    fn may_be_double(&self, memory: &MachineMemory, traits: Option<&ProviderTraits>) -> bool {
        let Some(known) = traits else { return false };
        let shown = memory.launch.effective_until.0.saturating_add(known.visible_within.0);
        let is_asked = memory.launch.pending.is_some();
        self.is_token_void(memory, traits) && (is_asked || memory.looked.0 < shown)
    }

    /// Whether the token of an uncertain launch may rent a second machine by now. Half of its lifetime is left as
    /// margin for the provider's clock and for the request in flight.
    fn is_token_void(&self, memory: &MachineMemory, traits: Option<&ProviderTraits>) -> bool {
        let Some(traits) = traits else { return true };
        let age = age(memory, self.now.monotonic);
        traits.token_lifetime.is_none_or(|lifetime| age.0 >= lifetime.0 / 2)
    }
}

/// The boot time of a machine, from its intent to its agent, at most what its provider declares.
fn booting(memory: &MachineMemory, heard: Heard, traits: Option<&ProviderTraits>) -> Elapsed {
    let within = traits.map_or(Elapsed(0), |traits| traits.boots_within);
    Elapsed(age(memory, heard.at).0.saturating_sub(heard.rent.0)).min(within)
}

/// Time since a machine was first requested: by wall clocks until this loop knew of it, and by its own since then.
fn age(memory: &MachineMemory, now: Elapsed) -> Elapsed {
    let (age, since) = memory.token;
    Elapsed(age.0.saturating_add(now.0.saturating_sub(since.0)))
}
