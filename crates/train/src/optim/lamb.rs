//! LAMB (You et al. 2019, "Large Batch Optimization for Deep Learning", algorithm 2), in place and without waiting for
//! the device.

use domain::train::Lamb;
use tch::{Kind, Tensor};

use crate::torch::Result;

/// Updates one tensor; `updates` counts this one too.
///
/// A tensor that does not adapt is updated as by Adam: a bias or a scale near zero would hardly move otherwise.
pub(super) fn step(
    parameter: &mut Tensor,
    gradient: &Tensor,
    (first, second): (&mut Tensor, &mut Tensor),
    updates: &Tensor,
    Lamb { lr, betas: [beta1, beta2], eps, weight_decay }: Lamb,
    adapts: bool,
) -> Result<()> {
    let _ = first.f_lerp_(gradient, 1.0 - beta1)?;
    let _ = second.f_lerp_(&gradient.f_square()?, 1.0 - beta2)?;
    let updates = updates.f_to_kind(Kind::Double)?;
    // 1 − βⁿ, the bias correction (Kingma and Ba 2014, section 3).
    let weight = |beta: f64| -> Result<Tensor> {
        let rest = updates.f_mul_scalar(beta.ln())?.f_exp()?.f_neg()?.f_add_scalar(1.0)?;
        Ok(rest.f_to_kind(Kind::Float)?)
    };
    let deviation = second.f_div(&weight(beta2)?)?.f_sqrt()?.f_add_scalar(eps)?;
    let mut update = first.f_div(&weight(beta1)?)?.f_div(&deviation)?;
    if weight_decay != 0.0 {
        let _ = update.f_add_(&parameter.f_mul_scalar(weight_decay)?)?;
    }
    if adapts {
        let (length, change) = (parameter.f_norm()?, update.f_norm()?);
        let both = length.f_gt(0.0)?.f_logical_and(&change.f_gt(0.0)?)?;
        let ratio = length.f_div(&change)?.f_where_scalarother(&both, 1.0)?;
        let _ = update.f_mul_(&ratio)?;
    }
    let _ = parameter.f_sub_(&update.f_mul_scalar(lr)?)?;
    Ok(())
}
