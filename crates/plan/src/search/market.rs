//! The market: listings grouped by the hardware that estimates depend on, so that each kind is estimated once.

use std::collections::BTreeMap;

use domain::gpu::Gpu;
use domain::listing::{Cloud, Listing};
use domain::region::Region;
use domain::tariff::{Service, Tariff};
use domain::{Money, Rate};

pub use domain::terms::{Availability, PurchaseOption};

use super::assumed;
use crate::estimate::Device;

/// One kind of machine as far as estimates are concerned: same GPUs, number, links and network.
#[derive(Debug, Clone, PartialEq)]
pub struct HardwareConfig {
    /// Of one machine.
    pub device: Device,
    /// The index of the first kind that differs only in the network, so that a single machine of either is estimated
    /// once.
    pub alone: usize,
}

/// One listing with known GPUs.
#[derive(Debug, Clone)]
pub struct PricedListing<'a> {
    pub listing: &'a Listing,
    /// Index of its hardware.
    pub hardware: usize,
    pub region: Option<&'a Region>,
    pub tariffs: Tariffs,
    /// Whether the cloud has such machines there, under each of [`PurchaseOption::ALL`].
    pub availability: [Availability; PurchaseOption::ALL.len()],
    /// Delays of a run before its processes start.
    pub arrival: Arrival,
}

/// Delays of a run before its processes start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrival {
    /// Seconds from asking for a machine to its first command.
    pub boot: f64,
    /// Bytes per second at which it fetches its data.
    pub fetch: f64,
}

impl Arrival {
    /// Of a machine that runs already and has its data.
    pub const HERE: Arrival = Arrival { boot: 0.0, fetch: f64::INFINITY };

    /// Of a cloud's machine with a network of so many bits per second.
    fn in_cloud(network: Option<f64>) -> Arrival {
        let fetch = network.map_or(assumed::FETCH, |bits| (bits / 8.0).min(assumed::FETCH));
        Arrival { boot: assumed::BOOT, fetch }
    }
}

/// Prices of storage and egress in a region. If a tariff is unknown, the highest that is known anywhere is used; `None` if none is
/// known, or nothing is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tariffs {
    pub ssd: Option<Money>,
    pub plain: Option<Money>,
    pub objects: Option<Money>,
    pub egress: Option<Money>,
    pub cross_region: Option<Money>,
    /// Speed of a disk on solid state beyond its base, per IOPS and per MiB/s.
    pub ssd_iops: Option<Money>,
    pub ssd_throughput: Option<Money>,
    /// A disk that is paid for by its IOPS: per GiB and per IOPS.
    pub io2: Option<Money>,
    pub io2_iops: Option<Money>,
    /// Which of [`Service::ALL`] are not known, and bounded by the dearest of other clouds.
    pub bounded: [bool; Service::ALL.len()],
}

/// Everything that is offered.
#[derive(Debug, Clone, Default)]
pub struct MarketIndex<'a> {
    pub hardware: Vec<HardwareConfig>,
    pub listings: Vec<PricedListing<'a>>,
    /// Listings whose GPUs are unknown, or fractional.
    pub unknown: Vec<&'a Listing>,
}

