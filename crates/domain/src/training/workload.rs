//! The `workload:` and `data:` sections of a job: what a program of the user's own trains, so that it can be planned.
//!
//! The same types are read from the job file, published in its JSON Schema and kept with the job. They describe; nothing
//! here changes what a program does.

mod memory;
mod parallel;

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::format::NumericFormat;
use crate::train::{self, MemoryFormat};
use crate::units::{Bytes, Duration};

pub use memory::{
    AdapterKind, AdapterTargets, HostOffload, LossComputation, RecomputeLevel, WorkloadAdapters, WorkloadRecompute,
};
pub use parallel::{PipelineSchedule, WorkloadParallel};

/// What a program of your own trains, so that `gradus plan` can say what it takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The network.
    pub model: WorkloadModel,
    /// Samples per optimiser step, over all devices and accumulation steps.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub batch: u64,
    /// How often every sample is seen; or give `steps`, or `tokens`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1_000_000))]
    pub epochs: Option<f64>,
    /// Optimiser steps in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Count>,
    /// Total tokens trained on, for models that read text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Count>,
    /// Tokens of a sample, for networks that read text. Default: the most that the model's file names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16_777_216))]
    pub sequence: Option<u64>,
    /// How texts fill sequences: `true` packs several into each, `false` pads each text to a sequence. Default: each sample is a whole sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed: Option<bool>,
    /// Mean tokens of a text, beside `packed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16_777_216))]
    pub mean_length: Option<u64>,
    /// Height and width of an image in pixels, for vision networks. Default: what the model's file names.
    #[serde(default, alias = "picture", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 8, max = 8192), extend("aliases" = ["picture"]))]
    pub image: Option<u64>,
    /// The update rule, as far as it decides memory and time.
    #[serde(default)]
    pub optimizer: OptimizerKind,
    /// Each weight is updated as soon as its gradient exists, which is then freed (torchtune's `optimizer_in_bwd`): no gradient accumulation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optimizer_in_backward: bool,
    /// Number format of the products; `auto` takes the fastest that keeps the weights in fp32.
    #[serde(default)]
    pub precision: NumericFormat,
    /// Order of an image's values in memory.
    #[serde(default = "channels_last")]
    pub memory_format: MemoryFormat,
    /// FlashAttention: the matrix of attention scores is never written to memory.
    #[serde(default = "yes")]
    pub flash_attention: bool,
    /// The program uses `torch.compile`, which fuses small operators.
    #[serde(default)]
    pub compiled: bool,
    /// Activation checkpointing: `true` where it is needed for memory and `false` never, or always at one level.
    #[serde(default)]
    pub recompute: WorkloadRecompute,
    /// How each step is divided among the GPUs. Default: the fastest parallel configuration that fits.
    #[serde(default, skip_serializing_if = "WorkloadParallel::is_empty")]
    pub parallel: WorkloadParallel,
    /// Adapters on frozen weights. Default: all weights are trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapters: Option<WorkloadAdapters>,
    /// What is kept in the host's memory between its uses.
    #[serde(default, skip_serializing_if = "is_default")]
    pub offload: HostOffload,
    /// How the loss is computed from the logits.
    #[serde(default, skip_serializing_if = "is_default")]
    pub loss: LossComputation,
    /// Samples that are evaluated after each epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluated: Option<Count>,
    /// Time between two checkpoints. Default: what loses least on the machines in question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Duration>,
}

/// The network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum WorkloadModel {
    /// A Hugging Face `config.json`, an ONNX or a safetensors file, relative to the job file.
    File(String),
    /// Described here.
    Described(Described),
}

/// A network that is described in the job file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Described {
    /// The keys of a Hugging Face `config.json`.
    Config(ConfigKeys),
    /// Only totals, as tables of models state them.
    Totals(Totals),
}

/// Keys and values of a `config.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConfigKeys(pub serde_json::Map<String, serde_json::Value>);

impl JsonSchema for ConfigKeys {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ConfigKeys".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "object", "format": "figures", "additionalProperties": true })
    }
}

