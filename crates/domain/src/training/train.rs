//! The `train:` section of a job: what the built-in trainer does.
//!
//! The same types are read from the job file, published in its JSON Schema, documented in `docs/job-file.md` and
//! handed to a rank. Each key has one meaning, one default and one line of documentation: its doc comment.

mod augment;
mod checkpoint;
mod class_weights;
mod data;
mod model;
mod optimizer;
mod parallel;
mod schedule;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::augment::{Augment, AutoAugment, ColorJitter, RandAugment, RandomErasing};
pub use self::checkpoint::{Checkpoint, Codec};
pub use self::class_weights::{Balanced, ClassWeights};
pub use self::data::{Cache, Corrupt, Data, Documents, Folders, Labels, Normalize, Sampling, Split, Text};
pub use self::model::{GptSize, Loss, Model, ModelSource, Module, ResnetSize};
pub use self::optimizer::{Adafactor, Adamw, Decays, Lamb, Lars, Optimizer, ParameterGroup, Parameters, Sgd};
pub use self::parallel::{Exchange, Parallel, Shard};
pub use self::schedule::{Average, Decay, Ema, OneCycle, Poly, Schedule, StepDecay, Swa};
use crate::architecture::{Architecture, Reads};
pub use crate::span::{Every, Span};
use crate::units::Fraction;

/// The built-in trainer, instead of a `run` program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Train {
    /// The model to train: a name, or `{torchscript: module.pt}` for your own module (relative to the job file), which also needs a `loss`.
    pub model: ModelSource,
    /// Loss of your own TorchScript module; named models have theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// A `.safetensors` file, a `.pth` file of `torch.save` or a `transformers` folder to start from instead of random weights; relative to the job file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
    /// Where the samples are and how they are split.
    pub data: Data,
    /// Passes over the training split.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub epochs: u32,
    /// Samples per optimizer step, over all ranks and micro-batches.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub batch: u32,
    /// Micro-batches per optimizer step (gradient accumulation). The result equals that of the whole batch, except for batch normalisation, which sees each micro-batch separately.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1_048_576))]
    pub accumulate: u32,
    /// Number of ranks, one process each, that share every batch. The result equals that of the whole batch, except for batch normalisation without `parallel.sync_batch_norm` and for random draws such as dropout.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    #[schemars(range(min = 1, max = 1_024))]
    pub processes: u32,
    /// Sharding, tensor parallelism and gradient exchange for more than one rank.
    #[serde(default, skip_serializing_if = "Parallel::is_default")]
    pub parallel: Parallel,
    /// Number format of matrix products; `auto` uses the fastest one that the device supports natively.
    #[serde(default)]
    pub precision: Precision,
    /// Optimizer.
    #[serde(default)]
    pub optimizer: Optimizer,
    /// Parameter groups: weight decay, layer-wise learning rates and frozen parameters.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub parameters: Parameters,
    /// Learning rate schedule.
    #[serde(default)]
    pub schedule: Schedule,
    /// Weight averaging (EMA or SWA); the averaged weights are validated, tested and exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average: Option<Average>,
    /// State to keep in host memory instead of GPU memory: slower steps, more space.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub offload: Offload,
    /// Activation checkpointing: which blocks recompute their activations in the backward pass. Less memory for a third more arithmetic, with the same results.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub recompute: Recompute,
    /// Compute the logits of a language model for an eighth of the tokens at a time, and again in the backward pass. Less memory where the vocabulary is large, for the head's matrix product once more.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub chunked_loss: bool,
    /// Whether forward and backward pass are captured as a CUDA graph per batch shape and replayed, which saves the launch overhead of kernels. Default: on a GPU with a single rank, without `recompute`, for every network that can be captured (not detectors and TorchScript modules), if the device has twice the memory of the passes. Needs the library of `cargo xtask cuda`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda_graphs: Option<bool>,
    /// Dropout probability, for models that have dropout. Default: as in the model's paper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0, "exclusiveMaximum" = 1))]
    pub dropout: Option<f64>,
    /// Probability mass taken from the true class and spread evenly over all classes.
    #[serde(default)]
    #[schemars(extend("minimum" = 0, "exclusiveMaximum" = 1))]
    pub label_smoothing: f64,
    /// Weight of each class in the training loss, as `CrossEntropyLoss(weight=…)`: `balanced`, or a list in the order of the classes. Validation and test losses are not weighted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_weights: Option<ClassWeights>,
    /// Clip gradients to this global L2 norm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub clip_norm: Option<f64>,
    /// Memory layout of image tensors. Default: `channels_last` on a GPU for convolutional networks that classify images in bf16 or fp16, `contiguous` otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_format: Option<MemoryFormat>,
    /// Seed of the weights, the split, the sample order and augmentation.
    #[serde(default)]
    pub seed: u64,
    /// Threads that libtorch uses per rank. They affect the result, so a resumed run keeps their number. Default: the machine's cores divided by `processes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub threads: Option<u32>,
    /// Use only operations that give the same result in every run.
    #[serde(default = "yes")]
    pub deterministic: bool,
    /// Interval between validations, such as `500 steps` or `2 epochs`; the last step is always validated. Default: after each epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validate_every: Option<Span>,
    /// Interval at which to export the current weights, such as `10 epochs`, as `export/step-STEP.safetensors`; the last ones also as `export/last.safetensors`. Default: only the best weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export_every: Option<Span>,
    /// When to stop before the last epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// When to save checkpoints, and how many to keep.
    #[serde(default)]
    pub checkpoint: Checkpoint,
    /// Record where the time of each step goes and write a trace, like `gradus run --profile`.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub profile: bool,
}

