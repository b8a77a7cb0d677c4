//! In which number format the matrix products are computed, and how the loss is scaled where the format is narrow.

use domain::finding::{Cause, Finding};
use domain::train::Precision;
use tch::{Device, Kind, Tensor};

use crate::error::Error;
use crate::torch::{self, AutocastDtype, Result};

/// The effect of a [`Precision`] on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComputeFormat {
    /// 32-bit floating point.
    Fp32,
    /// The same, its products computed from 19 bits.
    Tf32,
    /// bfloat16 by autocast; weights, losses and optimiser stay in 32 bits.
    Bf16,
    /// 16-bit floating point by autocast, with a scaled loss; weights, losses and optimiser stay in 32 bits.
    Fp16,
}

/// The first generation of CUDA devices that multiplies bfloat16 natively, and has TF32: A100's.
const AMPERE: i32 = 8;

impl ComputeFormat {
    /// The format that is used. `auto` is 16 bits on a CUDA device and 32 on a CPU: few CPUs multiply bfloat16
    /// natively, and the same job should give the same numbers on all of them.
    pub fn choose(precision: Precision, device: Device) -> ComputeFormat {
        match precision {
            Precision::Fp32 => ComputeFormat::Fp32,
            Precision::Tf32 => ComputeFormat::Tf32,
            Precision::Bf16 => ComputeFormat::Bf16,
            Precision::Fp16 => ComputeFormat::Fp16,
            Precision::Auto if !device.is_cuda() => ComputeFormat::Fp32,
            Precision::Auto if torch::cuda_generation().is_some_and(|generation| generation < AMPERE) => {
                ComputeFormat::Fp16
            }
            Precision::Auto => ComputeFormat::Bf16,
        }
    }

    /// As a job file has it.
    pub fn name(self) -> &'static str {
        match self {
            ComputeFormat::Fp32 => "fp32",
            ComputeFormat::Tf32 => "tf32",
            ComputeFormat::Bf16 => "bf16",
            ComputeFormat::Fp16 => "fp16",
        }
    }

    /// The 16-bit format that autocast casts weights to; `None` if products are computed from 32 bits.
    pub fn half(self) -> Option<Kind> {
        match self {
            ComputeFormat::Fp32 | ComputeFormat::Tf32 => None,
            ComputeFormat::Bf16 => Some(Kind::BFloat16),
            ComputeFormat::Fp16 => Some(Kind::Half),
        }
    }

    /// Applies process-wide settings; refuses what the device does not support.
    pub fn settle(self, device: Device) -> std::result::Result<(), Error> {
        let has_tf32 = device.is_cuda() && torch::cuda_generation().is_none_or(|generation| generation >= AMPERE);
        if self == ComputeFormat::Tf32 && !has_tf32 {
            let message = "`precision: tf32` is a format of NVIDIA GPUs since A100, and there is none here";
            return Err(Finding::new(Cause::Job, message).hint("write `precision: auto`, or `fp32`").into());
        }
        Ok(torch::set_tf32(self == ComputeFormat::Tf32)?)
    }

    /// Runs a forward pass in this format; its scores are 32 bits again, as every loss wants them.
    pub fn forward(self, device: Device, pass: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
        match self {
            ComputeFormat::Fp32 | ComputeFormat::Tf32 => pass(),
            ComputeFormat::Bf16 | ComputeFormat::Fp16 => Ok(self.scope(device, pass)?.f_to_kind(Kind::Float)?),
        }
    }

    /// Runs a part of a forward pass in this data type, and leaves the output unchanged.
    pub fn scope(self, device: Device, part: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
        match self {
            ComputeFormat::Fp32 | ComputeFormat::Tf32 => part(),
            ComputeFormat::Bf16 => torch::autocast(device, AutocastDtype::Bf16, part),
            ComputeFormat::Fp16 => torch::autocast(device, AutocastDtype::Fp16, part),
        }
    }
}