impl<'a> MarketIndex<'a> {
    /// Groups listings. `gpu` resolves the name of a GPU, `region` the region of a listing, `availability` whether
    /// there are such machines under given terms.
    pub fn of(
        listings: &'a [Listing],
        gpu: impl Fn(&str) -> Option<&'a Gpu>,
        region: impl Fn(&Listing) -> Option<&'a Region>,
        availability: impl Fn(&Listing, PurchaseOption) -> Availability,
        tariffs: &[Tariff],
    ) -> MarketIndex<'a> {
        let mut market = MarketIndex::default();
        // Listings of one type stand together, so the last hardware is usually the one.
        let mut gpus: BTreeMap<&str, Option<&'a Gpu>> = BTreeMap::new();
        let mut places: BTreeMap<(&Cloud, &str), Tariffs> = BTreeMap::new();
        for listing in listings {
            let named = listing.gpus.name.as_deref();
            let known = named.and_then(|name| *gpus.entry(name).or_insert_with(|| gpu(name)));
            let (Some(gpu), true) = (known, listing.gpus.count > 0 && listing.gpus.slice == 1) else {
                market.unknown.push(listing);
                continue;
            };
            let position = market.hardware.iter().rposition(|hardware| hardware.is(listing, gpu));
            let hardware = position.unwrap_or_else(|| {
                let link = listing.link.unwrap_or(gpu.link);
                let device = Device {
                    gpu: Gpu { link, ..gpu.clone() },
                    nodes: 1,
                    gpus_per_node: listing.gpus.count,
                    network: listing.network,
                };
                let alike = |hardware: &HardwareConfig| {
                    hardware.device.gpu == device.gpu && hardware.device.gpus_per_node == device.gpus_per_node
                };
                let alone = market.hardware.iter().position(alike).unwrap_or(market.hardware.len());
                market.hardware.push(HardwareConfig { device, alone });
                market.hardware.len() - 1
            });
            let place = (&listing.cloud, listing.region.as_str());
            let tariffs = *places
                .entry(place)
                .or_insert_with(|| Tariffs::of(tariffs, &listing.cloud, Some(listing.region.as_str())));
            market.listings.push(PricedListing {
                listing,
                hardware,
                region: region(listing),
                tariffs,
                availability: PurchaseOption::ALL.map(|terms| availability(listing, terms)),
                arrival: Arrival::in_cloud(listing.network),
            });
        }
        market
    }

    /// The market of one machine that runs already, with each rank's share of it.
    pub fn here(listing: &'a Listing, device: Device) -> MarketIndex<'a> {
        let priced = PricedListing {
            listing,
            hardware: 0,
            region: None,
            tariffs: Tariffs::default(),
            availability: [Availability::Known; PurchaseOption::ALL.len()],
            arrival: Arrival::HERE,
        };
        MarketIndex { hardware: vec![HardwareConfig { device, alone: 0 }], listings: vec![priced], unknown: Vec::new() }
    }
}

impl HardwareConfig {
    fn is(&self, listing: &Listing, gpu: &Gpu) -> bool {
        self.device.gpus_per_node == listing.gpus.count
            && self.device.network == listing.network
            && self.device.gpu.name == gpu.name
            && self.device.gpu.link == listing.link.unwrap_or(gpu.link)
    }
}

impl Tariffs {
    /// The tariffs of a cloud in a region, or in any that has none of its own. The user's own machines have none.
    pub fn of(tariffs: &[Tariff], cloud: &Cloud, region: Option<&str>) -> Tariffs {
        if *cloud == Cloud::Own {
            return Tariffs::default();
        }
        let known = |service: Service| Tariff::of(tariffs, cloud, region, service).map(|one| one.price);
        let price = |service: Service| known(service).or_else(|| Tariff::dearest(tariffs, service));
        Tariffs {
            ssd: price(Service::SsdDisk),
            plain: price(Service::PlainDisk),
            objects: price(Service::Objects),
            egress: price(Service::Egress),
            cross_region: price(Service::CrossRegion),
            ssd_iops: price(Service::SsdIops),
            ssd_throughput: price(Service::SsdThroughput),
            io2: price(Service::Io2Disk),
            io2_iops: price(Service::Io2Iops),
            bounded: Service::ALL.map(|service| known(service).is_none()),
        }
    }

    /// Whether the cloud's own tariff of a service is not known.
    pub fn is_bounded(&self, service: Service) -> bool {
        Service::ALL.iter().position(|one| *one == service).is_some_and(|place| self.bounded[place])
    }

    /// The price of a service used for estimates.
    pub fn price(&self, service: Service) -> Option<Money> {
        match service {
            Service::SsdDisk => self.ssd,
            Service::PlainDisk => self.plain,
            Service::Objects => self.objects,
            Service::Egress => self.egress,
            Service::CrossRegion => self.cross_region,
            Service::SsdIops => self.ssd_iops,
            Service::SsdThroughput => self.ssd_throughput,
            Service::Io2Disk => self.io2,
            Service::Io2Iops => self.io2_iops,
            Service::Snapshot | Service::Address => None,
        }
    }
}

impl PricedListing<'_> {
    /// Whether there are not so many such machines.
    pub fn has_fewer_than(&self, nodes: u32) -> bool {
        self.listing.most_machines().is_some_and(|most| most < nodes)
    }

    /// Whether there are such machines under these terms.
    pub fn availability(&self, terms: PurchaseOption) -> Availability {
        let place = PurchaseOption::ALL.iter().position(|other| *other == terms);
        place.map_or(Availability::Unknown, |place| self.availability[place])
    }

    /// Price of the machine under these terms; `None` if it has no price or is not available.
    pub fn rate(&self, terms: PurchaseOption) -> Option<Rate> {
        match self.availability(terms) {
            Availability::Denied => None,
            Availability::Known | Availability::Unknown => terms.price(self.listing).map(|price| price.rate),
        }
    }
}