/// The learning task of a run, by its model and its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Image classification.
    ImageClassification,
    /// Object detection.
    ObjectDetection,
    /// Text classification.
    TextClassification,
    /// Masked language modelling.
    MaskedLanguageModel,
    /// Next-token prediction.
    LanguageModel,
}

impl Train {
    /// The learning task.
    pub fn task(&self) -> Task {
        let has_label = self.data.text.as_ref().is_some_and(|text| text.label.is_some());
        match (self.model.architecture().map(Architecture::reads), self.loss) {
            (Some(Reads::Images), _) => Task::ImageClassification,
            (Some(Reads::DetectionImages), _) => Task::ObjectDetection,
            (Some(Reads::Tokens), _) if has_label => Task::TextClassification,
            (Some(Reads::Tokens), _) | (None, Some(Loss::MaskedWords)) => Task::MaskedLanguageModel,
            (Some(Reads::CausalTokens), _) | (None, Some(Loss::NextWord)) => Task::LanguageModel,
            (None, Some(Loss::CrossEntropy | Loss::Bce | Loss::Mse) | None) if self.data.text.is_some() => {
                Task::TextClassification
            }
            (None, Some(Loss::CrossEntropy | Loss::Bce | Loss::Mse) | None) => Task::ImageClassification,
        }
    }

    /// Why the passes of a step cannot be captured as a CUDA graph, which must be the same for every batch; `None` if
    /// they can.
    pub fn why_not_captured(&self) -> Option<&'static str> {
        match self.recompute {
            _ if self.processes > 1 => Some("ranks exchange gradients in the backward pass"),
            _ if self.chunked_loss => Some("a chunked loss computes its logits again"),
            Recompute::Blocks | Recompute::Every(_) => Some("recomputed blocks draw their random numbers again"),
            Recompute::None if self.model.architecture().is_none() => {
                Some("what a module of your own does besides is unknown")
            }
            Recompute::None if self.task() == Task::ObjectDetection => {
                Some("the number of objects differs between images")
            }
            Recompute::None => None,
        }
    }

    /// The memory layout of image tensors on a CUDA device or elsewhere: what the job says, or channels last where cuDNN
    /// computes convolutions in that layout, and its results were compared with PyTorch's.
    pub fn memory_format_on(&self, is_cuda: bool) -> MemoryFormat {
        let in_16_bits = match self.precision {
            // On a CUDA device `auto` is bf16 or fp16.
            Precision::Auto | Precision::Bf16 | Precision::Fp16 => true,
            Precision::Fp32 | Precision::Tf32 => false,
        };
        let convolves = self.model.architecture().is_some_and(Architecture::classifies_by_convolutions);
        match self.memory_format {
            Some(stated) => stated,
            None if is_cuda && in_16_bits && convolves => MemoryFormat::ChannelsLast,
            None => MemoryFormat::Contiguous,
        }
    }

    /// Epochs after which the run ends: all, or as many as `stop` says.
    pub fn last_epoch(&self) -> u32 {
        let enough = self.stop.and_then(|stop| stop.epochs).unwrap_or(self.epochs);
        enough.min(self.epochs)
    }
}

