//! Capacity: how many instances may be rented at the same time.
//!
//! A provider with existing machines declares their number ([`ProviderTraits::places`]); each of them runs one
//! instance. Runs on this machine take turns ([`Policy::slots`]). What is rented on demand waits for nothing.

use std::collections::BTreeSet;

use domain::rental::ProviderTraits;
use domain::{Offer, RunId, SweepId};

use super::{ObservedState, Policy};
use crate::local::HERE;
use crate::world::{Run, World};

/// Slots for machines, and who uses each. They are counted when it depends on their number.
pub(super) struct Room<'a> {
    world: &'a World,
    facts: &'a ObservedState,
    policy: &'a Policy,
    /// Those that were in use before this decision.
    used: Option<Vec<Taken<'a>>>,
    /// Those that it uses.
    added: Vec<Taken<'a>>,
}

/// A used slot: its offer, and the sweep of its trial.
struct Taken<'a> {
    offer: &'a Offer,
    run: &'a RunId,
    sweep: Option<&'a SweepId>,
}

impl<'a> Room<'a> {
    /// The slots in use now.
    pub fn new(world: &'a World, facts: &'a ObservedState, policy: &'a Policy) -> Room<'a> {
        Room { world, facts, policy, used: None, added: Vec::new() }
    }

    fn taken(&mut self) -> impl Iterator<Item = &Taken<'a>> {
        let Room { world, facts, policy, .. } = *self;
        let used = self.used.get_or_insert_with(|| {
            let sweep = |run: &RunId| world.runs.get(run)?.trial.as_ref().map(|trial| &trial.sweep);
            let live = world.live_instances().filter(|(id, instance)| !facts.live(id, instance).is_lost(policy));
            live.map(|(_, instance)| Taken { offer: &instance.offer, run: &instance.run, sweep: sweep(&instance.run) })
                .collect()
        });
        used.iter().chain(&self.added)
    }

    /// Whether there are slots for this many more machines of a run.
    pub fn has_some(&mut self, id: &RunId, run: &Run, machines: usize) -> bool {
        let offer = &run.plan.offer;
        let facts = self.facts;
        match places(facts, offer) {
            Some(places) => {
                let taken = self.taken().filter(|taken| taken.offer.provider == offer.provider);
                let is_same = |taken: &&Taken<'_>| !offer.is_any() && taken.offer.kind == offer.kind;
                let (used, same) = taken.fold((0, 0), |(all, same), one| (all + 1, same + usize::from(is_same(&one))));
                used + machines <= places && same == 0
            }
            None => offer.provider != HERE || self.has_slot(id, run),
        }
    }

    /// Whether this machine has a slot for another run. Trials of one sweep may use several together, if no other run
    /// has one.
    fn has_slot(&mut self, id: &RunId, run: &Run) -> bool {
        let Room { world, policy, .. } = *self;
        // No more runs than machines.
        if world.live_count() + self.added.len() < policy.slots {
            return true;
        }
        let others = self.taken().filter(|taken| taken.offer.provider == HERE && taken.run != id);
        let used = others.map(|taken| taken.run).collect::<BTreeSet<_>>().len();
        if used < policy.slots {
            return true;
        }
        let Some(sweep) = world.sweep_of(run) else { return false };
        let own = run.trial.as_ref().map(|trial| &trial.sweep);
        let mut others = self.taken().filter(|taken| taken.offer.provider == HERE);
        used < sweep.search.parallel as usize && others.all(|taken| taken.sweep == own)
    }

    /// Whether this decision rents a machine for a trial of the same sweep.
    pub fn has_given_to_sweep_of(&self, run: &Run) -> bool {
        let sweep = run.trial.as_ref().map(|trial| &trial.sweep);
        sweep.is_some() && self.added.iter().any(|taken| taken.sweep == sweep)
    }

    /// Uses slots for machines of a run.
    pub fn take(&mut self, id: &'a RunId, run: &'a Run, machines: usize) {
        let sweep = run.trial.as_ref().map(|trial| &trial.sweep);
        let taken = std::iter::repeat_with(|| Taken { offer: &run.plan.offer, run: id, sweep });
        self.added.extend(taken.take(machines));
    }
}

/// Whether a machine is there before any run asks for it: this one, and those reached over SSH.
pub(super) fn exists(offer: &Offer) -> bool {
    [HERE, "ssh"].contains(&offer.provider.as_str())
}

fn places(facts: &ObservedState, offer: &Offer) -> Option<usize> {
    facts.traits.get(&offer.provider).and_then(|traits: &ProviderTraits| traits.places)
}

impl World {
    /// An instance of another run on a machine that this run would be given. Machines that are rented on demand are given
    /// to no other run.
    pub fn instance_before(&self, id: &RunId, run: &Run) -> Option<&crate::world::Instance> {
        let offer = &run.plan.offer;
        let is_meant = |other: &Offer| {
            other.provider == offer.provider && (offer.is_any() || other.is_any() || other.kind == offer.kind)
        };
        let mut others = self.live_instances().map(|(_, instance)| instance).filter(|_| exists(offer));
        others.find(|instance| instance.run != *id && is_meant(&instance.offer))
    }
}
