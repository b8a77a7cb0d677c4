//! What resources cost, by the tariffs of the catalog. A price that is not known is said to be unknown, and is never zero.

use domain::listing::Cloud;
use domain::tariff::Service;
use domain::volume::{Volume, VolumeKind};
use domain::{Money, Rate};

use super::resource::{CloudResource, ResourceKind, ResourceUse};
use crate::catalog::Catalog;
use crate::rented::offers::{hourly, storage_rate};

/// What a resource costs per hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResourcePrice {
    Free,
    PerHour(Rate),
    /// What is billed depends on what the cloud does not list, such as how much of a disk a snapshot holds.
    AtMost(Rate),
    Unknown,
}

impl ResourcePrice {
    /// What counts in a sum; none where it is not known.
    pub fn rate(self) -> Option<Rate> {
        match self {
            ResourcePrice::Free => Some(Rate::default()),
            ResourcePrice::PerHour(rate) | ResourcePrice::AtMost(rate) => Some(rate),
            ResourcePrice::Unknown => None,
        }
    }
}

impl std::fmt::Display for ResourcePrice {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ResourcePrice::Free => formatter.write_str("free"),
            ResourcePrice::PerHour(rate) => write!(formatter, "{rate}"),
            ResourcePrice::AtMost(rate) => write!(formatter, "at most {rate}"),
            ResourcePrice::Unknown => formatter.write_str("unknown"),
        }
    }
}

/// Types of disks whose tariffs the catalog has, beside those of AWS whose speed is paid for by itself.
const SSD_DISKS: [&str; 2] = ["pd-ssd", "Premium_LRS"];
const PLAIN_DISKS: [&str; 3] = ["st1", "pd-standard", "Standard_LRS"];

/// Up to so many IOPS of io2 have the price that the catalog has; AWS bills less for each one beyond them.
const IO2_IOPS: u32 = 32_000;

/// The volume that a disk is, where its speed is paid for by itself.
fn volume(cloud: &Cloud, disk: &CloudResource) -> Option<Volume> {
    match (cloud, disk.tier.as_str()) {
        (Cloud::Aws, "gp3") => Some(Volume {
            iops: disk.iops.unwrap_or(Volume::BASE.iops),
            throughput: disk.throughput.unwrap_or(Volume::BASE.throughput),
            ..Volume::BASE
        }),
        (Cloud::Aws, "io2") => Some(Volume { kind: VolumeKind::Io2, iops: disk.iops?, throughput: 0 }),
        _ => None,
    }
}

/// What a volume costs; none where any part of it has no tariff.
fn volume_rate(volume: Volume, gib: u64, tariff: &impl Fn(Service) -> Option<Money>) -> Option<Rate> {
    let mut parts = volume.parts(gib).into_iter().filter(|(_, count)| *count > 0);
    parts.all(|(service, _)| tariff(service).is_some()).then(|| hourly(volume.month(gib, tariff)))
}

