//! Tariffs: a cloud's prices besides those of machines, for storage and egress.

use serde::{Deserialize, Serialize};

use crate::listing::Cloud;
use crate::money::Money;

/// One price of one cloud, in its least expensive public step for a region of the United States.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tariff {
    pub cloud: Cloud,
    pub service: Service,
    /// Per GiB: of traffic, or stored for a month.
    pub price: Money,
    /// The date, as precisely as it is known.
    pub dated: String,
    /// The source, and whether it was confirmed there.
    pub source: String,
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
    /// To the internet: a GiB.
    Egress,
    /// To another region of the same cloud on the same continent: a GiB.
    CrossRegion,
}

impl Service {
    /// Every service there is.
    pub const ALL: [Service; 6] = [
        Service::SsdDisk,
        Service::PlainDisk,
        Service::Objects,
        Service::Snapshot,
        Service::Egress,
        Service::CrossRegion,
    ];

    /// Its name in the catalog.
    pub fn word(self) -> &'static str {
        match self {
            Service::SsdDisk => "ssd_disk",
            Service::PlainDisk => "plain_disk",
            Service::Objects => "objects",
            Service::Snapshot => "snapshot",
            Service::Egress => "egress",
            Service::CrossRegion => "cross_region",
        }
    }
}
