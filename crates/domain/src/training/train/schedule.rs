//! The `schedule:` and `average:` keys: the learning rate schedule and weight averaging.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::span::Span;
use crate::units::Fraction;

/// Learning rate schedule, per step.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// Linear warm-up, such as `5 epochs` or `200 steps`: the first of `w` steps has 1/`w` of the learning rate, the last all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<Span>,
    /// Decay after the warm-up.
    #[serde(default)]
    pub decay: Decay,
    /// Learning rate that `cosine`, `linear` and `poly` decay to, as a fraction of the initial one.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(extend("minimum" = 0, "exclusiveMaximum" = 1))]
    pub floor: f64,
}

/// Decay after the warm-up.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decay {
    /// No decay.
    #[default]
    Constant,
    /// Cosine annealing that reaches zero, or `floor`, one step after the last (Loshchilov and Hutter 2016).
    Cosine,
    /// Linear; reaches zero, or `floor`, one step after the last.
    Linear,
    /// Polynomial; reaches zero, or `floor`, one step after the last.
    Poly(Poly),
    /// Multiplied by `factor` at each of the given epochs.
    Step(StepDecay),
    /// The one-cycle policy with cosine annealing (Smith and Topin 2017), which includes a warm-up.
    OneCycle(OneCycle),
}

/// Polynomial decay.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Poly {
    /// Power of the polynomial; 1 is linear.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub power: f64,
}

/// One-cycle policy, as the learning rate of PyTorch's `OneCycleLR`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OneCycle {
    /// Fraction of the steps spent increasing the learning rate (`pct_start`).
    #[serde(default = "three_tenths")]
    pub rise: Fraction,
    /// The initial learning rate is the maximum divided by this (`div_factor`).
    #[serde(default = "twenty_five")]
    #[schemars(extend("minimum" = 1))]
    pub start: f64,
    /// The final learning rate is the initial one divided by this (`final_div_factor`).
    #[serde(default = "ten_thousand")]
    #[schemars(extend("minimum" = 1))]
    pub end: f64,
}

/// Multiplied by `factor` at each of the given epochs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepDecay {
    /// Epochs at whose start the learning rate drops.
    pub at: Vec<u32>,
    /// Factor of each drop.
    #[serde(default = "tenth")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub factor: f64,
}

/// Weight averaging.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Average {
    /// Exponential moving average, updated after each step.
    Ema(Ema),
    /// Stochastic weight averaging: the mean of the weights at the ends of the last epochs (Izmailov et al. 2018).
    Swa(Swa),
}

/// Exponential moving average.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ema {
    /// Decay per step.
    #[serde(default = "ema_decay")]
    #[schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 1))]
    pub decay: f64,
    /// Limit the decay to `(1 + n) / (10 + n)` after `n` steps, as TensorFlow and timm do, so that the initial weights are soon forgotten. With `false` the average is that of PyTorch's `AveragedModel` with `get_ema_multi_avg_fn(decay)`.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub warmup: bool,
    /// Batches from which batch normalisation statistics are recomputed before the averaged weights are used.
    #[serde(default = "fifty")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub batches: u32,
}

/// Stochastic weight averaging.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Swa {
    /// First epoch whose final weights are averaged, counted from 0.
    pub from: u32,
    /// Batches from which batch normalisation statistics are recomputed before the averaged weights are used.
    #[serde(default = "fifty")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub batches: u32,
}

impl Average {
    /// Batches from which batch normalisation statistics are recomputed.
    pub fn batches(self) -> u32 {
        match self {
            Average::Ema(ema) => ema.batches,
            Average::Swa(swa) => swa.batches,
        }
    }
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}
fn tenth() -> f64 {
    0.1
}
fn three_tenths() -> Fraction {
    Fraction::percent(30)
}
fn twenty_five() -> f64 {
    25.0
}
fn ten_thousand() -> f64 {
    1e4
}
fn ema_decay() -> f64 {
    0.999
}
fn yes() -> bool {
    true
}
fn is_yes(value: &bool) -> bool {
    *value
}
fn fifty() -> u32 {
    50
}
