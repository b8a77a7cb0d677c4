//! What the budget and the deadline of a sweep leave to its trials. A trial has none of its own.

use domain::{Elapsed, Money};

use super::limits::{live_rate, rate_now, reserve_of, time_to_spend};
use super::{ObservedState, Policy};
use crate::world::{Run, SweepRecord, World, spent};

/// Whether a run, or the sweep whose trial it is, has a budget or a deadline.
pub fn is_limited(world: &World, run: &Run) -> bool {
    let jobs = [Some(&run.job), world.sweep_of(run).map(|sweep| &sweep.job)];
    jobs.into_iter().flatten().any(|job| job.budget.is_some() || job.deadline.is_some())
}

/// The cost of a sweep until now, at most: a machine whose agent has not called since the loop began counts by wall
/// clocks.
pub(crate) fn spent_at_most(world: &World, facts: &ObservedState, sweep: &SweepRecord) -> Money {
    world.trials(sweep).map(|(_, run)| spent(world, run, &facts.rents_at_most(world, run))).sum()
}

/// What a sweep has cost at most, and what it takes to end its trials.
pub(crate) fn taken_at_most(world: &World, facts: &ObservedState, policy: &Policy, sweep: &SweepRecord) -> Money {
    let ending = |run: &Run| rate_now(world, run).cost(reserve_of(world, facts, policy, run));
    spent_at_most(world, facts, sweep) + open(world, sweep).map(ending).sum()
}

fn open<'a>(world: &'a World, sweep: &'a SweepRecord) -> impl Iterator<Item = &'a Run> {
    world.trials(sweep).map(|(_, run)| run).filter(|run| !run.state.is_final())
}

/// How long the trials of a sweep may train on with the machines that they have, if nobody can stop them: until its budget
/// only pays for ending them all, or until its deadline. `None` without either.
pub(super) fn left(world: &World, facts: &ObservedState, policy: &Policy, sweep: &SweepRecord) -> Option<Elapsed> {
    let age = facts.now.since(sweep.submitted).0;
    let deadline = sweep.job.deadline.map(|deadline| Elapsed(deadline.micros().saturating_sub(age)));
    let budget = sweep.job.budget.and_then(|budget| {
        let taken = taken_at_most(world, facts, policy, sweep);
        let hourly = open(world, sweep).map(|run| live_rate(world, run)).fold(0, i64::saturating_add);
        time_to_spend(Money::from_micros(budget.max.micros().saturating_sub(taken.micros())), hourly)
    });
    budget.into_iter().chain(deadline).min()
}
