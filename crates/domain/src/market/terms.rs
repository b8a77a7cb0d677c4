//! Terms: how a machine is paid for, and whether it is available under them.
//!
//! An offer is a kind of machine in a region under terms. A price alone is not an offer: clouds list prices for
//! machines that a region does not have. [`Availability`] tells them apart, and no plan uses an offer that is denied.

use serde::{Deserialize, Serialize};

use crate::listing::{Listing, Price};

/// How a machine is paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PurchaseOption {
    OnDemand,
    /// The cloud may take it back.
    Spot,
    /// Shared with no other customer.
    Dedicated,
}

impl PurchaseOption {
    /// All of them, the usual one first.
    pub const ALL: [PurchaseOption; 3] = [PurchaseOption::OnDemand, PurchaseOption::Spot, PurchaseOption::Dedicated];

    /// The price of a listing under these terms.
    pub fn price(self, listing: &Listing) -> Option<&Price> {
        match self {
            PurchaseOption::OnDemand => listing.on_demand.as_ref(),
            PurchaseOption::Spot => listing.spot.as_ref(),
            PurchaseOption::Dedicated => listing.dedicated.as_ref(),
        }
    }

    /// The terms as plans print them.
    pub fn word(self) -> &'static str {
        match self {
            PurchaseOption::OnDemand => "on demand",
            PurchaseOption::Spot => "spot",
            PurchaseOption::Dedicated => "dedicated",
        }
    }

    /// The terms as tables name them.
    pub fn key(self) -> &'static str {
        match self {
            PurchaseOption::OnDemand => "on_demand",
            PurchaseOption::Spot => "spot",
            PurchaseOption::Dedicated => "dedicated",
        }
    }
}

/// Availability of a kind of machine in a region under given terms, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Availability {
    /// A source confirms it for the region.
    Known,
    /// No source states it.
    #[default]
    Unknown,
    /// A source lists the regions that have it, without this one.
    Denied,
}

impl Availability {
    /// The name in tables.
    pub fn word(self) -> &'static str {
        match self {
            Availability::Known => "known",
            Availability::Unknown => "unknown",
            Availability::Denied => "denied",
        }
    }
}

/// Maximum ratio of a spot price to the on-demand price: above it, savings would not pay for the interruptions.
pub const SPOT_CAP: f64 = 0.8;

/// Ratio to the on-demand price below which a spot price is distrusted if no source confirms such machines, or if it
/// was derived from other figures: half the usual one. In the catalog the median ratio is 0.34 on AWS and 0.45 on GCP
/// for confirmed machines, and 0.12 for prices of GCP without machines.
pub const DISTRUSTED_SHARE: f64 = 0.2;

/// Whether a spot price is too good to be true. An offer of it is not planned with.
pub fn is_distrusted(listing: &Listing, spot: Availability) -> bool {
    let Some(price) = &listing.spot else { return false };
    (spot != Availability::Known || price.derived.is_some()) && is_far_below(listing)
}

/// Whether a spot price is far below the usual share of the price on demand.
pub fn is_far_below(listing: &Listing) -> bool {
    let micros = |price: &Option<Price>| price.as_ref().map(|price| price.rate.micros_per_hour() as f64);
    let share =
        micros(&listing.spot).zip(micros(&listing.on_demand)).map(|(spot, on_demand)| spot / on_demand.max(1.0));
    share.is_some_and(|share| share < DISTRUSTED_SHARE)
}
