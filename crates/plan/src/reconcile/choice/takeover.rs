//! Machines that runs leave behind, and the runs that take them over instead of renting others.
//!
//! A machine of a cloud takes minutes to boot, and is billed a minute for having begun. So one whose run has ended goes to
//! the first run that waits for one of the same kind at the same price, at once: nothing is kept idle for runs to come.

use std::collections::BTreeSet;

use domain::run::{InstanceState, RunState, Sight, Usage};
use domain::{Cause, Elapsed, InstanceId, Offer, RunId, Work};

use super::{is_short, offers};
use crate::reconcile::limits::{Affords, affords_rent, limits, reserve_for_ending};
use crate::reconcile::{
    Action, LiveMachine, ObservedState, Policy, RunFacts, budget_of, decided_end, expires, order, price_cap, rested,
    retry, room,
};
use crate::world::{Instance, Run, World};

/// A run, by its name.
type Named<'a> = (&'a RunId, &'a Run);

/// Machines and the runs that take them over, decided together: each goes to one run, and each run gets one.
#[derive(Default)]
pub(in crate::reconcile) struct Takeovers<'a> {
    pub actions: Vec<Action>,
    /// The machines, by what they are for the runs that leave them.
    pub machines: BTreeSet<&'a InstanceId>,
    /// The runs that take them.
    pub runs: BTreeSet<&'a RunId>,
}

/// Decides which runs of the scope take over the machines of which others; `runs` are in their order.
pub(in crate::reconcile) fn takeovers<'a>(
    world: &'a World,
    facts: &ObservedState,
    policy: &Policy,
    runs: &[Named<'a>],
) -> Takeovers<'a> {
    let mut taken = Takeovers::default();
    if !policy.hands_over {
        return taken;
    }
    for (_, left) in runs.iter().filter(|(_, run)| run.state.is_final() && run.job.machines() == 1) {
        for (from, instance) in world.live_instances_of(left) {
            let Some(rent) = ready(world, facts, left, from, instance) else { continue };
            // Of trials that share a budget, the next look counts what the first of them is given.
            let shares = |run: &Run| {
                let mut others = runs.iter().filter(|(id, _)| taken.runs.contains(id));
                budget_of(world, run).is_some() && others.any(|(_, other)| are_of_one_sweep(other, run))
            };
            let fits = |(id, run): &&Named<'a>| {
                !taken.runs.contains(id)
                    && !shares(run)
                    && waits(&RunFacts::new(world, facts, run), policy, id)
                    && suits(world, facts, policy, (left, instance), run)
                    && affords(&RunFacts::new(world, facts, run), policy, (left, facts.live(from, instance)), rent)
            };
            let Some((id, run)) = runs.iter().find(fits) else { continue };
            let elapsed = Elapsed(rent.0.saturating_sub(instance.before.0));
            let usage = Usage { started: instance.own_start(), elapsed };
            let reserve = order::reserve(&RunFacts::new(world, facts, run));
            let instance = id.instance(run.instances.len() as u64 + 1);
            taken.actions.push(Action::TakeOver { run: (*id).clone(), instance, from: from.clone(), usage, reserve });
            taken.machines.insert(from);
            taken.runs.insert(id);
        }
    }
    taken
}

/// Whether a machine may be taken over from a run that has ended, and its rent until now, as far as its provider has
/// certainly counted it.
fn ready(world: &World, facts: &ObservedState, left: &Run, id: &InstanceId, instance: &Instance) -> Option<Elapsed> {
    let traits = facts.traits.get(&instance.offer.provider)?;
    let is_on_demand = !room::exists(&instance.offer) && traits.places.is_none() && traits.abandoned_within.is_none();
    let is_alone = left.job.machines() == 1 && instance.first.is_none() && instance.doubles.is_empty();
    let is_well = instance.state == InstanceState::Up && instance.reclaim.is_none() && !instance.lost_race;
    // One of an account that cannot be asked any more is not listed.
    let is_seen = match facts.machine(id).sight {
        None => instance.account.is_none(),
        sight => sight == Some(Sight::Alive),
    };
    if !is_on_demand || !is_alone || !is_well || !is_seen || world.taker_of(id, instance).is_some() {
        return None;
    }
    facts.machine(id).certain_rent.filter(|rent| *rent > instance.before)
}

/// Whether a run would rent a machine now, or only waits because there was none.
fn waits(of: &RunFacts<'_>, policy: &Policy, id: &RunId) -> bool {
    let RunFacts { world, facts, run, .. } = *of;
    if run.state.is_final() || matches!(run.state, RunState::Stopping { .. }) || run.job.machines() != 1 {
        return false;
    }
    let is_short = matches!(&run.state, RunState::Recovering { finding, .. } if finding.cause == Cause::NoCapacity);
    facts.attended.contains(id)
        && of.machines.is_empty()
        && world.active_attempt(run).is_none()
        && decided_end(world, run).is_none()
        && retry::more_micro_batches(run).is_none()
        && limits(of, policy, id).is_none()
        && (is_short || rested(of, policy, id))
}

