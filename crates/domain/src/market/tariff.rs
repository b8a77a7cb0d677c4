//! Tariffs: what a cloud charges beside its machines, for bytes that are kept and bytes that leave.

use serde::{Deserialize, Serialize};

use crate::listing::Cloud;
use crate::money::Money;

/// One price of one cloud, in its least expensive public step for a region of the United States.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tariff {
    pub cloud: Cloud,
    pub service: Service,
    /// For a GiB: of traffic, or kept for a month.
    pub price: Money,
    /// As much of the day as is known.
    pub dated: String,
    /// Where it was read, and whether it was confirmed there.
    pub source: String,
}

/// What is paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Service {
    /// A network disk on solid state: a GiB and month.
    SsdDisk,
    /// A network disk that turns: a GiB and month.
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

    /// Its word in the catalog.
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
