//! Which machine is rented: what the plan has chosen, or one of its alternatives while that one cannot be had.
//!
//! What a provider has refused is not asked for again for a while ([`Policy::shortage`]). The first machine is asked for
//! alone. Once it was refused, or has not been answered for [`Policy::hedge`], others are asked for at the same time, at most
//! [`Policy::race`] of them; as soon as one is had, the rest are given back and billed as `race`. Machines that must reach
//! each other are all of one kind: where one of them cannot be had, they are given back and another kind is asked for.

mod takeover;

use domain::run::{InstanceState, RunState};
use domain::{Cause, Elapsed, InstanceId, Offer};

use super::{Action, ObservedState, Policy};
use crate::world::{Instance, Run, World};

pub(super) use takeover::{given_over, kept_for_trials, takeovers};

/// A machine of a run, by its name.
type Named<'a> = (&'a InstanceId, &'a Instance);

/// What a run may be rented, the plan's own choice first.
pub fn offers(run: &Run) -> impl Iterator<Item = &Offer> {
    std::iter::once(&run.plan.offer).chain(&run.plan.alternatives)
}

/// A kind of machine of a run, and the same on demand if the job asks for some of those beside spot machines.
#[derive(Clone, Copy)]
struct MachineKind<'a> {
    usual: &'a Offer,
    anchor: Option<&'a Offer>,
}

impl<'a> MachineKind<'a> {
    /// Those that a run may have, the plan's own choice first.
    fn all(run: &'a Run) -> impl Iterator<Item = MachineKind<'a>> {
        let anchors = &run.plan.anchors;
        offers(run).enumerate().map(move |(place, usual)| MachineKind { usual, anchor: anchors.get(place) })
    }

    /// That of a machine which the run has.
    fn of(run: &'a Run, offer: &'a Offer) -> MachineKind<'a> {
        let is = |kind: &MachineKind| {
            kind.usual.kind == offer.kind || kind.anchor.is_some_and(|anchor| anchor.kind == offer.kind)
        };
        MachineKind::all(run).find(is).unwrap_or(MachineKind { usual: offer, anchor: None })
    }

    /// How long it cannot be had by a run that has none: on several machines that needs both.
    fn shortage(&self, facts: &ObservedState) -> Elapsed {
        let anchor = self.anchor.map_or(Elapsed(0), |anchor| shortage(facts, anchor));
        shortage(facts, self.usual).max(anchor)
    }

