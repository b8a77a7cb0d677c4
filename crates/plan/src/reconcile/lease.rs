//! How long agents may continue without the loop: limited by budget and deadline, because nobody can stop them then.

use domain::run::RunState;
use domain::{Elapsed, Offer, Rate, Timestamp};

use super::limits::{
    budget_of, heartbeat, rate_now, rate_of_machines, reserve_for_ending, reserve_of, time_to_spend, wind_down,
};
use super::{ObservedState, Policy, RunFacts, trials};
use crate::world::{Instance, Run, World};

/// How long an agent of this run may continue without an answer: its lease, but at most until only the reserve of its
/// budget remains, or its deadline, because it could not be stopped then; for a trial those of its sweep count. At least
/// until its next call, for which the budget reserves rent as well.
pub fn lease(world: &World, facts: &ObservedState, policy: &Policy, run: &Run) -> Elapsed {
    let budget = run.job.budget.and_then(|budget| {
        let of = RunFacts::new(world, facts, run);
        let reserved = rate_now(&of).cost(reserve_of(&of, policy)) + of.spent_at_most();
        time_to_spend(budget.max - reserved, rate_of_machines(&of))
    });
    let deadline = run.job.deadline.map(|deadline| Elapsed(deadline.micros().saturating_sub(run.age(facts.now).0)));
    let of_sweep = world.sweep_of(run).and_then(|sweep| trials::left(world, facts, policy, sweep));
    let least = match run.state {
        // It was told to stop within a time.
        RunState::Stopping { .. } => Some(wind_down(policy, &run.job, budget_of(world, run), run.rate())),
        _ => budget.into_iter().chain(deadline).chain(of_sweep).min(),
    };
    policy.lease.min(least.unwrap_or(policy.lease).max(heartbeat(policy, run)))
}

/// How long the agent of a machine may wait for its first answer: until the money reserved for it only pays for ending
/// it; for a trial until the budget of its sweep does. `None` without a budget.
pub fn first_answer(
    world: &World,
    facts: &ObservedState,
    policy: &Policy,
    run: &Run,
    instance: &Instance,
) -> Option<Elapsed> {
    if let Some(sweep) = world.sweep_of(run) {
        let left = trials::left(world, facts, policy, sweep);
        return left.map(|left| left.max(heartbeat(policy, run)));
    }
    run.job.budget?;
    // An alternative may cost more than what was planned.
    let rate = run.rate().max(instance.offer.rate.times(run.job.nodes()));
    let ending = rate.cost(reserve_for_ending(world, facts, policy, run));
    time_to_spend(instance.reserved - ending, rate.micros_per_hour()).map(|left| left.max(heartbeat(policy, run)))
}

/// When a machine is of no use any more, whatever happens: its run's deadline is over and what was saved after it, or the
/// whole budget would be spent on it alone; for a trial, those of its sweep. Written on the machine, for whoever finds
/// it. `None` without limits.
pub fn expires(world: &World, policy: &Policy, run: &Run, instance: &Instance) -> Option<Timestamp> {
    let budget = budget_of(world, run);
    let ending = wind_down(policy, &run.job, budget, run.rate()).0.saturating_add(policy.ending_max.0);
    let (submitted, deadline) = match world.sweep_of(run) {
        Some(sweep) => (sweep.submitted, sweep.job.deadline),
        None => (run.submitted, run.job.deadline),
    };
    let deadline = deadline.map(|deadline| (submitted, deadline.micros().saturating_add(ending)));
    let rate = instance.offer.rate.micros_per_hour();
    let paid = budget.and_then(|budget| time_to_spend(budget.max, rate));
    let paid = paid.map(|paid| (instance.intended, paid.0));
    let later = |(from, length): (Timestamp, u64)| Timestamp(from.0.saturating_add_unsigned(length));
    deadline.into_iter().chain(paid).map(later).min()
}

/// The most that the provider may charge for a machine an hour where its price moves, as that of spot machines does. With a
/// budget that is the price at which rent is counted: the budget would be exceeded otherwise. Without one it is what the job
/// allows; `None` where it allows any.
pub fn price_cap(world: &World, run: &Run, offer: &Offer) -> Option<Rate> {
    match budget_of(world, run) {
        Some(_) => Some(offer.rate),
        None => run.job.wants.max_price,
    }
}
