//! The machines of a run: those that compute, those that stand by, and how many an attempt starts with.
//!
//! A job with spares keeps more machines than it computes on; one of them takes the place of one that is lost. A job with
//! `num_nodes: {min, max}` starts with fewer after a grace, and when more have come, its ranks save, end and start again
//! with all of them: at a step boundary, with the same global batch.

use domain::run::{InstanceState, Sight};
use domain::{AttemptId, Elapsed, InstanceId, RunId};

use super::limits::Affords;
use super::lost::is_silent;
use super::room::Room;
use super::{Action, LiveMachine, ObservedState, Policy, RunFacts, choice, gang, limits, order};
use crate::world::{AttemptState, Run, RunAttempt, World};

/// The machines of a run that are not gone, oldest first.
pub(super) struct Machines<'a> {
    /// Those that it uses, or will.
    pub usable: Vec<LiveMachine<'a>>,
    /// How many are on their way out.
    leaving: usize,
}

/// The machines of a run. One that is lost is not waited for, and neither is one that is about to be taken back: another
/// is rented while it is still on its way out.
pub(super) fn machines<'a>(of: &RunFacts<'a>, policy: &Policy) -> Machines<'a> {
    let mut machines = Machines { usable: Vec::new(), leaving: 0 };
    for one in &of.machines {
        let instance = one.instance;
        if instance.reclaim.is_some() || instance.lost_race || one.is_lost(policy) {
            continue;
        }
        if instance.state == InstanceState::Releasing {
            machines.leaving += 1;
        } else {
            machines.usable.push(*one);
        }
    }
    machines
}

impl<'a> Machines<'a> {
    /// Whether one has just ended or is given up: that is written down first, and the next round sees it.
    pub fn is_any_ending(&self, policy: &Policy) -> bool {
        let is_gone = |one: &LiveMachine<'_>| matches!(one.seen.sight, Some(Sight::Gone(_)));
        // One whose launch is in doubt has no agent that could be silent.
        let is_given_up =
            |one: &LiveMachine<'_>| one.instance.state != InstanceState::Intended && is_silent(policy, *one);
        self.usable.iter().any(|one| is_gone(one) || is_given_up(one))
    }

    /// Those whose agents speak, the oldest first.
    pub fn up(&self) -> Vec<&'a InstanceId> {
        let up = self.usable.iter().filter(|one| one.instance.state == InstanceState::Up);
        up.map(|one| one.id).collect()
    }

    /// The same, in the order of their node ranks: those on demand before spot machines.
    pub fn by_rank(&self, run: &Run) -> Vec<&'a InstanceId> {
        let up = self.usable.iter().copied().filter(|one| one.instance.state == InstanceState::Up);
        let (anchors, others): (Vec<_>, Vec<_>) = up.partition(|one| choice::is_anchor(run, &one.instance.offer));
        anchors.into_iter().chain(others).map(|one| one.id).collect()
    }

    /// Machines to be rented, beside those that are on their way out and are waited for.
    pub fn missing(&self, run: &Run) -> usize {
        (run.job.machines() as usize).saturating_sub(self.usable.len() + self.leaving)
    }
}

/// With how many machines the next attempt starts now: with all that the job asks for, or after a grace with those that
/// are up, if the job can do with so few.
pub(super) fn members(of: &RunFacts<'_>, policy: &Policy, machines: &Machines<'_>) -> Option<usize> {
    let run = of.run;
    let (all, least, up) = (run.job.nodes() as usize, run.job.least_nodes() as usize, machines.up().len());
    if up >= all {
        return Some(all);
    }
    let is_over = || shrinks_in(of, policy, machines).is_some_and(|left| left.0 == 0);
    (up >= least && is_over()).then_some(up)
}

/// How long an attempt with fewer machines is put off; none where nothing waits for others, or the job needs all. What
/// boots is waited for.
fn shrinks_in(of: &RunFacts<'_>, policy: &Policy, machines: &Machines<'_>) -> Option<Elapsed> {
    let RunFacts { facts, run, .. } = *of;
    if run.job.least_nodes() == run.job.nodes() {
        return None;
    }
    // Losing one does not restart the wait where enough others stayed up.
    let since = gang::waiting_since(of)?;
    let waited = facts.now.since(run.able_since.map_or(since, |able| able.min(since)));
    let is_booting = machines.usable.iter().any(|one| one.instance.state == InstanceState::Launching);
    let boots = facts.traits.get(&run.plan.offer.provider).map_or(0, |traits| traits.boots_within.0);
    let grace = policy.shrink.0.saturating_add(if is_booting { boots } else { 0 });
    Some(Elapsed(grace.saturating_sub(waited.0)))
}

