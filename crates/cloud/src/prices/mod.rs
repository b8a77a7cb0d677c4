//! Current prices, read from the clouds' own price APIs for `gradus catalog refresh`.
//!
//! A file per cloud knows the address and the shape of the answers; [`fetch`] asks, and tries again where that helps;
//! [`compare`] decides what is taken. Only `fetch` waits for anything, and what sends and sleeps is passed in. What is
//! taken is stored by [`refreshed`](crate::catalog::refreshed). The answers have the shape that each cloud documents;
//! none of the real APIs has been asked.

pub mod alibaba;
pub mod amount;
pub mod aws;
pub mod azure;
pub mod compare;
pub mod fetch;
pub mod gcp;
pub mod lambda;
pub mod tencent;

use std::collections::{BTreeMap, BTreeSet};

use domain::listing::Cloud;

use crate::Catalog;
use crate::catalog::refreshed::PriceTerms;

/// The clouds whose prices can be refreshed.
pub const CLOUDS: [Cloud; 6] = [Cloud::Aws, Cloud::Azure, Cloud::Gcp, Cloud::Lambda, Cloud::Alibaba, Cloud::Tencent];

/// Names of unknown machines that are remembered at most; more are counted only.
const NAMED: usize = 1000;

/// The machine types of a cloud that the catalog knows, each with the regions that it lists.
pub type KnownTypes = BTreeMap<String, BTreeSet<String>>;

/// The machine types of a cloud that a catalog knows.
pub fn known_types(catalog: &Catalog, cloud: &Cloud) -> KnownTypes {
    let mut known = KnownTypes::new();
    for listing in catalog.listings.iter().filter(|listing| listing.cloud == *cloud) {
        known.entry(listing.instance_type.clone()).or_default().insert(listing.region.clone());
    }
    known
}

/// The machine types that are known in a region, or all of them in one that is not known.
fn types_in<'a>(known: &'a KnownTypes, region: &str) -> Vec<&'a str> {
    let there = known.iter().filter(|(_, regions)| regions.contains(region));
    let there: Vec<&str> = there.map(|(name, _)| name.as_str()).collect();
    if there.is_empty() { known.keys().map(String::as_str).collect() } else { there }
}

/// Whether a text could be the name of a region of a cloud.
pub fn is_region_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

/// The cloud of its own, in the catalog, that a region belongs to, because only other accounts can rent there.
pub fn cloud_apart(cloud: &Cloud, region: &str) -> Option<&'static str> {
    match cloud {
        Cloud::Aws if region.starts_with("cn-") => Some("aws-cn"),
        Cloud::Aws if region.starts_with("us-gov-") => Some("aws-gov"),
        Cloud::Azure if region.starts_with("usgov") || region.starts_with("usdod") => Some("azure-gov"),
        Cloud::Aws | Cloud::Azure | Cloud::Gcp | Cloud::Alibaba | Cloud::Lambda | Cloud::Tencent => None,
        Cloud::Own | Cloud::Other(_) => None,
    }
}

/// Region, machine type and terms of a price.
pub type PriceKey = (String, String, PriceTerms);

/// A price as a cloud states it, per hour of the whole machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatedPrice {
    /// Millionths of the currency; 0 or less is no price, and refused later.
    pub micros: i64,
    /// Three letters, such as `USD`.
    pub currency: String,
    pub source: String,
    /// How it follows from what the cloud states, if it does.
    pub derived: Option<String>,
    /// Whether the cloud lists a price only where there are such machines.
    pub is_confirmed: bool,
}

/// What was read from a price API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PriceTable {
    /// With a lower one where the cloud states two.
    prices: BTreeMap<PriceKey, RankedPrice>,
    /// Rows of machine types that the catalog does not know, by their name.
    pub unknown: BTreeMap<String, usize>,
    /// Rows that are prices of something else or cannot be used, by the reason.
    pub left_out: BTreeMap<String, usize>,
    /// Rows that were read.
    pub rows: usize,
}

/// A price, and which of several counts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RankedPrice {
    price: StatedPrice,
    rank: String,
    /// Another price of the same rank, in millionths.
    other: Option<i64>,
}

