//! Attempts on several machines: when one has ended, and when machines that wait for others are given back.

use domain::run::{AttemptEnd, InstanceState, RunState};
use domain::{Elapsed, Finding, InstanceId, Timestamp};

use super::{Action, LiveMachine, Policy, RunFacts, choice};
use crate::verdict::{MemberEnd, verdict};
use crate::world::{AttemptState, Member, Run, World};

/// Writes down that the attempt of a run, or its part on this machine, ended with the machine.
pub(super) fn fail(world: &World, run: &Run, id: &InstanceId, finding: Finding) -> Option<Action> {
    let (attempt, state) = world.active_attempt(run)?;
    let (attempt, end) = (attempt.clone(), AttemptEnd::Failed { finding, exit_code: None });
    if state.members.is_empty() {
        return (state.instance == *id).then_some(Action::EndAttempt { attempt, end });
    }
    let member = state.member(id).filter(|member| member.end.is_none())?;
    Some(Action::EndMember { attempt, instance: member.instance.clone(), end })
}

/// Whether this machine is one of those that the attempt of a run works on, or it has no attempt.
pub(super) fn has_work(world: &World, run: &Run, id: &InstanceId) -> bool {
    world.active_attempt(run).is_none_or(|(_, attempt)| attempt.instances().any(|one| one == id))
}

/// Whether the attempt of a run has not ended on this machine.
pub(super) fn works_on(world: &World, run: &Run, id: &InstanceId) -> bool {
    world.active_attempt(run).is_some_and(|(_, attempt)| match attempt.member(id) {
        Some(member) => member.end.is_none(),
        None => attempt.instance == *id,
    })
}

/// The end of an attempt that has ended on all of its machines.
pub(super) fn ended(world: &World, run: &Run) -> Option<Action> {
    let (attempt, state) = world.active_attempt(run).filter(|(_, state)| !state.members.is_empty())?;
    let ends: Option<Vec<_>> = state.members.iter().map(|member| end_of(world, member)).collect();
    let is_stopping = state.is_resizing || matches!(run.state, RunState::Stopping { .. });
    Some(Action::EndAttempt { attempt: attempt.clone(), end: verdict(&ends?, is_stopping)? })
}

/// How the part of an attempt on one machine has ended, if it has.
fn end_of<'a>(world: &World, member: &'a Member) -> Option<MemberEnd<'a>> {
    let (seq, end) = member.end.as_ref()?;
    let instance = world.instances.get(&member.instance);
    let is_machine_lost = instance.is_none_or(|instance| instance.state != InstanceState::Up);
    Some(MemberEnd { seq: *seq, end, is_machine_lost })
}

/// Releases machines that have waited too long for the others of their run: all of them start together, and missing
/// ones may take a long time.
pub(super) fn give_back(of: &RunFacts<'_>, policy: &Policy) -> Vec<Action> {
    let is_over = waiting_since(of).is_some_and(|since| of.facts.now.since(since) >= patience(of, policy));
    let is_stuck = choice::is_stuck(of);
    if !is_over && !is_stuck {
        return Vec::new();
    }
    // One that will be reclaimed is released for that reason.
    let is_held =
        |one: &&LiveMachine<'_>| one.instance.state != InstanceState::Releasing && one.instance.reclaim.is_none();
    let held = of.machines.iter().filter(is_held);
    let given_back = |id: &InstanceId| match is_stuck {
        true => Action::GiveUpRace { instance: id.clone() },
        false => Action::Release { instance: id.clone() },
    };
    held.map(|one| given_back(one.id)).collect()
}

/// Time until they are released; `None` if that is over or none wait.
pub(super) fn due(of: &RunFacts<'_>, policy: &Policy) -> Option<Elapsed> {
    let waited = of.facts.now.since(waiting_since(of)?);
    patience(of, policy).0.checked_sub(waited.0).filter(|left| *left > 0).map(Elapsed)
}

/// How long machines of a run wait for its others: at least for two that boot one after the other, as one may fail, and
/// where the job can do with fewer, until it has begun with them.
fn patience(of: &RunFacts<'_>, policy: &Policy) -> Elapsed {
    let RunFacts { facts, run, .. } = *of;
    let boots = facts.traits.get(&run.plan.offer.provider).map_or(0, |traits| traits.boots_within.0);
    let is_elastic = run.job.least_nodes() < run.job.nodes();
    let shrinks = if is_elastic { policy.shrink.0.saturating_add(boots) } else { 0 };
    policy.incomplete.max(Elapsed(boots.saturating_mul(2).max(shrinks)))
}

/// Since when machines of a run wait for its others.
pub(super) fn waiting_since(of: &RunFacts<'_>) -> Option<Timestamp> {
    let RunFacts { world, run, .. } = *of;
    if run.job.machines() == 1 || world.active_attempt(run).is_some() {
        return None;
    }
    let held = of.machines.iter().filter(|one| one.instance.state == InstanceState::Up);
    let first = held.map(|one| one.instance.intended).min()?;
    let ended = run.attempts.last().and_then(|id| world.attempts.get(id)).map(|attempt| &attempt.state);
    match ended {
        Some(AttemptState::Ended { at, .. }) => Some(first.max(*at)),
        _ => Some(first),
    }
}
