//! A case of a benchmark: one description, as a job file, that is given to both programs.

use std::path::Path;

use serde_json::{Value, json};

/// Tokens of a text.
const LENGTH: u64 = 128;
/// Size of the vocabulary.
const VOCABULARY: u64 = 8_000;

/// A model in one number format and one memory format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    pub model: &'static str,
    pub precision: &'static str,
    pub memory_format: &'static str,
}

/// The cases that are measured where none is named: a ResNet-18 on small images.
pub const ALL: [Case; 4] = [
    Case { model: "resnet18", precision: "fp32", memory_format: "contiguous" },
    Case { model: "resnet18", precision: "fp32", memory_format: "channels_last" },
    Case { model: "resnet18", precision: "bf16", memory_format: "contiguous" },
    Case { model: "resnet18", precision: "bf16", memory_format: "channels_last" },
];

/// The other models, with the batch of each.
const OTHERS: [(&str, u64); 4] = [("resnet50", 8), ("mobilenet_v3_large", 16), ("bert_mini", 16), ("gpt_tiny", 16)];

impl Case {
    /// The case of this name, such as `bf16-channels_last` or `bert_mini-fp32`; `resnet18` and `contiguous` go without
    /// saying.
    pub fn named(name: &str) -> Option<Case> {
        if let Some(case) = ALL.into_iter().find(|case| case.format() == name) {
            return Some(case);
        }
        let (model, format) = name.split_once('-')?;
        let (model, _) = OTHERS.into_iter().find(|(other, _)| *other == model)?;
        let case = ALL.into_iter().find(|case| case.format() == format)?;
        let case = Case { model, ..case };
        (case.memory_format == "contiguous" || !case.reads_text()).then_some(case)
    }

    /// The models beside [`ALL`]'s.
    pub fn others() -> String {
        OTHERS.map(|(model, _)| model).join(", ")
    }

    /// What it is called: [`Case::named`] reads it.
    pub fn name(self) -> String {
        if self.model == ALL[0].model { self.format() } else { format!("{}-{}", self.model, self.format()) }
    }

    /// The number format and, where it is not the usual one, the memory format.
    pub fn format(self) -> String {
        match self.memory_format {
            "contiguous" => self.precision.to_owned(),
            format => format!("{}-{format}", self.precision),
        }
    }

    /// Samples in a batch.
    pub fn batch(self) -> u64 {
        OTHERS.into_iter().find(|(model, _)| *model == self.model).map_or(32, |(_, batch)| batch)
    }

    /// Height and width of the images.
    pub fn size(self) -> u64 {
        if self.model == ALL[0].model { 32 } else { 224 }
    }

    fn classes(self) -> u64 {
        if self.size() < 64 || self.reads_text() { 10 } else { 1000 }
    }

    fn reads_text(self) -> bool {
        self.model.starts_with("bert") || self.model.starts_with("gpt")
    }

    /// The `train:` section of a job over the data at `data`.
    pub fn job(self, data: &Path) -> Value {
        let mut job = json!({
            "model": self.model,
            "data": {"path": data, "split": [0.98, 0.01, 0.01]},
            "epochs": 1000,
            "batch": self.batch(),
            "precision": self.precision,
            "memory_format": self.memory_format,
            "optimizer": {"sgd": {"lr": 0.01, "momentum": 0.9, "nesterov": false, "weight_decay": 0.0005}},
            "checkpoint": {"every": "100 steps"},
            "seed": 0,
        });
        if self.reads_text() {
            job["data"]["text"] = json!({"label": "class", "length": LENGTH, "vocabulary": VOCABULARY});
            job["optimizer"] = json!({"adamw": {"lr": 1e-4, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}});
        } else {
            job["data"]["augment"] = json!([{"pad_crop": 4}, "flip"]);
        }
        job
    }

    /// What `gradus-rank bench` and `benches/peers/torch_step.py` are given.
    pub fn description(self) -> String {
        self.described_with(&json!({}))
    }

    /// The same with some keys of the job changed.
    pub fn described_with(self, keys: &Value) -> String {
        let mut train = self.job(Path::new(""));
        for (key, value) in keys.as_object().into_iter().flatten() {
            train[key] = value.clone();
        }
        let threads = threads();
        json!({"train": train, "size": self.size(), "vocabulary": VOCABULARY, "classes": self.classes(), "threads": threads})
            .to_string()
    }
}

/// Threads of both programs: the machine's cores.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
