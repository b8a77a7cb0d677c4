//! Unreachable machines: when a run continues without one, and when one counts as gone.
//!
//! A silent agent is given up after [`Policy::silence`], and the end of its machine is requested. If its provider
//! cannot prove the end either, the run continues elsewhere after [`Policy::replace`]: the number of the new attempt
//! fences the old one. The end of the old machine is requested until it is proved. If only the machine itself could
//! prove it, its agent's own promise counts: it ends everything when it was not answered for its lease.

use domain::Elapsed;
use domain::rental::ProviderTraits;
use domain::run::{InstanceState, Usage};

use super::{LiveMachine, ObservedMachine, Policy};
use crate::world::Instance;

/// Whether a run continues without waiting for the end of this machine.
pub fn is_lost(traits: Option<&ProviderTraits>, policy: &Policy, instance: &Instance, seen: &ObservedMachine) -> bool {
    instance.state == InstanceState::Releasing
        && seen.ending.is_some_and(|ending| ending >= policy.replace)
        && seen.silence.is_some_and(|silence| silence >= patience(traits, policy, instance))
}

impl LiveMachine<'_> {
    pub(super) fn is_lost(&self, policy: &Policy) -> bool {
        is_lost(self.traits, policy, self.instance, self.seen)
    }
}

/// Whether an agent has been silent for so long that its machine is given up.
pub(super) fn is_silent(policy: &Policy, machine: LiveMachine<'_>) -> bool {
    let is_over = |silence: Elapsed| silence >= patience(machine.traits, policy, machine.instance);
    machine.seen.silence.is_some_and(is_over)
}

/// How long an agent may be silent. Before its first call the machine boots.
pub(super) fn patience(traits: Option<&ProviderTraits>, policy: &Policy, instance: &Instance) -> Elapsed {
    match instance.state {
        InstanceState::Intended | InstanceState::Launching => {
            traits.map_or(policy.silence, |traits| traits.boots_within.max(policy.silence))
        }
        InstanceState::Up | InstanceState::Releasing | InstanceState::Released { .. } => {
            let is_remote = traits.is_some_and(|traits| traits.abandoned_within.is_some());
            if is_remote { policy.silence_remote } else { policy.silence }
        }
    }
}

/// The usage of an unreachable machine that must have ended by itself: until its last call, plus its lease. `None`
/// while it may still exist.
pub(super) fn abandoned(policy: &Policy, machine: LiveMachine<'_>) -> Option<Usage> {
    let LiveMachine { instance, seen, traits, .. } = machine;
    let (ending, silence) = (seen.ending?, seen.silence?);
    let within = ended_within(traits, policy, instance)?;
    if ending.min(silence) < within {
        return None;
    }
    // Nothing is billed where nobody ever knew that it was rented.
    let elapsed = machine
        .rent()
        .map_or(Elapsed(0), |until_now| Elapsed(until_now.0.saturating_sub(silence.0).saturating_add(policy.lease.0)));
    Some(Usage { started: instance.own_start(), elapsed })
}

/// After how long without an answer a machine must have ended by itself: as its provider declares, and never before its
/// agent has had its lease and the time to save. An agent that was never heard may have started as late as its machine may
/// boot.
fn ended_within(traits: Option<&ProviderTraits>, policy: &Policy, instance: &Instance) -> Option<Elapsed> {
    let traits = traits?;
    let within = traits.abandoned_within?.max(Elapsed(policy.lease.0.saturating_add(2 * policy.saving.0)));
    let booting = if instance.started.is_none() { traits.boots_within.0 } else { 0 };
    Some(Elapsed(within.0.saturating_add(booting)))
}

/// When one of the two changes by time alone.
pub(super) fn due(policy: &Policy, machine: LiveMachine<'_>) -> Option<Elapsed> {
    let LiveMachine { instance, seen, traits, .. } = machine;
    let (ending, silence) = (seen.ending?, seen.silence?);
    let abandoned = ended_within(traits, policy, instance);
    let waits = [
        Some((policy.replace, ending)),
        Some((patience(traits, policy, instance), silence)),
        abandoned.map(|within| (within, ending)),
        abandoned.map(|within| (within, silence)),
    ];
    let left = waits.into_iter().flatten().filter_map(|(wait, waited)| wait.0.checked_sub(waited.0));
    left.filter(|left| *left > 0).min().map(Elapsed)
}
