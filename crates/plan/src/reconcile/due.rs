//! When to decide next: the earliest moment at which time alone changes the result of [`reconcile`](super::reconcile).

use domain::run::{InstanceState, RunState};
use domain::{Elapsed, Money, RunId, Timestamp};

use super::limits::{lease_due, rate_now, rate_of_machines, reserve_of, spent_to_stop, time_to_spend};
use super::lost::patience;
use super::{LiveMachine, ObservedState, Policy, RunFacts, choice, fleet, gang, lost, trials};
use crate::world::{Run, SweepRecord, SweepState, World};

/// How long until time alone changes the actions for a run; `None` if only an event can. Any new information triggers a
/// new decision at once.
pub fn run_due(world: &World, facts: &ObservedState, policy: &Policy, id: &RunId, run: &Run) -> Option<Elapsed> {
    of_run(&RunFacts::new(world, facts, run), policy, id)
}

/// The same, where its machines are known.
pub(super) fn of_run(of: &RunFacts<'_>, policy: &Policy, id: &RunId) -> Option<Elapsed> {
    let RunFacts { facts, run, .. } = *of;
    let machine = |one: &LiveMachine<'_>| {
        let (silent, retry) = (instance_due(policy, *one), retry_due(policy, *one));
        [silent, retry, choice::due(policy, *one, run)].into_iter().flatten().min()
    };
    let machines = of.machines.iter().filter_map(machine).min();
    if run.state.is_final() || matches!(run.state, RunState::Stopping { .. }) {
        return machines;
    }
    let deadline = run.job.deadline.map(|deadline| until(facts.now, run.submitted, deadline.micros()));
    let budget = budget_due(of, policy);
    let lease = lease_due(of, policy);
    let rested = match choice::wait(of) {
        Some(wait) => Some(wait).filter(|wait| *wait > Elapsed(0)),
        None => facts.quiet.get(id).and_then(|quiet| left(policy.rest(run), *quiet)),
    };
    let incomplete = gang::due(of, policy);
    let fleet = fleet::due(of, policy).filter(|_| run.job.machines() > 1);
    let waits = [machines, deadline, budget, lease, rested, incomplete, fleet, choice::reopens(facts, run)];
    waits.into_iter().flatten().min()
}

/// How long until time alone changes the actions for a sweep.
pub fn sweep_due(world: &World, facts: &ObservedState, policy: &Policy, sweep: &SweepRecord) -> Option<Elapsed> {
    // One that is stopping has reached its limits.
    if sweep.state != SweepState::Running {
        return None;
    }
    let deadline = sweep.job.deadline.map(|deadline| until(facts.now, sweep.submitted, deadline.micros()));
    // Its budget is shared by all of its trials, whose rents grow together.
    let spends = sweep.job.budget.is_some() && world.live_instances().next().is_some();
    let looked = spends.then_some(Elapsed(trials::SWEEP_BUDGET));
    let budget = crate::sweep::budget_due(world, facts, policy, sweep);
    let lease = trials::lease_due(world, facts, policy, sweep).filter(|_| spends);
    let step = trials::step_due(world, facts, sweep).filter(|_| spends);
    [deadline, looked, budget, lease, step].into_iter().flatten().min()
}

/// When an agent has been silent for too long.
fn instance_due(policy: &Policy, machine: LiveMachine<'_>) -> Option<Elapsed> {
    match machine.instance.state {
        InstanceState::Released { .. } => None,
        InstanceState::Releasing => lost::due(policy, machine),
        InstanceState::Intended | InstanceState::Launching | InstanceState::Up => {
            left(patience(machine.traits, policy, machine.instance), machine.seen.silence?)
        }
    }
}

/// When an uncertain launch is repeated.
fn retry_due(policy: &Policy, machine: LiveMachine<'_>) -> Option<Elapsed> {
    if !matches!(machine.instance.state, InstanceState::Intended) || machine.seen.is_launching {
        return None;
    }
    let doubt = machine.seen.in_doubt?;
    left(policy.wait_in_doubt(doubt.requests), doubt.since)
}

/// When a run has spent its budget, or the share for its alert.
fn budget_due(of: &RunFacts<'_>, policy: &Policy) -> Option<Elapsed> {
    let budget = of.run.job.budget?;
    let reserved = rate_now(of).cost(reserve_of(of, policy));
    let stop = budget.max.micros().saturating_sub(reserved.micros());
    let alert = (budget.max.micros() as f64 * budget.alert.get()).ceil() as i64;
    let rate = rate_of_machines(of);
    let left = |limit: i64, spent: Money| time_to_spend(Money::from_micros(limit.saturating_sub(spent.micros())), rate);
    let alerts = if of.run.alerted { None } else { left(alert, of.spent_so_far()) };
    left(stop, spent_to_stop(of)).into_iter().chain(alerts).min()
}

/// The remainder of a wait; `None` once it is over, because it has no further effect.
fn left(wait: Elapsed, waited: Elapsed) -> Option<Elapsed> {
    wait.0.checked_sub(waited.0).filter(|left| *left > 0).map(Elapsed)
}

fn until(now: Timestamp, since: Timestamp, wait: u64) -> Elapsed {
    Elapsed(wait.saturating_sub(now.since(since).0))
}
