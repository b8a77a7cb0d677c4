//! What can be rented of AWS, from the catalog: on demand and spot, in every region.

use domain::accelerators::Accelerators;
use domain::listing::{Cloud, Listing, Price};
use domain::terms::{Availability, PurchaseOption};
use domain::wants::{Spot, Wants};
use domain::{Bytes, Node, Offer};

use super::NAME;
use super::order::MachineChoice;
use crate::catalog::Catalog;
use crate::catalog::wanted::Wanted;

/// Disk that a machine gets for its work, unless the job asks for more.
const DISK: Bytes = Bytes(100 << 30);

/// Families whose processors do not run our executables, which are for x86-64.
const ARM: [&str; 1] = ["g5g."];

/// Everything that the catalog lists of AWS and that gradus can rent for a job that wants this, the cheapest first. Spot
/// machines only for a job that wants nothing else: where there are none, it waits.
pub fn offers(catalog: &Catalog, wants: &Wants) -> Vec<Offer> {
    let listed = catalog.listings.iter().filter(|listing| listing.cloud == Cloud::Aws);
    let mut offers: Vec<Offer> = listed
        .filter(|listing| !ARM.iter().any(|family| listing.instance_type.starts_with(family)))
        .filter(|listing| is_wanted(catalog, listing, wants))
        .filter_map(|listing| {
            let (option, price) = match wants.spot {
                Spot::Only => (PurchaseOption::Spot, &listing.spot),
                Spot::Auto | Spot::Never => (PurchaseOption::OnDemand, &listing.on_demand),
            };
            let is_there = catalog.availability(listing, option) == Availability::Known;
            let price = price.as_ref().filter(|price| wants.max_price.is_none_or(|most| price.rate <= most));
            price.filter(|_| is_there).and_then(|price| offer(listing, price, wants))
        })
        .collect();
    offers.sort_by(|one, other| (one.rate, &one.kind).cmp(&(other.rate, &other.kind)));
    offers
}

fn is_wanted(catalog: &Catalog, listing: &Listing, wants: &Wants) -> bool {
    let of = |gpu: Option<Accelerators>| Wanted {
        gpu,
        regions: wants.regions.clone(),
        compliance: wants.compliance.clone(),
        ..Wanted::default()
    };
    let is_type = wants.instance_type.as_ref().is_none_or(|wanted| *wanted == listing.instance_type);
    let has_gpus = match &wants.accelerators[..] {
        [] => of(None).admits(catalog, listing),
        several => several.iter().any(|gpu| of(Some(gpu.clone())).admits(catalog, listing)),
    };
    is_type && has_gpus
}

fn offer(listing: &Listing, price: &Price, wants: &Wants) -> Option<Offer> {
    let choice = MachineChoice {
        region: listing.region.clone(),
        zone: wants.zone.clone(),
        machine: listing.instance_type.clone(),
        is_spot: wants.spot == Spot::Only,
    };
    let node =
        Node { cpu: listing.instance_type.clone(), cores: listing.cores?, memory: listing.memory?, disk_free: DISK };
    let price_source = format!("{}, {}", price.source, price.dated);
    Some(Offer { provider: NAME.into(), kind: choice.to_string(), node, rate: price.rate, price_source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(wants: Wants) -> Vec<String> {
        offers(&Catalog::embedded().unwrap(), &wants).into_iter().map(|offer| offer.kind).collect()
    }

    #[test]
    fn the_catalog_s_machines_are_offered_as_they_are_wanted() {
        let all = kinds(Wants::default());
        assert!(all.iter().any(|kind| kind == "us-east-1/g4dn.xlarge"), "{all:?}");
        assert!(!all.iter().any(|kind| kind.contains("g5g.") || kind.ends_with("/spot")));
        let accelerators: Vec<Accelerators> = vec!["T4:1".parse().unwrap()];
        let one = Wants { accelerators, regions: vec!["us-east-1".into()], spot: Spot::Only, ..Wants::default() };
        let spot = kinds(one.clone());
        assert!(spot[0].starts_with("us-east-1/g4dn.") && spot.iter().all(|kind| kind.ends_with("/spot")), "{spot:?}");
        let zone = Wants { zone: Some("us-east-1a".into()), ..one };
        assert!(kinds(zone)[0].starts_with("us-east-1/us-east-1a/g4dn."));
        let cheap = Wants { max_price: Some("0.01/h".parse().unwrap()), ..Wants::default() };
        assert_eq!(kinds(cheap), Vec::<String>::new());
        let named = Wants { instance_type: Some("p4d.24xlarge".into()), ..Wants::default() };
        assert!(kinds(named).iter().all(|kind| kind.ends_with("/p4d.24xlarge")));
    }
}
