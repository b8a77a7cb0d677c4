//! The FFI boundary between Rust and the C++ shim: only declarations, pointers and their safety proofs.
//!
//! [`super`] is the safe interface. Callers pass `&Tensor`s; here they become pointers for the duration of one call.

#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

use cxx::UniquePtr;
use tch::kind::Element;
use tch::{Device, Tensor};

#[cxx::bridge(namespace = "gradus")]
pub(super) mod ffi {
    /// A tensor borrowed for the duration of a call.
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

    /// The executions of one kernel of a device, or of one operator of libtorch on a CPU.
    struct KernelTime {
        name: String,
        count: u64,
        nanoseconds: u64,
        /// Whether it ran on the device; otherwise it is a call of the host, such as a launch.
        on_device: bool,
    }

    /// Bytes of the accelerator: of tensors now and at most, and what this process can have in all.
    struct DeviceMemory {
        current: u64,
        peak: u64,
        capacity: u64,
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
            found: &[Borrowed],
        ) -> Result<()>;
        fn adamw_step(
            parameters: &[Borrowed],
            gradients: &[Borrowed],
            first: &[Borrowed],
            second: &[Borrowed],
            step: &Tensor,
            constants: &AdamwConstants,
            found: &[Borrowed],
        ) -> Result<()>;

        fn gradient_norm(gradients: &[Borrowed]) -> Result<UniquePtr<Tensor>>;
        fn scale(tensors: &[Borrowed], factor: &Tensor) -> Result<()>;
        fn zero(tensors: &[Borrowed]) -> Result<()>;
        fn drop_gradients(parameters: &[Borrowed]) -> Result<()>;
        fn unscale(gradients: &[Borrowed], found: &Tensor, inverse: &Tensor) -> Result<()>;
        fn lerp(tensors: &[Borrowed], towards: &[Borrowed], share: f64) -> Result<()>;
        fn recompute(x: &Tensor, work: Box<AutogradClosure>) -> Result<UniquePtr<Tensor>>;
        fn recompute_with(x: &Tensor, parameters: &[Borrowed], work: Box<AutogradClosure>)
        -> Result<UniquePtr<Tensor>>;
        fn gate(x: &Tensor, work: Box<AutogradClosure>) -> Result<UniquePtr<Tensor>>;
        fn set_gradients(parameters: &[Borrowed], gradients: &[Borrowed]) -> Result<()>;
        fn add(tensors: &[Borrowed], others: &[Borrowed]) -> Result<()>;
        fn copy(tensors: &[Borrowed], others: &[Borrowed]) -> Result<()>;

        fn largest(tensors: &[Borrowed]) -> Result<UniquePtr<Tensor>>;

        type StreamEvent;

        fn pinned_copy(values: &Tensor) -> Result<UniquePtr<Tensor>>;
        fn copy_to_device(values: &Tensor, device: i32, copies: bool) -> Result<UniquePtr<Tensor>>;
        fn copy_to_pinned(values: &Tensor, device: i32, copies: bool) -> Result<UniquePtr<Tensor>>;
        fn record_event(device: i32, copies: bool) -> Result<UniquePtr<StreamEvent>>;
        fn wait_event(event: &StreamEvent, device: i32, copies: bool) -> Result<()>;
        fn event_is_done(event: &StreamEvent) -> Result<bool>;
        fn synchronize_event(event: &StreamEvent) -> Result<()>;
        fn record_stream(tensor: &Tensor, device: i32, copies: bool) -> Result<()>;

        fn release_memory(tensor: &Tensor) -> Result<()>;
        fn allocate_memory(tensor: &Tensor) -> Result<()>;

        fn seed(value: u64) -> Result<()>;
        fn random_state(device: i32) -> Result<UniquePtr<Tensor>>;
        fn set_random_state(device: i32, state: &Tensor) -> Result<()>;

