//! Ways of a program to save memory that a [`Setup`](super::Setup) does not state.

use super::setup::Setup;

/// Bytes of a weight in 4 bits with a scale of 8 bits for each 64 (NF4 with double quantisation, Dettmers et al. 2023).
pub const NF4: f64 = 0.516;

/// What a program does with memory beyond a [`Setup`](super::Setup): ways of saving it, as fine-tuning recipes use them, and one of
/// wasting it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Savings {
    /// Only small matrices beside the frozen weights are trained.
    pub adapters: Option<Adapters>,
    /// The network itself is in half precision with fp32 copies of its weights beside it, as Megatron and apex's `O2`
    /// have it, rather than cast operator by operator.
    pub half_model: bool,
    /// Each weight is updated as soon as its gradient is there, and the gradient let go.
    pub update_in_backward: bool,
    /// The optimizer state is kept in host memory.
    pub offload_optimizer: bool,
    /// Inputs of recomputed blocks wait in host memory for the backward pass (torchtune's `enable_activation_offloading`).
    pub offload_activations: bool,
    /// Weights and gradients live in the host's memory too, but for the blocks at work.
    pub offload_weights: bool,
    /// The loss is computed over parts of the sequence, so that all scores are never there at once.
    pub chunked_loss: bool,
    /// The loss is one kernel that overwrites the scores.
    pub fused_loss: bool,
    /// The optimiser updates all weights together and holds a value as wide as each while it does (`foreach`, PyTorch's
    /// default beside `fused`).
    pub foreach_update: bool,
    /// Stages of a pipeline are equal in arithmetic, that of the scores included, rather than in blocks.
    pub balanced_stages: bool,
    /// Normalisations are one kernel that keeps its input and the statistics (Apex, flash-attn, Liger Kernel).
    pub fused_norms: bool,
    /// What tensor-parallel ranks gather for a product is gathered again in the backward pass rather than kept.
    pub gathers_again: bool,
    /// The program names the scores until the step ends, beside their copy in fp32 (`outputs.logits` of transformers).
    pub holds_scores: bool,
    /// Adapters are in fp32 beside frozen weights in 16 bits (PEFT's `autocast_adapter_dtype`).
    pub fp32_adapters: bool,
    /// Frozen normalisations and tables are in fp32, and so is what passes between blocks (PEFT's
    /// `prepare_model_for_kbit_training`).
    pub fp32_between_blocks: bool,
    /// Gradients are let go after the update (`zero_grad(set_to_none=True)`, PyTorch's default since 2.0), so that they are not
    /// there when activations are fullest, unless they are accumulated over micro-batches.
    pub frees_gradients: bool,
    /// Sharded weights are gathered as the built-in trainer does it: blocks in the format of products, as FSDP's mixed precision
    /// does, but embeddings in fp32, and all in fp32 where only gradients are sharded.
    pub trainer_gathers: bool,
    /// Ranks that shard the weights load all of them onto the GPU first.
    pub loads_whole: bool,
    /// GELU and the normalisations of layers are written out, an operator for each sign of their formulas, and all that
    /// lies between is kept.
    pub written_out: bool,
}

impl Savings {
    /// Whether scores in 16 bits stay beside their copy in fp32, until the step ends.
    pub(super) fn holds_narrow_scores(&self, setup: &Setup) -> bool {
        self.holds_scores && !self.chunked_loss && !setup.compiled && setup.precision.compute_bytes() < 4.0
    }
}

/// Low-rank adapters (Hu et al. 2021), with frozen weights in the computing type or in 4 bits (Dettmers et al. 2023).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adapters {
    pub rank: u64,
    pub quantized: bool,
}
