//! Number formats of a network's arithmetic, for jobs and estimates alike.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::gpu::Rates;
use crate::train;

/// Number format of the matrix products, and with it that of weights and optimiser state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NumericFormat {
    /// The fastest of those below that keeps the weights in fp32, whichever a GPU has.
    #[default]
    Auto,
    /// 32-bit floating point, TF32 included where the GPU has it.
    Fp32,
    /// 32-bit floating point whose products are computed from 19 bits.
    Tf32,
    /// Autocast to fp16.
    AmpFp16,
    /// Autocast to bfloat16.
    AmpBf16,
    /// Weights, gradients and the optimiser's state in bfloat16.
    Bf16,
    /// Products in fp8, the rest as in autocast to bfloat16.
    Fp8,
}

impl NumericFormat {
    /// Returns the format that products use on a GPU with these rates; `None` if it is not supported. Never
    /// [`NumericFormat::Auto`].
    pub fn on(self, rates: &Rates) -> Option<NumericFormat> {
        let fp32 = if rates.tf32.is_some() { NumericFormat::Tf32 } else { NumericFormat::Fp32 };
        match self {
            NumericFormat::Auto => Some(match (rates.bf16, rates.fp16) {
                (Some(_), _) => NumericFormat::AmpBf16,
                (None, Some(half)) if half > 1.5 * rates.fp32 => NumericFormat::AmpFp16,
                (None, _) => fp32,
            }),
            NumericFormat::Fp32 | NumericFormat::Tf32 => Some(fp32),
            NumericFormat::AmpFp16 => rates.fp16.map(|_| NumericFormat::AmpFp16),
            NumericFormat::AmpBf16 => rates.bf16.map(|_| NumericFormat::AmpBf16),
            NumericFormat::Bf16 => rates.bf16.map(|_| NumericFormat::Bf16),
            NumericFormat::Fp8 => rates.fp8.map(|_| NumericFormat::Fp8),
        }
    }

    /// Returns whether operators compute in another format than the weights have.
    pub fn is_autocast(self) -> bool {
        match self {
            NumericFormat::AmpFp16 | NumericFormat::AmpBf16 | NumericFormat::Fp8 => true,
            NumericFormat::Auto | NumericFormat::Fp32 | NumericFormat::Tf32 | NumericFormat::Bf16 => false,
        }
    }

    /// Returns the bytes of a value that matrix products read and write, and so of most activations.
    pub fn compute_bytes(self) -> f64 {
        match self {
            NumericFormat::Auto | NumericFormat::Fp32 | NumericFormat::Tf32 => 4.0,
            NumericFormat::AmpFp16 | NumericFormat::AmpBf16 | NumericFormat::Bf16 | NumericFormat::Fp8 => 2.0,
        }
    }

    /// Returns the bytes of a trained weight, of its gradient and of each value that an optimiser keeps for it.
    pub fn weight_bytes(self) -> f64 {
        match self {
            NumericFormat::Bf16 => 2.0,
            NumericFormat::Auto
            | NumericFormat::Fp32
            | NumericFormat::Tf32
            | NumericFormat::AmpFp16
            | NumericFormat::AmpBf16
            | NumericFormat::Fp8 => 4.0,
        }
    }

    /// Returns how a job file writes it.
    pub fn word(self) -> &'static str {
        match self {
            NumericFormat::Auto => "auto",
            NumericFormat::Fp32 => "fp32",
            NumericFormat::Tf32 => "tf32",
            NumericFormat::AmpFp16 => "amp_fp16",
            NumericFormat::AmpBf16 => "amp_bf16",
            NumericFormat::Bf16 => "bf16",
            NumericFormat::Fp8 => "fp8",
        }
    }
}

impl From<train::Precision> for NumericFormat {
    /// Our own trainer keeps weights in fp32, so what its key calls `bf16` and `fp16` is autocast.
    fn from(key: train::Precision) -> NumericFormat {
        match key {
            train::Precision::Auto => NumericFormat::Auto,
            train::Precision::Fp32 => NumericFormat::Fp32,
            train::Precision::Tf32 => NumericFormat::Tf32,
            train::Precision::Bf16 => NumericFormat::AmpBf16,
            train::Precision::Fp16 => NumericFormat::AmpFp16,
        }
    }
}
