//! Places for machines: how many instances may be rented at the same time.
//!
//! A provider that has its machines already says how many they are ([`ProviderTraits::places`]); each of them runs one
//! instance. All others share [`Policy::slots`].

use domain::rental::ProviderTraits;
use domain::{Offer, RunId, SweepId};

use super::{ObservedState, Policy, lost};
use crate::world::{Run, World};

/// Places for machines, and who has taken each.
pub(super) struct Room<'a> {
    facts: &'a ObservedState,
    slots: usize,
    taken: Vec<Taken>,
}

/// A place that is taken: for which offer, and for a trial of which sweep.
struct Taken {
    offer: Offer,
    sweep: Option<SweepId>,
}

impl Room<'_> {
    /// The places that are taken now.
    pub fn of<'a>(world: &World, facts: &'a ObservedState, policy: &Policy) -> Room<'a> {
        let sweep = |run: &RunId| Some(world.runs.get(run)?.trial.as_ref()?.sweep.clone());
        let live = world.live_instances().filter(|(id, instance)| !lost::is_lost(facts, policy, id, instance));
        let taken = live.map(|(_, instance)| Taken { offer: instance.offer.clone(), sweep: sweep(&instance.run) });
        Room { facts, slots: policy.slots, taken: taken.collect() }
    }

    /// Whether there is a place for the machine of one more run.
    pub fn has_some(&self, world: &World, run: &Run) -> bool {
        let offer = &run.plan.offer;
        match self.places(offer) {
            Some(places) => {
                let is_alike = |taken: &&Taken| taken.offer.provider == offer.provider;
                let is_same = |taken: &Taken| !offer.is_any() && taken.offer.kind == offer.kind;
                let used: Vec<&Taken> = self.taken.iter().filter(is_alike).collect();
                used.len() < places && !used.into_iter().any(is_same)
            }
            None => self.has_slot(world, run),
        }
    }

    /// Whether there is one among the shared places. Trials of one sweep may have more of them together, where nobody
    /// else has one.
    fn has_slot(&self, world: &World, run: &Run) -> bool {
        let shared: Vec<&Taken> = self.taken.iter().filter(|taken| self.places(&taken.offer).is_none()).collect();
        if shared.len() < self.slots {
            return true;
        }
        let Some(sweep) = world.sweep_of(run) else { return false };
        let own = run.trial.as_ref().map(|trial| &trial.sweep);
        shared.len() < sweep.search.parallel as usize && shared.iter().all(|taken| taken.sweep.as_ref() == own)
    }

    /// Takes a place for a run's machine.
    pub fn take(&mut self, run: &Run) {
        let sweep = run.trial.as_ref().map(|trial| trial.sweep.clone());
        self.taken.push(Taken { offer: run.plan.offer.clone(), sweep });
    }

    fn places(&self, offer: &Offer) -> Option<usize> {
        self.facts.traits.get(&offer.provider).and_then(|traits: &ProviderTraits| traits.places)
    }
}

impl World {
    /// An instance of another run on a machine that this run would be given.
    pub fn instance_before(&self, id: &RunId, run: &Run) -> Option<&crate::world::Instance> {
        let offer = &run.plan.offer;
        let is_meant = |other: &Offer| {
            other.provider == offer.provider && (offer.is_any() || other.is_any() || other.kind == offer.kind)
        };
        let mut others = self.live_instances().map(|(_, instance)| instance);
        others.find(|instance| instance.run != *id && is_meant(&instance.offer))
    }
}
