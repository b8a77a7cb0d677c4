//! The `schedule:` and `average:` keys: how the learning rate moves, and over which steps the weights are averaged.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::span::Span;
use crate::units::Fraction;

/// How the learning rate moves over the run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// Linear rise from zero, as `5 epochs` or `200 steps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<Span>,
    /// The way down after the warm-up.
    #[serde(default)]
    pub decay: Decay,
    /// Share of the rate at which `cosine`, `linear` and `poly` end.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(extend("minimum" = 0, "exclusiveMaximum" = 1))]
    pub floor: f64,
}

/// The way down after the warm-up.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decay {
    /// None.
    #[default]
    Constant,
    /// Half a cosine to zero at the last step (Loshchilov and Hutter 2016).
    Cosine,
    /// A straight line to zero at the last step.
    Linear,
    /// The straight line to a power, 1 at first and zero at the last step.
    Poly(Poly),
    /// Multiplied by `factor` at each of the given epochs.
    Step(StepDecay),
    /// A rise to the rate and a fall far below it, each half a cosine (Smith and Topin 2017); it has a warm-up of its own.
    OneCycle(OneCycle),
}

/// The straight line to a power.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Poly {
    /// 2 bends the line down, 0.5 up.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub power: f64,
}

/// A rise to the rate and a fall far below it, as PyTorch's `OneCycleLR`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OneCycle {
    /// Share of the steps that the rise takes.
    #[serde(default = "three_tenths")]
    pub rise: Fraction,
    /// The rate over this is where the rise begins.
    #[serde(default = "twenty_five")]
    #[schemars(extend("minimum" = 1))]
    pub start: f64,
    /// Where it begins over this is where the fall ends.
    #[serde(default = "ten_thousand")]
    #[schemars(extend("minimum" = 1))]
    pub end: f64,
}

/// Multiplied by `factor` at each of the given epochs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepDecay {
    /// Epochs at whose start the rate drops.
    pub at: Vec<u32>,
    /// What the rate is multiplied by.
    #[serde(default = "tenth")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub factor: f64,
}

/// A mean of the weights over the steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Average {
    /// One that forgets: after each step a share of the mean is replaced by the present weights.
    Ema(Ema),
    /// The plain mean of the weights at the ends of the last epochs (Izmailov et al. 2018).
    Swa(Swa),
}

/// Constants of a mean that forgets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ema {
    /// Share of the mean that is kept at each step; less at first: at most `(1 + n) / (10 + n)` after `n` steps.
    #[serde(default = "ema_decay")]
    #[schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 1))]
    pub decay: f64,
    /// Batches from which batch normalisations measure their statistics anew before the mean is used.
    #[serde(default = "fifty")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub batches: u32,
}

/// Constants of a plain mean.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Swa {
    /// Epoch from whose end on weights are taken, from 0.
    pub from: u32,
    /// Batches from which batch normalisations measure their statistics anew before the mean is used.
    #[serde(default = "fifty")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub batches: u32,
}

impl Average {
    /// Batches from which batch normalisations measure their statistics anew.
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
fn fifty() -> u32 {
    50
}
