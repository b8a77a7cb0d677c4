//! The FFI boundary between Rust and the C++ of `module.cpp`: only declarations, pointers and their safety proofs.
//!
//! [`super`] is the safe interface.

#![allow(unsafe_code)]

use tch::Tensor;

pub(super) use crate::torch::bridge::adopt;

#[cxx::bridge(namespace = "gradus")]
pub(super) mod ffi {
    /// A tensor borrowed for the duration of a call.
    struct Given {
        tensor: *mut Tensor,
    }

    unsafe extern "C++" {
        include!("gradus-train/src/torch/module/module.h");

        #[namespace = "at"]
        type Tensor = crate::torch::bridge::ffi::Tensor;
        type Script;

        fn script_load(path: &str, cuda: bool, device: u32) -> Result<UniquePtr<Script>>;
        fn script_save(script: &Script, path: &str) -> Result<()>;
        fn script_names(script: &Script, buffers: bool) -> Result<Vec<String>>;
        fn script_tensor(script: &Script, buffers: bool, place: u64) -> Result<UniquePtr<Tensor>>;
        fn script_least_inputs(script: &Script) -> Result<u32>;
        fn script_most_inputs(script: &Script) -> Result<u32>;
        fn script_train(script: &Script, on: bool) -> Result<()>;
        fn script_forward(script: &Script, values: &[Given]) -> Result<UniquePtr<Tensor>>;
    }
}

/// The tensors as pointers, to be used within the statement that borrows them.
pub(super) fn lend(tensors: &[Tensor]) -> Vec<ffi::Given> {
    tensors.iter().map(|tensor| ffi::Given { tensor: tensor.as_ptr().cast_mut().cast() }).collect()
}
