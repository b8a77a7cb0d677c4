//! What the budget and the deadline of a sweep leave to its trials. A trial has none of its own.

use domain::{Elapsed, Money, Rate};

use super::limits::{
    Affords, budget_of, live_rate, next_lease, out_of_reach, rate_now, reserve_of, time_to_end, time_to_spend,
};
use super::{LiveMachine, ObservedState, Policy, RunFacts};
use crate::world::{Instance, Run, SweepRecord, World};

/// Between two looks at a sweep's budget, in microseconds.
pub const SWEEP_BUDGET: u64 = 500_000;

/// Whether a run, or the sweep whose trial it is, has a budget or a deadline.
pub fn is_limited(world: &World, run: &Run) -> bool {
    let jobs = [Some(&run.job), world.sweep_of(run).map(|sweep| &sweep.job)];
    jobs.into_iter().flatten().any(|job| job.budget.is_some() || job.deadline.is_some())
}

/// The cost of a sweep until now, at most: a machine whose agent has not called since the loop began counts by wall
/// clocks.
pub(crate) fn spent_at_most(world: &World, facts: &ObservedState, sweep: &SweepRecord) -> Money {
    world.trials(sweep).map(|(_, run)| RunFacts::new(world, facts, run).spent_at_most()).sum()
}

/// The cost of a sweep until now by which it is stopped: while one of its trials trains, with that of machines of which nobody
/// knows whether they were rented. Before, it waits until that is known.
pub(crate) fn spent_to_stop(world: &World, facts: &ObservedState, sweep: &SweepRecord) -> Money {
    let trains = world.trials(sweep).any(|(_, run)| world.active_attempt(run).is_some());
    let of_run = |run: &Run| {
        let of = RunFacts::new(world, facts, run);
        if trains {
            return of.spent_with_doubts();
        }
        of.spent_so_far()
    };
    world.trials(sweep).map(|(_, run)| of_run(run)).sum()
}

/// What a sweep has cost at most, and what it takes to end its trials.
pub(crate) fn taken_at_most(world: &World, facts: &ObservedState, policy: &Policy, sweep: &SweepRecord) -> Money {
    let ending = |run: &Run| cost_to_end(world, facts, policy, run);
    spent_at_most(world, facts, sweep) + open(world, sweep).map(ending).sum() + unbilled_at_most(world, facts, sweep)
}

/// What it takes to end a trial.
fn cost_to_end(world: &World, facts: &ObservedState, policy: &Policy, run: &Run) -> Money {
    let of = RunFacts::new(world, facts, run);
    rate_now(&of).cost(reserve_of(&of, policy))
}

/// What the machines of trials that are over will be billed beyond what they have cost until now: their provider takes a
/// while to end them, and bills in its steps.
pub(crate) fn unbilled(world: &World, facts: &ObservedState, sweep: &SweepRecord) -> Money {
    over(world, sweep).map(|run| rest_of_bills(&RunFacts::new(world, facts, run), |one| one.rent())).sum()
}

/// The same where machines have cost the most that they may.
fn unbilled_at_most(world: &World, facts: &ObservedState, sweep: &SweepRecord) -> Money {
    let rent = |one: &LiveMachine<'_>| one.rent_at_most(facts.now);
    over(world, sweep).map(|run| rest_of_bills(&RunFacts::new(world, facts, run), rent)).sum()
}

fn rest_of_bills(of: &RunFacts<'_>, rent: impl Fn(&LiveMachine<'_>) -> Option<Elapsed>) -> Money {
    let rest = |one: &LiveMachine<'_>| {
        let (instance, rent) = (one.instance, rent(one)?);
        let billed = of.facts.billed(instance, until_ended(of.facts, instance, rent));
        Some(instance.offer.rate.cost(Elapsed(billed.0.saturating_sub(rent.0))))
    };
    of.machines.iter().filter_map(rest).sum()
}

/// The rent of a machine by when its provider has ended it, if it is asked to now.
fn until_ended(facts: &ObservedState, instance: &Instance, rent: Elapsed) -> Elapsed {
    let within = facts.traits_of(instance).map_or(0, |traits| traits.effective_within.0);
    Elapsed(rent.0.saturating_add(within))
}

