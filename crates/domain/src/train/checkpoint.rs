//! When the state of a run is saved.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::span::Every;
use crate::units::Duration;

/// When the state is saved, and how many are kept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Steps (`500 steps`), time (`10m`) or `auto`: the interval that loses least by Young and Daly's formula.
    #[serde(default)]
    pub every: Every,
    /// How many of the newest are kept; the best model is kept besides.
    #[serde(default = "three")]
    #[schemars(range(min = 1, max = 1_000))]
    pub keep: u32,
    /// Mean time between failures that `auto` assumes.
    #[serde(default = "mtbf")]
    pub mtbf: Duration,
    /// In which form the state is written.
    #[serde(default, skip_serializing_if = "super::is_usual")]
    pub codec: Codec,
}

/// In which form the state of a run is written; what is restored is the same to the bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// As safetensors files, which other programs read.
    #[default]
    Full,
    /// Compressed, and seven of eight as the difference to the one before: smaller, and readable by gradus only.
    /// Those that are kept may stand on one whole one, so that damage to that costs them all.
    Delta,
}

impl Default for Checkpoint {
    fn default() -> Checkpoint {
        Checkpoint { every: Every::Auto, keep: three(), mtbf: mtbf(), codec: Codec::Full }
    }
}

fn three() -> u32 {
    3
}
fn mtbf() -> Duration {
    Duration::from_secs(24 * 3600)
}
