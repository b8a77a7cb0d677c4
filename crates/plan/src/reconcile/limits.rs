//! Budget and deadline: when a run must stop, and the reserve for stopping.

use domain::job::Budget;
use domain::rental::ProviderTraits;
use domain::run::{RunState, Sight, StopBy};
use domain::{Elapsed, Job, Money, Offer, Rate, RunId};

use super::{Action, LiveMachine, ObservedState, Policy, RunFacts, trials};
use crate::world::{Run, World};

/// Minimum time for a run to save its state, whatever its budget.
const SHORTEST: Elapsed = Elapsed(5_000_000);

/// Maximum reserve for saving, as the inverse fraction of the time that a budget buys.
const SHARE: u64 = 10;

/// Maximum interval between heartbeats, likewise.
const HEARTBEAT_SHARE: u64 = 100;

/// Budget and deadline.
pub(super) fn limits(of: &RunFacts<'_>, policy: &Policy, id: &RunId) -> Option<Action> {
    let run = of.run;
    if matches!(run.state, RunState::Stopping { .. }) {
        return None;
    }
    if let Some(by) = limit_of(of, policy) {
        return Some(Action::Stop { run: id.clone(), by });
    }
    let budget = run.job.budget?;
    let spent = of.spent_so_far();
    let alert = budget.max.micros() as f64 * budget.alert.get();
    if !run.alerted && spent > Money::default() && spent.micros() as f64 >= alert {
        return Some(Action::Alert { run: id.clone(), spent });
    }
    None
}

/// The limit that a run has reached, so that it must stop now and cannot continue: its deadline, or a budget that is
/// spent except for the reserve for saving and leaving.
pub fn reached(world: &World, facts: &ObservedState, policy: &Policy, run: &Run) -> Option<StopBy> {
    limit_of(&RunFacts::new(world, facts, run), policy)
}

fn limit_of(of: &RunFacts<'_>, policy: &Policy) -> Option<StopBy> {
    let run = of.run;
    if let Some(deadline) = run.job.deadline
        && run.age(of.facts.now).0 >= deadline.micros()
    {
        return Some(StopBy::Deadline);
    }
    let budget = run.job.budget?;
    let spent = spent_to_stop(of);
    let reserved = rate_now(of).cost(reserve_of(of, policy));
    (spent > Money::default() && spent + reserved >= budget.max).then_some(StopBy::Budget)
}

/// The budget that a run is stopped at: its own, or that of the sweep whose trial it is.
pub fn budget_of(world: &World, run: &Run) -> Option<Budget> {
    run.job.budget.or_else(|| world.sweep_of(run)?.job.budget)
}

/// The time for a run to save its state and leave, which is reserved in its budget: its job's `stop_grace` or that of the
/// policy, but at most a tenth of the time that the budget buys, and at least five seconds.
pub fn wind_down(policy: &Policy, job: &Job, budget: Option<Budget>, rate: Rate) -> Elapsed {
    let saving = job.stop_grace.map_or(policy.saving, |grace| Elapsed(grace.micros()));
    let Some(bought) = bought(budget, rate) else { return saving };
    saving.min(Elapsed(bought.0 / SHARE)).max(SHORTEST)
}

/// The interval between the heartbeats of the agents of a run: the longer, the more agents there are; but at most a
/// hundredth of the time that its budget buys, for two of them are kept back from it.
pub fn heartbeat(policy: &Policy, run: &Run) -> Elapsed {
    let crowded = policy.heartbeat_interval.max(policy.heartbeat);
    let share = bought(run.job.budget, run.rate()).map(|bought| Elapsed(bought.0 / HEARTBEAT_SHARE));
    share.map_or(crowded, |share| share.clamp(policy.heartbeat, crowded))
}

/// The time that a budget buys; `None` without one, or at no price.
fn bought(budget: Option<Budget>, rate: Rate) -> Option<Elapsed> {
    time_to_spend(budget?.max, rate.micros_per_hour())
}

/// What its machines cost while it is ended: all that it needs, and those that are still on their way out.
pub(super) fn rate_now(of: &RunFacts<'_>) -> Rate {
    Rate::from_micros_per_hour(of.run.rate().micros_per_hour().max(rate_of_machines(of)))
}

/// What all machines of a run that are not known to have ended cost an hour, in micro-dollars.
pub(super) fn rate_of_machines(of: &RunFacts<'_>) -> i64 {
    of.machines.iter().map(|one| one.instance.offer.rate.micros_per_hour()).sum()
}

/// The same of a run of which nothing else is needed.
pub(crate) fn live_rate(world: &World, run: &Run) -> i64 {
    world.live_instances_of(run).map(|(_, instance)| instance.offer.rate.micros_per_hour()).sum()
}

/// The time to spend this much; `None` at no price. An amount that is spent already is due now.
pub(crate) fn time_to_spend(money: Money, hourly: i64) -> Option<Elapsed> {
    if hourly <= 0 {
        return None;
    }
    let micros = i128::from(money.micros().max(0)) * 3_600_000_000 / i128::from(hourly);
    Some(Elapsed(u64::try_from(micros).unwrap_or(u64::MAX)))
}

