//! Which machine is rented: what the plan has chosen, or one of its alternatives while that one cannot be had.
//!
//! What a provider has refused is not asked for again for a while ([`Policy::shortage`]). The first machine is asked for
//! alone. Once it was refused, or has not been answered for [`Policy::hedge`], others are asked for at the same time, at most
//! [`Policy::race`] of them; as soon as one is had, the rest are given back and billed as `race`. Machines that must reach
//! each other are all of one kind: where one of them cannot be had, they are given back and another kind is asked for.

mod takeover;

use domain::run::{InstanceState, RunState};
use domain::{Cause, Elapsed, Offer};

use super::{Action, LiveMachine, ObservedState, Policy, RunFacts};
use crate::world::{Instance, Run};

pub(super) use takeover::{given_over, kept_for_trials, takeovers};

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
    fn is_short(&self, facts: &ObservedState, run: &Run, usable: &[LiveMachine<'_>], missing: usize) -> bool {
        let anchors = self.anchors(run, usable, missing);
        let is_anchor_short = || self.anchor.is_some_and(|anchor| is_short(facts, anchor));
        (anchors > 0 && is_anchor_short()) || (anchors < missing && is_short(facts, self.usual))
    }

    /// So many machines more, those on demand first: one of them is node rank 0.
    fn machines(&self, run: &Run, usable: &[LiveMachine<'_>], missing: usize) -> Vec<Offer> {
        let anchors = self.anchor.into_iter().cycle().take(self.anchors(run, usable, missing));
        let mut machines: Vec<Offer> = anchors.cloned().collect();
        machines.resize(missing, self.usual.clone());
        machines
    }

    /// How many of so many machines more are on demand.
    fn anchors(&self, run: &Run, usable: &[LiveMachine<'_>], missing: usize) -> usize {
        if self.anchor.is_none() {
            return 0;
        }
        let held = usable.iter().filter(|one| is_anchor(run, &one.instance.offer)).count();
        (run.job.wants.on_demand as usize).saturating_sub(held).min(missing)
    }
}

/// Whether a machine of a run is one of those on demand beside spot machines.
pub(super) fn is_anchor(run: &Run, offer: &Offer) -> bool {
    run.plan.anchors.iter().any(|anchor| anchor.kind == offer.kind)
}

/// How long an offer is not asked for, because it was refused a moment ago.
fn shortage(facts: &ObservedState, offer: &Offer) -> Elapsed {
    // There are few, and often none.
    let is_it = |(provider, kind): &(String, String)| *provider == offer.provider && *kind == offer.kind;
    facts.shortages.iter().find(|(key, _)| is_it(key)).map_or(Elapsed(0), |(_, left)| *left)
}

fn is_short(facts: &ObservedState, offer: &Offer) -> bool {
    shortage(facts, offer) > Elapsed(0)
}

/// How long a run waits until it asks for a machine, where it has a choice of them and was refused: until the first of them
/// may be asked for. None where nothing was refused, or where it has a machine that is up: with that it may start, whatever
/// is refused to others.
pub(super) fn wait(of: &RunFacts<'_>) -> Option<Elapsed> {
    let RunFacts { facts, run, .. } = *of;
    let is_any_up = || of.machines.iter().any(|one| one.instance.state == InstanceState::Up);
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
    usable: &[LiveMachine<'_>],
    missing: usize,
) -> Vec<Offer> {
    if run.plan.alternatives.is_empty() {
        return MachineKind::all(run).next().map_or(Vec::new(), |kind| kind.machines(run, usable, missing));
    }
    if run.job.machines() > 1 {
        let is_there = |kind: &MachineKind<'_>| !kind.is_short(facts, run, usable, missing);
        let held = usable.first().map(|one| MachineKind::of(run, &one.instance.offer));
        let chosen = held.or_else(|| MachineKind::all(run).find(is_there)).filter(is_there);
        return chosen.map_or(Vec::new(), |kind| kind.machines(run, usable, missing));
    }
    let is_asked = |offer: &&Offer| usable.iter().any(|one| one.instance.offer.kind == offer.kind);
    let fresh = offers(run).filter(|offer| !is_short(facts, offer) && !is_asked(offer));
    fresh.take(entrants(policy, run, usable)).cloned().collect()
}

/// How many machines more are asked for at the same time, of which one is kept.
fn entrants(policy: &Policy, run: &Run, usable: &[LiveMachine<'_>]) -> usize {
    if usable.iter().any(|one| one.instance.state != InstanceState::Intended) {
        return 0;
    }
    let is_late = |one: &&LiveMachine<'_>| one.seen.silence.is_some_and(|silence| silence >= policy.hedge);
    let late = usable.iter().filter(is_late).count();
    let width = if run.waits == 0 && late == 0 { 1 } else { policy.race.max(1) };
    width.saturating_sub(usable.len() - late).min(policy.race.max(1).saturating_sub(usable.len()))
}

/// Gives back what lost a race: as many machines are had as the run needs, and more were asked for.
pub(super) fn losers(of: &RunFacts<'_>) -> Vec<Action> {
    let run = of.run;
    let needed = run.job.machines() as usize;
    if run.plan.alternatives.is_empty() || of.machines.len() <= needed {
        return Vec::new();
    }
    // One that will be reclaimed is released for that reason.
    let is_held = |instance: &Instance| instance.state != InstanceState::Releasing && instance.reclaim.is_none();
    let mut held: Vec<LiveMachine<'_>> = of.machines.iter().copied().filter(|one| is_held(one.instance)).collect();
    if held.len() <= needed {
        return Vec::new();
    }
    let rank = |state: &InstanceState| match state {
        InstanceState::Up => 0,
        InstanceState::Launching => 1,
        InstanceState::Intended | InstanceState::Releasing | InstanceState::Released { .. } => 2,
    };
    if held.iter().filter(|one| rank(&one.instance.state) < 2).count() < needed {
        return Vec::new();
    }
    // Of those that are had, the one that the plan names first.
    let named = || run.plan.anchors.iter().chain(offers(run));
    let place = |wanted: &Offer| named().position(|offer| offer.kind == wanted.kind).unwrap_or(usize::MAX);
    held.sort_by_key(|one| (rank(&one.instance.state), place(&one.instance.offer), one.instance.intended));
    held.split_off(needed).into_iter().map(|one| Action::GiveUpRace { instance: one.id.clone() }).collect()
}

/// Whether machines that must reach each other cannot be completed with their own kind now, but with another one.
pub(super) fn is_stuck(of: &RunFacts<'_>) -> bool {
    let RunFacts { world, facts, run, .. } = *of;
    if run.job.nodes() == 1 || run.plan.alternatives.is_empty() || world.active_attempt(run).is_some() {
        return false;
    }
    let held = of.machines.iter().filter(|one| one.instance.state != InstanceState::Releasing);
    let held: Vec<LiveMachine<'_>> = held.copied().collect();
    let missing = (run.job.least_nodes() as usize).saturating_sub(held.len());
    held.first().is_some_and(|one| MachineKind::of(run, &one.instance.offer).is_short(facts, run, &held, missing))
        && MachineKind::all(run).any(|kind| kind.shortage(facts) == Elapsed(0))
}

/// When an unanswered request is not waited for alone any more.
pub(super) fn due(policy: &Policy, machine: LiveMachine<'_>, run: &Run) -> Option<Elapsed> {
    let is_asked_for = machine.instance.state == InstanceState::Intended;
    if !is_asked_for || run.plan.alternatives.is_empty() || run.job.machines() > 1 {
        return None;
    }
    let silence = machine.seen.silence?;
    policy.hedge.0.checked_sub(silence.0).filter(|left| *left > 0).map(Elapsed)
}
