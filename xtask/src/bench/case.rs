//! What is measured: one description, in the words of a job file, that is handed to both programs.

use std::path::Path;

use serde_json::{Value, json};

/// Height and width of the pictures.
const SIZE: u64 = 32;
/// Classes of the pictures.
const CLASSES: u64 = 10;
/// Pictures in a batch.
pub const BATCH: u64 = 32;

/// A ResNet-18 on small pictures in one number format and one memory format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    pub precision: &'static str,
    pub memory_format: &'static str,
}

/// Every case.
pub const ALL: [Case; 4] = [
    Case { precision: "fp32", memory_format: "contiguous" },
    Case { precision: "fp32", memory_format: "channels_last" },
    Case { precision: "bf16", memory_format: "contiguous" },
    Case { precision: "bf16", memory_format: "channels_last" },
];

impl Case {
    /// The case of this name, such as `bf16-channels_last`; `contiguous` goes without saying.
    pub fn named(name: &str) -> Option<Case> {
        ALL.into_iter().find(|case| case.name() == name)
    }

    pub fn name(self) -> String {
        match self.memory_format {
            "contiguous" => self.precision.to_owned(),
            format => format!("{}-{format}", self.precision),
        }
    }

    /// The `train:` section of a job over the data at `data`.
    pub fn job(self, data: &Path) -> Value {
        json!({
            "model": "resnet18",
            "data": {"path": data, "split": [0.98, 0.01, 0.01], "augment": [{"pad_crop": 4}, "flip"]},
            "epochs": 1000,
            "batch": BATCH,
            "precision": self.precision,
            "memory_format": self.memory_format,
            "optimizer": {"sgd": {"lr": 0.01, "momentum": 0.9, "nesterov": false, "weight_decay": 0.0005}},
            "checkpoint": {"every": "100 steps"},
            "seed": 0,
        })
    }

    /// What `crates/train/examples/bench.rs` and `benches/peers/torch_step.py` are given.
    pub fn description(self) -> String {
        let train = self.job(Path::new(""));
        json!({"train": train, "size": SIZE, "classes": CLASSES, "threads": threads()}).to_string()
    }
}

/// Threads of both programs: the machine's cores.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
