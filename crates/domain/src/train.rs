//! The `train:` section of a job: what our own trainer is asked to do.
//!
//! The same types are read from the job file, published in its JSON Schema, documented in `docs/job-file.md` and
//! handed to a rank. Each key has one meaning, one default and one line of documentation: its doc comment.

mod checkpoint;
mod data;
mod model;
mod optimizer;
mod parallel;
mod schedule;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::checkpoint::{Checkpoint, Codec};
pub use self::data::{Augment, Cache, Corrupt, Data, Documents, Folders, Normalize, RandAugment, Split, Text};
pub use self::model::{GptSize, Loss, Model, ModelSource, Module, ResnetSize};
pub use self::optimizer::{Adafactor, Adamw, Decays, Lamb, Lars, Optimizer, Parameters, Sgd};
pub use self::parallel::{Exchange, Parallel, Shard};
pub use self::schedule::{Average, Decay, Ema, OneCycle, Poly, Schedule, StepDecay, Swa};
use crate::architecture::{Architecture, Reads};
pub use crate::span::{Every, Span};
use crate::units::Fraction;

/// Our own trainer, instead of `run`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Train {
    /// The architecture to train. A module of your own is `{torchscript: module.pt}`, relative to the job file; it wants a `loss`.
    pub model: ModelSource,
    /// What a module of your own learns; the architectures with names know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// A `.safetensors` file of the same architecture to begin with instead of random weights; relative to the job file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
    /// Where the samples are and how they are split.
    pub data: Data,
    /// How often every training sample is seen.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub epochs: u32,
    /// Samples per optimiser step, over all devices and accumulation steps.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub batch: u32,
    /// Micro-batches that one optimiser step is split into; the result is that of the whole batch, but for batch normalisation, which sees each by itself.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1_048_576))]
    pub accumulate: u32,
    /// Ranks that share each batch, each a process; the result is that of the whole batch.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    #[schemars(range(min = 1, max = 1_024))]
    pub processes: u32,
    /// How several ranks work together.
    #[serde(default, skip_serializing_if = "Parallel::is_default")]
    pub parallel: Parallel,
    /// Number format of the matrix products; `auto` takes the fastest one that the device computes natively.
    #[serde(default)]
    pub precision: Precision,
    /// The update rule.
    #[serde(default)]
    pub optimizer: Optimizer,
    /// Which parameters are trained, and which of them otherwise than the rest.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub parameters: Parameters,
    /// How the learning rate moves.
    #[serde(default)]
    pub schedule: Schedule,
    /// A mean of the weights over the steps, which is what is validated, tested and exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average: Option<Average>,
    /// What is kept in the host's memory instead of a GPU's: slower steps, and room for more.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub offload: Offload,
    /// Which blocks forget what they computed and compute it again on the way back: less memory for a third more work, and the same numbers.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub recompute: Recompute,
    /// Whether a GPU records the passes of a step once for each shape of a batch and repeats them with one launch (a CUDA graph), which saves time where operations are small; a rank that works alone, without `recompute`. Elsewhere it changes nothing.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub cuda_graphs: bool,
    /// Share of values that a model with dropout leaves out at random while training. Default: that of its paper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0, "exclusiveMaximum" = 1))]
    pub dropout: Option<f64>,
    /// Probability mass taken from the true class and spread evenly over all classes.
    #[serde(default)]
    #[schemars(extend("minimum" = 0, "exclusiveMaximum" = 1))]
    pub label_smoothing: f64,
    /// Largest global L2 norm of the gradients; longer ones are scaled down to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub clip_norm: Option<f64>,
    /// Order of a picture's values in memory.
    #[serde(default)]
    pub memory_format: MemoryFormat,
    /// Seed of the weights, the split, the sample order and the augmentation.
    #[serde(default)]
    pub seed: u64,
    /// Threads of the tensor library; part of the result, so a resumed run keeps it. Default: this machine's cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub threads: Option<u32>,
    /// Only operations whose result is the same on every run.
    #[serde(default = "yes")]
    pub deterministic: bool,
    /// When to stop before the last epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// When the state is saved, and how many are kept.
    #[serde(default)]
    pub checkpoint: Checkpoint,
    /// Whether to note where each step's time goes, and write a trace; as `gradus run --profile`.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub profile: bool,
}

/// What a run learns to do, by its model and its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// To tell classes of pictures apart.
    Pictures,
    /// To find objects in pictures.
    Boxes,
    /// To tell classes of texts apart.
    Texts,
    /// To fill in masked words.
    MaskedWords,
    /// To say the next word.
    NextWord,
}

impl Train {
    /// What the run learns to do.
    pub fn task(&self) -> Task {
        let has_label = self.data.text.as_ref().is_some_and(|text| text.label.is_some());
        match (self.model.architecture().map(Architecture::reads), self.loss) {
            (Some(Reads::Pictures), _) => Task::Pictures,
            (Some(Reads::Scenes), _) => Task::Boxes,
            (Some(Reads::WordsBothWays), _) if has_label => Task::Texts,
            (Some(Reads::WordsBothWays), _) | (None, Some(Loss::MaskedWords)) => Task::MaskedWords,
            (Some(Reads::WordsBefore), _) | (None, Some(Loss::NextWord)) => Task::NextWord,
            (None, Some(Loss::CrossEntropy) | None) if self.data.text.is_some() => Task::Texts,
            (None, Some(Loss::CrossEntropy) | None) => Task::Pictures,
        }
    }

    /// Epochs after which the run ends: all, or as many as `stop` says.
    pub fn last_epoch(&self) -> u32 {
        let enough = self.stop.and_then(|stop| stop.epochs).unwrap_or(self.epochs);
        enough.min(self.epochs)
    }
}

/// Number format of the matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// The fastest that the device computes natively: bf16 or else fp16 on a GPU, fp32 on a CPU.
    #[default]
    Auto,
    /// 32-bit floating point.
    Fp32,
    /// 32-bit floating point whose products are computed from 19 bits, as NVIDIA GPUs since A100 do; an error elsewhere.
    Tf32,
    /// bfloat16 by autocast; weights and optimiser stay fp32.
    Bf16,
    /// 16-bit floating point by autocast; weights and optimiser stay fp32. The loss is scaled, so that small gradients are not lost, and a step whose gradients overflow is skipped.
    Fp16,
}

/// Which blocks of a network compute what they computed once more on the way back, instead of keeping it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Recompute {
    /// None: all that the way back needs is kept.
    #[default]
    None,
    /// All.
    Blocks,
    /// One of so many: `every: 2` is every other block.
    Every(#[schemars(range(min = 2, max = 1_000))] u32),
}

/// What is kept in the host's memory instead of the accelerator's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Offload {
    /// Nothing.
    #[default]
    None,
    /// The optimiser's state, and the update with it: gradients go to the host, and new weights come back (Ren et al. 2021, "ZeRO-Offload").
    Optimizer,
}

/// When to stop before the last epoch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// Validation accuracy that is good enough, as `0.98` or `98%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Fraction>,
    /// Epochs that are enough for now; the learning rate moves as if all of `epochs` followed, and a later run of the same work may go on to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub epochs: Option<u32>,
}

/// Order of a picture's values in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryFormat {
    /// Channel by channel (NCHW).
    #[default]
    Contiguous,
    /// Pixel by pixel (NHWC), which convolutions prefer.
    ChannelsLast,
}

/// Whether a key says what goes without saying; it is then left out, so that the hash of an older job stays its own.
fn is_usual<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
fn one() -> u32 {
    1
}
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_one(number: &u32) -> bool {
    *number == 1
}
fn yes() -> bool {
    true
}
