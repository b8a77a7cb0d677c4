//! How several ranks work at one model.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How several ranks work together; only for more `processes` than one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Parallel {
    /// What each rank keeps a part of, instead of the whole.
    #[serde(default)]
    pub shard: Shard,
    /// Ranks that divide the layers of a transformer among them (Shoeybi et al. 2019, Megatron-LM): each computes a part of the attention heads and of the hidden values, for the same samples. `processes` is a multiple of it; the samples are shared by so many groups.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    #[schemars(range(min = 1, max = 1_024))]
    pub tensor: u32,
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
    /// The gradients as well (ZeRO-2).
    Gradients,
    /// And the parameters, which are gathered block by block where they are used (ZeRO-3; fully sharded).
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

fn one() -> u32 {
    1
}

fn is_one(count: &u32) -> bool {
    *count == 1
}