/// For how many machines there are places, of so many that are missing. A job that computes on a fixed number starts with
/// all of them or none, so fewer are of no use to it; spares and what goes beyond the least number are taken one by one.
pub(super) fn rentable(id: &RunId, run: &Run, usable: usize, missing: usize, room: &mut Room<'_>) -> usize {
    let needed = (run.job.least_nodes() as usize).saturating_sub(usable).max(1);
    (needed..=missing).rev().find(|count| room.has_some(id, run, *count)).unwrap_or(0)
}

/// What a run needs whose attempt goes on: spares, and more machines where it has fewer than it could use.
pub(super) fn beside<'a>(
    of: &RunFacts<'a>,
    policy: &Policy,
    id: &'a RunId,
    (attempt, state): (&AttemptId, &RunAttempt),
    room: &mut Room<'a>,
) -> Vec<Action> {
    let RunFacts { world, facts, run, .. } = *of;
    let is_changing = run.job.machines() > 1 && facts.attended.contains(id) && !state.is_resizing;
    if !is_changing || run.job.machines() as usize == state.instances().count() {
        return Vec::new();
    }
    let machines = machines(of, policy);
    if machines.is_any_ending(policy) {
        return Vec::new();
    }
    if grows_in(facts, policy, run, state, &machines).is_some_and(|left| left.0 == 0) {
        return vec![Action::Resize { attempt: attempt.clone() }];
    }
    let is_due = || rents_in(world, facts, policy, run).0 == 0;
    let missing = machines.missing(run);
    // Of trials that share a budget, the next look counts what the first of them is given.
    let shares = limits::budget_of(world, run).is_some() && room.has_given_to_sweep_of(run);
    if missing == 0 || !is_due() || shares {
        return Vec::new();
    }
    let count = rentable(id, run, run.job.machines() as usize, missing, room);
    let chosen = choice::choose(facts, policy, run, &machines.usable, count);
    if count == 0 || chosen.is_empty() || limits::affords_rent(of, policy, &chosen) != Affords::Yes {
        return Vec::new();
    }
    room.take(id, run, count);
    // The attempt continues with what it has, so each of them is of use.
    order::rent(of, id, run.job.machines() as usize, chosen)
}

/// How long an attempt with fewer machines than it could use goes on as it is; none where no more are there. All that
/// are on their way are waited for, so that it is interrupted once.
fn grows_in(
    facts: &ObservedState,
    policy: &Policy,
    run: &Run,
    state: &RunAttempt,
    machines: &Machines<'_>,
) -> Option<Elapsed> {
    let members = state.instances().count();
    if members >= run.job.nodes() as usize || state.is_resizing {
        return None;
    }
    let up = machines.up();
    let is_ready = matches!(state.state, AttemptState::Ready { .. }) && up.len() == machines.usable.len();
    // One that loses a machine ends anyway.
    let is_whole = || state.instances().all(|id| up.contains(&id));
    let grows = up.len() > members && is_ready && is_whole();
    grows.then(|| Elapsed(policy.settle.0.saturating_sub(facts.now.since(state.intended).0)))
}

/// How long no other machine is asked for beside an attempt.
fn rents_in(world: &World, facts: &ObservedState, policy: &Policy, run: &Run) -> Elapsed {
    let last = run.instances.last().and_then(|id| world.instances.get(id)).map(|instance| instance.intended);
    Elapsed(last.map_or(0, |last| policy.regrow.0.saturating_sub(facts.now.since(last).0)))
}

/// When one of these waits is over; none where that is over already or nothing waits.
pub(super) fn due(of: &RunFacts<'_>, policy: &Policy) -> Option<Elapsed> {
    let RunFacts { world, facts, run, .. } = *of;
    let machines = machines(of, policy);
    let waits = match world.active_attempt(run) {
        Some((_, state)) => [
            grows_in(facts, policy, run, state, &machines),
            (machines.missing(run) > 0).then(|| rents_in(world, facts, policy, run)),
        ],
        None => [shrinks_in(of, policy, &machines), None],
    };
    waits.into_iter().flatten().filter(|left| left.0 > 0).min()
}
