//! The `optimizer:` and `parameters:` keys: the optimizers with their hyperparameters, and parameter groups.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The optimizer and its hyperparameters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Optimizer {
    /// Stochastic gradient descent.
    Sgd(Sgd),
    /// Adam with decoupled weight decay (Loshchilov and Hutter 2017).
    Adamw(Adamw),
    /// Adam with layer-wise adaptive step lengths, for large batches (You et al. 2019).
    Lamb(Lamb),
    /// SGD with layer-wise adaptive step lengths, for large batches of images (You et al. 2017).
    Lars(Lars),
    /// Adafactor: a factored second moment (rows and columns), which takes almost no memory (Shazeer and Stern 2018).
    Adafactor(Adafactor),
}

/// SGD, as in PyTorch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sgd {
    /// Learning rate.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub lr: f64,
    /// Momentum.
    #[serde(default = "momentum")]
    #[schemars(extend("minimum" = 0, "exclusiveMaximum" = 1))]
    pub momentum: f64,
    /// Nesterov momentum.
    #[serde(default)]
    pub nesterov: bool,
    /// L2 penalty, added to the gradient.
    #[serde(default)]
    #[schemars(extend("minimum" = 0))]
    pub weight_decay: f64,
}

/// AdamW, as in PyTorch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Adamw {
    /// Learning rate.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub lr: f64,
    /// Decay rates of the first and second moment.
    #[serde(default = "betas")]
    pub betas: [f64; 2],
    /// Added to the denominator.
    #[serde(default = "eps")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub eps: f64,
    /// Decoupled weight decay.
    #[serde(default = "adamw_decay")]
    #[schemars(extend("minimum" = 0))]
    pub weight_decay: f64,
}

/// LAMB. Tensors without weight decay are updated as by Adam.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lamb {
    /// Learning rate.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub lr: f64,
    /// Decay rates of the first and second moment.
    #[serde(default = "betas")]
    pub betas: [f64; 2],
    /// Added to the denominator.
    #[serde(default = "lamb_eps")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub eps: f64,
    /// Weight decay, added to the update before its length is adapted.
    #[serde(default = "adamw_decay")]
    #[schemars(extend("minimum" = 0))]
    pub weight_decay: f64,
}

/// LARS. Tensors without weight decay are updated as by SGD.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lars {
    /// Learning rate.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub lr: f64,
    /// Momentum.
    #[serde(default = "momentum")]
    #[schemars(extend("minimum" = 0, "exclusiveMaximum" = 1))]
    pub momentum: f64,
    /// Trust coefficient: length of a step at learning rate 1, relative to the norm of the tensor.
    #[serde(default = "thousandth")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub trust: f64,
    /// L2 penalty, added to the gradient and to its norm.
    #[serde(default)]
    #[schemars(extend("minimum" = 0))]
    pub weight_decay: f64,
}

/// Adafactor, as in PyTorch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Adafactor {
    /// Maximum learning rate, relative to a tensor's root mean square; at step `n` at most `1/√n`.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub lr: f64,
    /// Exponent of the second moment's decay: at step `n`, `beta2` is 1 minus `n` to this power.
    #[serde(default = "beta2_decay")]
    #[schemars(extend("exclusiveMaximum" = 0))]
    pub beta2_decay: f64,
    /// Lower bound of a tensor's root mean square, so that a tensor of zeros still moves.
    #[serde(default = "thousandth")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub eps: f64,
    /// Maximum root mean square of an update.
    #[serde(default = "unit")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub clip: f64,
    /// Decoupled weight decay.
    #[serde(default)]
    #[schemars(extend("minimum" = 0))]
    pub weight_decay: f64,
}

/// Parameter groups: weight decay, layer-wise learning rates and frozen parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Which parameters the optimizer's weight decay applies to.
    #[serde(default)]
    pub decay: Decays,
    /// Layer-wise learning rate decay: factor from each block to the previous one. The head has the full rate.
    #[serde(default = "unit")]
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1))]
    pub layer_rate: f64,
    /// Name prefixes of parameters to freeze, such as `bert.embeddings.` or `layer1.`.
    #[serde(default)]
    pub freeze: Vec<String>,
    /// Groups with settings of their own. A parameter belongs to the first one that names it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<ParameterGroup>,
}

/// Parameters with settings of their own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParameterGroup {
    /// Name prefixes of its parameters, such as `fc.` or `layer4.`.
    pub names: Vec<String>,
    /// Factor of the learning rate, in addition to `layer_rate`.
    #[serde(default = "unit")]
    #[schemars(extend("minimum" = 0))]
    pub lr_factor: f64,
    /// Factor of the optimizer's weight decay; 0 for none. Default: as `decay` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub decay_factor: Option<f64>,
}

/// Which parameters weight decay applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decays {
    /// All.
    #[default]
    All,
    /// Parameters of two or more dimensions: no biases, no normalisation weights.
    Matrices,
}

impl Optimizer {
    /// The learning rate that the schedule multiplies.
    pub fn base_rate(&self) -> f64 {
        match self {
            Optimizer::Sgd(constants) => constants.lr,
            Optimizer::Adamw(constants) => constants.lr,
            Optimizer::Lamb(constants) => constants.lr,
            Optimizer::Lars(constants) => constants.lr,
            Optimizer::Adafactor(constants) => constants.lr,
        }
    }
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters { decay: Decays::All, layer_rate: 1.0, freeze: Vec::new(), groups: Vec::new() }
    }
}

impl Default for Optimizer {
    fn default() -> Optimizer {
        Optimizer::Adamw(Adamw { lr: 1e-3, betas: betas(), eps: eps(), weight_decay: adamw_decay() })
    }
}

fn momentum() -> f64 {
    0.9
}
fn betas() -> [f64; 2] {
    [0.9, 0.999]
}
fn eps() -> f64 {
    1e-8
}
fn lamb_eps() -> f64 {
    1e-6
}
fn adamw_decay() -> f64 {
    1e-2
}
fn beta2_decay() -> f64 {
    -0.8
}
fn thousandth() -> f64 {
    1e-3
}
fn unit() -> f64 {
    1.0
}