        fn channels_last(tensor: &Tensor) -> Result<UniquePtr<Tensor>>;
        fn set_deterministic(on: bool) -> Result<()>;
        fn set_tf32(on: bool) -> Result<()>;
        fn fail_allocation(after: u64) -> Result<()>;
        fn begin_device_peak() -> Result<()>;
        fn device_memory() -> Result<DeviceMemory>;
        fn profile_begin(cuda: bool) -> Result<()>;
        fn profile_end() -> Result<Vec<KernelTime>>;
        fn build_configuration() -> Result<String>;
    }
}

/// A closure that autograd runs in the forward pass, and `again` in the backward pass.
///
/// Autograd may drop it on any thread, at any time after the backward pass, and the closure's captures are not `Send`.
/// So a closure that is dropped on another thread than the one that created it is sent back, and dropped when that
/// thread creates another one or ends.
pub struct AutogradClosure {
    /// Present until it is dropped.
    work: Option<Work>,
    maker: Arc<Returns>,
}

/// Values out for values in, and whether it is `again`.
pub(super) type Compute = Box<dyn Fn(&Tensor, bool) -> super::Result<Tensor>>;

/// A closure that may be on another thread than its maker's.
struct Work(Compute);

// SAFETY: a closure is boxed, so moving it touches nothing that it holds. It is run while its maker waits, and dropped by
// its maker only: see `AutogradClosure`.
unsafe impl Send for Work {}

/// Closures dropped by other threads; none are accepted once the thread that created them has ended.
struct Returns {
    maker: ThreadId,
    waiting: Mutex<Option<Vec<Work>>>,
}

/// The returns of this thread, closed when it ends.
struct OwnReturns(Arc<Returns>);

thread_local! {
    static OWN: OwnReturns = OwnReturns(Arc::new(Returns {
        maker: std::thread::current().id(),
        waiting: Mutex::new(Some(Vec::new())),
    }));
}

impl Drop for OwnReturns {
    fn drop(&mut self) {
        // Dropped after the lock is given back: a closure may hold others.
        let waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(waiting);
    }
}

impl AutogradClosure {
    /// Creates a closure of this thread, and drops returned ones.
    pub(super) fn new(work: Compute) -> AutogradClosure {
        let maker = OWN.with(|own| Arc::clone(&own.0));
        let returned = maker.waiting.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(std::mem::take);
        drop(returned);
        AutogradClosure { work: Some(Work(work)), maker }
    }

    /// Called on the thread that made it, or on one of libtorch's while that thread waits.
    fn run(&self, x: UniquePtr<ffi::Tensor>, again: bool) -> super::Result<UniquePtr<ffi::Tensor>> {
        let Work(work) = self.work.as_ref().ok_or_else(|| super::Error::new("a closure was run after its end"))?;
        let mut out = std::mem::ManuallyDrop::new(unwound(|| work(&adopt(x), again))?);
        // SAFETY: tch makes its handles with `new at::Tensor`; this one is given away, and not dropped here.
        Ok(unsafe { UniquePtr::from_raw(out.as_mut_ptr().cast()) })
    }
}

impl Drop for AutogradClosure {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        if std::thread::current().id() == self.maker.maker {
            return;
        }
        match &mut *self.maker.waiting.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(waiting) => waiting.push(work),
            // No thread remains that may drop it.
            None => std::mem::forget(work),
        }
    }
}

/// The tensors as pointers, to be used within the statement that borrows them.
pub(super) fn lend(tensors: &[Tensor]) -> Vec<ffi::Borrowed> {
    tensors.iter().map(|tensor| ffi::Borrowed { tensor: tensor.as_ptr().cast_mut().cast() }).collect()
}

/// The same of one tensor or none.
pub(super) fn lend_any(tensor: Option<&Tensor>) -> Vec<ffi::Borrowed> {
    tensor.into_iter().map(|tensor| ffi::Borrowed { tensor: tensor.as_ptr().cast_mut().cast() }).collect()
}

