//! Adafactor (Shazeer and Stern 2018), step for step as `torch.optim.Adafactor`, in place and without waiting for the
//! device.

use domain::train::Adafactor;
use tch::{Kind, Tensor};

use crate::model::Named;
use crate::torch::Result;

/// Minimum of the mean, to avoid division by zero: the distance from 1 to the next float32.
const LEAST: f64 = f32::EPSILON as f64;

/// The mean squares of a tensor's gradients.
pub(super) enum SecondMoment {
    /// By the last two dimensions: those of rows `… × n × 1`, and of columns `… × 1 × m`.
    Factored { rows: Tensor, columns: Tensor },
    /// By value.
    Whole(Tensor),
}

impl SecondMoment {
    /// None yet.
    pub(super) fn of(parameter: &Tensor) -> Result<SecondMoment> {
        let parameter = parameter.f_detach()?;
        if parameter.dim() < 2 {
            return Ok(SecondMoment::Whole(parameter.f_zeros_like()?));
        }
        let options = (parameter.kind(), parameter.device());
        let (mut rows, mut columns) = (parameter.size(), parameter.size());
        let last = rows.len() - 1;
        (rows[last], columns[last - 1]) = (1, 1);
        Ok(SecondMoment::Factored {
            rows: Tensor::f_zeros(&rows, options)?,
            columns: Tensor::f_zeros(&columns, options)?,
        })
    }

    pub(super) fn named(&self, of: &str) -> Vec<Named> {
        let named =
            |kind: &str, tensor: &Tensor| Named { name: format!("{kind}.{of}"), tensor: tensor.shallow_clone() };
        match self {
            SecondMoment::Factored { rows, columns } => vec![named("rows", rows), named("columns", columns)],
            SecondMoment::Whole(squares) => vec![named("squares", squares)],
        }
    }

    pub(super) fn tensors(&self) -> Vec<&Tensor> {
        match self {
            SecondMoment::Factored { rows, columns } => vec![rows, columns],
            SecondMoment::Whole(squares) => vec![squares],
        }
    }

    /// Updates the running average with `share` of the gradient's squares, and returns the second-moment estimate of
    /// each value.
    fn follow(&mut self, gradient: &Tensor, share: &Tensor) -> Result<Tensor> {
        let mean = |dimension: i64| -> Result<Tensor> {
            let size = gradient.size();
            let count = size[(size.len() as i64 + dimension) as usize];
            Ok(gradient.f_norm_scalaropt_dim(2.0, [dimension], true)?.f_square()?.f_div_scalar(count)?)
        };
        match self {
            SecondMoment::Factored { rows, columns } => {
                let _ = rows.f_lerp_tensor_(&mean(-1)?, share)?;
                let _ = columns.f_lerp_tensor_(&mean(-2)?, share)?;
                let whole = rows.f_mean_dim([-2i64].as_slice(), true, Kind::Float)?.f_clamp_min(LEAST)?;
                Ok(rows.f_matmul(columns)?.f_div(&whole)?)
            }
            SecondMoment::Whole(squares) => {
                let _ = squares.f_lerp_tensor_(&gradient.f_square()?, share)?;
                Ok(squares.shallow_clone())
            }
        }
    }
}

/// Updates one tensor; `updates` counts this one too.
pub(super) fn step(
    parameter: &mut Tensor,
    gradient: &Tensor,
    squares: &mut SecondMoment,
    updates: &Tensor,
    Adafactor { lr, beta2_decay, eps, clip, weight_decay }: Adafactor,
) -> Result<()> {
    let root = (parameter.numel() as f64).sqrt();
    let share = updates.f_pow_tensor_scalar(beta2_decay)?;
    let rate = updates.f_rsqrt()?.f_clamp_max(lr)?;
    let rate = parameter.f_norm()?.f_div_scalar(root)?.f_clamp_min(eps)?.f_mul(&rate)?;
    if weight_decay != 0.0 {
        let _ = parameter.f_mul_scalar_(1.0 - lr * weight_decay)?;
    }
    let mut update = squares.follow(gradient, &share)?.f_clamp_min(LEAST * LEAST)?.f_rsqrt()?;
    let _ = update.f_mul_(gradient)?;
    let excess = update.f_norm()?.f_div_scalar(root * clip)?.f_clamp_min(1.0)?;
    let _ = update.f_mul_(&rate.f_div(&excess)?)?;
    let _ = parameter.f_sub_(&update)?;
    Ok(())
}
