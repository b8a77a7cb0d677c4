//! Filters offers by a job's constraints, with one reason for each that is rejected.

use std::collections::BTreeMap;

use domain::gpu::{Gpu, GpuPlatform};
use domain::job::Needs;
use domain::listing::{Cloud, Listing};
use domain::region::Compliance;
pub use domain::terms::SPOT_CAP;
use domain::wants::Spot;
use domain::{Bytes, Rate};
use serde::Serialize;

use super::market::{MarketIndex, PricedListing, PurchaseOption};

/// The constraints. Empty lists and `None` admit everything.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Admission {
    /// Any one of these.
    pub gpus: Vec<GpuRequirement>,
    pub instance_type: Option<String>,
    pub clouds: Vec<Cloud>,
    /// Names, the start of some with `*`, or two letters of a country.
    pub regions: Vec<String>,
    pub compliance: Vec<Compliance>,
    /// Of one machine with the disk that is rented with it.
    pub max_price: Option<Rate>,
    pub spot: Spot,
    /// Machines of a run that are rented on demand, where the others are spot machines.
    pub on_demand: u32,
    pub dedicated: bool,
    /// Of one machine.
    pub needs: Needs,
    /// Names of GPUs that a program for CUDA on x86-64 does not run on as it is ([`other_family`]); such machines are
    /// compared where the job names a GPU or machine.
    pub other_families: Vec<String>,
}

/// What else than CUDA on x86-64 a program for this GPU must be built for: the GPU's own library, or the processor that it
/// is soldered to or rented with.
pub fn other_family(gpu: &Gpu) -> Option<&'static str> {
    match gpu.traits.platform {
        GpuPlatform::Cuda => None,
        GpuPlatform::CudaArm => Some("Arm"),
        GpuPlatform::Rocm => Some("ROCm"),
    }
}

/// Requested GPUs, with resolved names.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuRequirement {
    /// Acceptable names; `None` for any.
    pub names: Option<Vec<String>>,
    /// Memory of one, and whether more will do.
    pub memory: Option<(Bytes, bool)>,
    /// How many in a machine.
    pub count: Option<u32>,
}

/// Why an offer is ruled out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The catalog does not know the GPU's specifications, or the number of GPUs.
    UnknownGpu,
    Accelerators,
    /// Its programs are built for ROCm or Arm, and the job does not name it.
    OtherFamily,
    InstanceType,
    Cloud,
    Region,
    Compliance,
    /// The catalog names no price.
    NoPrice,
    /// There are no such machines in the region, although a price is listed.
    NotStocked,
    /// The job does not allow spot machines.
    NoSpot,
    /// The job wants no others.
    OnlySpot,
    /// Other customers share the machine.
    Shared,
    MaxPrice,
    /// A spot price above 80 % of the price on demand, or of which that is not known.
    SpotSavesLittle,
    /// A spot price far below the usual fraction of the on-demand price, derived or without confirmed machines.
    SpotDistrusted,
    Cores,
    Memory,
    /// Data and checkpoints fit neither on the largest volume nor on the disks inside the machine.
    Disk,
    /// There are fewer such machines than the job runs on.
    Machines,
    /// The GPU lacks the number format.
    Format,
    /// The batch cannot be divided among the ranks.
    Batch,
    /// The GPUs do not divide as the job says.
    Layout,
    /// The GPU's memory is too small in every parallel configuration.
    GpuMemory,
    Budget,
    Deadline,
    Carbon,
}

/// Offers that are admitted, and how many are not for which reason.
#[derive(Debug, Clone, Default)]
pub struct Admitted {
    /// Index of the listing, and terms.
    pub offers: Vec<(usize, PurchaseOption)>,
    pub ruled_out: BTreeMap<Reason, usize>,
    /// Offers there are.
    pub all: usize,
}

/// Admits the offers of a market.
pub fn admit(market: &MarketIndex, admission: &Admission) -> Admitted {
    let mut admitted = Admitted::default();
    let mut rule_out = |reason: Reason, offers: usize| *admitted.ruled_out.entry(reason).or_default() += offers;
    let prices = |listing: &Listing| PurchaseOption::ALL.iter().filter(|terms| terms.price(listing).is_some()).count();
    for listing in &market.unknown {
        admitted.all += prices(listing).max(1);
        rule_out(Reason::UnknownGpu, prices(listing).max(1));
    }
    for (index, priced) in market.listings.iter().enumerate() {
        let offers = prices(priced.listing);
        admitted.all += offers.max(1);
        if offers == 0 {
            rule_out(Reason::NoPrice, 1);
            continue;
        }
        // No rate is told for what is denied.
        let had: Vec<(PurchaseOption, Rate)> =
            PurchaseOption::ALL.into_iter().filter_map(|terms| Some((terms, priced.rate(terms)?))).collect();
        if had.len() < offers {
            rule_out(Reason::NotStocked, offers - had.len());
        }
        if had.is_empty() {
            continue;
        }
        if let Some(reason) = admission.refuses(priced) {
            rule_out(reason, had.len());
            continue;
        }
        for (terms, rate) in had {
            match admission.refuses_terms(priced, terms, rate) {
                Some(reason) => rule_out(reason, 1),
                None => admitted.offers.push((index, terms)),
            }
        }
    }
    admitted
}

impl Admission {
    /// Why a machine under given terms is rejected; `None` if it is admitted. Consistent with [`admit`].
    pub fn refusal(&self, priced: &PricedListing, terms: PurchaseOption) -> Option<Reason> {
        if terms.price(priced.listing).is_none() {
            return Some(Reason::NoPrice);
        }
        let Some(rate) = priced.rate(terms) else { return Some(Reason::NotStocked) };
        self.refuses(priced).or_else(|| self.refuses_terms(priced, terms, rate))
    }

