//! In which number format the matrix products are computed.

use domain::train::Precision;
use tch::{Device, Kind, Tensor};

use crate::torch::{self, Result};

/// What a [`Precision`] comes to on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// 32-bit floating point.
    Fp32,
    /// bfloat16 by autocast; weights, losses and optimiser stay in 32 bits.
    Bf16,
}

impl Format {
    /// The format that is used. `auto` is bfloat16 on a CUDA device and 32 bits on a CPU: few CPUs multiply bfloat16
    /// natively, and the same job should give the same numbers on all of them.
    pub fn choose(precision: Precision, device: Device) -> Format {
        match precision {
            Precision::Fp32 => Format::Fp32,
            Precision::Bf16 => Format::Bf16,
            Precision::Auto if device.is_cuda() => Format::Bf16,
            Precision::Auto => Format::Fp32,
        }
    }

    /// `fp32` or `bf16`.
    pub fn name(self) -> &'static str {
        match self {
            Format::Fp32 => "fp32",
            Format::Bf16 => "bf16",
        }
    }

    /// Runs a forward pass in this format; its scores are 32 bits again, as every loss wants them.
    pub fn forward(self, device: Device, pass: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
        match self {
            Format::Fp32 => pass(),
            Format::Bf16 => Ok(torch::autocast(device, pass)?.f_to_kind(Kind::Float)?),
        }
    }
}
