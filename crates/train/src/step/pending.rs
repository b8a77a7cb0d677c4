//! What came of a step, on its way from the device to the host.
//!
//! A device computes behind the host. A host that reads the loss of each step before it names the next one's operations
//! leaves the device idle meanwhile. So a step only begins the copy of what came of it, and whoever wants to know reads it
//! later: [`crate::run`] a few steps later, and before anything is saved or scored.

use tch::{Kind, Tensor};

use super::StepOutcome;
use crate::optim::{UpdateFlag, check_scale};
use crate::torch::{HostCopy, Result};

/// What came of a step, on its way to the host.
pub struct PendingStep {
    /// The loss; whether gradients were not finite and the scale of losses, where the device knows.
    values: HostCopy,
    /// Whether the update was made, where the host knows.
    is_updated: Option<bool>,
}

impl PendingStep {
    /// Begins the copy; `loss` is a float64 scalar.
    pub(super) fn begin(loss: Tensor, flag: &UpdateFlag) -> Result<PendingStep> {
        let device = loss.device();
        let (mut values, mut is_updated) = (vec![loss.f_reshape([1])?], None);
        match flag {
            UpdateFlag::Known(known) => is_updated = Some(*known),
            UpdateFlag::OnDevice { found, scale } => {
                for tensor in std::iter::once(found).chain(scale) {
                    // Of a rank that holds no parameters, the flag is on the host.
                    values.push(tensor.f_to_device(device)?.f_reshape([1])?.f_to_kind(Kind::Double)?);
                }
            }
        }
        Ok(PendingStep { values: HostCopy::begin(&Tensor::f_cat(&values, 0)?)?, is_updated })
    }

    /// Whether the device has come to the end of the step.
    ///
    /// # Errors
    /// What the device reports.
    pub fn is_done(&self) -> Result<bool> {
        self.values.is_done()
    }

    /// Waits for the end of the step.
    ///
    /// # Errors
    /// When gradients are not finite however little the loss is scaled, or what the device reports.
    pub fn read(&self) -> Result<StepOutcome> {
        let values = self.values.read()?;
        let loss = values.first().copied().unwrap_or(f64::NAN);
        let is_updated = self.is_updated.unwrap_or_else(|| values.get(1) == Some(&0.0));
        check_scale(is_updated, values.get(2).copied())?;
        Ok(StepOutcome { loss, is_updated })
    }
}
