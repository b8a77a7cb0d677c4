//! The `optimizer:` and `parameters:` keys: the update rules with their constants, and which parameter gets which.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The update rule and its constants.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Optimizer {
    /// Stochastic gradient descent.
    Sgd(Sgd),
    /// Adam with decoupled weight decay (Loshchilov and Hutter 2017).
    Adamw(Adamw),
    /// Adam whose update of each tensor is as long as a share of the tensor, for large batches (You et al. 2019).
    Lamb(Lamb),
    /// SGD whose step of each tensor is as long as a share of the tensor, for large batches of pictures (You et al. 2017).
    Lars(Lars),
    /// A mean square kept by rows and columns instead of by value, which takes next to no memory (Shazeer and Stern 2018).
    Adafactor(Adafactor),
}

/// Constants of stochastic gradient descent, as in PyTorch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sgd {
    /// Learning rate.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub lr: f64,
    /// Share of the last update that is kept.
    #[serde(default = "momentum")]
    #[schemars(extend("minimum" = 0, "exclusiveMaximum" = 1))]
    pub momentum: f64,
    /// Nesterov's form of momentum.
    #[serde(default)]
    pub nesterov: bool,
    /// L2 penalty, added to the gradient.
    #[serde(default)]
    #[schemars(extend("minimum" = 0))]
    pub weight_decay: f64,
}

/// Constants of AdamW, as in PyTorch.
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
    /// Weight decay, apart from the gradient.
    #[serde(default = "adamw_decay")]
    #[schemars(extend("minimum" = 0))]
    pub weight_decay: f64,
}

/// Constants of LAMB. Tensors that do not decay are updated as by Adam, for the length of a bias says little.
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
    /// Weight decay, a part of the update whose length is adapted.
    #[serde(default = "adamw_decay")]
    #[schemars(extend("minimum" = 0))]
    pub weight_decay: f64,
}

/// Constants of LARS. Tensors that do not decay are updated as by SGD, for the length of a bias says little.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lars {
    /// Learning rate.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub lr: f64,
    /// Share of the last update that is kept.
    #[serde(default = "momentum")]
    #[schemars(extend("minimum" = 0, "exclusiveMaximum" = 1))]
    pub momentum: f64,
    /// Length of a step of rate 1 as a share of the tensor's.
    #[serde(default = "thousandth")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub trust: f64,
    /// L2 penalty, added to the gradient and to its length.
    #[serde(default)]
    #[schemars(extend("minimum" = 0))]
    pub weight_decay: f64,
}

/// Constants of Adafactor, as in PyTorch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Adafactor {
    /// Largest learning rate, as a share of a tensor's root mean square; after `n` steps at most `1/√n`.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub lr: f64,
    /// The mean square forgets the share `n` to this power at step `n`.
    #[serde(default = "beta2_decay")]
    #[schemars(extend("exclusiveMaximum" = 0))]
    pub beta2_decay: f64,
    /// Least root mean square of a tensor, so that one of zeros moves.
    #[serde(default = "thousandth")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub eps: f64,
    /// Largest root mean square of an update.
    #[serde(default = "unit")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub clip: f64,
    /// Weight decay, apart from the gradient.
    #[serde(default)]
    #[schemars(extend("minimum" = 0))]
    pub weight_decay: f64,
}

/// Which parameters are trained, and which of them otherwise than the rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Which of them the optimiser's weight decay is for.
    #[serde(default)]
    pub decay: Decays,
    /// What the learning rate is multiplied by from each block to the one before it; the head has the full rate.
    #[serde(default = "unit")]
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1))]
    pub layer_rate: f64,
    /// Beginnings of the names of parameters that stay as they are, such as `bert.embeddings.` or `layer1.`.
    #[serde(default)]
    pub freeze: Vec<String>,
}

/// Which parameters decay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decays {
    /// All.
    #[default]
    All,
    /// Those of two and more dimensions: not the biases, and not the scales of normalisations.
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
        Parameters { decay: Decays::All, layer_rate: 1.0, freeze: Vec::new() }
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
