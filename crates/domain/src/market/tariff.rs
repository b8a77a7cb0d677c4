//! Tariffs: a cloud's prices besides those of machines, for storage and egress.

use serde::{Deserialize, Serialize};

use crate::listing::Cloud;
use crate::money::Money;

/// One price of one cloud, in its least expensive public step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tariff {
    pub cloud: Cloud,
    /// The region it holds for; `None` for those of the cloud that have no price of their own: then it is that of the United
    /// States.
    #[serde(default)]
    pub region: Option<String>,
    pub service: Service,
    /// Per GiB: of traffic, or stored for a month; of provisioned speed per IOPS or MiB/s and month; of an address per hour.
    pub price: Money,
    /// The date, as precisely as it is known.
    pub dated: String,
    /// The source, and whether it was confirmed there.
    pub source: String,
}

impl Tariff {
    /// The tariff of a cloud for a service in a region: the region's own, or else the cloud's; `None` if neither is known,
    /// which does not mean free.
    pub fn of<'a>(tariffs: &'a [Tariff], cloud: &Cloud, region: Option<&str>, service: Service) -> Option<&'a Tariff> {
        let mut of_cloud = None;
        for tariff in tariffs.iter().filter(|one| one.service == service && one.cloud == *cloud) {
            match tariff.region.as_deref() {
                None => of_cloud = of_cloud.or(Some(tariff)),
                own if own == region => return Some(tariff),
                Some(_) => {}
            }
        }
        of_cloud
    }

    /// The highest price of a service that is known anywhere: the bound where a cloud's own is not.
    pub fn dearest(tariffs: &[Tariff], service: Service) -> Option<Money> {
        tariffs.iter().filter(|one| one.service == service).map(|one| one.price).max()
    }
}

/// The service that is paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Service {
    /// A network disk on solid state: a GiB and month.
    SsdDisk,
    /// A network disk with rotating media: per GiB and month.
    PlainDisk,
    /// Objects in a bucket: a GiB and month.
    Objects,
    /// A copy of a disk: a GiB and month.
    Snapshot,
    /// A reserved public address: an hour.
    Address,
    /// To the internet: a GiB.
    Egress,
    /// To another region of the same cloud on the same continent: a GiB.
    CrossRegion,
    /// Speed of a network disk on solid state beyond its base: per IOPS and month.
    SsdIops,
    /// The same: per MiB/s and month.
    SsdThroughput,
    /// A network disk that is paid for by its IOPS, of AWS: a GiB and month.
    Io2Disk,
    /// Its speed: per IOPS and month, at the price of the first 32,000.
    Io2Iops,
}

impl Service {
    /// Every service there is.
    pub const ALL: [Service; 11] = [
        Service::SsdDisk,
        Service::PlainDisk,
        Service::Objects,
        Service::Snapshot,
        Service::Address,
        Service::Egress,
        Service::CrossRegion,
        Service::SsdIops,
        Service::SsdThroughput,
        Service::Io2Disk,
        Service::Io2Iops,
    ];

    /// Its name in the catalog.
    pub fn word(self) -> &'static str {
        match self {
            Service::SsdDisk => "ssd_disk",
            Service::PlainDisk => "plain_disk",
            Service::Objects => "objects",
            Service::Snapshot => "snapshot",
            Service::Address => "address",
            Service::Egress => "egress",
            Service::CrossRegion => "cross_region",
            Service::SsdIops => "ssd_iops",
            Service::SsdThroughput => "ssd_throughput",
            Service::Io2Disk => "io2_disk",
            Service::Io2Iops => "io2_iops",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tariff(cloud: Cloud, region: Option<&str>, micros: i64) -> Tariff {
        Tariff {
            cloud,
            region: region.map(str::to_owned),
            service: Service::Objects,
            price: Money::from_micros(micros),
            dated: "2026".into(),
            source: "drawn".into(),
        }
    }

    #[test]
    fn a_region_has_its_own_price_or_that_of_its_cloud() {
        let tariffs = [
            tariff(Cloud::Gcp, Some("europe-west4"), 25_000),
            tariff(Cloud::Gcp, None, 20_000),
            tariff(Cloud::Aws, Some("sa-east-1"), 40_000),
        ];
        let check = |cloud: Cloud, region: Option<&str>, micros: Option<i64>| {
            let found = Tariff::of(&tariffs, &cloud, region, Service::Objects).map(|tariff| tariff.price.micros());
            assert_eq!(found, micros, "{cloud} {region:?}");
        };
        check(Cloud::Gcp, Some("europe-west4"), Some(25_000));
        check(Cloud::Gcp, Some("us-central1"), Some(20_000));
        check(Cloud::Gcp, None, Some(20_000));
        check(Cloud::Aws, Some("sa-east-1"), Some(40_000));
        // What another region pays is no price here, and neither is another cloud's.
        check(Cloud::Aws, Some("us-east-1"), None);
        check(Cloud::Aws, None, None);
        check(Cloud::Azure, Some("europe-west4"), None);
        assert_eq!(Tariff::dearest(&tariffs, Service::Objects), Some(Money::from_micros(40_000)));
        assert_eq!(Tariff::dearest(&tariffs, Service::Egress), None);
    }
}