/// Number format of matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// The fastest that the device supports natively: bf16, or else fp16, on a GPU; fp32 on a CPU.
    #[default]
    Auto,
    /// 32-bit floating point.
    Fp32,
    /// fp32 with matrix products in TF32 (19 bits), on NVIDIA GPUs since A100; an error elsewhere.
    Tf32,
    /// Autocast to bfloat16; weights and optimizer state stay fp32.
    Bf16,
    /// Autocast to fp16 with loss scaling; weights and optimizer state stay fp32. Steps whose gradients overflow are skipped.
    Fp16,
}

/// Which blocks of a network recompute their activations in the backward pass instead of saving them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Recompute {
    /// No block.
    #[default]
    None,
    /// Every block.
    Blocks,
    /// Every n-th block: `every: 2` is every other one.
    Every(#[schemars(range(min = 2, max = 1_000))] u32),
}

/// State to keep in host memory instead of GPU memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Offload {
    /// Nothing.
    #[default]
    None,
    /// Optimizer state. Gradients go to the host, which computes the update, and new weights come back (Ren et al. 2021, "ZeRO-Offload").
    Optimizer,
}

/// When to stop before the last epoch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// Stop at this validation accuracy, such as `0.98` or `98%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Fraction>,
    /// Stop after this many epochs. The learning rate schedule still spans all of `epochs`; `gradus resume RUN --set stop=null` continues to them, `--set stop.epochs=N` to more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub epochs: Option<u32>,
    /// Stop once this many validations in a row (one per epoch, or as `validate_every` says) have not improved the best result (early stopping).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub patience: Option<u32>,
}

/// Memory layout of image tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryFormat {
    /// Channels first (NCHW).
    #[default]
    Contiguous,
    /// Channels last (NHWC), in which cuDNN computes convolutions in 16 bits.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn convolutions_in_16_bits_have_channels_last_on_a_gpu() {
        use MemoryFormat::{ChannelsLast, Contiguous};
        let check = |model: &str, precision: &str, on_gpu: MemoryFormat| {
            let mut job = json!({"model": model, "data": {"path": "images"}, "epochs": 1, "batch": 8});
            job["precision"] = json!(precision);
            let train: Train = serde_json::from_value(job.clone()).unwrap();
            assert_eq!(
                [true, false].map(|cuda| train.memory_format_on(cuda)),
                [on_gpu, Contiguous],
                "{model} {precision}"
            );
            // What the job says holds everywhere.
            for (word, stated) in [("contiguous", Contiguous), ("channels_last", ChannelsLast)] {
                job["memory_format"] = json!(word);
                let train: Train = serde_json::from_value(job.clone()).unwrap();
                assert_eq!([true, false].map(|cuda| train.memory_format_on(cuda)), [stated; 2], "{model} {word}");
            }
        };
        check("resnet50", "auto", ChannelsLast);
        check("resnet50", "bf16", ChannelsLast);
        check("resnet50", "fp32", Contiguous);
        check("resnet50", "tf32", Contiguous);
        check("resnet20", "fp16", ChannelsLast);
        check("cnn", "auto", ChannelsLast);
        check("mobilenet_v3_large", "auto", ChannelsLast);
        check("efficientnet_b0", "auto", ChannelsLast);
        check("convnext_tiny", "auto", ChannelsLast);
        check("mlp", "auto", Contiguous);
        check("vit_s_16", "auto", Contiguous);
        check("yolo_n", "auto", Contiguous);
        check("gpt2", "auto", Contiguous);
    }

    #[test]
    fn jobs_that_leave_the_layout_open_do_not_state_it() {
        let job = json!({"model": "cnn", "data": {"path": "images"}, "epochs": 1, "batch": 8});
        let train: Train = serde_json::from_value(job).unwrap();
        assert_eq!(serde_json::to_value(&train).unwrap().get("memory_format"), None);
    }
}
