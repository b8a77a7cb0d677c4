//! What a rule without fused kernels has changed by a gradient that is not finite, put back on the device.

use tch::Tensor;

use crate::torch::{self, Result};

/// Copies of one parameter and its state from before an update, where the device alone knows whether it counts.
pub(super) struct Before {
    /// True if a gradient is not finite; a scalar.
    is_found: Option<Tensor>,
    /// What is updated, and its copy.
    tensors: Vec<(Tensor, Tensor)>,
}

impl Before {
    /// Where the device has `found` out; nothing otherwise.
    pub(super) fn of(found: Option<&Tensor>, tensors: &[&Tensor]) -> Result<Before> {
        let Some(found) = found else { return Ok(Before { is_found: None, tensors: Vec::new() }) };
        let copy = |tensor: &&Tensor| Ok((tensor.f_detach()?, torch::copied(tensor)?));
        Ok(Before { is_found: Some(found.f_gt(0.0)?), tensors: tensors.iter().map(copy).collect::<Result<_>>()? })
    }

    /// Undoes the update if a gradient is not finite, and changes no bit otherwise; the host waits for nothing.
    pub(super) fn put_back(self) -> Result<()> {
        let Some(is_found) = self.is_found else { return Ok(()) };
        for (mut tensor, before) in self.tensors {
            tensor.f_copy_(&before.f_where_self(&is_found, &tensor)?)?;
        }
        Ok(())
    }
}
