//! In which number format the matrix products are computed, and how the loss is scaled where the format is narrow.

use domain::finding::{Cause, Finding};
use domain::train::Precision;
use tch::{Device, Kind, Tensor};

use crate::error::Error;
use crate::model::Named;
use crate::optim::Agree;
use crate::torch::{self, Half, Result};

/// What a [`Precision`] comes to on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
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

impl Format {
    /// The format that is used. `auto` is 16 bits on a CUDA device and 32 on a CPU: few CPUs multiply bfloat16
    /// natively, and the same job should give the same numbers on all of them.
    pub fn choose(precision: Precision, device: Device) -> Format {
        match precision {
            Precision::Fp32 => Format::Fp32,
            Precision::Tf32 => Format::Tf32,
            Precision::Bf16 => Format::Bf16,
            Precision::Fp16 => Format::Fp16,
            Precision::Auto if !device.is_cuda() => Format::Fp32,
            Precision::Auto if torch::cuda_generation().is_some_and(|generation| generation < AMPERE) => Format::Fp16,
            Precision::Auto => Format::Bf16,
        }
    }

    /// As a job file has it.
    pub fn name(self) -> &'static str {
        match self {
            Format::Fp32 => "fp32",
            Format::Tf32 => "tf32",
            Format::Bf16 => "bf16",
            Format::Fp16 => "fp16",
        }
    }

    /// Tells the library what holds for the whole process; refuses what the device does not have.
    pub fn settle(self, device: Device) -> std::result::Result<(), Error> {
        let has_tf32 = device.is_cuda() && torch::cuda_generation().is_none_or(|generation| generation >= AMPERE);
        if self == Format::Tf32 && !has_tf32 {
            let message = "`precision: tf32` is a format of NVIDIA GPUs since A100, and there is none here";
            return Err(Finding::new(Cause::Job, message).hint("write `precision: auto`, or `fp32`").into());
        }
        Ok(torch::set_tf32(self == Format::Tf32)?)
    }

    /// Runs a forward pass in this format; its scores are 32 bits again, as every loss wants them.
    pub fn forward(self, device: Device, pass: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
        match self {
            Format::Fp32 | Format::Tf32 => pass(),
            Format::Bf16 | Format::Fp16 => Ok(self.scope(device, pass)?.f_to_kind(Kind::Float)?),
        }
    }

    /// Runs a part of a forward pass in this format, and leaves what comes out as it is.
    pub fn scope(self, device: Device, part: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
        match self {
            Format::Fp32 | Format::Tf32 => part(),
            Format::Bf16 => torch::autocast(device, Half::Bf16, part),
            Format::Fp16 => torch::autocast(device, Half::Fp16, part),
        }
    }
}

/// What the loss is multiplied by, so that gradients that 16 bits would round to nothing are not lost (Micikevicius et
/// al. 2017, "Mixed Precision Training"). As PyTorch's `GradScaler`: halved when a gradient overflows, doubled after
/// 2000 steps without.
pub struct Scaler {
    /// The factor, a float32 scalar.
    scale: Tensor,
    /// Steps since it changed, an int32 scalar.
    steady: Tensor,
    /// 1 if a gradient was not finite.
    found: Tensor,
}

const FIRST_SCALE: f64 = 65_536.0;
const GROWTH: f64 = 2.0;
const BACKOFF: f64 = 0.5;
const GROWTH_INTERVAL: i64 = 2000;
/// Below this, it is not the scale that makes gradients overflow.
const LEAST_SCALE: f64 = 1.0 / 1024.0;

impl Scaler {
    /// At the usual scale.
    pub fn new(device: Device) -> Result<Scaler> {
        let scalar = |value: f64, kind: Kind| Tensor::f_full([0i64; 0], value, (kind, device));
        Ok(Scaler {
            scale: scalar(FIRST_SCALE, Kind::Float)?,
            steady: scalar(0.0, Kind::Int)?,
            found: scalar(0.0, Kind::Float)?,
        })
    }

    /// The loss to go back from.
    pub fn scaled(&self, loss: &Tensor) -> Result<Tensor> {
        Ok(loss.f_mul(&self.scale)?)
    }

    /// Takes the scale out of the gradients again and adapts it; false if one of them is not finite, and then they are
    /// not to be used.
    /// Ranks that know other gradients `agree`.
    pub fn unscale(&mut self, gradients: &[Tensor], agree: &dyn Agree) -> Result<bool> {
        let _ = self.found.f_zero_()?;
        torch::unscale(
            gradients,
            &self.found,
            &self.scale.f_to_kind(Kind::Double)?.f_reciprocal()?.f_to_kind(Kind::Float)?,
        )?;
        agree.found(&self.found)?;
        let is_finite = self.found.f_double_value(&[])? == 0.0;
        let _ = self.scale.f_internal_amp_update_scale_(&self.steady, &self.found, GROWTH, BACKOFF, GROWTH_INTERVAL)?;
        if !is_finite && self.scale.f_double_value(&[])? < LEAST_SCALE {
            return Err(torch::Error::new("gradients are not finite however little the loss is scaled"));
        }
        Ok(is_finite)
    }

    /// By name, as they are saved.
    pub fn state(&self) -> [Named; 2] {
        let named = |name: &str, tensor: &Tensor| Named { name: name.into(), tensor: tensor.shallow_clone() };
        [named("scaler.scale", &self.scale), named("scaler.steady", &self.steady)]
    }
}
