//! Machines that one run after the other has had: whose they are, and which part of their rent each run owes.

use domain::event::MachineTaken;
use domain::rental::MachineHandle;
use domain::run::InstanceState;
use domain::wire::{AgentCommand, HeartbeatReply};
use domain::{Elapsed, InstanceId, Money};
use plan::{Instance, World};

use crate::machine::Machine;
use crate::simulation::Simulation;

/// The instances that a machine has been, in their order.
fn instances<'a>(world: &'a World, machine: &'a InstanceId) -> Vec<(&'a InstanceId, &'a Instance)> {
    let is_its = |(id, instance): &(&InstanceId, &Instance)| instance.machine_name(id) == machine;
    let mut found: Vec<_> = match world.instances.get_key_value(machine) {
        // Few machines are taken over.
        Some(first) if world.instances.values().all(|instance| instance.machine.is_none()) => vec![first],
        _ => world.instances.iter().filter(is_its).collect(),
    };
    found.sort_by_key(|(_, instance)| instance.before);
    found
}

/// What is owed for a machine that was rented for so long, by the instances for which `is_own` holds.
pub(crate) fn owed(
    world: &World,
    machine: &Machine,
    rented: Elapsed,
    is_own: impl Fn(&InstanceId, &Instance) -> bool,
) -> Money {
    let all = instances(world, &machine.instance);
    let cost = |until: Elapsed| machine.rate.cost(until).micros();
    let part = |(index, (id, instance)): (usize, &(&InstanceId, &Instance))| {
        let end = all.get(index + 1).map_or(rented, |(_, next)| next.before);
        if is_own(id, instance) { cost(end) - cost(instance.before) } else { 0 }
    };
    Money::from_micros(all.iter().enumerate().map(part).sum())
}

impl Simulation {
    /// The name by which the cloud knows the machine of an instance.
    pub(crate) fn machine_name(&self, instance: &InstanceId) -> InstanceId {
        let world = self.process.controller.as_ref().map(control::Controller::world);
        let known = world.and_then(|world| world.instances.get(instance));
        let known = known.or_else(|| self.process.archive.instances.get(instance));
        known.map_or(instance, |known| known.machine_name(instance)).clone()
    }

    /// What earlier runs owe of the rent of an instance's machine.
    pub(crate) fn rent_before(&self, instance: &InstanceId) -> Elapsed {
        let world = self.process.controller.as_ref().map(control::Controller::world);
        world.and_then(|world| world.instances.get(instance)).map_or(Elapsed(0), |known| known.before)
    }

    /// Whether the machine of an instance goes on as that of another one.
    pub(crate) fn is_taken_over(&self, instance: &InstanceId) -> bool {
        let world = self.process.controller.as_ref().map(control::Controller::world);
        let holder = world.and_then(|world| world.holder(&self.machine_name(instance)));
        holder.is_some_and(|holder| holder != instance)
    }

    /// The agent of a machine that was taken over is not told to leave while the run that has it needs it.
    pub(crate) fn check_stays(&mut self, handle: &MachineHandle, reply: &HeartbeatReply) {
        let Some(world) = self.process.controller.as_ref().map(control::Controller::world) else { return };
        let Some(machine) = self.cloud.machines.get(handle) else { return };
        let Some(holder) = world.holder(&machine.instance) else { return };
        let is_up = world.instances.get(holder).is_some_and(|known| known.state == InstanceState::Up);
        let leaves = reply.orders.iter().any(|order| matches!(order, AgentCommand::Leave));
        if leaves && is_up && !self.is_restored && self.scenario.traits.token_lifetime.is_some() {
            let holder = holder.clone();
            self.violate(format!("{holder} is up, and its agent is told to leave"));
        }
    }

    /// A run takes over a machine: nothing of the run before is left on it.
    pub(crate) fn check_taken(&mut self, taken: &MachineTaken) {
        self.stats.taken += 1;
        self.disturbed(&taken.run);
        let mut own = self.cloud.machines.values().filter(|machine| machine.instance == taken.machine);
        let (machine, other) = (own.next(), own.next());
        let Some(machine) = machine.filter(|_| other.is_none() || self.scenario.traits.token_lifetime.is_none()) else {
            return self.violate(format!("{} is not one machine, and {} takes it over", taken.machine, taken.instance));
        };
        let metered = machine.metered(self.now);
        let works = machine.rank.as_ref().filter(|_| !self.is_restored && machine.is_alive());
        if let Some(rank) = works {
            let attempt = rank.attempt.clone();
            self.violate(format!("{attempt} still works on {}, and {} takes it over", taken.machine, taken.instance));
        }
        if taken.before > metered && !self.is_restored {
            self.violate(format!("{} has not run for as long as is counted for those before", taken.machine));
        }
    }
}