/// Values as a tensor of this size, which `work` must not keep.
pub(super) fn lend_values<T: Element, R>(
    values: &[T],
    size: &[i64],
    work: impl FnOnce(&Tensor) -> super::Result<R>,
) -> super::Result<R> {
    let count: i64 = size.iter().product();
    if usize::try_from(count).ok() != Some(values.len()) {
        return Err(super::Error::new(format!("{} values do not fill a tensor of {size:?}", values.len())));
    }
    let mut strides = vec![1; size.len()];
    for place in (1..size.len()).rev() {
        strides[place - 1] = strides[place] * size[place];
    }
    // SAFETY: as many values of this kind lie there as the size says, and they outlive the tensor, which is read only and
    // dropped here.
    let lent = unsafe { Tensor::f_from_blob(values.as_ptr().cast(), size, &strides, T::KIND, Device::Cpu)? };
    work(&lent)
}

/// Copies a tensor's values to memory of the host, in C order; `false` if there are not as many bytes.
pub(super) fn copy_to_bytes(values: &Tensor, bytes: &mut [u8]) -> super::Result<bool> {
    let size = values.size();
    if values.numel() * values.kind().elt_size_in_bytes() != bytes.len() {
        return Ok(false);
    }
    let mut strides = vec![1; size.len()];
    for place in (1..size.len()).rev() {
        strides[place - 1] = strides[place] * size[place];
    }
    // SAFETY: as many bytes lie there as values of this kind need, borrowed for this call alone; the tensor over them is
    // dropped here, after a copy that has ended when it returns, since the memory is not pinned.
    let mut host =
        unsafe { Tensor::f_from_blob(bytes.as_mut_ptr().cast_const(), &size, &strides, values.kind(), Device::Cpu)? };
    host.f_copy_(values)?;
    Ok(true)
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

/// What comes before the error in such a panic: `Result::unwrap` on a `TchError`.
const UNWRAPPED: &str = "called `Result::unwrap()` on an `Err` value: Torch(";

/// The result of `work`, also where it panics with an error of libtorch; any other panic continues. Where a call fails that
/// was given a number, tch 0.24 drops that number before it reads the error, and the drop panics with it: so does
/// `f_mul_scalar` when memory runs out.
///
/// # Errors
/// Those of `work`, and of libtorch.
pub fn unwound<T>(work: impl FnOnce() -> super::Result<T>) -> super::Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().and_then(|text| text.strip_prefix(UNWRAPPED));
        match text {
            Some(text) => Err(super::Error::from_text(&first_line(text))),
            None => resume_unwind(panic),
        }
    })
}

/// The first line of a string as `Debug` writes it, in quotes and a bracket.
fn first_line(text: &str) -> String {
    let text = text.strip_prefix('"').unwrap_or(text);
    let line = text.split("\\n").next().unwrap_or(text);
    line.strip_suffix("\")").unwrap_or(line).replace("\\\"", "\"")
}

#[cfg(test)]
mod tests {
    use super::super::Result;
    use super::*;

    #[test]
    fn an_error_that_the_bindings_panic_with_is_an_error() {
        let fails = |text: &'static str| {
            move || -> Result<()> {
                let read = |text: &str| std::result::Result::<(), _>::Err(tch::TchError::Torch(text.into()));
                read(text).unwrap();
                Ok(())
            }
        };
        assert_eq!(unwound(fails("no \"memory\"\nat x")).unwrap_err().to_string(), "no \"memory\"");
        assert_eq!(unwound(fails("none")).unwrap_err().to_string(), "none");
        assert_eq!(unwound(|| Ok(3)).unwrap(), 3);
        let other = catch_unwind(|| unwound(|| -> Result<()> { panic!("of another kind") }));
        assert_eq!(other.unwrap_err().downcast_ref::<&str>(), Some(&"of another kind"));
    }
}
