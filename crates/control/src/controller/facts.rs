//! The inputs of decisions: reports, observations and requests, as durations until now.

use std::collections::btree_map::Entry;

use domain::rental::ProviderTraits;
use domain::run::{InstanceState, Sight};
use domain::{Elapsed, InstanceId, RunId};
use plan::{Instance, LaunchDoubt, ObservedMachine, ObservedState, Scope};

use super::Controller;
use super::memory::{Heard, LastEvents, MachineMemory};

impl Controller {
    /// What decisions on some runs and sweeps rest on.
    pub(super) fn facts(&mut self, scope: &Scope) -> ObservedState {
        let mut facts = self.machine_facts(scope);
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
        let shortages = self.shortages.left(self.now.monotonic);
        let (now, traits) = (self.now.wall, self.traits.clone());
        let mut facts = ObservedState { now, traits, shortages, ..ObservedState::default() };
        let world = &self.world;
        let trials = scope.sweeps.iter().filter_map(|id| world.sweeps.get(id)).flat_map(|sweep| world.trials(sweep));
        let runs = scope.runs.iter().filter_map(|id| world.runs.get(id)).chain(trials.map(|(_, run)| run));
        let is_other = |(_, instance): &(&InstanceId, &Instance)| instance.state != InstanceState::Releasing;
        let others = runs.flat_map(|run| world.live_instances_of(run)).filter(is_other);
        for (id, instance) in world.releasing_instances().chain(others) {
            self.add_machine(&mut facts, id, instance);
        }
        facts
    }

    fn add_machine(&self, facts: &mut ObservedState, id: &InstanceId, instance: &Instance) {
        let Some(memory) = self.machines.get(id) else { return };
        if let Entry::Vacant(entry) = facts.machines.entry(id.clone()) {
            entry.insert(self.machine(instance, memory));
        }
    }

    /// Takes in what was done about a machine since.
    pub(super) fn observe_again(&self, facts: &mut ObservedState, id: &InstanceId) {
        if let Some((instance, memory)) = self.world.instances.get(id).zip(self.machines.get(id)) {
            facts.machines.insert(id.clone(), self.machine(instance, memory));
        }
    }

    /// How long its agent is silent and its end is waited for: by these it is lost or not.
    pub(super) fn absence(&self, memory: &MachineMemory) -> ObservedMachine {
        let now = self.now.monotonic;
        let ending = memory.end.first.map(|first| Elapsed(now.0.saturating_sub(first.0)));
        ObservedMachine { silence: Some(self.silence_of(memory)), ending, ..ObservedMachine::default() }
    }

    fn machine(&self, instance: &Instance, memory: &MachineMemory) -> ObservedMachine {
        let now = self.now.monotonic;
        let launch = &memory.launch;
        // A view taken while a request could still have its effect proves nothing.
        let missing =
            memory.missing.and_then(|(first, newest)| newest.0.checked_sub(first.max(launch.effective_until).0));
        let is_in_doubt = launch.requests > 0 && instance.state == InstanceState::Intended;
        let silence = self.silence_of(memory);
        let traits = self.providers.get(&instance.offer.provider).map(|provider| &provider.traits);
        let rent = self.rent(instance, memory, (silence, traits));
        ObservedMachine {
            sight: self.believed(instance, memory, traits),
            rent: rent.map(|rent| Elapsed(rent.0.saturating_sub(instance.before.0))),
            certain_rent: self.certain_rent(instance, memory, (silence, traits)),
            is_unheard: memory.heard.is_none(),
            missing: missing.map(Elapsed),
            is_launching: launch.pending.is_some() || now < launch.not_before,
            in_doubt: is_in_doubt.then(|| LaunchDoubt {
                requests: launch.requests,
                since: Elapsed(now.0.saturating_sub(launch.last.0)),
                is_token_void: self.is_token_void(memory, traits),
            }),
            ..self.absence(memory)
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
