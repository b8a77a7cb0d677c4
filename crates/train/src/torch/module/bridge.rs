//! The border between Rust and the C++ of `module.cpp`: nothing but declarations, pointers and their proofs.
//!
//! [`super`] is the safe side.

#![allow(unsafe_code)]

use tch::Tensor;

pub(super) use crate::torch::bridge::adopt;

#[cxx::bridge(namespace = "gradus")]
pub(super) mod ffi {
    /// A tensor lent for the length of a call.
    struct Given {
        tensor: *mut Tensor,
    }

    unsafe extern "C++" {
        include!("gradus-train/src/torch/module.h");

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

/// The tensors as pointers; used up within the statement that lends them.
pub(super) fn lend(tensors: &[Tensor]) -> Vec<ffi::Given> {
    tensors.iter().map(|tensor| ffi::Given { tensor: tensor.as_ptr().cast_mut().cast() }).collect()
}
