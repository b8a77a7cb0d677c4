//! When to decide next: the earliest moment at which time alone changes the result of [`reconcile`](super::reconcile).

use domain::run::{InstanceState, RunState};
use domain::{Elapsed, InstanceId, Money, RunId, Timestamp};

use super::limits::{lease_due, live_rate, rate_now, reserve_of, spent_so_far, spent_to_stop, time_to_spend};
use super::{ObservedState, Policy, choice, fleet, gang, lost, patience, trials};
use crate::world::{Instance, Run, SweepRecord, SweepState, World};

/// How long until time alone changes the actions for a run; `None` if only an event can. Any new information triggers a
/// new decision at once.
pub fn run_due(world: &World, facts: &ObservedState, policy: &Policy, id: &RunId, run: &Run) -> Option<Elapsed> {
    let machines = run.instances.iter().filter_map(|id| world.instances.get_key_value(id));
    let machine = |(id, instance)| {
        let hedge = choice::due(facts, policy, id, instance, run);
        let (silent, retry) = (instance_due(facts, policy, id, instance), retry_due(facts, policy, id, instance));
        [silent, retry, hedge].into_iter().flatten().min()
    };
    let machines = machines.filter_map(machine).min();
    if run.state.is_final() || matches!(run.state, RunState::Stopping { .. }) {
        return machines;
    }
    let deadline = run.job.deadline.map(|deadline| until(facts.now, run.submitted, deadline.micros()));
    let budget = budget_due(world, facts, policy, run);
    let lease = lease_due(world, facts, policy, run);
    let rested = match choice::wait(world, facts, run) {
        Some(wait) => Some(wait).filter(|wait| *wait > Elapsed(0)),
        None => facts.quiet.get(id).and_then(|quiet| left(policy.rest(run), *quiet)),
    };
    let incomplete = gang::due(world, facts, policy, run);
    let fleet = fleet::due(world, facts, policy, run).filter(|_| run.job.machines() > 1);
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
fn instance_due(facts: &ObservedState, policy: &Policy, id: &InstanceId, instance: &Instance) -> Option<Elapsed> {
    match instance.state {
        InstanceState::Released { .. } => None,
        InstanceState::Releasing => lost::due(facts, policy, id, instance),
        InstanceState::Intended | InstanceState::Launching | InstanceState::Up => {
            left(patience(facts, policy, instance), facts.machine(id).silence?)
        }
    }
}

/// When an uncertain launch is repeated.
fn retry_due(facts: &ObservedState, policy: &Policy, id: &InstanceId, instance: &Instance) -> Option<Elapsed> {
    if !matches!(instance.state, InstanceState::Intended) || facts.machine(id).is_launching {
        return None;
    }
    let doubt = facts.machine(id).in_doubt?;
    left(policy.wait_in_doubt(doubt.requests), doubt.since)
}

/// When a run has spent its budget, or the share for its alert.
fn budget_due(world: &World, facts: &ObservedState, policy: &Policy, run: &Run) -> Option<Elapsed> {
    let budget = run.job.budget?;
    let reserved = rate_now(world, run).cost(reserve_of(world, facts, policy, run));
    let stop = budget.max.micros().saturating_sub(reserved.micros());
    let alert = (budget.max.micros() as f64 * budget.alert.get()).ceil() as i64;
    let left = |limit: i64, spent: Money| {
        time_to_spend(Money::from_micros(limit.saturating_sub(spent.micros())), live_rate(world, run))
    };
    let alerts = if run.alerted { None } else { left(alert, spent_so_far(world, facts, run)) };
    left(stop, spent_to_stop(world, facts, run)).into_iter().chain(alerts).min()
}

/// The remainder of a wait; `None` once it is over, because it has no further effect.
fn left(wait: Elapsed, waited: Elapsed) -> Option<Elapsed> {
    wait.0.checked_sub(waited.0).filter(|left| *left > 0).map(Elapsed)
}

fn until(now: Timestamp, since: Timestamp, wait: u64) -> Elapsed {
    Elapsed(wait.saturating_sub(now.since(since).0))
}
