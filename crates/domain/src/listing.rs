//! Listings: what a cloud says can be rented, with every price it names, each dated and with its source.

use serde::{Deserialize, Serialize};

use crate::money::Rate;
use crate::units::Bytes;

/// One instance type in one region. What is not known is none, never zero.
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
    /// Network bandwidth in bits a second.
    pub network: Option<f64>,
    pub on_demand: Option<Price>,
    pub spot: Option<Price>,
    pub reserved_1y: Option<Price>,
    pub reserved_3y: Option<Price>,
    /// A machine that no other customer shares.
    pub dedicated: Option<Price>,
    /// Share of spot instances of this kind that the cloud takes back in a month: from, and up to, in per cent.
    pub interrupted: Option<(u8, u8)>,
}

/// The GPUs of one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpus {
    /// Name in the GPU table; none where the cloud's own spelling is not known there.
    pub name: Option<String>,
    /// As the cloud spells it.
    pub spelled: String,
    pub count: u32,
    /// Memory of each.
    pub memory: Option<Bytes>,
}

/// A price of the whole machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// In dollars; a price in another currency is converted with the dated table.
    pub rate: Rate,
    /// The day it was true, `2026-07-20`, or as much of it as is known.
    pub dated: String,
    /// Where it was read.
    pub source: String,
    /// How it was computed from other prices, where it was.
    pub derived: Option<String>,
}

/// Who rents it out.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
