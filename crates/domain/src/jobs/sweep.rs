//! A sweep: many trials of the same `train:` section with other values of some of its keys, or of the same `run:` program
//! with other variables, under one budget.
//!
//! This module defines the search ([`Sweep`]), a trial ([`Trial`]) and the objective ([`Metric`]). `plan::sweep`
//! selects the next trial.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::finding::Finding;
use crate::id::{RunId, SweepId};
use crate::rank::Exported;
use crate::run::StopBy;
use crate::train::{Labels, Task, Train};

/// What keys of variables begin with.
pub const VARIABLES: &str = "envs.";

/// Most trials that a sweep may have.
pub const MOST_TRIALS: u32 = 10_000;

/// The search space and method: the `sweep:` section, every default filled in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// The keys that change from trial to trial, in the order of the file.
    pub parameters: Vec<Parameter>,
    /// How trials are chosen.
    pub method: Method,
    /// Maximum number of trials; `None` for the size of the grid, or as many as budget and deadline allow.
    pub trials: Option<u32>,
    /// The objective; `None` where trials are not compared: those of a program that names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<Metric>,
    /// Whether more of it is better.
    pub goal: Goal,
    /// Seed of the draws.
    pub seed: u64,
    /// Trials at the same time.
    pub parallel: u32,
    /// Failed trials after which the sweep is given up.
    pub max_failed: u32,
}

/// One key of `train:`, or one variable, and its range.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// Key path below `train`, such as `optimizer.adamw.lr`; or `envs.NAME`.
    pub key: String,
    /// Its values.
    pub range: Range,
}

/// The range of a key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Range {
    /// One of these, as the `train:` section has them.
    Choices(Vec<Value>),
    /// Integers between two bounds, inclusive.
    Integers(Between<i64>),
    /// A number between two.
    Numbers(Between<f64>),
}

/// From where to where, both included.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Between<T> {
    /// Lower bound, inclusive.
    pub min: T,
    /// Upper bound, inclusive.
    pub max: T,
    /// Whether each factor is as likely as another, instead of each difference.
    #[serde(default)]
    pub log: bool,
    /// How many values a grid takes of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub points: Option<u32>,
}

/// How trials are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Every combination of the values once; the last key varies fastest.
    Grid,
    /// Random search: values drawn by seed, independently for each trial (Bergstra and Bengio 2012).
    Random,
    /// Asynchronous successive halving: random values, of which only the best are trained for longer (ASHA, Li et al. 2020).
    Asha(Asha),
    /// Every row of a table once, in its order: the `n`-th value of each key is that of row `n`. Written as `table:`.
    #[schemars(skip)]
    Table,
}

/// Asynchronous successive halving. Every trial is trained for `min_epochs`; the best 1 in `reduction_factor` resume from their checkpoints for that many times as many epochs, and so on up to `train.epochs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Asha {
    /// Epochs before the first comparison.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub min_epochs: u32,
    /// Maximum epochs of a trial. Default: `train.epochs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 1_000_000))]
    pub max_epochs: Option<u32>,
    /// One in this many trials is promoted, to this many times as many epochs.
    #[serde(default = "three")]
    #[schemars(range(min = 2, max = 100))]
    pub reduction_factor: u32,
}

/// What trials are judged by: of the exported model, on the validation split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Fraction of correct predictions.
    Accuracy,
    /// Mean loss.
    Loss,
    /// F1 score, averaged over classes.
    F1,
    /// Top-5 accuracy; needs at least six classes.
    Top5,
    /// Perplexity, for language models.
    Perplexity,
    /// mAP@[.5:.95] for detection, mAP for `labels: multi_label`.
    Map,
    /// mAP@.5, for detection.
    Map50,
}

/// Whether more of the metric is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Higher is better.
    Maximize,
    /// Lower is better.
    Minimize,
}

/// Which trial of which sweep a run is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Of which sweep.
    pub sweep: SweepId,
    /// From 1.
    pub number: u32,
    /// The values of its keys, in the order of the sweep's parameters.
    pub values: Vec<Setting>,
}

/// One key with its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Key path below `train`, or `envs.NAME`.
    pub key: String,
    /// As the `train:` section has it; the text of a variable.
    pub value: Value,
}

/// Properties of the data that are known in advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Known {
    /// Samples of training, validation and test.
    pub samples: Option<[u64; 3]>,
    /// Channels, height and width of an image.
    #[serde(rename = "picture")]
    pub image: Option<[u32; 3]>,
    /// Number of classes.
    pub classes: Option<u32>,
}

/// The best trial of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Its number.
    pub number: u32,
    /// Its run, whose model is exported.
    pub run: RunId,
    /// The value of the metric.
    pub value: f64,
}

/// How a sweep ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum SweepEnd {
    /// Every trial is at its end.
    Done {
        /// The best of them; `None` if they are not compared.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        best: Option<Best>,
    },
    /// Stopped before that.
    Stopped {
        /// By whom.
        by: StopBy,
        /// The best trial.
        best: Option<Best>,
    },
    /// It has failed.
    Failed {
        /// Why.
        finding: Finding,
        /// The best trial.
        best: Option<Best>,
    },
}

impl Goal {
    /// Whether `one` is better than `other`; NaN is worse than any number.
    pub fn prefers(self, one: f64, other: f64) -> bool {
        match self {
            _ if one.is_nan() => false,
            _ if other.is_nan() => true,
            Goal::Maximize => one > other,
            Goal::Minimize => one < other,
        }
    }
}

