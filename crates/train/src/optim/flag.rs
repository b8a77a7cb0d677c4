//! Whether an update was made, as far as the host knows: a device that skips an update by itself need not be waited for.

use tch::{Kind, Tensor};

use super::grad_scaler;
use crate::torch::Result;

/// Whether gradients were finite, so that the parameters were updated by them.
#[derive(Debug)]
pub enum UpdateFlag {
    /// The host knows.
    Known(bool),
    /// The device knows.
    OnDevice {
        /// A float32 scalar: 0 if all were finite, 1 if one was not, and then nothing was updated.
        found: Tensor,
        /// The factor that losses are multiplied by from now on, where they are.
        scale: Option<Tensor>,
    },
}

impl UpdateFlag {
    /// By the norm of gradients on their device.
    pub(super) fn of_norm(norm: &Tensor) -> Result<UpdateFlag> {
        let found = norm.f_isfinite()?.f_logical_not()?.f_to_kind(Kind::Float)?;
        Ok(UpdateFlag::OnDevice { found, scale: None })
    }

    /// Whether the host does not know better than that an update is made.
    pub(super) fn may_update(&self) -> bool {
        match self {
            UpdateFlag::Known(is_updated) => *is_updated,
            UpdateFlag::OnDevice { .. } => true,
        }
    }

    /// What the kernels of the update look at.
    pub(super) fn found(&self) -> Option<&Tensor> {
        match self {
            UpdateFlag::Known(_) => None,
            UpdateFlag::OnDevice { found, .. } => Some(found),
        }
    }

    /// Whether the update was made; waits for the device where it knows.
    ///
    /// # Errors
    /// When gradients are not finite however little the loss is scaled, or libtorch fails.
    pub fn read(&self) -> Result<bool> {
        match self {
            UpdateFlag::Known(is_updated) => Ok(*is_updated),
            UpdateFlag::OnDevice { found, scale } => {
                let is_updated = found.f_double_value(&[])? == 0.0;
                let scale = scale.as_ref().map(|scale| scale.f_double_value(&[])).transpose()?;
                grad_scaler::check(is_updated, scale)?;
                Ok(is_updated)
            }
        }
    }
}
