//! What is taken of the prices that were read: those that differ little enough from the ones before to be believed.

use std::collections::HashMap;

use domain::Rate;
use domain::listing::{Cloud, Listing, Price};

use super::{PriceKey, PriceTable, StatedPrice};
use crate::Catalog;
use crate::catalog::refreshed::{PriceTerms, RefreshedPrice};

/// A price that is so many times the one before, or so small a part of it, is not believed. Where there is none before, those
/// of the same machine in other regions are what it is compared with.
pub const JUMP: i64 = 5;

/// A price that was read, and the one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceChange {
    pub region: String,
    pub instance_type: String,
    pub terms: PriceTerms,
    /// None where the catalog has none.
    pub old: Option<Price>,
    pub new: Price,
}

impl PriceChange {
    /// How much more it is, in per cent of the price before.
    pub fn per_cent(&self) -> Option<f64> {
        let old = self.old.as_ref()?.rate.micros_per_hour();
        (old > 0).then(|| 100.0 * (self.new.rate.micros_per_hour() as f64 / old as f64 - 1.0))
    }
}

/// A price that is not believed, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuspiciousPrice {
    pub region: String,
    pub instance_type: String,
    pub terms: PriceTerms,
    /// As the cloud states it, in millionths of its currency.
    pub micros: i64,
    pub currency: String,
    pub why: String,
    /// Whether it was taken all the same.
    pub is_taken: bool,
}

/// What is taken, what has changed, and what is not believed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PriceComparison {
    /// All prices that are taken, with those that are as before: these are newer now.
    pub taken: Vec<RefreshedPrice>,
    /// In the order of machines, regions and terms.
    pub changes: Vec<PriceChange>,
    pub suspicious: Vec<SuspiciousPrice>,
    /// Prices that are as before.
    pub same: usize,
}

/// Compares what was read on the day `dated` with the catalog. With `accepts` a price that has jumped or is stated twice is
/// taken, and one in another currency that the catalog can convert; one of nothing never is.
pub fn compare(catalog: &Catalog, cloud: &Cloud, table: &PriceTable, dated: &str, accepts: bool) -> PriceComparison {
    let of_cloud = catalog.listings.iter().filter(|listing| listing.cloud == *cloud);
    let listings: HashMap<(&str, &str), &Listing> =
        of_cloud.map(|listing| ((listing.region.as_str(), listing.instance_type.as_str()), listing)).collect();
    let usual = usual(catalog, cloud);
    let mut comparison = PriceComparison::default();
    for (key, stated, other) in table.prices() {
        let (region, instance_type, terms) = key;
        let listing = listings.get(&(region.as_str(), instance_type.as_str()));
        let old = listing.and_then(|listing| terms.price(listing)).cloned();
        let usual = usual.get(&(instance_type.as_str(), *terms)).copied();
        let (price, why) = judged(catalog, (stated, other), (old.as_ref(), usual), dated);
        let is_taken = price.is_some() && (accepts || why.is_none());
        comparison.suspicious.extend(why.map(|why| suspicious(key, stated, why, is_taken)));
        let Some(new) = price.filter(|_| is_taken) else { continue };
        comparison.taken.push(RefreshedPrice {
            cloud: cloud.clone(),
            region: region.clone(),
            instance_type: instance_type.clone(),
            terms: *terms,
            price: new.clone(),
            is_confirmed: stated.is_confirmed,
        });
        if old.as_ref().is_some_and(|old| old.rate == new.rate) {
            comparison.same += 1;
            continue;
        }
        let (region, instance_type, terms) = key.clone();
        comparison.changes.push(PriceChange { region, instance_type, terms, old, new });
    }
    comparison.changes.sort_by(|one, other| order(one).cmp(&order(other)));
    comparison
}

/// The lowest and the highest price of each machine of a cloud under each of the terms.
fn usual<'a>(catalog: &'a Catalog, cloud: &Cloud) -> HashMap<(&'a str, PriceTerms), (Rate, Rate)> {
    let mut usual = HashMap::new();
    for listing in catalog.listings.iter().filter(|listing| listing.cloud == *cloud) {
        for terms in PriceTerms::ALL {
            let Some(Price { rate, .. }) = terms.price(listing) else { continue };
            let (least, most) = usual.entry((listing.instance_type.as_str(), terms)).or_insert((*rate, *rate));
            (*least, *most) = ((*least).min(*rate), (*most).max(*rate));
        }
    }
    usual
}

fn order(change: &PriceChange) -> (&str, &str, PriceTerms) {
    (&change.instance_type, &change.region, change.terms)
}

fn suspicious(key: &PriceKey, stated: &StatedPrice, why: String, is_taken: bool) -> SuspiciousPrice {
    let (region, instance_type, terms) = key.clone();
    let (micros, currency) = (stated.micros, stated.currency.clone());
    SuspiciousPrice { region, instance_type, terms, micros, currency, why, is_taken }
}

