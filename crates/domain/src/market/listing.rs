//! Listings: machines in a cloud's catalog with all their prices, each dated and with its source.

use serde::{Deserialize, Serialize};

use crate::gpu::Link;
use crate::money::Rate;
use crate::units::Bytes;

/// One instance type in one region. Unknown values are `None`, never zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listing {
    pub cloud: Cloud,
    pub region: String,
    /// The cloud's name of the machine, such as `p4d.24xlarge`.
    pub instance_type: String,
    pub gpus: Gpus,
    pub cores: Option<u32>,
    pub memory: Option<Bytes>,
    /// Local disk that comes with it.
    pub disk: Option<Bytes>,
    /// Network bandwidth in bits a second, all cards together.
    pub network: Option<f64>,
    /// The kind of that network.
    pub fabric: Fabric,
    /// The interconnect of its GPUs, if it differs from that of the kind of GPU.
    pub link: Option<Link>,
    pub on_demand: Option<Price>,
    pub spot: Option<Price>,
    pub reserved_1y: Option<Price>,
    pub reserved_3y: Option<Price>,
    /// A machine that no other customer shares.
    pub dedicated: Option<Price>,
    /// Share of spot instances of this kind that the cloud takes back in a month: from, and up to, in per cent.
    pub interrupted: Option<(u8, u8)>,
    /// How many such machines there are at most, where that is known.
    #[serde(default)]
    pub machines: Option<u32>,
}

impl Listing {
    /// How many such machines a run can have at most: a machine of the user's own is one, unless more are stated.
    pub fn most_machines(&self) -> Option<u32> {
        self.machines.or((self.cloud == Cloud::Own).then_some(1))
    }
}

/// The GPUs of one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpus {
    /// Name in the GPU table; `None` if the cloud's own spelling is unknown there.
    pub name: Option<String>,
    /// As the cloud spells it.
    pub spelled: String,
    /// How many, or parts of how many; 0 where the cloud does not say.
    pub count: u32,
    /// The fraction of a GPU: 1 for a full one, 6 for a sixth.
    pub slice: u32,
    /// Memory of each.
    pub memory: Option<Bytes>,
}

/// What carries bytes between machines. It decides latency and the share of the bandwidth that collectives reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fabric {
    /// TCP over the cloud's own network.
    #[default]
    Ethernet,
    /// AWS's Elastic Fabric Adapter.
    Efa,
    InfiniBand,
    /// Remote memory access over Ethernet.
    Roce,
}

/// A price of the complete machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// In dollars; a price in another currency is converted with the dated table.
    pub rate: Rate,
    /// The date of the price, `2026-07-20`, as precisely as it is known.
    pub dated: String,
    /// Where it was read.
    pub source: String,
    /// How it was derived from other prices, if it was.
    pub derived: Option<String>,
}

/// Who rents it out. In JSON and on the command line it is its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Cloud {
    Aws,
    Azure,
    Gcp,
    Alibaba,
    Lambda,
    Tencent,
    /// Machines of the user's own, reached by SSH.
    Own,
    /// A cloud that came by import, by its name there.
    Other(String),
}

impl Cloud {
    /// The cloud of that name; any name is one.
    pub fn named(name: &str) -> Cloud {
        match name.trim().to_ascii_lowercase().as_str() {
            "aws" => Cloud::Aws,
            "azure" => Cloud::Azure,
            "gcp" => Cloud::Gcp,
            "alibaba" => Cloud::Alibaba,
            "lambda" => Cloud::Lambda,
            "tencent" => Cloud::Tencent,
            "own" => Cloud::Own,
            other => Cloud::Other(other.to_owned()),
        }
    }

    /// Its name, as it is typed.
    pub fn name(&self) -> &str {
        match self {
            Cloud::Aws => "aws",
            Cloud::Azure => "azure",
            Cloud::Gcp => "gcp",
            Cloud::Alibaba => "alibaba",
            Cloud::Lambda => "lambda",
            Cloud::Tencent => "tencent",
            Cloud::Own => "own",
            Cloud::Other(name) => name,
        }
    }
}

impl std::fmt::Display for Cloud {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl From<String> for Cloud {
    fn from(name: String) -> Cloud {
        Cloud::named(&name)
    }
}

impl From<Cloud> for String {
    fn from(cloud: Cloud) -> String {
        cloud.name().to_owned()
    }
}
