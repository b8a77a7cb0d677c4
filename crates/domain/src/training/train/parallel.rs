//! How several ranks work at one model.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sharding, tensor parallelism and gradient exchange; only with `processes` above 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Parallel {
    /// State to shard over ranks instead of replicating it.
    #[serde(default)]
    pub shard: Shard,
    /// Tensor parallelism: number of ranks that split the layers of a transformer, each with a part of the attention heads and hidden units, for the same samples (Shoeybi et al. 2019, Megatron-LM). `processes` must be a multiple of it.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    #[schemars(range(min = 1, max = 1_024))]
    pub tensor: u32,
    /// Number format of gradient exchange.
    #[serde(default)]
    pub exchange: Exchange,
    /// Compute batch normalisation statistics over the samples of all ranks instead of each rank's own.
    #[serde(default)]
    pub sync_batch_norm: bool,
}

/// State to shard over ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Shard {
    /// Nothing: every rank holds everything.
    #[default]
    None,
    /// Optimizer state (ZeRO-1, Rajbhandari et al. 2020).
    Optimizer,
    /// Gradients as well (ZeRO-2).
    Gradients,
    /// Parameters as well, gathered block by block when they are used (ZeRO-3, fully sharded).
    Parameters,
}

impl Default for Parallel {
    fn default() -> Parallel {
        Parallel { shard: Shard::None, tensor: 1, exchange: Exchange::Fp32, sync_batch_norm: false }
    }
}

impl Shard {
    /// As a job file has it.
    pub fn name(self) -> &'static str {
        match self {
            Shard::None => "none",
            Shard::Optimizer => "optimizer",
            Shard::Gradients => "gradients",
            Shard::Parameters => "parameters",
        }
    }
}

/// Number format of gradient exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Exchange {
    /// 32-bit floating point.
    #[default]
    Fp32,
    /// bfloat16: half the bytes, with sums of 8 bits of precision.
    Bf16,
}

impl Parallel {
    /// Whether nothing was asked for.
    pub fn is_default(&self) -> bool {
        *self == Parallel::default()
    }
}

fn one() -> u32 {
    1
}

fn is_one(count: &u32) -> bool {
    *count == 1
}
