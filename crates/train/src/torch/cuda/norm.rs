//! Fused batch normalisation on a CUDA device: statistics, shortcut and activation in a few kernels of our own.
//!
//! `batch_norm.cpp` is part of a library that is loaded at run time ([`crate::torch::open_cuda`]); without it, and for tensors
//! that its kernels do not take, PyTorch's operations are used one after the other.

#![allow(unsafe_code)]

use std::sync::OnceLock;

use libc::{c_char, c_int, c_void};
use tch::Tensor;

use super::graph::{check, look_up};
use crate::torch::Result;

type Call = unsafe extern "C" fn(
    x: *const c_void,
    weight: *const c_void,
    bias: *const c_void,
    residual: *const c_void,
    running_mean: *const c_void,
    running_var: *const c_void,
    momentum: f64,
    eps: f64,
    activation: c_int,
    out: *mut *mut c_void,
) -> *const c_char;

/// A batch normalisation with statistics of its batch.
#[derive(Debug, Clone, Copy)]
pub struct FusedBatchNorm<'a> {
    /// Factor of each channel, float32.
    pub weight: &'a Tensor,
    /// Added to each channel, float32.
    pub bias: &'a Tensor,
    /// Mean and unbiased variance over many batches, and the share by which they follow this one; none to leave them alone.
    pub running: Option<(&'a Tensor, &'a Tensor, f64)>,
    /// Added to the variance.
    pub eps: f64,
    /// Added before the activation, of the shape of the values.
    pub residual: Option<&'a Tensor>,
    /// Number of the function, as `batch_norm_kernels.h` counts them.
    pub activation: i32,
}

/// The library's function, if the library was opened.
fn function() -> Option<Call> {
    static FOUND: OnceLock<Option<Call>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let symbol = look_up(c"gradus_batch_norm")?;
        // SAFETY: `batch_norm.cpp` defines the function of this name with this signature.
        Some(unsafe { std::mem::transmute::<*mut c_void, Call>(symbol.as_ptr()) })
    })
}

impl FusedBatchNorm<'_> {
    /// The activation of the normalised `x`, samples × channels × height × width; `None` where the library is missing or
    /// does not take such a tensor.
    ///
    /// # Errors
    /// Errors of the device, and kernels that do not compile for it.
    pub fn forward(&self, x: &Tensor) -> Result<Option<Tensor>> {
        let FusedBatchNorm { weight, bias, running, eps, residual, activation } = *self;
        let Some(call) = function().filter(|_| x.device().is_cuda()) else { return Ok(None) };
        let place = |tensor: Option<&Tensor>| tensor.map_or(std::ptr::null(), |tensor| tensor.as_ptr().cast());
        let (mean, var, momentum) =
            running.map_or((None, None, 0.0), |(mean, var, share)| (Some(mean), Some(var), share));
        let mut out = std::ptr::null_mut();
        // SAFETY: tch's handles point to live tensors, which the function borrows for this call; it writes one pointer, to a
        // tensor that it made and gives away, or null.
        let wrong = unsafe {
            call(
                place(Some(x)),
                place(Some(weight)),
                place(Some(bias)),
                place(residual),
                place(mean),
                place(var),
                momentum,
                eps,
                activation,
                &raw mut out,
            )
        };
        check(wrong)?;
        // SAFETY: made with `new at::Tensor`, as tch's own handles are, and owned here.
        Ok((!out.is_null()).then(|| unsafe { Tensor::from_ptr(out.cast()) }))
    }
}
