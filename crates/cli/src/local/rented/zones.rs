//! The zones of a plan's first regions, and what spot machines cost in each: the catalog has the price of the cheapest one.

use std::collections::{BTreeMap, BTreeSet};

use cloud::Catalog;
use cloud::rented::MachineChoice;
use domain::{Offer, Rate};

use super::{RentedCloud, ZONED_REGIONS};
use crate::printer::Printer;

/// The zones of each region, and what the kinds of offers with a zone cost, disk included.
#[derive(Debug, Default)]
pub struct Zones {
    pub of_regions: BTreeMap<String, Vec<String>>,
    pub rates: BTreeMap<String, Rate>,
}

impl Zones {
    /// An offer in each zone of its region, where there is a choice of them: at the price there, never below that of the
    /// offer, which is of the cheapest.
    pub fn split(&self, offer: &Offer) -> Vec<Offer> {
        let Ok(choice) = offer.kind.parse::<MachineChoice>() else { return Vec::new() };
        let known = self.of_regions.get(&choice.region).filter(|_| choice.zone.is_none());
        let in_zone = |zone: &String| {
            let kind = MachineChoice { zone: Some(zone.clone()), ..choice.clone() }.to_string();
            let rate = self.rates.get(&kind).copied().filter(|rate| *rate > offer.rate);
            let price_source = match rate {
                Some(_) => format!("{}; in `{zone}` it costs more now", offer.price_source),
                None => offer.price_source.clone(),
            };
            Offer { kind, rate: rate.unwrap_or(offer.rate), price_source, ..offer.clone() }
        };
        known.into_iter().flatten().map(in_zone).collect()
    }
}

/// Looks up the zones of the first regions in which there is a choice of them, and what spot machines cost there.
pub fn zones(cloud: &RentedCloud, catalog: &Catalog, offers: &[Offer], printer: &mut Printer) -> Zones {
    let choices = offers.iter().filter_map(|offer| offer.kind.parse::<MachineChoice>().ok());
    let mut regions: Vec<String> = Vec::new();
    for choice in choices.filter(|choice| choice.zone.is_none()) {
        if !regions.contains(&choice.region) && regions.len() < ZONED_REGIONS {
            regions.push(choice.region);
        }
    }
    let answers: Vec<RegionAnswer> = std::thread::scope(|scope| {
        let ask = |region: &String| {
            let (region, types) = (region.clone(), spot_types(offers, region));
            scope.spawn(move || (cloud.zones(&region), cloud.spot_prices(&region, &types)))
        };
        let threads: Vec<_> = regions.iter().map(ask).collect();
        let lost = |_| (Err("it could not be asked".to_owned()), Ok(BTreeMap::new()));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(lost)).collect()
    });
    let mut found = Zones::default();
    for (region, (zones, prices)) in regions.into_iter().zip(answers) {
        match prices {
            Ok(prices) => found.rates.extend(rates(cloud, catalog, offers, (&region, &prices))),
            Err(why) => printer.say(format!("note: spot prices in the zones of `{region}` are not known: {why}")),
        }
        match zones {
            Ok(zones) => drop(found.of_regions.insert(region, zones)),
            Err(why) => printer.say(format!("note: the zones of `{region}` are not known: {why}")),
        }
    }
    found
}

/// The zones of a region, and prices by machine type and zone.
type RegionAnswer = (Result<Vec<String>, String>, Result<BTreeMap<(String, String), Rate>, String>);

/// The types of the spot machines that are offered in a region.
fn spot_types(offers: &[Offer], region: &str) -> Vec<String> {
    let choices = offers.iter().filter_map(|offer| offer.kind.parse::<MachineChoice>().ok());
    let there = choices.filter(|choice| choice.is_spot && choice.region == region);
    there.map(|choice| choice.machine).collect::<BTreeSet<String>>().into_iter().collect()
}

/// What each offer of a region costs in each zone, with its disk.
fn rates(
    cloud: &RentedCloud,
    catalog: &Catalog,
    offers: &[Offer],
    (region, prices): (&str, &BTreeMap<(String, String), Rate>),
) -> Vec<(String, Rate)> {
    let mut rates = Vec::new();
    for offer in offers {
        let Ok(choice) = offer.kind.parse::<MachineChoice>() else { continue };
        if !choice.is_spot || choice.region != region {
            continue;
        }
        let disk = cloud.disk_rate(catalog, offer).micros_per_hour();
        for ((_, zone), price) in prices.iter().filter(|((machine, _), _)| *machine == choice.machine) {
            let kind = MachineChoice { zone: Some(zone.clone()), ..choice.clone() }.to_string();
            rates.push((kind, Rate::from_micros_per_hour(price.micros_per_hour().saturating_add(disk))));
        }
    }
    rates
}

#[cfg(test)]
mod tests {
    use domain::Node;

    use super::*;

    #[test]
    fn a_zone_that_costs_more_than_the_cheapest_is_offered_at_its_own_price() {
        let offer = Offer {
            provider: "aws".into(),
            kind: "us-east-1/p5.48xlarge/spot".into(),
            node: Node::default(),
            rate: "20/h".parse().unwrap(),
            price_source: "EC2".into(),
        };
        let named = ["us-east-1a", "us-east-1b", "us-east-1c"].map(str::to_owned);
        let rates =
            [("us-east-1/us-east-1b/p5.48xlarge/spot", "23.5/h"), ("us-east-1/us-east-1c/p5.48xlarge/spot", "1/h")];
        let zones = Zones {
            of_regions: [("us-east-1".to_owned(), named.to_vec())].into(),
            rates: rates.into_iter().map(|(kind, rate)| (kind.to_owned(), rate.parse().unwrap())).collect(),
        };
        let split = zones.split(&offer);
        let shown: Vec<String> = split.iter().map(|offer| format!("{} {}", offer.kind, offer.rate)).collect();
        assert_eq!(
            shown,
            [
                "us-east-1/us-east-1a/p5.48xlarge/spot $20.00/h",
                "us-east-1/us-east-1b/p5.48xlarge/spot $23.50/h",
                "us-east-1/us-east-1c/p5.48xlarge/spot $20.00/h",
            ]
        );
        assert!(split[1].price_source.starts_with("EC2; in `us-east-1b`"), "{}", split[1].price_source);
        assert_eq!(Zones::default().split(&offer), []);
    }
}
