//! What an estimate is for: the hardware, and how the work is divided on it.

pub use domain::format::NumericFormat;
use domain::gpu::{Gpu, GpuArchitecture};
use domain::train::MemoryFormat;
pub use domain::workload::OptimizerKind;
use serde::{Deserialize, Serialize};

/// One way of training on one kind of hardware.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    pub device: Device,
    pub precision: NumericFormat,
    pub layout: Layout,
    /// Samples a rank and micro-batch.
    pub micro_batch: u64,
    /// Micro-batches a rank and optimiser step.
    pub accumulate: u64,
    pub parallel: ParallelDegrees,
    pub recompute: ActivationCheckpointing,
    pub optimizer: OptimizerKind,
    /// Attention never writes its matrix of scores.
    pub flash_attention: bool,
    /// The program is compiled and its small operators fused.
    pub compiled: bool,
}

/// The machines.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    pub gpu: Gpu,
    pub nodes: u32,
    pub gpus_per_node: u32,
    /// Network of one node, bits a second; none where it is not known.
    pub network: Option<f64>,
}

impl Device {
    /// Whether ranks compute on cores of a processor.
    pub fn is_processor(&self) -> bool {
        self.gpu.architecture == GpuArchitecture::Processor
    }
}

/// How ranks share the work. `data · tensor · pipeline` is the number of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ParallelDegrees {
    pub data: u32,
    pub tensor: u32,
    pub pipeline: u32,
    pub zero: Zero,
}

/// What is sharded over the data-parallel ranks (Rajbhandari et al. 2020, ZeRO).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Zero {
    /// Nothing: plain data parallelism.
    None,
    /// The optimiser's state.
    Optimizer,
    /// And gradients.
    Gradients,
    /// And parameters, as FSDP does.
    Parameters,
}

/// Order of an image's values in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    ChannelsFirst,
    ChannelsLast,
}

impl From<MemoryFormat> for Layout {
    fn from(format: MemoryFormat) -> Layout {
        match format {
            MemoryFormat::Contiguous => Layout::ChannelsFirst,
            MemoryFormat::ChannelsLast => Layout::ChannelsLast,
        }
    }
}

/// Which activations are computed again in the backward pass instead of saved (Chen et al. 2016).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivationCheckpointing {
    None,
    /// Attention only (Korthikanti et al. 2022); beside flash attention, which keeps little, all but attention and every
    /// second product of matrices in a block (torchtitan's `selective op`).
    Selective,
    /// Every block: only what enters it is kept.
    Full,
    /// One block in so many.
    Every(u32),
}