/// How long until a provider bills another step for a machine of a trial that is over.
pub(super) fn step_due(world: &World, facts: &ObservedState, sweep: &SweepRecord) -> Option<Elapsed> {
    let machines = over(world, sweep).flat_map(|run| world.live_instances_of(run));
    let left = machines.filter_map(|(id, instance)| {
        let until = until_ended(facts, instance, facts.live(id, instance).rent()?);
        facts.billed(instance, until).0.checked_sub(until.0).filter(|left| *left > 0)
    });
    left.min().map(|left| Elapsed(left.saturating_add(1)))
}

/// Whether what is left of a sweep's budget pays for `useless`, the cost of machines of one of its trials that turn out to
/// be of no use. As long as another machine of it is there, the end of that is waited for.
pub(super) fn affords(
    world: &World,
    facts: &ObservedState,
    policy: &Policy,
    (sweep, run): (&SweepRecord, &Run),
    useless: Money,
    max: Money,
) -> Affords {
    let others = open(world, sweep).filter(|other| !std::ptr::eq(*other, run));
    let ending: Money = others.map(|other| cost_to_end(world, facts, policy, other)).sum();
    let owed = unreachable(world, facts, policy, sweep) + least_bills(world, facts, policy, sweep);
    let most = spent_at_most(world, facts, sweep) + unbilled_at_most(world, facts, sweep) + ending + useless + owed;
    let is_any_live = world.trials(sweep).any(|(_, trial)| live_rate(world, trial) > 0);
    match most < max {
        true => Affords::Yes,
        false if is_any_live => Affords::NotYet,
        false => Affords::No,
    }
}

/// Whether an attempt of a run may start: not where its budget, or that of its sweep, may be spent already except for what
/// is kept back to stop, by machines whose cost is not known: because their agents have not called since the loop began, or
/// because nobody knows whether they were rented.
pub(super) fn may_start(of: &RunFacts<'_>, policy: &Policy) -> bool {
    let RunFacts { world, facts, run, .. } = *of;
    let Some(budget) = budget_of(world, run) else { return true };
    let Some(sweep) = world.sweep_of(run) else {
        let kept = rate_now(of).cost(reserve_of(of, policy));
        return of.spent_so_far().max(of.spent_at_most()) + kept < budget.max;
    };
    let known: Money = world.trials(sweep).map(|(_, trial)| RunFacts::new(world, facts, trial).spent_so_far()).sum();
    let kept = kept_back(world, facts, policy, sweep);
    known.max(spent_at_most(world, facts, sweep)) + kept < budget.max
}

/// What is kept back from a sweep's budget to stop it.
pub(crate) fn kept_back(world: &World, facts: &ObservedState, policy: &Policy, sweep: &SweepRecord) -> Money {
    let open = world.trials(sweep).filter(|(_, run)| !run.state.is_final()).count();
    kept_to_end(facts, policy, sweep, open.max(1))
}

/// What is kept back from a sweep's budget to end so many trials, each on the dearest machine that it may get.
pub(crate) fn kept_to_end(facts: &ObservedState, policy: &Policy, sweep: &SweepRecord, trials: usize) -> Money {
    let cost = dearest(sweep).cost(time_to_end_trial(facts, policy, sweep));
    Money::from_micros(cost.micros().saturating_mul(trials as i64))
}

/// What the machine of one more trial costs if it turns out to be of no use: until it is listed, for only then it can be
/// ended, what it takes to end it, and the least that its provider bills.
pub(crate) fn useless(facts: &ObservedState, policy: &Policy, sweep: &SweepRecord) -> Money {
    let traits = facts.traits.get(&sweep.plan.offer.provider);
    let (visible, billed) =
        traits.map_or((0, 0), |traits| (traits.visible_within.0, traits.billing.billed(Elapsed(1)).0));
    let time = time_to_end_trial(facts, policy, sweep).0.saturating_add(visible).max(billed);
    dearest(sweep).cost(Elapsed(time))
}

