//! `resources.disk`: the network volume of a machine.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Gigabytes;
use crate::volume::DiskTier;

/// The network volume of a machine; what is left out, the plan chooses. Only AWS provisions the speed of one.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiskKeys {
    /// Same as `disk_size`.
    pub size: Option<Gigabytes>,
    /// Reads and writes per second: of a gp3 volume from 3000, which its size pays for, to 16000; more make it an io2 volume.
    #[schemars(range(min = 100, max = 256_000))]
    pub iops: Option<u32>,
    /// MiB/s: of a gp3 volume from 125, which its size pays for, to 1000; more make it an io2 volume.
    #[schemars(range(min = 125, max = 4_000))]
    pub throughput: Option<u32>,
    /// The speed by name; `iops` and `throughput` override its figures.
    pub tier: Option<DiskTier>,
}
