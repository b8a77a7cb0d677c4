//! The factor that losses of 16-bit training are multiplied by.

use tch::{Device, Kind, Tensor};

use super::{GlobalGradients, UpdateFlag};
use crate::model::Named;
use crate::torch::{self, Result};

/// The loss scale, so that gradients that underflow in 16 bits are not lost (Micikevicius et al. 2017, "Mixed Precision
/// Training"). Like PyTorch's `GradScaler`: halved when a gradient overflows, doubled after 2000 steps without
/// overflow.
pub struct GradScaler {
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

impl GradScaler {
    /// At the usual scale.
    pub fn new(device: Device) -> Result<GradScaler> {
        let scalar = |value: f64, kind: Kind| Tensor::f_full([0i64; 0], value, (kind, device));
        Ok(GradScaler {
            scale: scalar(FIRST_SCALE, Kind::Float)?,
            steady: scalar(0.0, Kind::Int)?,
            found: scalar(0.0, Kind::Float)?,
        })
    }

    /// The loss to go back from.
    pub fn scaled(&self, loss: &Tensor) -> Result<Tensor> {
        Ok(loss.f_mul(&self.scale)?)
    }

    /// Takes the scale out of the gradients again and adapts it; the flag is false if one of them is not finite, and then
    /// they are not to be used. It stays on the device where it `defers`. Ranks that know other gradients `agree`.
    pub fn unscale(&mut self, gradients: &[Tensor], agree: &dyn GlobalGradients, defers: bool) -> Result<UpdateFlag> {
        let _ = self.found.f_zero_()?;
        torch::unscale(
            gradients,
            &self.found,
            &self.scale.f_to_kind(Kind::Double)?.f_reciprocal()?.f_to_kind(Kind::Float)?,
        )?;
        agree.found(&self.found)?;
        let _ = self.scale.f_internal_amp_update_scale_(&self.steady, &self.found, GROWTH, BACKOFF, GROWTH_INTERVAL)?;
        let flag = UpdateFlag::OnDevice { found: self.found.shallow_clone(), scale: Some(self.scale.shallow_clone()) };
        if defers { Ok(flag) } else { Ok(UpdateFlag::Known(flag.read()?)) }
    }

    /// By name, as they are saved.
    pub fn state(&self) -> [Named; 2] {
        let named = |name: &str, tensor: &Tensor| Named { name: name.into(), tensor: tensor.shallow_clone() };
        [named("scaler.scale", &self.scale), named("scaler.steady", &self.steady)]
    }
}

/// Refuses to go on where gradients overflow however small the `scale` has become.
pub(crate) fn check(is_updated: bool, scale: Option<f64>) -> Result<()> {
    match scale {
        Some(scale) if !is_updated && scale < LEAST_SCALE => {
            Err(torch::Error::new("gradients are not finite however little the loss is scaled"))
        }
        Some(_) | None => Ok(()),
    }
}
