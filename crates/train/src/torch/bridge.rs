//! The border between Rust and the shim's C++: nothing but declarations, pointers and their proofs.
//!
//! [`super`] is the safe side. Callers hand over `&Tensor`s; here they become pointers for the length of one call.

#![allow(unsafe_code)]

use cxx::UniquePtr;
use tch::Tensor;

#[cxx::bridge(namespace = "gradus")]
pub(super) mod ffi {
    /// A tensor lent for the length of a call.
    struct Borrowed {
        tensor: *mut Tensor,
    }

    /// Constants of one step of stochastic gradient descent.
    struct SgdConstants {
        lr: f64,
        momentum: f64,
        nesterov: bool,
        weight_decay: f64,
    }

    /// Constants of one step of AdamW.
    struct AdamwConstants {
        lr: f64,
        beta1: f64,
        beta2: f64,
        eps: f64,
        weight_decay: f64,
    }

    extern "Rust" {
        type AutogradClosure;

        fn run(self: &AutogradClosure, x: UniquePtr<Tensor>, again: bool) -> Result<UniquePtr<Tensor>>;
    }

    unsafe extern "C++" {
        include!("gradus-train/src/torch/shim.h");

        #[namespace = "at"]
        type Tensor;

        fn autocast_begin(cuda: bool, half: bool) -> Result<bool>;
        fn autocast_end(cuda: bool, before: bool) -> Result<()>;

        fn sgd_step(
            parameters: &[Borrowed],
            gradients: &[Borrowed],
            momenta: &[Borrowed],
            constants: &SgdConstants,
        ) -> Result<()>;
        fn adamw_step(
            parameters: &[Borrowed],
            gradients: &[Borrowed],
            first: &[Borrowed],
            second: &[Borrowed],
            step: &Tensor,
            constants: &AdamwConstants,
        ) -> Result<()>;

        fn gradient_norm(gradients: &[Borrowed]) -> Result<UniquePtr<Tensor>>;
        fn scale(tensors: &[Borrowed], factor: &Tensor) -> Result<()>;
        fn zero(tensors: &[Borrowed]) -> Result<()>;
        fn drop_gradients(parameters: &[Borrowed]) -> Result<()>;
        fn unscale(gradients: &[Borrowed], found: &Tensor, inverse: &Tensor) -> Result<()>;
        fn lerp(tensors: &[Borrowed], towards: &[Borrowed], share: f64) -> Result<()>;
        fn recompute(x: &Tensor, work: Box<AutogradClosure>) -> Result<UniquePtr<Tensor>>;
        fn gate(x: &Tensor, work: Box<AutogradClosure>) -> Result<UniquePtr<Tensor>>;
        fn set_gradients(parameters: &[Borrowed], gradients: &[Borrowed]) -> Result<()>;

        fn release_memory(tensor: &Tensor) -> Result<()>;
        fn allocate_memory(tensor: &Tensor) -> Result<()>;

        fn seed(value: u64) -> Result<()>;
        fn random_state(device: i32) -> Result<UniquePtr<Tensor>>;
        fn set_random_state(device: i32, state: &Tensor) -> Result<()>;

        fn channels_last(tensor: &Tensor) -> Result<UniquePtr<Tensor>>;
        fn set_deterministic(on: bool) -> Result<()>;
        fn set_tf32(on: bool) -> Result<()>;
        fn device_peak_bytes() -> Result<u64>;
        fn build_configuration() -> Result<String>;
    }
}

/// A closure that autograd runs in the forward pass, and `again` in the backward pass.
///
/// It need not be `Send`: the backward pass runs on the thread that asked for it, or on one of libtorch's while that
/// thread waits.
pub struct AutogradClosure(pub(super) Compute);

/// Values out for values in, and whether it is `again`.
pub(super) type Compute = Box<dyn Fn(&Tensor, bool) -> super::Result<Tensor>>;

impl AutogradClosure {
    fn run(&self, x: UniquePtr<ffi::Tensor>, again: bool) -> super::Result<UniquePtr<ffi::Tensor>> {
        let mut out = std::mem::ManuallyDrop::new((self.0)(&adopt(x), again)?);
        // SAFETY: tch makes its handles with `new at::Tensor`; this one is given away, and not dropped here.
        Ok(unsafe { UniquePtr::from_raw(out.as_mut_ptr().cast()) })
    }
}

/// The tensors as pointers; used up within the statement that lends them.
pub(super) fn lend(tensors: &[Tensor]) -> Vec<ffi::Borrowed> {
    tensors.iter().map(|tensor| ffi::Borrowed { tensor: tensor.as_ptr().cast_mut().cast() }).collect()
}

/// One tensor as a C++ reference.
pub(super) fn borrow(tensor: &Tensor) -> &ffi::Tensor {
    // SAFETY: tch's handle points to a live `at::Tensor` that it frees only when the `Tensor` is dropped, which the
    // returned lifetime forbids. C++ reads the handle, which counts its references atomically.
    unsafe { &*tensor.as_ptr().cast() }
}

/// Takes over a tensor that C++ made.
pub(super) fn adopt(tensor: UniquePtr<ffi::Tensor>) -> Tensor {
    // SAFETY: the shim makes it with `new at::Tensor` and never returns null; tch frees its handles with `delete`.
    unsafe { Tensor::from_ptr(tensor.into_raw().cast()) }
}