    /// Why a machine is rejected at any price.
    pub(super) fn refuses(&self, priced: &PricedListing) -> Option<Reason> {
        let listing = priced.listing;
        if !self.gpus.is_empty() && !self.gpus.iter().any(|gpus| gpus.are(listing)) {
            return Some(Reason::Accelerators);
        }
        let is_named = self.instance_type.is_some() || self.gpus.iter().any(|gpus| gpus.names.is_some());
        let is_foreign = || listing.gpus.name.as_ref().is_some_and(|name| self.other_families.contains(name));
        if !is_named && is_foreign() {
            return Some(Reason::OtherFamily);
        }
        if self.instance_type.as_ref().is_some_and(|wanted| *wanted != listing.instance_type) {
            return Some(Reason::InstanceType);
        }
        if !self.clouds.is_empty() && !self.clouds.contains(&listing.cloud) {
            return Some(Reason::Cloud);
        }
        if !self.regions.is_empty() && !self.regions.iter().any(|word| stands_in(priced, word)) {
            return Some(Reason::Region);
        }
        let complies = |needed: &Compliance| priced.region.is_some_and(|region| region.compliance.contains(needed));
        if !self.compliance.iter().all(complies) {
            return Some(Reason::Compliance);
        }
        // An unknown amount counts as insufficient.
        let lacks =
            |needed: Option<u64>, has: Option<u64>| needed.is_some_and(|needed| has.is_none_or(|has| has < needed));
        if lacks(self.needs.cores.map(u64::from), listing.cores.map(u64::from)) {
            return Some(Reason::Cores);
        }
        if lacks(self.needs.memory.map(|bytes| bytes.0), listing.memory.map(|bytes| bytes.0)) {
            return Some(Reason::Memory);
        }
        None
    }

    /// Why these terms are rejected.
    fn refuses_terms(&self, priced: &PricedListing, terms: PurchaseOption, rate: Rate) -> Option<Reason> {
        match (terms, self.spot, self.dedicated) {
            (PurchaseOption::OnDemand | PurchaseOption::Spot, _, true) => return Some(Reason::Shared),
            (PurchaseOption::Dedicated, _, false) => return Some(Reason::Shared),
            (PurchaseOption::Spot, Spot::Never, _) => return Some(Reason::NoSpot),
            (PurchaseOption::OnDemand, Spot::Only, _) => return Some(Reason::OnlySpot),
            (PurchaseOption::OnDemand | PurchaseOption::Spot | PurchaseOption::Dedicated, _, _) => {}
        }
        if self.max_price.is_some_and(|most| rate > most) {
            return Some(Reason::MaxPrice);
        }
        if terms == PurchaseOption::Spot {
            // The price on demand is compared, whether or not there are such machines.
            let on_demand = priced.listing.on_demand.as_ref().map(|price| price.rate.micros_per_hour() as f64);
            let share = on_demand.map(|on_demand| rate.micros_per_hour() as f64 / on_demand.max(1.0));
            if share.is_none_or(|share| share > SPOT_CAP) && self.spot != Spot::Only {
                return Some(Reason::SpotSavesLittle);
            }
            if domain::terms::is_distrusted(priced.listing, priced.availability(terms)) {
                return Some(Reason::SpotDistrusted);
            }
            return self.refuses_anchors(priced);
        }
        None
    }

    /// Whether a machine, or one on demand beside spot machines, costs more than `max_price` with the disk that is rented with it.
    pub(super) fn is_too_expensive(&self, priced: &PricedListing, terms: PurchaseOption, disk: Option<Rate>) -> bool {
        let Some(most) = self.max_price else { return false };
        let is_expensive =
            |terms: PurchaseOption| priced.rate(terms).is_some_and(|rate| rate.plus(disk.unwrap_or_default()) > most);
        is_expensive(terms)
            || (terms == PurchaseOption::Spot && self.on_demand > 0 && is_expensive(PurchaseOption::OnDemand))
    }

    /// Why machines on demand cannot be rented beside spot machines of this listing, if the job asks for some.
    fn refuses_anchors(&self, priced: &PricedListing) -> Option<Reason> {
        match priced.rate(PurchaseOption::OnDemand) {
            _ if self.on_demand == 0 => None,
            Some(rate) => self.max_price.is_some_and(|most| rate > most).then_some(Reason::MaxPrice),
            None if priced.listing.on_demand.is_some() => Some(Reason::NotStocked),
            None => Some(Reason::NoPrice),
        }
    }

    /// Of so many machines, those that are on demand where the others are spot machines. At least one is a spot machine.
    pub fn anchors(&self, terms: PurchaseOption, nodes: u32) -> u32 {
        match terms {
            PurchaseOption::Spot => self.on_demand.min(nodes.saturating_sub(1)),
            PurchaseOption::OnDemand | PurchaseOption::Dedicated => 0,
        }
    }
}

impl GpuRequirement {
    fn are(&self, listing: &Listing) -> bool {
        let own = &listing.gpus;
        let named = |names: &Vec<String>| own.name.as_ref().is_some_and(|name| names.contains(name));
        let large =
            |(memory, or_more): (Bytes, bool)| own.memory.is_some_and(|has| has == memory || (or_more && has > memory));
        self.names.as_ref().is_none_or(named)
            && self.memory.is_none_or(large)
            && self.count.is_none_or(|count| count == own.count)
    }
}

fn stands_in(priced: &PricedListing, word: &str) -> bool {
    let region = &priced.listing.region;
    if let Some(start) = word.strip_suffix('*') {
        return region.starts_with(start);
    }
    let country = || priced.region.is_some_and(|region| region.country.eq_ignore_ascii_case(word));
    region.eq_ignore_ascii_case(word) || (word.len() == 2 && country())
}
