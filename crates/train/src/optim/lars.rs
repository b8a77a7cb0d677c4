//! LARS (You et al. 2017, "Large Batch Training of Convolutional Networks", algorithm 1), in place and without waiting
//! for the device.

use domain::train::Lars;
use tch::Tensor;

use crate::torch::Result;

/// Updates one tensor.
///
/// A tensor that does not adapt is updated as by SGD: a bias or a scale near zero would hardly move otherwise.
pub(super) fn step(
    parameter: &mut Tensor,
    gradient: &Tensor,
    momenta: &mut Tensor,
    Lars { lr, momentum, trust, weight_decay }: Lars,
    adapts: bool,
) -> Result<()> {
    let mut update = gradient.f_add(&parameter.f_mul_scalar(weight_decay)?)?;
    if adapts {
        let (length, slope) = (parameter.f_norm()?, gradient.f_norm()?);
        // The paper's denominator: the lengths added, not the length of the sum.
        let both = slope.f_add(&length.f_mul_scalar(weight_decay)?)?;
        let is_known = length.f_gt(0.0)?.f_logical_and(&both.f_gt(0.0)?)?;
        let ratio = length.f_mul_scalar(trust)?.f_div(&both)?.f_where_scalarother(&is_known, 1.0)?;
        let _ = update.f_mul_(&ratio)?;
    }
    let _ = momenta.f_mul_scalar_(momentum)?.f_add_(&update.f_mul_scalar(lr)?)?;
    let _ = parameter.f_sub_(momenta)?;
    Ok(())
}