/// The price in dollars, if it is one, and why it is not believed, if so. It is compared with the price before, or else with
/// the lowest and the highest of the same machine.
fn judged(
    catalog: &Catalog,
    (stated, other): (&StatedPrice, Option<i64>),
    (old, usual): (Option<&Price>, Option<(Rate, Rate)>),
    dated: &str,
) -> (Option<Price>, Option<String>) {
    if stated.micros <= 0 {
        return (None, Some("it is no price".to_owned()));
    }
    let Some(currency) = catalog.currencies.iter().find(|known| known.code == stated.currency) else {
        return (None, Some(format!("it is in {}, whose rate is not known", stated.currency)));
    };
    let derived = match (stated.derived.clone(), currency.conversion()) {
        (Some(derived), Some(converted)) => Some(format!("{derived}; {converted}")),
        (derived, converted) => derived.or(converted),
    };
    let rate = currency.dollars(stated.micros);
    if rate.micros_per_hour() <= 0 {
        return (None, Some("it is no price".to_owned()));
    }
    let bounds = old.map(|old| (old.rate, old.rate)).or(usual);
    let why = match (other, bounds) {
        _ if currency.code != "USD" => Some(format!("it is in {}", currency.code)),
        (Some(other), _) => Some(format!("the cloud states {} too", Rate::from_micros_per_hour(other))),
        (None, Some((least, most))) if is_beyond((least, most), rate) => Some(match old {
            Some(_) => format!("it was {least}, and a price seldom changes by more than {JUMP} times"),
            None => format!("other regions have it for {least} to {most}, and seldom differ by more than {JUMP} times"),
        }),
        (None, _) => None,
    };
    (Some(Price { rate, dated: dated.to_owned(), source: stated.source.clone(), derived }), why)
}

fn is_beyond((least, most): (Rate, Rate), new: Rate) -> bool {
    let [least, most, new] = [least, most, new].map(|rate| i128::from(rate.micros_per_hour()));
    least > 0 && (new > most * i128::from(JUMP) || new * i128::from(JUMP) < least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prices::known_types;

    const MACHINE: &str = "Standard_NC24ads_A100_v4";

    /// What comes of one price of a machine that costs 3.673 in eastus.
    fn check(micros: i64, currency: &str, region: &str, accepts: bool, expected: &str) {
        let catalog = Catalog::embedded().unwrap();
        assert!(known_types(&catalog, &Cloud::Azure)[MACHINE].contains("eastus"));
        let mut table = PriceTable::default();
        let currency = currency.to_owned();
        let price = StatedPrice { micros, currency, source: "s".into(), derived: None, is_confirmed: false };
        table.add((region.into(), MACHINE.into(), PriceTerms::OnDemand), "", price);
        let comparison = compare(&catalog, &Cloud::Azure, &table, "2026-11-27", accepts);
        let taken = comparison.taken.first().map_or("-".to_owned(), |taken| {
            assert_eq!(taken.price.dated, "2026-11-27");
            taken.price.rate.to_string()
        });
        let suspicious = comparison.suspicious.first().map_or("-", |suspicious| suspicious.why.as_str());
        let changes: Vec<String> = comparison
            .changes
            .iter()
            .map(|change| change.per_cent().map_or("new".to_owned(), |share| format!("{share:.0} %")))
            .collect();
        let said = format!("{taken} / {} / {suspicious}", changes.join(","));
        assert!(said.starts_with(expected), "{said}\n  is not\n{expected}");
        assert_eq!(comparison.same, usize::from(taken != "-" && comparison.changes.is_empty()));
    }

    #[test]
    fn prices_out_of_bounds_are_not_taken_unless_accepted() {
        check(3_673_000, "USD", "eastus", false, "$3.673/h /  / -");
        check(4_000_000, "USD", "eastus", false, "$4.00/h / 9 % / -");
        check(3_673_000 * JUMP, "USD", "eastus", false, "$18.365/h / 400 % / -");
        check(3_673_000 * JUMP + 1, "USD", "eastus", false, "- /  / it was $3.673/h, and a price seldom changes");
        check(3_673_000 * JUMP + 1, "USD", "eastus", true, "$18.365001/h / 400 % / it was $3.673/h");
        check(734_600, "USD", "eastus", false, "$0.7346/h / -80 % / -");
        check(734_599, "USD", "eastus", false, "- /  / it was");
        check(4_000_000, "USD", "nowhere-1", false, "$4.00/h / new / -");
        check(7, "USD", "nowhere-1", false, "- /  / other regions have it for $3.673/h to ");
        check(7, "USD", "nowhere-1", true, "$0.000007/h / new / other regions have it for ");
        check(90_000_000, "USD", "nowhere-1", false, "- /  / other regions have it for ");
        for accepts in [false, true] {
            check(0, "USD", "eastus", accepts, "- /  / it is no price");
            check(-1, "USD", "eastus", accepts, "- /  / it is no price");
            check(3_000_000, "XXX", "eastus", accepts, "- /  / it is in XXX, whose rate is not known");
        }
        check(30_000_000, "CNY", "eastus", false, "- /  / it is in CNY");
        check(30_000_000, "CNY", "eastus", true, "$4.");
    }

    #[test]
    fn a_price_that_is_stated_twice_is_not_taken() {
        let catalog = Catalog::embedded().unwrap();
        let mut table = PriceTable::default();
        for micros in [3_700_000, 3_800_000] {
            let price =
                StatedPrice { micros, currency: "USD".into(), source: "s".into(), derived: None, is_confirmed: true };
            table.add(("eastus".into(), MACHINE.into(), PriceTerms::OnDemand), "", price);
        }
        let comparison = compare(&catalog, &Cloud::Azure, &table, "2026-11-27", false);
        assert!(comparison.taken.is_empty() && comparison.changes.is_empty());
        assert_eq!(comparison.suspicious[0].why, "the cloud states $3.70/h too");
        let accepted = compare(&catalog, &Cloud::Azure, &table, "2026-11-27", true);
        assert_eq!(accepted.taken[0].price.rate.micros_per_hour(), 3_800_000);
        assert!(accepted.suspicious[0].is_taken);
    }
}
