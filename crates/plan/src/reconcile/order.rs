//! Requests for machines: one each, or one for several where their provider rents all of them or none.
//!
//! Machines that must reach each other are of no use alone. One request for all of them costs nothing while there are too
//! few, and cannot rent a part of them.

use domain::run::InstanceState;
use domain::{InstanceId, Money, Offer, RunId};

use super::{Action, ObservedState, limits};
use crate::world::{Run, World};

/// Rents what was chosen for a run that has so many usable machines: those that it cannot start without by one request,
/// the rest one by one.
pub(super) fn rent(
    world: &World,
    facts: &ObservedState,
    (id, run): (&RunId, &Run),
    usable: usize,
    chosen: Vec<Offer>,
) -> Vec<Action> {
    let spent = limits::spent_so_far(world, facts, run);
    let reserve = Money::from_micros(run.plan.reserve.micros().saturating_sub(spent.micros()).max(0));
    let mut number = run.instances.len() as u64;
    let mut next = || {
        number += 1;
        id.instance(number)
    };
    let mut left = chosen.into_iter();
    let mut actions = Vec::new();
    let mut together = together(facts, run, usable, left.as_slice());
    while let Some(offer) = left.next() {
        let instance = next();
        let others = (1..together).filter_map(|_| left.next()).map(|_| next()).collect();
        together = 1;
        actions.push(Action::Rent { run: id.clone(), instance, others, offer, reserve });
    }
    actions
}

/// How many of the chosen machines the first request rents.
fn together(facts: &ObservedState, run: &Run, usable: usize, chosen: &[Offer]) -> usize {
    let Some(first) = chosen.first() else { return 1 };
    let can = facts.traits.get(&first.provider).is_some_and(|traits| traits.rents_together);
    let are_alike = chosen.iter().all(|offer| offer == first);
    match can && are_alike && run.job.nodes() > 1 {
        true => (run.job.least_nodes() as usize).saturating_sub(usable).clamp(1, chosen.len()),
        false => 1,
    }
}

/// The machines of the same request, in its order; the instance alone if it was asked for alone.
pub fn members(world: &World, id: &InstanceId) -> Vec<InstanceId> {
    let of = |id: &InstanceId| world.instances.get(id).and_then(|instance| instance.first.clone());
    let run = world.instances.get(id).and_then(|instance| world.runs.get(&instance.run));
    match (of(id), run) {
        (Some(first), Some(run)) => {
            run.instances.iter().filter(|other| of(other).as_ref() == Some(&first)).cloned().collect()
        }
        _ => vec![id.clone()],
    }
}

/// Whether an instance is the one by which its request is made again: the first that is not known to be rented.
pub(super) fn is_first(world: &World, id: &InstanceId) -> bool {
    let is_intended =
        |id: &&InstanceId| world.instances.get(*id).is_some_and(|instance| instance.state == InstanceState::Intended);
    members(world, id).iter().find(is_intended) == Some(id)
}

/// Whether another machine of the same request is known to be rented.
pub(super) fn is_rented(world: &World, id: &InstanceId) -> bool {
    members(world, id).iter().filter_map(|id| world.instances.get(id)).any(|instance| instance.is_accepted)
}
