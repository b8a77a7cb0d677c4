//! What the market lacks for a job: figures of the GPU that it names, machines with it, or prices of the machines that it asks
//! for. No change of a limit helps then, and no other cloud is the answer.

use std::collections::BTreeMap;

use domain::listing::{Cloud, Listing};

use crate::search::admit::Admission;
use crate::search::market::{MarketIndex, PurchaseOption};

/// What is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MarketGap {
    /// Machines have the GPU that the job names, and the catalog has no figures of it.
    Figures,
    /// The GPUs that the job names: no machine has one of them.
    Gpus(Vec<String>),
    /// The prices of all machines that the job asks for: how many there are, by cloud.
    Prices(BTreeMap<Cloud, usize>),
    /// The machines themselves: prices are listed, and sources deny that their regions have them. How many, by cloud.
    Stock(BTreeMap<Cloud, usize>),
}

/// What a market lacks for a job; `None` if something else rules its machines out, such as a limit or a region.
pub fn market_gap(market: &MarketIndex, admission: &Admission) -> Option<MarketGap> {
    if !admission.gpus.is_empty() && admission.gpus.iter().all(|gpus| gpus.names.is_some()) {
        let names: Vec<&String> = admission.gpus.iter().filter_map(|gpus| gpus.names.as_ref()).flatten().collect();
        if names.is_empty() {
            return Some(MarketGap::Figures);
        }
        if !names.iter().any(|name| is_offered(market, name)) {
            return Some(MarketGap::Gpus(names.into_iter().cloned().collect()));
        }
    }
    let [mut unpriced, mut denied] = [BTreeMap::new(), BTreeMap::new()];
    for priced in market.listings.iter().filter(|priced| admission.refuses(priced).is_none()) {
        // No rate is told for what is denied.
        if PurchaseOption::ALL.iter().any(|terms| priced.rate(*terms).is_some()) {
            return None;
        }
        let has_price = PurchaseOption::ALL.iter().any(|terms| terms.price(priced.listing).is_some());
        let counted = if has_price { &mut denied } else { &mut unpriced };
        *counted.entry(priced.listing.cloud.clone()).or_default() += 1;
    }
    match (denied.is_empty(), unpriced.is_empty()) {
        (false, _) => Some(MarketGap::Stock(denied)),
        (true, false) => Some(MarketGap::Prices(unpriced)),
        (true, true) => None,
    }
}

/// Whether a machine has this GPU, in whatever number.
fn is_offered(market: &MarketIndex, name: &str) -> bool {
    let has = |listing: &Listing| listing.gpus.name.as_deref() == Some(name);
    market.listings.iter().any(|priced| has(priced.listing)) || market.unknown.iter().any(|listing| has(listing))
}