impl Metric {
    /// The default metric of a job.
    pub fn usual(train: &Train) -> Metric {
        match (train.task(), train.data.labels) {
            (Task::ImageClassification | Task::TextClassification, Labels::Class) => Metric::Accuracy,
            (Task::ImageClassification | Task::TextClassification, Labels::MultiLabel) => Metric::Map,
            (Task::ImageClassification | Task::TextClassification, Labels::Number) => Metric::Loss,
            (Task::ObjectDetection, _) => Metric::Map,
            (Task::MaskedLanguageModel | Task::LanguageModel, _) => Metric::Loss,
        }
    }

    /// Those that a job has.
    pub fn of(train: &Train) -> &'static [Metric] {
        match train.task() {
            Task::ImageClassification | Task::TextClassification => match train.data.labels {
                Labels::Class => &[Metric::Accuracy, Metric::Loss, Metric::F1, Metric::Top5],
                Labels::MultiLabel => &[Metric::Map, Metric::Loss, Metric::F1],
                Labels::Number => &[Metric::Loss],
            },
            Task::ObjectDetection => &[Metric::Map, Metric::Map50, Metric::Loss],
            Task::MaskedLanguageModel | Task::LanguageModel => &[Metric::Loss, Metric::Perplexity, Metric::Accuracy],
        }
    }

    /// Returns its default goal: [`Goal::Maximize`] for accuracy, F1, top-5 and mAP, [`Goal::Minimize`] for loss and
    /// perplexity.
    pub fn goal(self) -> Goal {
        match self {
            Metric::Accuracy | Metric::F1 | Metric::Top5 | Metric::Map | Metric::Map50 => Goal::Maximize,
            Metric::Loss | Metric::Perplexity => Goal::Minimize,
        }
    }

    /// Its value for a model; `None` if it was not measured.
    pub fn measured(self, model: &Exported) -> Option<f64> {
        let value = match self {
            Metric::Accuracy | Metric::Map => Some(model.validation_accuracy),
            Metric::Loss => model.validation_loss,
            Metric::F1 => model.validation_figures.f1,
            Metric::Top5 => model.validation_figures.top5,
            Metric::Perplexity => model.validation_figures.perplexity,
            Metric::Map50 => model.validation_figures.map50,
        };
        value.filter(|value| value.is_finite())
    }

    /// Its name in a job file.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Accuracy => "accuracy",
            Metric::Loss => "loss",
            Metric::F1 => "f1",
            Metric::Top5 => "top5",
            Metric::Perplexity => "perplexity",
            Metric::Map => "map",
            Metric::Map50 => "map50",
        }
    }

    /// A value for people: `97.22 %` for a share, `0.1234` for a loss.
    pub fn say(self, value: f64) -> String {
        match self {
            Metric::Loss | Metric::Perplexity => format!("{value:.4}"),
            // A program may report a percentage as one.
            _ if value > 1.5 => format!("{value:.4}"),
            Metric::Accuracy | Metric::F1 | Metric::Top5 | Metric::Map | Metric::Map50 => {
                format!("{:.2} %", 100.0 * value)
            }
        }
    }
}

impl Setting {
    /// Settings behind a sentence: ` with epochs=60, processes=1`; nothing where there are none.
    pub fn said(settings: &[Setting]) -> String {
        let each: Vec<String> = settings.iter().map(|setting| format!("{}={}", setting.key, setting.say())).collect();
        if each.is_empty() { String::new() } else { format!(" with {}", each.join(", ")) }
    }

    /// The name of the variable that it sets, if its key is none of `train`.
    pub fn variable(&self) -> Option<&str> {
        self.key.strip_prefix(VARIABLES)
    }

    /// The value for display: text without quotes, other values as in the file.
    pub fn say(&self) -> String {
        flow(&self.value)
    }
}

/// A value on one line, as a job file may have it.
fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float != 0.0 && !(1e-3..1e6).contains(&float.abs()) => {
                format!("{float:e}")
            }
            _ => number.to_string(),
        },
        Value::Array(values) => format!("[{}]", values.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(entries) => {
            let entries: Vec<String> = entries.iter().map(|(key, value)| format!("{key}: {}", flow(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Null | Value::Bool(_) => value.to_string(),
    }
}

impl Train {
    /// The same work with other values of some keys.
    ///
    /// # Errors
    /// A sentence about values that do not make a `train:` section; those of a job file that was read always do.
    pub fn with(&self, values: &[Setting]) -> Result<Train, String> {
        let mut whole = serde_json::to_value(self).map_err(|error| error.to_string())?;
        for Setting { key, value } in values {
            let mut place = &mut whole;
            for part in key.split('.') {
                if !place.is_object() {
                    *place = Value::Object(serde_json::Map::new());
                }
                place = &mut place[part];
            }
            *place = value.clone();
        }
        Train::deserialize(whole).map_err(|error| error.to_string())
    }
}

impl Method {
    /// Whether it has a number of trials of its own, and needs no other limit.
    pub fn is_counted(self) -> bool {
        match self {
            Method::Grid | Method::Table => true,
            Method::Random | Method::Asha(_) => false,
        }
    }
}

impl Sweep {
    /// How many combinations a grid has, or rows a table; a range of numbers without `points` has none that could be counted.
    pub fn grid_size(&self) -> u64 {
        if self.method == Method::Table {
            return self.parameters.first().map_or(0, |parameter| parameter.range.size());
        }
        self.parameters.iter().fold(1, |size, parameter| size.saturating_mul(parameter.range.size()))
    }
}

impl Range {
    /// How many values a grid takes of it.
    pub fn size(&self) -> u64 {
        match self {
            Range::Choices(values) => values.len() as u64,
            Range::Integers(between) => {
                let all = between.max.abs_diff(between.min).saturating_add(1);
                between.points.map_or(all, |points| all.min(u64::from(points)))
            }
            Range::Numbers(between) => between.points.map_or(1, u64::from),
        }
    }
}

fn one() -> u32 {
    1
}
fn three() -> u32 {
    3
}
