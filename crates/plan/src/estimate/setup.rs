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

/// How ranks share the work. `data · tensor · pipeline · context` is the number of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct ParallelDegrees {
    pub data: u32,
    pub tensor: u32,
    pub pipeline: u32,
    pub zero: Zero,
    /// Ranks that share each sequence (ring attention, Liu et al. 2023; Ulysses, Jacobs et al. 2023).
    #[serde(skip_serializing_if = "is_one")]
    pub context: u32,
    /// Ranks, of all but the pipeline's, that share the experts of a block.
    #[serde(skip_serializing_if = "is_one")]
    pub expert: u32,
    /// Model chunks of each pipeline stage (interleaved 1F1B, Narayanan et al. 2021, section 2.2).
    #[serde(skip_serializing_if = "is_one")]
    pub chunks: u32,
    /// Tensor-parallel ranks divide the sequence where they do not divide a layer (Korthikanti et al. 2022).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sequence: bool,
    /// Whole copies of what the replicas shard: each copy is sharded among as many of them as there are for each (hybrid
    /// sharding, HSDP; Zhao et al. 2023, section 3.2.2).
    #[serde(skip_serializing_if = "is_one")]
    pub copies: u32,
}

/// One rank that shares nothing.
impl Default for ParallelDegrees {
    fn default() -> ParallelDegrees {
        ParallelDegrees {
            data: 1,
            tensor: 1,
            pipeline: 1,
            zero: Zero::None,
            context: 1,
            expert: 1,
            chunks: 1,
            sequence: false,
            copies: 1,
        }
    }
}

impl ParallelDegrees {
    /// Ranks that hold the same weights where nothing is sharded: those that exchange gradients.
    pub fn replicas(&self) -> u32 {
        self.data.max(1).saturating_mul(self.context.max(1))
    }

    /// Parts that the experts of a block are in, beside those of tensor parallelism: one per rank that shares them, or per
    /// replica where there are fewer. Tensor-parallel ranks then hold different experts instead of parts of the same ones.
    pub fn expert_parts(&self) -> u32 {
        self.expert.clamp(1, self.replicas())
    }

    /// Replicas that what is sharded is divided among.
    pub fn sharded_over(&self) -> u32 {
        (self.replicas() / self.copies.max(1)).max(1)
    }
}

// The form that `skip_serializing_if` asks for.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_one(degree: &u32) -> bool {
    *degree == 1
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