/// What a resource costs.
pub fn price(catalog: &Catalog, cloud: &Cloud, resource: &CloudResource) -> ResourcePrice {
    let tariff = |service| catalog.tariff(cloud, Some(&resource.region), service).map(|tariff| tariff.price);
    let stored = |service| Some(storage_rate(tariff(service)?, resource.gib?));
    let tier = resource.tier.as_str();
    let (rate, is_bound) = match resource.kind {
        ResourceKind::Interface | ResourceKind::SecurityGroup | ResourceKind::KeyPair => return ResourcePrice::Free,
        // The snapshots that it is made of are listed by themselves.
        ResourceKind::Image if *cloud == Cloud::Aws => return ResourcePrice::Free,
        ResourceKind::Image => (None, false),
        ResourceKind::Address if tier == "INTERNAL" => return ResourcePrice::Free,
        // Google bills less for one that something has.
        ResourceKind::Address => {
            let rate = tariff(Service::Address).map(|price| Rate::from_micros_per_hour(price.micros()));
            (rate, *cloud == Cloud::Gcp && resource.used != ResourceUse::Nothing)
        }
        ResourceKind::Disk => match volume(cloud, resource) {
            Some(volume) => {
                let rate = resource.gib.and_then(|gib| volume_rate(volume, gib, &tariff));
                (rate, volume.kind == VolumeKind::Io2 && volume.iops > IO2_IOPS)
            }
            None if SSD_DISKS.contains(&tier) => (stored(Service::SsdDisk), false),
            None if PLAIN_DISKS.contains(&tier) => (stored(Service::PlainDisk), false),
            None => (None, false),
        },
        // Only blocks that no snapshot before it has are billed.
        ResourceKind::Snapshot => (stored(Service::Snapshot), true),
    };
    match (rate, is_bound) {
        (Some(rate), true) => ResourcePrice::AtMost(rate),
        (Some(rate), false) => ResourcePrice::PerHour(rate),
        (None, _) => ResourcePrice::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::ResourceKind::{Address, Disk, Image, Interface, KeyPair, SecurityGroup, Snapshot};
    use super::*;

    #[test]
    fn a_price_is_that_of_the_tariff_or_unknown_and_never_zero_in_silence() {
        let catalog = Catalog::embedded().unwrap();
        let check = |cloud: &Cloud, kind, (region, tier, gib): (&str, &str, Option<u64>), expected: &str| {
            let resource = CloudResource { tier: tier.to_owned(), gib, ..CloudResource::new(kind, "h", region) };
            assert_eq!(price(&catalog, cloud, &resource).to_string(), expected, "{cloud} {kind:?} {region} {tier}");
        };
        // 140 GiB at $0.08 a month are $11.20, in 730 hours.
        check(&Cloud::Aws, Disk, ("us-east-1", "gp3", Some(140)), "$0.015343/h");
        check(&Cloud::Aws, Disk, ("sa-east-1", "gp3", Some(140)), "$0.029151/h");
        check(&Cloud::Aws, Disk, ("us-east-1", "st1", Some(500)), "$0.030822/h");
        // Its IOPS are most of its price, and not known.
        check(&Cloud::Aws, Disk, ("us-east-1", "io2", Some(140)), "unknown");
        check(&Cloud::Aws, Disk, ("us-east-1", "gp3", None), "unknown");
        check(&Cloud::Aws, Address, ("us-east-1", "vpc", None), "$0.005/h");
        check(&Cloud::Aws, Snapshot, ("us-east-1", "", Some(10)), "at most $0.000685/h");
        check(&Cloud::Aws, Image, ("us-east-1", "", None), "free");
        for kind in [Interface, SecurityGroup, KeyPair] {
            check(&Cloud::Aws, kind, ("us-east-1", "", None), "free");
        }
        check(&Cloud::Gcp, Disk, ("us-central1", "pd-balanced", Some(10)), "unknown");
        check(&Cloud::Gcp, Address, ("us-central1", "EXTERNAL", None), "$0.01/h");
        check(&Cloud::Gcp, Address, ("us-central1", "INTERNAL", None), "free");
        check(&Cloud::Gcp, Image, ("global", "", None), "unknown");
        check(&Cloud::Azure, Disk, ("northeurope", "Premium_LRS", Some(256)), "$0.046292/h");
        for kind in [Disk, Address, Snapshot] {
            check(&Cloud::Alibaba, kind, ("cn-hangzhou", "cloud_essd", Some(200)), "unknown");
        }
    }

    #[test]
    fn the_provisioned_speed_of_a_disk_is_a_part_of_its_price() {
        let catalog = Catalog::embedded().unwrap();
        let check = |(region, tier): (&str, &str), iops: Option<u32>, throughput: Option<u32>, expected: &str| {
            let (tier, gib) = (tier.to_owned(), Some(140));
            let disk = CloudResource { tier, gib, iops, throughput, ..CloudResource::new(Disk, "vol-1", region) };
            assert_eq!(price(&catalog, &Cloud::Aws, &disk).to_string(), expected, "{disk:?}");
        };
        check(("us-east-1", "gp3"), Some(3_000), Some(125), "$0.015343/h");
        // 4,000 IOPS at $0.005 and 312 MiB/s at $0.04 a month more, as it was rented.
        check(("us-east-1", "gp3"), Some(7_000), Some(437), "$0.059836/h");
        // 140 GiB at $0.125 and 20,000 IOPS at $0.065 a month.
        check(("us-east-1", "io2"), Some(20_000), None, "$1.804795/h");
        check(("us-east-1", "io2"), Some(40_000), None, "at most $3.585617/h");
        check(("sa-east-1", "io2"), Some(20_000), None, "unknown");
    }

    #[test]
    fn google_bills_less_for_an_address_that_something_has() {
        let catalog = Catalog::embedded().unwrap();
        let address = CloudResource {
            tier: "EXTERNAL".to_owned(),
            used: ResourceUse::HeldBy("m".to_owned()),
            ..CloudResource::new(ResourceKind::Address, "a", "us-central1")
        };
        assert_eq!(price(&catalog, &Cloud::Gcp, &address).to_string(), "at most $0.01/h");
    }

    #[test]
    fn what_is_unknown_does_not_count_as_nothing() {
        let rate = Rate::from_micros_per_hour(5);
        assert_eq!(ResourcePrice::Unknown.rate(), None);
        assert_eq!(ResourcePrice::Free.rate(), Some(Rate::default()));
        assert_eq!((ResourcePrice::PerHour(rate).rate(), ResourcePrice::AtMost(rate).rate()), (Some(rate), Some(rate)));
    }
}
