//! How several ranks work at one model.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How several ranks work together; only for more `processes` than one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Parallel {
    /// What each rank keeps a part of, instead of the whole.
    #[serde(default)]
    pub shard: Shard,
    /// Number format in which gradients are sent.
    #[serde(default)]
    pub exchange: Exchange,
    /// Batch normalisation by the statistics of all ranks' samples, instead of each rank's own.
    #[serde(default)]
    pub sync_batch_norm: bool,
}

/// What each rank keeps a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Shard {
    /// Nothing: each rank keeps all.
    #[default]
    None,
    /// The optimiser's state (ZeRO-1, Rajbhandari et al. 2020).
    Optimizer,
}

/// Number format in which gradients are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Exchange {
    /// 32-bit floating point.
    #[default]
    Fp32,
    /// bfloat16: half of the bytes, and sums of 8 bits' precision.
    Bf16,
}

impl Parallel {
    /// Whether nothing was asked for.
    pub fn is_default(&self) -> bool {
        *self == Parallel::default()
    }
}
