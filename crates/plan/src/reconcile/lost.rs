//! Machines that cannot be reached: when a run goes on without one, and when one is taken for gone.
//!
//! An agent that is silent is given up after [`Policy::silence`], and its machine is asked to end. If its provider cannot
//! prove the end either, the run continues elsewhere after [`Policy::replace`]: the number of the new attempt keeps the old
//! one from writing. The old machine is asked to end until its end is proved. Where only the machine itself could prove
//! it, its agent's own promise counts: it has ended everything when nobody has answered it for its lease.

use domain::run::{InstanceState, Usage};
use domain::{Elapsed, InstanceId};

use super::{ObservedState, Policy, is_silent, patience};
use crate::world::Instance;

/// Whether a run goes on without waiting for the end of this machine.
pub fn is_lost(facts: &ObservedState, policy: &Policy, id: &InstanceId, instance: &Instance) -> bool {
    instance.state == InstanceState::Releasing
        && is_silent(facts, policy, id, instance)
        && facts.ending.get(id).is_some_and(|ending| *ending >= policy.replace)
}

/// What was used of a machine that nobody can reach and that must have ended by itself: until it was heard last, and
/// for its lease. None while it may still be there.
pub(super) fn abandoned(facts: &ObservedState, policy: &Policy, id: &InstanceId, instance: &Instance) -> Option<Usage> {
    let within = ended_within(facts, policy, instance)?;
    let (ending, silence) = (facts.ending.get(id)?, facts.silence.get(id)?);
    if ending.min(silence) < &within {
        return None;
    }
    let until_now = facts.rent(id, instance).unwrap_or_default();
    let elapsed = Elapsed(until_now.0.saturating_sub(silence.0).saturating_add(policy.lease.0));
    Some(Usage { started: instance.started.unwrap_or(instance.intended), elapsed })
}

/// After how long without an answer a machine must have ended by itself: what its provider says, and never before its
/// agent has had its lease and the time to save.
fn ended_within(facts: &ObservedState, policy: &Policy, instance: &Instance) -> Option<Elapsed> {
    let within = facts.traits_of(instance)?.abandoned_within?;
    Some(within.max(Elapsed(policy.lease.0.saturating_add(2 * policy.saving.0))))
}

/// When one of the two changes by time alone.
pub(super) fn due(facts: &ObservedState, policy: &Policy, id: &InstanceId, instance: &Instance) -> Option<Elapsed> {
    let (ending, silence) = (facts.ending.get(id)?, facts.silence.get(id)?);
    let abandoned = ended_within(facts, policy, instance);
    let waits = [
        Some((policy.replace, ending)),
        Some((patience(facts, policy, instance), silence)),
        abandoned.map(|within| (within, ending)),
        abandoned.map(|within| (within, silence)),
    ];
    let left = waits.into_iter().flatten().filter_map(|(wait, waited)| wait.0.checked_sub(waited.0));
    left.filter(|left| *left > 0).min().map(Elapsed)
}