/// Whether a machine is what a run would rent, and the run before is one that may leave it to this one.
fn suits(
    world: &World,
    facts: &ObservedState,
    policy: &Policy,
    (left, instance): (&Run, &Instance),
    run: &Run,
) -> bool {
    let is_same = |offer: &Offer| {
        let other = &instance.offer;
        (&offer.provider, &offer.kind, &offer.node, offer.rate)
            == (&other.provider, &other.kind, &other.node, other.rate)
    };
    // What the plan names before it can be had is rented, and not this.
    let mut dearer = offers(run).take_while(|offer| !is_same(offer));
    let is_wanted = offers(run).any(is_same) && dearer.all(|offer| is_short(facts, offer));
    let is_wanted = is_wanted && is_bid_allowed(world, (left, instance), run);
    let may_share = !left.job.wants.own_machines && !run.job.wants.own_machines;
    let is_theirs = may_share && (are_of_one_sweep(left, run) || are_of_one_user(left, run));
    // The end of the money, as it is written on the machine, stays as it is.
    let of = |run: &Run, instance: &Instance| expires(world, policy, run, instance);
    let later = || of(run, &Instance { intended: facts.now, ..instance.clone() });
    let holds = are_of_one_sweep(left, run)
        || of(left, instance).is_none_or(|written| later().is_some_and(|needed| needed <= written));
    is_wanted && is_theirs && holds
}

/// Whether a spot machine costs a run no more than it may: the bid of its first run stays.
fn is_bid_allowed(world: &World, (left, instance): (&Run, &Instance), run: &Run) -> bool {
    let bid = |run: &Run| price_cap(world, run, &instance.offer);
    let is_fixed = !instance.offer.kind.ends_with("/spot");
    is_fixed || bid(run).is_none_or(|most| bid(left).is_some_and(|bid| bid <= most))
}

/// Whether two runs are of one user, whose name is known, and of one project, and leave nothing of interest to each other: what
/// a program has made outside of its run's folder stays on the machine, and so does data, which takes disk space. Clients of
/// whom no name is known may be anybody.
fn are_of_one_user(one: &Run, other: &Run) -> bool {
    let is_named = one.user.is_some() && one.user == other.user;
    is_named && one.job.project == other.job.project && train_on_the_same(one, other)
}

fn train_on_the_same(one: &Run, other: &Run) -> bool {
    matches!((&one.job.work, &other.job.work), (Work::Train(one), Work::Train(other)) if one.data == other.data)
}

fn are_of_one_sweep(one: &Run, other: &Run) -> bool {
    let sweep = |run: &Run| run.trial.as_ref().map(|trial| trial.sweep.clone());
    sweep(one).is_some() && sweep(one) == sweep(other)
}

/// Whether the budget of a run pays for the machine: as for one that it rents, and for what its provider may bill of the
/// time before, such as its boot; and for the lease that its agent may have been granted for the run before.
fn affords(of: &RunFacts<'_>, policy: &Policy, (left, machine): (&Run, LiveMachine<'_>), rent: Elapsed) -> bool {
    let RunFacts { world, facts, run, .. } = *of;
    let instance = machine.instance;
    let Some(budget) = budget_of(world, run).filter(|_| policy.is_admitting) else { return true };
    if affords_rent(of, policy, std::slice::from_ref(&instance.offer)) != Affords::Yes {
        return false;
    }
    if world.sweep_of(run).is_some() {
        return are_of_one_sweep(left, run);
    }
    let counted = machine.rent().map_or(0, |part| part.0.saturating_add(instance.before.0));
    let least = facts.billed(instance, Elapsed(1)).0;
    let lease = policy.lease.max(policy.lease_longest).0;
    let ending = reserve_for_ending(world, facts, policy, run).0;
    let time = counted.saturating_sub(rent.0).saturating_add(lease).saturating_add(ending).max(least);
    let most = of.spent_at_most().max(of.spent_so_far());
    most + instance.offer.rate.cost(Elapsed(time)) < budget.max
}

/// Writes down that the machine of a run belongs to another one now: the loop ended before it did.
pub(in crate::reconcile) fn given_over(world: &World, id: &InstanceId, instance: &Instance) -> Option<Action> {
    let taker = world.taker_of(id, instance).filter(|_| !matches!(instance.state, InstanceState::Released { .. }))?;
    let elapsed = Elapsed(taker.before.0.saturating_sub(instance.before.0));
    Some(Action::RecordRelease { instance: id.clone(), usage: Usage { started: instance.own_start(), elapsed } })
}

/// The machines of ended trials whose sweep begins or resumes another one now: these may take them over as soon as they are
/// there.
pub(in crate::reconcile) fn kept_for_trials(
    world: &World,
    facts: &ObservedState,
    policy: &Policy,
    actions: &[Action],
) -> BTreeSet<InstanceId> {
    let sweep = |action: &Action| match action {
        Action::SubmitTrial(new) => Some(new.trial.sweep.clone()),
        Action::Resume { run, .. } => world.runs.get(run)?.trial.as_ref().map(|trial| trial.sweep.clone()),
        _ => None,
    };
    if !policy.hands_over {
        return BTreeSet::new();
    }
    let begun: BTreeSet<_> = actions.iter().filter_map(sweep).collect();
    let released = actions.iter().filter_map(|action| match action {
        Action::Release { instance } => Some(instance),
        _ => None,
    });
    let is_left = |id: &&InstanceId| {
        let Some(instance) = world.instances.get(*id) else { return false };
        let run = world.runs.get(&instance.run).filter(|run| run.state.is_final());
        let is_begun = |run: &&Run| run.trial.as_ref().is_some_and(|trial| begun.contains(&trial.sweep));
        run.filter(is_begun).is_some_and(|run| ready(world, facts, run, id, instance).is_some())
    };
    released.filter(is_left).cloned().collect()
}
