//! Offers that were refused lately: they are not asked for again for a while, by any run that has a choice. In memory only:
//! after a restart each is asked for once more.

use std::collections::BTreeMap;

use domain::rental::Refusal;
use domain::{Elapsed, Offer};
use plan::Policy;

/// What was refused, by provider and kind.
#[derive(Debug, Default)]
pub(super) struct Shortages(BTreeMap<(String, String), Shortage>);

#[derive(Debug)]
struct Shortage {
    /// Until when it is not asked for, on the monotonic clock.
    until: Elapsed,
    /// Refusals in succession.
    refusals: u32,
    /// Whether it was refused for another reason than capacity, such as a quota.
    is_hard: bool,
}

fn key(offer: &Offer) -> (String, String) {
    (offer.provider.clone(), offer.kind.clone())
}

impl Shortages {
    /// How long each is not asked for, from now on.
    pub fn left(&self, now: Elapsed) -> BTreeMap<(String, String), Elapsed> {
        let left = |shortage: &Shortage| Elapsed(shortage.until.0.saturating_sub(now.0));
        let all = self.0.iter().map(|(key, shortage)| (key, left(shortage)));
        all.filter(|(_, left)| *left > Elapsed(0)).map(|(key, left)| (key.clone(), left)).collect()
    }

    /// An offer was refused.
    pub fn refused(&mut self, policy: &Policy, now: Elapsed, offer: &Offer, refusal: &Refusal) {
        let is_capacity = matches!(refusal, Refusal::Capacity { .. } | Refusal::Throttled { .. });
        let entry = self.0.entry(key(offer)).or_insert(Shortage { until: now, refusals: 0, is_hard: false });
        entry.refusals = entry.refusals.saturating_add(1);
        entry.is_hard = !is_capacity;
        entry.until = Elapsed(now.0.saturating_add(policy.shortage(entry.refusals, is_capacity).0));
    }

    /// It was rented after all; returns whether it had been refused before.
    pub fn end(&mut self, offer: &Offer) -> bool {
        self.0.remove(&key(offer)).is_some()
    }

    /// Whether one of these may be had with nothing but patience.
    pub fn leave_some<'a>(&self, mut offers: impl Iterator<Item = &'a Offer>) -> bool {
        offers.any(|offer| self.0.get(&key(offer)).is_none_or(|shortage| !shortage.is_hard))
    }
}