/// Totals of a network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Totals {
    /// Trained parameters.
    pub parameters: Count,
    /// Multiply-adds of one forward pass of one sample; half of what some tables call FLOPs.
    pub multiply_adds: Count,
    /// Values that convolutions and linear layers write in one forward pass of one sample.
    pub activations: Count,
    /// The kind of its blocks, such as `resnet` or `vit`, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
}

/// The update rule, as far as it decides memory and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OptimizerKind {
    /// Stochastic gradient descent without momentum.
    Sgd,
    /// With momentum: one value more for each weight.
    SgdMomentum,
    /// Adam or AdamW: two values more for each weight.
    #[default]
    Adam,
    /// Adam with its two values in 8 bits.
    Adam8bit,
    /// Adafactor: rows and columns instead of a second value.
    Adafactor,
    /// LAMB: two values more for each weight.
    Lamb,
}

impl From<&train::Optimizer> for OptimizerKind {
    fn from(optimizer: &train::Optimizer) -> OptimizerKind {
        match optimizer {
            train::Optimizer::Sgd(sgd) if sgd.momentum == 0.0 => OptimizerKind::Sgd,
            // LARS keeps as much, and takes two norms more of each tensor.
            train::Optimizer::Sgd(_) | train::Optimizer::Lars(_) => OptimizerKind::SgdMomentum,
            train::Optimizer::Adamw(_) => OptimizerKind::Adam,
            train::Optimizer::Lamb(_) => OptimizerKind::Lamb,
            train::Optimizer::Adafactor(_) => OptimizerKind::Adafactor,
        }
    }
}

/// The data, where it is not at hand or lies in a cloud.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataFacts {
    /// Training samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<Count>,
    /// Their size in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
    /// Samples a second that one processor core makes ready. Default: by the kind of the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub per_core: Option<f64>,
    /// Where it lies, as `aws/us-east-1`; what leaves there is paid for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// A number of things. In a job file: `1281167`, `1.28M`, `300B`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Count(pub u64);

/// k, M, B (or G) and T are powers of a thousand.
const SCALES: [(char, f64); 6] = [('k', 1e3), ('m', 1e6), ('b', 1e9), ('g', 1e9), ('t', 1e12), ('p', 1e15)];

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Count, String> {
        let wrong = || format!("`{text}` is no number; write for example `1281167`, `1.28M` or `300B`");
        let trimmed = text.trim().replace('_', "");
        let last = trimmed.chars().last().ok_or_else(wrong)?.to_ascii_lowercase();
        let scale = SCALES.iter().find(|(letter, _)| *letter == last).map(|(_, scale)| *scale);
        let bare = if scale.is_some() { &trimmed[..trimmed.len() - 1] } else { &trimmed[..] };
        if let (Ok(whole), None) = (bare.parse::<u64>(), scale) {
            return Ok(Count(whole));
        }
        let number: f64 = bare.trim().parse().map_err(|_| wrong())?;
        let value = (number * scale.unwrap_or(1.0)).round();
        if !(0.0..1e19).contains(&value) {
            return Err(wrong());
        }
        Ok(Count(value as u64))
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

crate::units::human_text!(Count, "count", "A number of things, such as `1281167`, `1.28M` or `300B`.");

fn yes() -> bool {
    true
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn channels_last() -> MemoryFormat {
    MemoryFormat::ChannelsLast
}

#[cfg(test)]
mod tests {
    use super::Count;

    #[test]
    fn counts_read_and_print() {
        let check = |text: &str, count: u64| assert_eq!(text.parse(), Ok(Count(count)), "{text}");
        check("1281167", 1_281_167);
        check("1_281_167", 1_281_167);
        check("1.28M", 1_280_000);
        check("300B", 300_000_000_000);
        check("4.1 G", 4_100_000_000);
        check("1e6", 1_000_000);
        check("18446744073709551615", u64::MAX);
        for wrong in ["", "M", "many", "-1", "1e30"] {
            assert!(wrong.parse::<Count>().is_err(), "{wrong}");
        }
    }
}
