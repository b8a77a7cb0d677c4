//! What of the catalog can be rented of a cloud.

use domain::accelerators::Accelerators;
use domain::listing::{Cloud, Listing};
use domain::tariff::{Service, Tariff};
use domain::terms::{Availability, PurchaseOption, is_distrusted};
pub(crate) use domain::volume::hourly;
use domain::wants::{Spot, Wants};
use domain::{Bytes, Money, Node, Offer, Rate};

use super::MachineChoice;
use crate::catalog::Catalog;
use crate::catalog::wanted::Wanted;

/// What of a cloud is listed.
#[derive(Debug, Clone)]
pub struct Listable<'a> {
    pub cloud: Cloud,
    /// The provider's name.
    pub provider: &'static str,
    /// Disk for work that a machine has, unless the job asks for more.
    pub disk: Bytes,
    /// Beginnings of types that are not rented, because their processors do not run our executables.
    pub leaves_out: &'a [&'a str],
    /// Whether somebody must have said that a machine can be had there, and not only what it costs.
    pub is_confirmed: bool,
}

/// Everything that the catalog lists of a cloud and that gradus can rent for a job that wants this, the cheapest first. Spot
/// machines too, unless the job wants none: it is the plan that chooses.
pub fn offers(catalog: &Catalog, wants: &Wants, lists: &Listable<'_>) -> Vec<Offer> {
    let options: &[PurchaseOption] = match wants.spot {
        Spot::Only => &[PurchaseOption::Spot],
        Spot::Auto => &[PurchaseOption::Spot, PurchaseOption::OnDemand],
        Spot::Never => &[PurchaseOption::OnDemand],
    };
    let is_runnable = |listing: &&Listing| {
        listing.cloud == lists.cloud && !lists.leaves_out.iter().any(|left| listing.instance_type.starts_with(left))
    };
    let listed = catalog.listings.iter().filter(is_runnable).filter(|listing| is_wanted(catalog, listing, wants));
    let priced = listed.flat_map(|listing| options.iter().map(move |option| (listing, *option)));
    let mut offers: Vec<Offer> = priced
        .filter(|(listing, option)| {
            let availability = catalog.availability(listing, *option);
            let is_there = match availability {
                Availability::Known => true,
                Availability::Denied => false,
                Availability::Unknown => !lists.is_confirmed,
            };
            // What no plan trusts is not rented either.
            is_there && !(*option == PurchaseOption::Spot && is_distrusted(listing, availability))
        })
        .filter_map(|(listing, option)| offer(listing, option, wants, lists))
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

fn offer(listing: &Listing, option: PurchaseOption, wants: &Wants, lists: &Listable<'_>) -> Option<Offer> {
    let price = option.price(listing)?;
    if wants.max_price.is_some_and(|most| price.rate > most) {
        return None;
    }
    let choice = MachineChoice {
        region: listing.region.clone(),
        zone: wants.zone.clone(),
        machine: listing.instance_type.clone(),
        is_spot: option == PurchaseOption::Spot,
    };
    let (cores, memory) = (listing.cores?, listing.memory?);
    let node = Node { cpu: listing.instance_type.clone(), cores, memory, disk_free: lists.disk, volume: None };
    let price_source = format!("{}, {}", price.source, price.dated);
    Some(Offer { provider: lists.provider.into(), kind: choice.to_string(), node, rate: price.rate, price_source })
}

/// The same offer with at least so much disk, and with the price of `gib` gibibytes of it in its rate.
pub fn with_disk(
    catalog: &Catalog,
    cloud: &Cloud,
    offer: Offer,
    needed: Option<Bytes>,
    gib: fn(Bytes) -> u64,
) -> Offer {
    let disk = needed.map_or(offer.node.disk_free, |needed| Bytes(offer.node.disk_free.0.max(needed.0)));
    let gib = gib(disk);
    let choice = offer.kind.parse::<MachineChoice>().ok();
    let rate = disk_rate(catalog, cloud, choice.as_ref().map(|choice| choice.region.as_str()), gib);
    let node = Node { disk_free: disk, ..offer.node.clone() };
    priced(offer, node, rate, &format!("a disk of {gib} GiB"))
}

/// The same offer of a machine with such a disk, and with the price of the disk in its rate.
pub(crate) fn priced(offer: Offer, node: Node, rate: Rate, disk: &str) -> Offer {
    Offer {
        rate: Rate::from_micros_per_hour(offer.rate.micros_per_hour().saturating_add(rate.micros_per_hour())),
        price_source: format!("{}; of it {rate} for {disk}", offer.price_source),
        node,
        ..offer
    }
}

/// What a disk costs in a region, rounded up: at the dearest price that is known where the cloud's own is not.
pub fn disk_rate(catalog: &Catalog, cloud: &Cloud, region: Option<&str>, gib: u64) -> Rate {
    storage_rate(price(catalog, cloud, region, Service::SsdDisk).unwrap_or_default(), gib)
}

/// What so many gibibytes cost per hour at a price per GiB and month, rounded up.
pub(crate) fn storage_rate(price: Money, gib: u64) -> Rate {
    hourly(Money::from_micros(i64::try_from(gib).unwrap_or(i64::MAX).saturating_mul(price.micros())))
}

/// The price of a service in a region, or the dearest that is known where the cloud's own is not.
pub(crate) fn price(catalog: &Catalog, cloud: &Cloud, region: Option<&str>, service: Service) -> Option<Money> {
    let known = catalog.tariff(cloud, region, service).map(|tariff| tariff.price);
    known.or_else(|| Tariff::dearest(&catalog.tariffs, service))
}