    /// Whether one of so many machines more cannot be had now.
    fn is_short(&self, facts: &ObservedState, run: &Run, usable: &[Named<'_>], missing: usize) -> bool {
        self.machines(run, usable, missing).iter().any(|offer| is_short(facts, offer))
    }

    /// So many machines more, those on demand first: one of them is node rank 0.
    fn machines(&self, run: &Run, usable: &[Named<'_>], missing: usize) -> Vec<Offer> {
        let Some(anchor) = self.anchor else { return vec![self.usual.clone(); missing] };
        let held = usable.iter().filter(|(_, instance)| is_anchor(run, &instance.offer)).count();
        let anchors = (run.job.wants.on_demand as usize).saturating_sub(held).min(missing);
        let mut machines = vec![anchor.clone(); anchors];
        machines.resize(missing, self.usual.clone());
        machines
    }
}

/// Whether a machine of a run is one of those on demand beside spot machines.
pub(super) fn is_anchor(run: &Run, offer: &Offer) -> bool {
    run.plan.anchors.iter().any(|anchor| anchor.kind == offer.kind)
}

/// How long an offer is not asked for, because it was refused a moment ago.
fn shortage(facts: &ObservedState, offer: &Offer) -> Elapsed {
    facts.shortages.get(&(offer.provider.clone(), offer.kind.clone())).copied().unwrap_or_default()
}

fn is_short(facts: &ObservedState, offer: &Offer) -> bool {
    shortage(facts, offer) > Elapsed(0)
}

/// How long a run waits until it asks for a machine, where it has a choice of them and was refused: until the first of them
/// may be asked for. None where nothing was refused, or where it has a machine that is up: with that it may start, whatever
/// is refused to others.
pub(super) fn wait(world: &World, facts: &ObservedState, run: &Run) -> Option<Elapsed> {
    let is_any_up = || world.live_instances_of(run).any(|(_, instance)| instance.state == InstanceState::Up);
    if run.plan.alternatives.is_empty() || is_any_up() {
        return None;
    }
    let first = MachineKind::all(run).map(|kind| kind.shortage(facts)).min()?;
    let is_out = matches!(&run.state, RunState::Recovering { finding, .. } if finding.cause == Cause::NoCapacity);
    (is_out || first > Elapsed(0)).then_some(first)
}

/// When the next offer that was refused may be asked for again, where a run has a choice; none where none was refused.
pub(super) fn reopens(facts: &ObservedState, run: &Run) -> Option<Elapsed> {
    // A run that has some machines may miss only spot machines of a kind, or only those on demand.
    let named = offers(run).chain(&run.plan.anchors);
    let short = named.map(|offer| shortage(facts, offer)).filter(|wait| *wait > Elapsed(0));
    short.min().filter(|_| !run.plan.alternatives.is_empty())
}

/// What is asked for now, so that a run has `missing` machines more than those that it has.
pub(super) fn choose(
    facts: &ObservedState,
    policy: &Policy,
    run: &Run,
    usable: &[Named<'_>],
    missing: usize,
) -> Vec<Offer> {
    if run.plan.alternatives.is_empty() {
        return MachineKind::all(run).next().map_or(Vec::new(), |kind| kind.machines(run, usable, missing));
    }
    if run.job.machines() > 1 {
        let is_there = |kind: &MachineKind<'_>| !kind.is_short(facts, run, usable, missing);
        let held = usable.first().map(|(_, instance)| MachineKind::of(run, &instance.offer));
        let chosen = held.or_else(|| MachineKind::all(run).find(is_there)).filter(is_there);
        return chosen.map_or(Vec::new(), |kind| kind.machines(run, usable, missing));
    }
    let is_asked = |offer: &&Offer| usable.iter().any(|(_, instance)| instance.offer.kind == offer.kind);
    let fresh = offers(run).filter(|offer| !is_short(facts, offer) && !is_asked(offer));
    fresh.take(entrants(facts, policy, run, usable)).cloned().collect()
}

/// How many machines more are asked for at the same time, of which one is kept.
fn entrants(facts: &ObservedState, policy: &Policy, run: &Run, usable: &[Named<'_>]) -> usize {
    if usable.iter().any(|(_, instance)| instance.state != InstanceState::Intended) {
        return 0;
    }
    let is_late = |id: &InstanceId| facts.machine(id).silence.is_some_and(|silence| silence >= policy.hedge);
    let late = usable.iter().filter(|(id, _)| is_late(id)).count();
    let width = if run.waits == 0 && late == 0 { 1 } else { policy.race.max(1) };
    width.saturating_sub(usable.len() - late).min(policy.race.max(1).saturating_sub(usable.len()))
}

/// Gives back what lost a race: as many machines are had as the run needs, and more were asked for.
pub(super) fn losers(world: &World, run: &Run) -> Vec<Action> {
    let needed = run.job.machines() as usize;
    // One that will be reclaimed is released for that reason.
    let is_held = |(_, instance): &Named<'_>| instance.state != InstanceState::Releasing && instance.reclaim.is_none();
    let mut held: Vec<Named<'_>> = world.live_instances_of(run).filter(is_held).collect();
    if run.plan.alternatives.is_empty() || held.len() <= needed {
        return Vec::new();
    }
    let rank = |state: &InstanceState| match state {
        InstanceState::Up => 0,
        InstanceState::Launching => 1,
        InstanceState::Intended | InstanceState::Releasing | InstanceState::Released { .. } => 2,
    };
    if held.iter().filter(|(_, instance)| rank(&instance.state) < 2).count() < needed {
        return Vec::new();
    }
    // Of those that are had, the one that the plan names first.
    let named = || run.plan.anchors.iter().chain(offers(run));
    let place = |wanted: &Offer| named().position(|offer| offer.kind == wanted.kind).unwrap_or(usize::MAX);
    held.sort_by_key(|(_, instance)| (rank(&instance.state), place(&instance.offer), instance.intended));
    held.split_off(needed).into_iter().map(|(id, _)| Action::GiveUpRace { instance: id.clone() }).collect()
}

/// Whether machines that must reach each other cannot be completed with their own kind now, but with another one.
pub(super) fn is_stuck(world: &World, facts: &ObservedState, run: &Run) -> bool {
    if run.job.nodes() == 1 || run.plan.alternatives.is_empty() || world.active_attempt(run).is_some() {
        return false;
    }
    let held = world.live_instances_of(run).filter(|(_, instance)| instance.state != InstanceState::Releasing);
    let held: Vec<Named<'_>> = held.collect();
    let missing = (run.job.least_nodes() as usize).saturating_sub(held.len());
    held.first().is_some_and(|(_, one)| MachineKind::of(run, &one.offer).is_short(facts, run, &held, missing))
        && MachineKind::all(run).any(|kind| kind.shortage(facts) == Elapsed(0))
}

/// When an unanswered request is not waited for alone any more.
pub(super) fn due(
    facts: &ObservedState,
    policy: &Policy,
    id: &InstanceId,
    instance: &Instance,
    run: &Run,
) -> Option<Elapsed> {
    if instance.state != InstanceState::Intended || run.plan.alternatives.is_empty() || run.job.machines() > 1 {
        return None;
    }
    let silence = facts.machine(id).silence?;
    policy.hedge.0.checked_sub(silence.0).filter(|left| *left > 0).map(Elapsed)
}
