//! When the state of a run is saved.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::span::Every;
use crate::units::Duration;

/// When to save checkpoints, and how many to keep.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Interval in steps (`500 steps`) or time (`10m`), or `auto`: the interval with the least expected loss by Young and Daly's formula.
    #[serde(default)]
    pub every: Every,
    /// How many of the newest checkpoints to keep, in addition to the best model.
    #[serde(default = "three")]
    #[schemars(range(min = 1, max = 1_000))]
    pub keep: u32,
    /// Of all checkpoints of the run, keep every so many as well: with `10` the 10th, the 20th and so on. They travel with the run to another machine. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub keep_every: Option<u32>,
    /// Mean time between failures of the whole run, for `auto`. Default: by what is rented, and how often it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtbf: Option<Duration>,
    /// Format of the saved state.
    #[serde(default, skip_serializing_if = "super::is_usual")]
    pub codec: Codec,
}

/// Format of the saved state; both restore it bit for bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// safetensors files, which other programs can read.
    #[default]
    Full,
    /// Compressed, seven of eight as the difference to the previous one: smaller, but readable by gradus only. Damage to a
    /// full checkpoint affects all that build on it.
    Delta,
}

impl Checkpoint {
    /// Mean time between failures where nothing is known of the machine.
    pub const USUAL_MTBF: Duration = Duration::from_secs(24 * 3600);
}

impl Default for Checkpoint {
    fn default() -> Checkpoint {
        Checkpoint { every: Every::Auto, keep: three(), keep_every: None, mtbf: None, codec: Codec::Full }
    }
}

fn three() -> u32 {
    3
}
