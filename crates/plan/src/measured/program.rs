//! The program that measured a row, as far as no column tells.

use domain::gpu::{Gpu, GpuArchitecture, Link};

use crate::estimate::memory::Savings;
use crate::estimate::{
    ActivationCheckpointing, Layout, NumericFormat, OptimizerKind, Origin, ParallelDegrees, ProgramStyle, Zero,
};
use crate::model::ModelDescription;

/// What the measurements' program does that no column says.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    pub what: String,
    pub model: ModelDescription,
    /// Tokens of a sample, for units of tokens.
    pub tokens: Option<f64>,
    /// Samples a GPU and micro-batch, where the column says something else.
    pub batch: Option<f64>,
    pub accumulate: u64,
    /// No number of micro-batches is stated, although several GPUs exchange once in all of them.
    pub is_accumulation_unstated: bool,
    pub layout: Layout,
    /// Samples differ in length, so that memory is that of the longest and speed that of none.
    pub varies: bool,
    /// Samples differ in length and only their mean is known, which says nothing of memory.
    pub mean: bool,
    /// Whether what was gathered for products is gathered again (`tp_recompute_allgather`) is not stated: it is where all
    /// does not fit otherwise.
    pub gathers_again_if_needed: bool,
    /// All degrees, where the row states them.
    pub parallel: Option<ParallelDegrees>,
    pub tensor: u32,
    pub pipeline: u32,
    pub zero: Zero,
    pub recompute: ActivationCheckpointing,
    pub optimizer: OptimizerKind,
    pub flash: bool,
    pub compiled: bool,
    pub hardware: ProgramHardware,
    /// What the row's word for the number format means, where it is not what others mean by it.
    pub precision: Option<NumericFormat>,
    /// Products are in fp8 where the GPU can.
    pub eight: bool,
    pub savings: Savings,
    pub habits: ProgramHabits,
    pub origin: Origin,
    /// Blocks are recomputed, and then the optimiser's state moved to the host, only where memory is too small.
    pub saves_if_needed: bool,
    /// Whether blocks are recomputed is not stated, and a recipe's user may change it.
    pub may_recompute: bool,
    /// GPUs before Ampere ran an older program, which wrote functions out.
    pub written_out_before_ampere: bool,
}

/// What a source's program does otherwise than today's PyTorch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProgramHabits {
    /// By how much it overstates what it measured.
    pub overstated: f64,
    /// It is of early 2022 or before.
    pub aged: bool,
    /// Weights and gradients are in half precision.
    pub half: bool,
    /// Megatron's kernels run.
    pub fused_kernels: bool,
    /// Flash attention is of 2022.
    pub first_flash: bool,
    /// Gradients are exchanged when all of them are there.
    pub exchanged_late: bool,
    /// Blocks are computed again to their end.
    pub recomputed_whole: bool,
    /// Python code of its own starts each exchange inside layers.
    pub exchanged_by_python: bool,
    /// Over how many ranks optimizer state is sharded, where that is not all replicas.
    pub sharded_over: Option<u32>,
    pub style: ProgramStyle,
    /// Ranks wait for the one whose samples are longest.
    pub unbalanced: bool,
}

/// Today's PyTorch.
impl Default for ProgramHabits {
    fn default() -> ProgramHabits {
        ProgramHabits {
            overstated: 1.0,
            aged: false,
            half: false,
            fused_kernels: false,
            first_flash: false,
            exchanged_late: false,
            recomputed_whole: false,
            exchanged_by_python: false,
            sharded_over: None,
            style: ProgramStyle::default(),
            unbalanced: false,
        }
    }
}

/// What a program's rows ran on, where no column says it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProgramHardware {
    /// The GPU, where the column names another one.
    pub gpu: Option<String>,
    pub gpus_per_node: Option<u32>,
    /// The network of a node in bits per second.
    pub network: Option<f64>,
}

impl Program {
    /// Plain data-parallel training of `model` in eager PyTorch.
    pub fn plain(what: impl Into<String>, model: ModelDescription) -> Program {
        Program {
            what: what.into(),
            model,
            tokens: None,
            batch: None,
            accumulate: 1,
            is_accumulation_unstated: false,
            layout: Layout::ChannelsFirst,
            varies: false,
            mean: false,
            gathers_again_if_needed: false,
            parallel: None,
            tensor: 1,
            pipeline: 1,
            zero: Zero::None,
            recompute: ActivationCheckpointing::None,
            optimizer: OptimizerKind::Adam,
            flash: false,
            compiled: false,
            hardware: ProgramHardware::default(),
            precision: None,
            eight: false,
            savings: Savings::default(),
            habits: ProgramHabits::default(),
            origin: Origin::Unknown,
            saves_if_needed: false,
            may_recompute: false,
            written_out_before_ampere: false,
        }
    }
}

/// The network of a node of the maker's own systems with this GPU, bits a second: DGX-1, DGX-2, DGX A100, DGX H100.
pub(super) fn usual_network(gpu: &Gpu) -> Option<f64> {
    match (gpu.architecture, gpu.link) {
        (GpuArchitecture::Volta, Link::Mesh(_)) => Some(400e9),
        (GpuArchitecture::Volta, Link::Switch(_)) => Some(800e9),
        (GpuArchitecture::Ampere, Link::Switch(_)) => Some(1600e9),
        (GpuArchitecture::Hopper | GpuArchitecture::Blackwell, Link::Switch(_)) => Some(3200e9),
        _ => None,
    }
}

/// GPUs that NVLink connects of `count`, where the maker's racks connect more than a node.
pub(super) fn usual_domain(gpu: &Gpu, count: u32) -> Option<u32> {
    let domain = gpu.traits.nvlink_domain.filter(|domain| *domain > 0)?;
    Some(count.div_ceil(count.div_ceil(domain).max(1)))
}
