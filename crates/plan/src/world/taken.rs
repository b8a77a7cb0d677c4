//! Machines that outlive the run that they were rented for: another run takes one over instead of renting its own.
//!
//! Each run that has had a machine has an instance of its own for it, with its own part of the rent. The first part begins
//! with the machine and the last one ends with it, so together they cost what the provider bills. The provider and the
//! agent know the machine by one name for as long as it is there: that of its first instance.

use domain::event::MachineTaken;
use domain::run::{InstanceState, RunState, Usage};
use domain::{Elapsed, InstanceId, Money, Timestamp};

use super::lifecycle::{is_stopping, refuse_final};
use super::{Instance, World};

impl Instance {
    /// The name that its provider and its agent know it by; `id` is its own.
    pub fn machine_name<'a>(&'a self, id: &'a InstanceId) -> &'a InstanceId {
        self.machine.as_ref().unwrap_or(id)
    }

    /// The cost of its run's part of the rent. Rounded up once for the machine, and not once for each run that has had it.
    pub fn cost(&self, elapsed: Elapsed) -> Money {
        let until = |rent: Elapsed| self.offer.rate.cost(rent).micros();
        let whole = Elapsed(self.before.0.saturating_add(elapsed.0));
        Money::from_micros(until(whole).saturating_sub(until(self.before)))
    }

    /// Its run's part of the rent until now, by wall clocks; `None` until its agent has called.
    pub fn rent_by_the_clock(&self, now: Timestamp) -> Option<Elapsed> {
        Some(Elapsed(now.since(self.started?).0.saturating_sub(self.before.0)))
    }

    /// When its run's part of the rent begins, by wall clocks.
    pub fn own_start(&self) -> Timestamp {
        Timestamp(self.started.unwrap_or(self.intended).0.saturating_add_unsigned(self.before.0))
    }

    /// Its run's part of the usage of the machine.
    pub fn part_of(&self, usage: Usage) -> Usage {
        let elapsed = Elapsed(usage.elapsed.0.saturating_sub(self.before.0));
        let before = usage.elapsed.0.min(self.before.0);
        let started = Timestamp(usage.started.0.saturating_add_unsigned(before));
        Usage { started, elapsed }
    }
}

impl World {
    /// The instance that has a machine now, by the machine's name; `None` where it was never taken over, or is gone.
    pub fn holder(&self, machine: &InstanceId) -> Option<&InstanceId> {
        self.index.holder(machine)
    }

    /// The instance of a later run that has taken over the machine of this one.
    pub(crate) fn taker_of(&self, id: &InstanceId, instance: &Instance) -> Option<&Instance> {
        let holder = self.holder(instance.machine_name(id)).filter(|holder| *holder != id)?;
        self.instances.get(holder).filter(|taker| taker.before > instance.before)
    }

    pub(super) fn machine_taken(&mut self, taken: &MachineTaken) -> Result<(), String> {
        if self.instances.contains_key(&taken.instance) {
            return Err(format!("instance `{}` was intended before", taken.instance));
        }
        let run = self.run_mut(&taken.run)?;
        refuse_final(run)?;
        run.instances.push(taken.instance.clone());
        run.waits = 0;
        if !is_stopping(run) {
            run.state = RunState::Renting { instance: taken.instance.clone() };
        }
        let instance = Instance {
            is_accepted: true,
            handle: taken.handle.clone(),
            account: taken.account.clone(),
            started: Some(taken.started),
            incarnation: taken.incarnation,
            machine: Some(taken.machine.clone()),
            before: taken.before,
            state: InstanceState::Up,
            ..Instance::intended(&taken.run, taken.token.clone(), taken.offer.clone(), taken.reserved, taken.intended)
        };
        self.instances.insert(taken.instance.clone(), instance);
        Ok(())
    }
}
