//! Requests for machines: one each, or one for several where their provider rents all of them or none.
//!
//! Machines that must reach each other are of no use alone. One request for all of them costs nothing while there are too
//! few, and cannot rent a part of them.

use domain::run::InstanceState;
use domain::{InstanceId, Money, Offer, RunId};

use super::{Action, LiveMachine, ObservedState, RunFacts};
use crate::world::{Run, World};

/// How many of the machines that a run still misses are asked for now. Where those that it cannot start without are
/// rented by one request, the others wait until it was granted: alone they would be of no use.
pub(super) fn missing_now(facts: &ObservedState, run: &Run, usable: &[LiveMachine<'_>], missing: usize) -> usize {
    let offer = usable.first().map_or(&run.plan.offer, |one| &one.instance.offer);
    if run.job.nodes() == 1 || !rents_together(facts, offer) {
        return missing;
    }
    let least = run.job.least_nodes() as usize;
    let granted = usable.iter().filter(|one| one.instance.state != InstanceState::Intended).count();
    match least.saturating_sub(usable.len()) {
        0 if granted < least => 0,
        0 => missing,
        needed => needed.min(missing),
    }
}

fn rents_together(facts: &ObservedState, offer: &Offer) -> bool {
    facts.traits.get(&offer.provider).is_some_and(|traits| traits.rents_together)
}

/// Rents what was chosen for a run that has so many usable machines: those that it cannot start without by one request,
/// the rest one by one.
pub(super) fn rent(of: &RunFacts<'_>, id: &RunId, usable: usize, chosen: Vec<Offer>) -> Vec<Action> {
    let RunFacts { facts, run, .. } = *of;
    let reserve = reserve(of);
    let mut number = run.instances.len() as u64;
    let mut next = || {
        number += 1;
        id.instance(number)
    };
    let mut left = chosen.into_iter();
    let mut actions = Vec::new();
    let mut needed = (run.job.least_nodes() as usize).saturating_sub(usable);
    while let Some(offer) = left.next() {
        let instance = next();
        let together = together(facts, run, needed, (&offer, left.as_slice()));
        let others = (1..together).filter_map(|_| left.next()).map(|_| next()).collect();
        needed = needed.saturating_sub(together);
        actions.push(Action::Rent { run: id.clone(), instance, others, offer, reserve });
    }
    actions
}

/// What is left of the money that is reserved for a run.
pub(super) fn reserve(of: &RunFacts<'_>) -> Money {
    (of.run.plan.reserve - of.spent_so_far()).max(Money::default())
}

/// How many of the chosen machines one request rents, where so many are needed: those of one kind, such as all that are spot
/// machines.
fn together(facts: &ObservedState, run: &Run, needed: usize, (first, rest): (&Offer, &[Offer])) -> usize {
    let alike = 1 + rest.iter().take_while(|offer| *offer == first).count();
    match rents_together(facts, first) && run.job.nodes() > 1 {
        true => needed.clamp(1, alike),
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
