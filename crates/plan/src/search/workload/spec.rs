//! The training in numbers: everything that time and money depend on besides the machines.
//!
//! Each part is known at its own moment: how long the run is and what its data takes follow from the job and its data,
//! [`NetworkFigures`] from the graph, [`CheckpointFigures`] from both, and [`ParallelChoice`] is either the job's or left to
//! the search.

use domain::Bytes;
use domain::tariff::Service;
use serde::Serialize;

use super::request::LayoutRequest;
use crate::estimate::{ActivationCheckpointing, Layout, NumericFormat, OptimizerKind, ParallelDegrees};

/// A run to be planned.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrainingSpec {
    #[serde(flatten)]
    pub length: RunLength,
    #[serde(flatten)]
    pub data: DataDemand,
    #[serde(flatten)]
    pub checkpoints: CheckpointFigures,
    #[serde(flatten)]
    pub network: NetworkFigures,
    #[serde(flatten)]
    pub program: ProgramOptions,
    /// Who decides how the ranks share a step.
    #[serde(skip)]
    pub division: ParallelChoice,
}

/// The amount of computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RunLength {
    /// Samples per optimiser step, over all devices.
    pub batch: u64,
    /// Optimiser steps.
    pub steps: u64,
    /// Samples that are evaluated, in all.
    pub evaluated: u64,
}

/// The cost of data loading.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DataDemand {
    /// Samples per second that one core decodes; `None` if no decoding is needed.
    pub per_core: Option<f64>,
    /// Bytes of the data in all.
    #[serde(rename = "data")]
    pub bytes: Bytes,
    /// Bytes of a sample as it is stored; 0 where samples stay in memory once they were read.
    #[serde(skip)]
    pub sample: f64,
    /// The disk that the data needs: a fast one where many small samples are read in random order.
    pub disk: Service,
}

/// The checkpoints written during training.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CheckpointFigures {
    /// Size of a checkpoint.
    pub state: Bytes,
    /// Bytes of the trained weights.
    pub weights: Bytes,
    /// Retained checkpoints.
    pub keep: u32,
    /// Seconds between two checkpoints, if the job specifies it.
    #[serde(rename = "checkpoint")]
    pub every: Option<f64>,
}

/// The figures of the network that the search depends on.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct NetworkFigures {
    /// Multiply-adds of one forward pass of one sample.
    pub multiply_adds: f64,
    /// Repeated blocks, as far as the network can be cut between them; 0 where it cannot.
    pub blocks: u32,
    /// Attention heads, which tensor parallelism divides; 0 if there are none.
    pub heads: u32,
    /// Heads of keys and values, fewer in grouped-query attention.
    #[serde(skip)]
    pub key_heads: u32,
    /// Tokens of a sample, which context and sequence parallelism divide; 0 if it reads none.
    #[serde(skip)]
    pub tokens: u64,
    /// Experts of a layer, which expert parallelism divides; 0 if there are none.
    #[serde(skip)]
    pub experts: u32,
}

/// Tokens from which on context parallelism is tried. NVIDIA's runs of Llama 3 8B on B200 gain 5 % by it at 32K tokens, 10 % at
/// 128K, 37 % at 256K, and use none at 16K (NVIDIA/NeMo, docs/source/performance/performance_long_sequence.md). Each layout
/// takes time to estimate.
const LONG_SEQUENCE: u64 = 32_768;

impl NetworkFigures {
    /// Whether sequences are so long that ranks divide them where the job does not say.
    pub fn has_long_sequences(&self) -> bool {
        self.heads > 0 && self.tokens >= LONG_SEQUENCE
    }
}

/// How the program computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ProgramOptions {
    /// The requested format; each GPU uses what it supports of it.
    #[serde(rename = "formats")]
    pub precision: NumericFormat,
    pub optimizer: OptimizerKind,
    pub layout: Layout,
    pub flash_attention: bool,
    pub compiled: bool,
    /// Whether activations may be recomputed.
    pub recompute: bool,
    /// An average of the weights is maintained and saved.
    #[serde(skip)]
    pub averages: bool,
}

/// Who decides how the ranks share a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ParallelChoice {
    /// The search: any that fits, the fastest.
    #[default]
    Search,
    /// The job in part, and the search for the rest.
    Requested(LayoutRequest),
    /// The job.
    Stated { parallel: ParallelDegrees, accumulate: u64, recompute: ActivationCheckpointing },
}
