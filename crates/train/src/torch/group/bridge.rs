//! The FFI boundary between Rust and the C++ of `group.cpp`: only declarations, pointers and their safety proofs.
//!
//! [`super`] is the safe interface.

#![allow(unsafe_code)]

use tch::Tensor;

pub(super) use crate::torch::bridge::{adopt, borrow};

#[cxx::bridge(namespace = "gradus")]
pub(super) mod ffi {
    /// A tensor borrowed for the duration of a call.
    struct Lent {
        tensor: *mut Tensor,
    }

    unsafe extern "C++" {
        include!("gradus-train/src/torch/group.h");

        #[namespace = "at"]
        type Tensor = crate::torch::bridge::ffi::Tensor;
        type Store;
        type Group;
        type Exchange;
        type PendingWork;

        fn store_open(host: &str, port: u16, keep: bool, timeout_ms: u64) -> Result<UniquePtr<Store>>;
        fn store_set(store: &Store, key: &str) -> Result<()>;
        fn store_has(store: &Store, key: &str) -> Result<bool>;

        fn group_join(
            store: &Store,
            name: &str,
            rank: u32,
            size: u32,
            host: &str,
            device: i32,
            timeout_ms: u64,
        ) -> Result<UniquePtr<Group>>;
        fn has_nccl() -> Result<bool>;
        fn group_sum(group: &Group, tensor: &Tensor) -> Result<()>;
        fn group_max(group: &Group, tensor: &Tensor) -> Result<()>;
        fn group_broadcast(group: &Group, tensor: &Tensor, root: u32) -> Result<()>;
        fn group_all_gather(group: &Group, output: &Tensor, input: &Tensor) -> Result<()>;
        fn group_all_gather_begin(group: &Group, output: &Tensor, input: &Tensor) -> Result<UniquePtr<PendingWork>>;
        fn group_reduce_scatter_begin(group: &Group, output: &Tensor, input: &Tensor)
        -> Result<UniquePtr<PendingWork>>;
        fn pending_wait(pending: &PendingWork) -> Result<()>;
        fn group_barrier(group: &Group) -> Result<()>;
        fn group_sum_both(group: &Group, tensor: &Tensor) -> Result<UniquePtr<Tensor>>;
        fn group_sum_backward(group: &Group, tensor: &Tensor) -> Result<UniquePtr<Tensor>>;
        fn group_sum_forward(group: &Group, tensor: &Tensor) -> Result<UniquePtr<Tensor>>;

        fn exchange_new(
            group: &Group,
            parameters: &[Lent],
            bucket_bytes: u64,
            bf16: bool,
        ) -> Result<UniquePtr<Exchange>>;
        fn exchange_forward(exchange: &Exchange) -> Result<()>;
        fn exchange_backward(exchange: &Exchange) -> Result<()>;
    }
}

/// The tensors as pointers, to be used within the statement that borrows them.
pub(super) fn lend(tensors: &[Tensor]) -> Vec<ffi::Lent> {
    tensors.iter().map(|tensor| ffi::Lent { tensor: tensor.as_ptr().cast_mut().cast() }).collect()
}