/// The time to end a trial, whose agent is told after two heartbeats and the time between two looks at the budget.
fn time_to_end_trial(facts: &ObservedState, policy: &Policy, sweep: &SweepRecord) -> Elapsed {
    let heartbeat = policy.heartbeat_interval.max(policy.heartbeat);
    let told = Elapsed(heartbeat.0.saturating_mul(2).saturating_add(SWEEP_BUDGET));
    let traits = facts.traits.get(&sweep.plan.offer.provider);
    let rate = sweep.plan.offer.rate.times(sweep.job.machines());
    time_to_end((policy, &sweep.job), traits, sweep.job.budget, rate, told)
}

/// The highest rate of what may be rented for a trial.
fn dearest(sweep: &SweepRecord) -> Rate {
    let plan = &sweep.plan;
    let offers = std::iter::once(&plan.offer).chain(&plan.alternatives);
    offers.map(|offer| offer.rate.times(sweep.job.machines())).max().unwrap_or_default()
}

/// What the machines of trials that cannot be reached may cost until their leases are over.
pub(crate) fn unreachable(world: &World, facts: &ObservedState, policy: &Policy, sweep: &SweepRecord) -> Money {
    world.trials(sweep).map(|(_, trial)| out_of_reach(&RunFacts::new(world, facts, trial), policy)).sum()
}

/// What the machines of trials are billed at least, beyond what they have cost and what it takes to end them: a provider may
/// bill a minute for having begun.
pub(crate) fn least_bills(world: &World, facts: &ObservedState, policy: &Policy, sweep: &SweepRecord) -> Money {
    let of_run = |run: &Run| -> Money {
        let of = RunFacts::new(world, facts, run);
        let ending = reserve_of(&of, policy);
        let rest = |one: &LiveMachine<'_>| {
            let instance = one.instance;
            let least = facts.billed(instance, Elapsed(1)).0;
            let rent = one.rent().unwrap_or_default().0;
            instance.offer.rate.cost(Elapsed(least.saturating_sub(rent.saturating_add(ending.0))))
        };
        of.machines.iter().map(rest).sum()
    };
    open(world, sweep).map(of_run).sum()
}

/// How long until the next lease of a sweep's machines is over, if none of them calls.
pub(super) fn lease_due(world: &World, facts: &ObservedState, policy: &Policy, sweep: &SweepRecord) -> Option<Elapsed> {
    world.trials(sweep).filter_map(|(_, trial)| next_lease(&RunFacts::new(world, facts, trial), policy)).min()
}

/// Trials that are over. Their machines may still be on their way out.
fn over<'a>(world: &'a World, sweep: &'a SweepRecord) -> impl Iterator<Item = &'a Run> {
    world.trials(sweep).map(|(_, run)| run).filter(|run| run.state.is_final())
}

fn open<'a>(world: &'a World, sweep: &'a SweepRecord) -> impl Iterator<Item = &'a Run> {
    world.trials(sweep).map(|(_, run)| run).filter(|run| !run.state.is_final())
}

/// How long the trials of a sweep may train on with the machines that they have, if nobody can stop them: until its budget
/// only pays for ending them all, or until its deadline. As many trials as may be open at a time may spend it meanwhile.
/// `None` without either.
pub(super) fn left(world: &World, facts: &ObservedState, policy: &Policy, sweep: &SweepRecord) -> Option<Elapsed> {
    let age = facts.now.since(sweep.submitted).0;
    let deadline = sweep.job.deadline.map(|deadline| Elapsed(deadline.micros().saturating_sub(age)));
    let budget = sweep.job.budget.and_then(|budget| {
        let taken = taken_at_most(world, facts, policy, sweep);
        let live = open(world, sweep).map(|run| live_rate(world, run)).fold(0, i64::saturating_add);
        let at_once = i64::from(sweep.search.parallel.max(1));
        let planned = sweep.plan.offer.rate.times(sweep.job.machines()).micros_per_hour();
        let hourly = live.max(planned.saturating_mul(at_once));
        time_to_spend(budget.max - taken, hourly)
    });
    budget.into_iter().chain(deadline).min()
}
