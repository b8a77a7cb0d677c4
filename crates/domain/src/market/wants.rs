//! A job's constraints on machines to rent: kinds, locations, prices.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::accelerators::Accelerators;
use crate::gpu::GpuSpec;
use crate::money::Rate;
use crate::region::Compliance;

/// Constraints on machines to rent. Missing ones match anything.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Wants {
    /// Any one of these in a machine.
    pub accelerators: Vec<Accelerators>,
    /// GPUs that the catalog does not know, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub gpu_specs: BTreeMap<String, GpuSpec>,
    /// The cloud's name of the machine.
    pub instance_type: Option<String>,
    /// Names of clouds.
    pub clouds: Vec<String>,
    /// Names of regions, the start of some with `*`, or a country's two letters.
    pub regions: Vec<String>,
    /// A zone of the region, such as `us-east-1a`; `None` for any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The region must have them all.
    pub compliance: Vec<Compliance>,
    /// The most that one machine may cost an hour.
    pub max_price: Option<Rate>,
    pub spot: Spot,
    /// Machines that are rented on demand, where the others are spot machines.
    #[serde(skip_serializing_if = "is_none")]
    pub on_demand: u32,
    /// Numbers of machines; empty for the usual ones.
    pub nodes: Vec<u32>,
    /// Minimum number of machines; `None` if the job needs all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_nodes: Option<u32>,
    /// Machines beyond that number, which stand by for one that is lost.
    #[serde(skip_serializing_if = "is_none")]
    pub spares: u32,
    /// Only machines that no other customer shares.
    pub dedicated: bool,
    /// Kilograms of CO₂ that the run may cause at most.
    pub max_carbon: Option<f64>,
    /// Its machines are rented for it alone: it takes over none, and none of its own is taken over.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub own_machines: bool,
    /// Excludes clouds, because the job requests this machine or a `node`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub here: bool,
    /// A node of `gradus nodes`, by its name; `any` for any free one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

fn is_none(number: &u32) -> bool {
    *number == 0
}

impl Wants {
    /// Whether a machine of one cloud is asked for, and of no other, and gradus can rent there.
    pub fn is_rented(&self) -> bool {
        RENTED_CLOUDS.iter().any(|name| self.only_cloud(name))
    }

    /// Whether a machine of this cloud is asked for, and of no other.
    pub fn only_cloud(&self, name: &str) -> bool {
        matches!(&self.clouds[..], [cloud] if cloud.eq_ignore_ascii_case(name))
    }
}

/// The clouds that gradus can rent machines of.
pub const RENTED_CLOUDS: [&str; 6] = ["aws", "lambda", "gcp", "azure", "alibaba", "tencent"];

/// Whether spot instances may be rented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Spot {
    /// Use spot instances where they save money, and on-demand ones while there are none.
    #[default]
    Auto,
    /// Use spot instances only, and wait while there are none.
    Only,
    /// Never use spot instances.
    Never,
}