impl PriceTable {
    /// Adds a price. Of several for the same machine the one with the greatest rank counts; of two with the same rank the
    /// higher one, and that there is another is remembered. One
    /// without the name of a region is left out: the region would be one that machines are planned in.
    pub fn add(&mut self, key: PriceKey, rank: &str, price: StatedPrice) {
        if !is_region_name(&key.0) {
            return self.leave_out("without the name of a region");
        }
        let new = RankedPrice { price, rank: rank.to_owned(), other: None };
        let Some(old) = self.prices.get_mut(&key) else {
            self.prices.insert(key, new);
            return;
        };
        match new.rank.cmp(&old.rank) {
            std::cmp::Ordering::Greater => *old = new,
            std::cmp::Ordering::Equal if new.price.micros > old.price.micros => {
                let lower = old.price.micros;
                *old = RankedPrice { other: Some(lower), ..new };
            }
            std::cmp::Ordering::Equal if new.price.micros < old.price.micros => old.other = Some(new.price.micros),
            std::cmp::Ordering::Equal | std::cmp::Ordering::Less => {}
        }
    }

    /// Counts a row of a machine type that the catalog does not know.
    pub fn unknown(&mut self, name: &str) {
        let name = if self.unknown.len() < NAMED || self.unknown.contains_key(name) { name } else { "others" };
        *self.unknown.entry(name.to_owned()).or_default() += 1;
    }

    /// Counts a row that is not used.
    pub fn leave_out(&mut self, reason: &str) {
        *self.left_out.entry(reason.to_owned()).or_default() += 1;
    }

    /// Adds everything of another table.
    pub fn extend(&mut self, other: PriceTable) {
        for (key, ranked) in other.prices {
            self.add(key.clone(), &ranked.rank, ranked.price);
            if let (Some(lower), Some(own)) = (ranked.other, self.prices.get_mut(&key)) {
                own.other = Some(lower);
            }
        }
        for (name, count) in other.unknown {
            *self.unknown.entry(name).or_default() += count;
        }
        for (reason, count) in other.left_out {
            *self.left_out.entry(reason).or_default() += count;
        }
        self.rows += other.rows;
    }

    /// Prices that are there.
    pub fn len(&self) -> usize {
        self.prices.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.prices.is_empty()
    }

    /// Each price, with the lower one that the cloud states too.
    pub fn prices(&self) -> impl Iterator<Item = (&PriceKey, &StatedPrice, Option<i64>)> {
        self.prices.iter().map(|(key, ranked)| (key, &ranked.price, ranked.other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(micros: i64) -> StatedPrice {
        StatedPrice { micros, currency: "USD".into(), source: "s".into(), derived: None, is_confirmed: false }
    }

    #[test]
    fn of_two_prices_the_newer_counts_and_of_two_of_one_day_the_higher() {
        let check = |rows: &[(&str, i64)], expected: (i64, Option<i64>)| {
            let mut table = PriceTable::default();
            for (rank, micros) in rows {
                table.add(("r".into(), "m".into(), PriceTerms::Spot), rank, price(*micros));
            }
            let (_, price, other) = table.prices().next().unwrap();
            assert_eq!((price.micros, other), expected, "{rows:?}");
        };
        check(&[("1", 5)], (5, None));
        check(&[("1", 5), ("1", 5)], (5, None));
        check(&[("1", 5), ("2", 3)], (3, None));
        check(&[("2", 3), ("1", 5)], (3, None));
        check(&[("1", 5), ("1", 3)], (5, Some(3)));
        check(&[("1", 3), ("1", 5)], (5, Some(3)));
        check(&[("1", 3), ("1", 5), ("2", 4)], (4, None));
    }

    #[test]
    fn a_price_of_no_region_is_left_out() {
        let mut table = PriceTable::default();
        for region in ["", "East US", "eastus\n", "\u{1b}[2J"] {
            table.add((region.into(), "m".into(), PriceTerms::OnDemand), "", price(1));
        }
        assert!(table.is_empty());
        assert_eq!(table.left_out.get("without the name of a region"), Some(&4));
    }

    #[test]
    fn names_of_unknown_machines_are_bounded() {
        let mut table = PriceTable::default();
        for number in 0..3 * NAMED {
            table.unknown(&format!("m{number}"));
        }
        assert!(table.unknown.len() <= NAMED + 1);
        assert_eq!(table.unknown.values().sum::<usize>(), 3 * NAMED);
    }
}