/// Rent reserved in a run's budget: the time until its machine can be ended, until its agent calls and is told to stop,
/// its time to wind down, and the time that its provider takes to end a machine and bills for having begun.
pub(super) fn reserve_of(of: &RunFacts<'_>, policy: &Policy) -> Elapsed {
    let is_unseen = of.machines.iter().any(|one| !matches!(one.seen.sight, Some(Sight::Alive | Sight::Gone(_))));
    let unseen = if is_unseen { visible_within(of.facts, of.run) } else { 0 };
    Elapsed(reserve_for_ending(of.world, of.facts, policy, of.run).0.saturating_add(unseen))
}

/// Whether a run's budget pays for more machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Affords {
    Yes,
    /// Not while the cost of its machines is unknown, or one that cannot be reached may train on.
    NotYet,
    No,
}

/// Whether what is left of a run's budget pays for machines that turn out to be of no use: until they are listed, for
/// only then they can be ended, what it takes to end them, and the least that their provider bills.
pub(super) fn affords_rent(of: &RunFacts<'_>, policy: &Policy, chosen: &[Offer]) -> Affords {
    let RunFacts { world, facts, run, .. } = *of;
    let Some(budget) = budget_of(world, run).filter(|_| policy.is_admitting) else { return Affords::Yes };
    let least = reserve_for_ending(world, facts, policy, run).0.saturating_add(visible_within(facts, run));
    let traits = |offer: &Offer| facts.traits.get(&offer.provider);
    let billed = chosen.iter().filter_map(traits).map(|traits| traits.billing.billed(Elapsed(1)).0).max();
    let least = least.max(billed.unwrap_or(0));
    // One that is still on its way out costs as well.
    let chosen = chosen.iter().map(|offer| offer.rate.micros_per_hour()).fold(0, i64::saturating_add);
    let rate = run.rate().micros_per_hour().max(chosen).saturating_add(rate_of_machines(of));
    let useless = Rate::from_micros_per_hour(rate).cost(Elapsed(least));
    if let Some(sweep) = world.sweep_of(run) {
        return trials::affords(world, facts, policy, (sweep, run), useless, budget.max);
    }
    let known = of.spent_so_far() + useless;
    let most = of.spent_at_most() + useless;
    let most = most.max(known) + out_of_reach(of, policy);
    match most < budget.max {
        true => Affords::Yes,
        false if most > known => Affords::NotYet,
        false => Affords::No,
    }
}

/// What the machines of a run that cannot be reached may cost until their leases are over: nobody can tell their agents
/// that others are paid for as well.
pub(super) fn out_of_reach(of: &RunFacts<'_>, policy: &Policy) -> Money {
    let called = called(of)
        .filter(|one| one.seen.is_unheard || one.seen.silence.is_some_and(|silence| silence >= policy.suspect));
    called.map(|one| one.instance.offer.rate.cost(lease_left(policy, one))).sum()
}

/// How long until the next lease of a run's machines is over, if none of them calls; `None` without a budget of its own.
/// Trials are looked at with their sweep.
pub(super) fn lease_due(of: &RunFacts<'_>, policy: &Policy) -> Option<Elapsed> {
    of.run.job.budget?;
    next_lease(of, policy)
}

/// The same of any run.
pub(super) fn next_lease(of: &RunFacts<'_>, policy: &Policy) -> Option<Elapsed> {
    called(of).map(|one| lease_left(policy, one)).filter(|left| left.0 > 0).min()
}

/// The machines of a run whose agents have called some loop.
fn called<'s, 'a>(of: &'s RunFacts<'a>) -> impl Iterator<Item = &'s LiveMachine<'a>> {
    of.machines.iter().filter(|one| one.instance.started.is_some())
}

/// What is left of a machine's lease at most. An earlier loop may have granted a longer one.
fn lease_left(policy: &Policy, machine: &LiveMachine<'_>) -> Elapsed {
    let seen = machine.seen;
    let lease = if seen.is_unheard { policy.lease_longest.max(policy.lease) } else { policy.lease };
    Elapsed(seen.silence.map_or(0, |silence| lease.0.saturating_sub(silence.0)))
}

fn visible_within(facts: &ObservedState, run: &Run) -> u64 {
    facts.traits.get(&run.plan.offer.provider).map_or(0, |traits| traits.visible_within.0)
}

/// The time to end the machines of a run: one heartbeat until its agent calls and one for the messages on their way, and
/// what [`time_to_end`] adds.
pub(super) fn reserve_for_ending(world: &World, facts: &ObservedState, policy: &Policy, run: &Run) -> Elapsed {
    let told = Elapsed(heartbeat(policy, run).0.saturating_mul(2));
    let traits = facts.traits.get(&run.plan.offer.provider);
    time_to_end((policy, &run.job), traits, budget_of(world, run), run.rate(), told)
}

/// The time to end machines that cost `rate`: until their agents are told, to save, and what their provider takes to end a
/// machine and bills for having begun.
pub fn time_to_end(
    (policy, job): (&Policy, &Job),
    traits: Option<&ProviderTraits>,
    budget: Option<Budget>,
    rate: Rate,
    told: Elapsed,
) -> Elapsed {
    let beyond = traits.map_or(0, |traits| traits.billing.step.0.saturating_add(traits.effective_within.0));
    Elapsed(wind_down(policy, job, budget, rate).0.saturating_add(told.0).saturating_add(beyond))
}

/// The cost of a run until now by which it is stopped: while it trains, with that of machines of which nobody knows whether
/// they were rented. Before, it waits until that is known.
pub(super) fn spent_to_stop(of: &RunFacts<'_>) -> Money {
    match of.world.active_attempt(of.run) {
        Some(_) => of.spent_with_doubts(),
        None => of.spent_so_far(),
    }
}
