//! How a user's own program divides each step among its GPUs: `workload.parallel`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parallelism of a program of your own. A degree that is left out is left to the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadParallel {
    /// Data-parallel ranks (DDP, or DeepSpeed with `zero`); beside `fsdp`, the number of sharded copies (hybrid sharding, HSDP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_536))]
    pub data: Option<u32>,
    /// Ranks that weights, gradients and optimizer state are sharded over (FSDP, FSDP2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_536))]
    pub fsdp: Option<u32>,
    /// Tensor parallelism: ranks that divide each layer of a transformer (Shoeybi et al. 2019); a divisor of its attention heads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_024))]
    pub tensor: Option<u32>,
    /// Sequence parallelism: the ranks of `tensor` also divide the sequence between layers (Korthikanti et al. 2022).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<bool>,
    /// Stages of a pipeline; at most as many as the network has layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_024))]
    pub pipeline: Option<u32>,
    /// Schedule of the pipeline. Default: `1f1b`, or `interleaved` with `virtual_stages`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<PipelineSchedule>,
    /// Model chunks per stage of an interleaved pipeline. Default: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 256))]
    pub virtual_stages: Option<u32>,
    /// Context parallelism: ranks that divide each sequence (Liu et al. 2023, ring attention). Default: 1 below 32,768 tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_024))]
    pub context: Option<u32>,
    /// Expert parallelism: ranks, of those above, that divide the experts of a layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_024))]
    pub expert: Option<u32>,
    /// ZeRO stage: 0 shards nothing, 1 optimizer state, 2 gradients as well, 3 weights as well. Default with `fsdp`: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 3))]
    pub zero: Option<u8>,
}

/// Order in which a pipeline runs its micro-batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PipelineSchedule {
    /// One forward, one backward, with one chunk of layers per stage (Narayanan et al. 2021).
    #[serde(rename = "1f1b")]
    OneForwardOneBackward,
    /// Interleaved 1F1B: each stage has several chunks of layers, and idles less (Narayanan et al. 2021, section 2.2).
    Interleaved,
}

impl WorkloadParallel {
    /// Model chunks per stage: those of an interleaved schedule, else 1.
    pub fn chunks(&self) -> u32 {
        match (self.schedule, self.virtual_stages) {
            (_, Some(chunks)) => chunks,
            (Some(PipelineSchedule::Interleaved), None) => 2,
            (Some(PipelineSchedule::OneForwardOneBackward) | None, None) => 1,
        }
    }

    /// Whether nothing was asked for.
    pub fn is_empty(&self) -> bool {
        *self == WorkloadParallel::default()
    }
}
