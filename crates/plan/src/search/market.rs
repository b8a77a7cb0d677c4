//! The market: listings grouped by what estimates depend on, so that each kind of hardware is estimated once.

use domain::gpu::Gpu;
use domain::listing::{Listing, Price};
use domain::region::Region;
use domain::tariff::{Service, Tariff};
use domain::{Money, Rate};
use serde::Serialize;

use crate::estimate::Device;

/// How a machine is paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Terms {
    OnDemand,
    /// The cloud may take it back.
    Spot,
    /// Shared with no other customer.
    Dedicated,
}

impl Terms {
    pub const ALL: [Terms; 3] = [Terms::OnDemand, Terms::Spot, Terms::Dedicated];

    /// The price of a listing under these terms.
    pub fn price(self, listing: &Listing) -> Option<&Price> {
        match self {
            Terms::OnDemand => listing.on_demand.as_ref(),
            Terms::Spot => listing.spot.as_ref(),
            Terms::Dedicated => listing.dedicated.as_ref(),
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Terms::OnDemand => "on demand",
            Terms::Spot => "spot",
            Terms::Dedicated => "dedicated",
        }
    }
}

/// One kind of machine, as far as estimates can tell: the same GPUs, as many, linked and networked alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// Of one machine.
    pub device: Device,
    /// Whether another shape is the same but for the network, so that one machine of either is estimated once: the
    /// first of them.
    pub alone: usize,
}

/// One listing whose GPUs are known.
#[derive(Debug, Clone)]
pub struct Good<'a> {
    pub listing: &'a Listing,
    /// Index of its shape.
    pub shape: usize,
    pub region: Option<&'a Region>,
    pub tariffs: Tariffs,
}

/// What bytes cost beside a machine; none where it is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tariffs {
    pub ssd: Option<Money>,
    pub plain: Option<Money>,
    pub objects: Option<Money>,
    pub egress: Option<Money>,
    pub cross_region: Option<Money>,
}

/// Everything that is offered.
#[derive(Debug, Clone, Default)]
pub struct Market<'a> {
    pub shapes: Vec<Shape>,
    pub goods: Vec<Good<'a>>,
    /// Listings whose GPUs are not known, or are parts of one.
    pub unknown: Vec<&'a Listing>,
}

impl<'a> Market<'a> {
    /// Groups listings. `gpu` knows the GPU of a name, `region` the region of a listing.
    pub fn of(
        listings: &'a [Listing],
        gpu: impl Fn(&str) -> Option<&'a Gpu>,
        region: impl Fn(&Listing) -> Option<&'a Region>,
        tariffs: &[Tariff],
    ) -> Market<'a> {
        let mut market = Market::default();
        // Listings of one type stand together, so the last shape is usually the one.
        let mut clouds: Vec<(&domain::listing::Cloud, Tariffs)> = Vec::new();
        for listing in listings {
            let known = listing.gpus.name.as_deref().and_then(&gpu);
            let (Some(gpu), true) = (known, listing.gpus.count > 0 && listing.gpus.slice == 1) else {
                market.unknown.push(listing);
                continue;
            };
            let position = market.shapes.iter().rposition(|shape| shape.is(listing, gpu));
            let shape = position.unwrap_or_else(|| {
                let link = listing.link.unwrap_or(gpu.link);
                let device = Device {
                    gpu: Gpu { link, ..gpu.clone() },
                    nodes: 1,
                    gpus_per_node: listing.gpus.count,
                    network: listing.network,
                };
                let alike = |shape: &Shape| {
                    shape.device.gpu == device.gpu && shape.device.gpus_per_node == device.gpus_per_node
                };
                let alone = market.shapes.iter().position(alike).unwrap_or(market.shapes.len());
                market.shapes.push(Shape { device, alone });
                market.shapes.len() - 1
            });
            let known = clouds.iter().find(|(cloud, _)| **cloud == listing.cloud).map(|(_, tariffs)| *tariffs);
            let tariffs = known.unwrap_or_else(|| {
                let found = Tariffs::of(tariffs, listing);
                clouds.push((&listing.cloud, found));
                found
            });
            market.goods.push(Good { listing, shape, region: region(listing), tariffs });
        }
        market
    }
}

impl Shape {
    fn is(&self, listing: &Listing, gpu: &Gpu) -> bool {
        self.device.gpus_per_node == listing.gpus.count
            && self.device.network == listing.network
            && self.device.gpu.name == gpu.name
            && self.device.gpu.link == listing.link.unwrap_or(gpu.link)
    }
}

impl Tariffs {
    fn of(tariffs: &[Tariff], listing: &Listing) -> Tariffs {
        let price = |service: Service| {
            tariffs.iter().find(|one| one.cloud == listing.cloud && one.service == service).map(|one| one.price)
        };
        Tariffs {
            ssd: price(Service::SsdDisk),
            plain: price(Service::PlainDisk),
            objects: price(Service::Objects),
            egress: price(Service::Egress),
            cross_region: price(Service::CrossRegion),
        }
    }
}

impl Good<'_> {
    /// Price of the machine under these terms.
    pub fn rate(&self, terms: Terms) -> Option<Rate> {
        terms.price(self.listing).map(|price| price.rate)
    }
}
