//! How a user's own program saves memory: adapters, offload, recomputation and the loss.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Adapters on frozen weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadAdapters {
    /// The kind of adapters.
    pub kind: AdapterKind,
    /// Rank of the matrices.
    #[serde(default = "usual_rank")]
    #[schemars(range(min = 1, max = 1_024))]
    pub rank: u32,
    /// The layers that have adapters.
    #[serde(default)]
    pub targets: AdapterTargets,
}

/// Kinds of adapters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdapterKind {
    /// Low-rank matrices beside frozen weights in the number format of the products (Hu et al. 2021).
    Lora,
    /// The same beside frozen weights in 4 bits (NF4, Dettmers et al. 2023).
    Qlora,
}

/// Layers that have adapters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdapterTargets {
    /// Every linear layer, as PEFT's `target_modules="all-linear"`.
    #[default]
    AllLinear,
}

/// What is kept in the host's memory between its uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HostOffload {
    /// Nothing.
    #[default]
    None,
    /// The inputs of recomputed blocks, copied out in the forward pass and back in the backward pass; with `recompute: full`.
    Activations,
    /// Optimizer state, updated by the host's processors (Ren et al. 2021, "ZeRO-Offload"); sharded on several GPUs.
    Optimizer,
    /// Activations and optimizer state.
    Both,
}

impl HostOffload {
    /// Whether activations are.
    pub fn has_activations(self) -> bool {
        matches!(self, HostOffload::Activations | HostOffload::Both)
    }

    /// Whether the optimizer state is.
    pub fn has_optimizer(self) -> bool {
        matches!(self, HostOffload::Optimizer | HostOffload::Both)
    }
}

/// How the loss of a language model is computed from its logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LossComputation {
    /// From the logits of all tokens at once.
    #[default]
    Full,
    /// Over parts of the sequence, so that all logits never exist at once (torchtune's chunked loss, Liger Kernel).
    Chunked,
}

/// Activation checkpointing: left to the plan, or forced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum WorkloadRecompute {
    /// `true` leaves the level to the plan; `false` is `none`.
    Allowed(bool),
    /// Always at this level.
    Level(RecomputeLevel),
}

/// What is computed again in the backward pass instead of saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecomputeLevel {
    /// Nothing.
    None,
    /// What is cheap to compute again: with flash attention all but attention and every second product of matrices, without it attention (Korthikanti et al. 2022).
    Selective,
    /// Every block from its input (Chen et al. 2016).
    Full,
}

impl Default for WorkloadRecompute {
    fn default() -> WorkloadRecompute {
        WorkloadRecompute::Allowed(true)
    }
}

impl WorkloadRecompute {
    /// Whether anything may be computed again.
    pub fn is_allowed(self) -> bool {
        !matches!(self, WorkloadRecompute::Allowed(false) | WorkloadRecompute::Level(RecomputeLevel::None))
    }

    /// The level that is forced; none where it is left to the plan.
    pub fn forced(self) -> Option<RecomputeLevel> {
        match self {
            WorkloadRecompute::Allowed(true) => None,
            WorkloadRecompute::Allowed(false) => Some(RecomputeLevel::None),
            WorkloadRecompute::Level(level) => Some(level),
        }
    }
}

fn usual_rank() -> u32 {
    8
}
