//! Functions of libtorch that `tch` lacks.
//!
//! One idea: the C++ is a few plain functions (`shim.cpp`, and `autograd.cpp` for what autograd calls back), the FFI
//! boundary is one file ([`bridge`]), and everything here is safe, returns a [`Result`], and reports errors in one line.

mod accelerator;
mod bridge;
pub mod cuda;
pub mod group;
mod load;
pub mod module;
mod queue;

use bridge::{AutogradClosure, adopt, borrow, ffi, lend, lend_any};
use tch::{Device, Kind, Tensor};

pub use accelerator::{DeviceMemory, KernelTime, PeakMemory, begin_device_peak, device_memory, peak_memory, profiled};
pub use bridge::unwound;
pub use load::{cuda_generation, cuda_name, open_cuda, refused_cuda_part, steady_allocator};
pub use queue::{HostCopy, upload};

/// What libtorch refused to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// The result of a call into libtorch.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with this message.
    pub fn new(message: impl Into<String>) -> Error {
        Error(message.into())
    }

    /// Whether memory ran out, on the host or on the device.
    pub fn is_out_of_memory(&self) -> bool {
        // oneDNN says no more than the last when its scratch memory is refused.
        let words = ["can't allocate memory", "out of memory", "not enough memory", "could not create a primitive"];
        words.iter().any(|words| self.0.contains(words))
    }

    /// Whether it came of talking to other ranks.
    pub fn is_of_exchange(&self) -> bool {
        let words = ["gloo", "NCCL", "Connection", "Broken pipe", "Timed out", "timed out", "failed to recv", "Socket"];
        words.iter().any(|words| self.0.contains(words))
    }
}

/// The first sentence; what follows is C++ stack.
impl From<tch::TchError> for Error {
    fn from(error: tch::TchError) -> Error {
        Error::from_text(&error.to_string())
    }
}

impl From<cxx::Exception> for Error {
    fn from(error: cxx::Exception) -> Error {
        Error::from_text(error.what())
    }
}

impl Error {
    fn from_text(text: &str) -> Error {
        // Of a module it tells where in the module's code it was, and at the end what it was.
        let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
        if let (true, Some(last)) = (text.contains("in the TorchScript interpreter"), last) {
            return Error(last.trim_start_matches("RuntimeError: ").to_owned());
        }
        let first = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no reason was given");
        Error(first.trim_start_matches("Internal torch error: ").to_owned())
    }
}

/// Version of the library that this process runs on, such as `2.11.0`.
pub fn version() -> Result<String> {
    let configuration = ffi::build_configuration()?;
    let start = configuration.find("TORCH_VERSION=").map(|at| at + "TORCH_VERSION=".len());
    let rest = &configuration[start.ok_or_else(|| Error::new("libtorch does not state its version"))?..];
    Ok(rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect())
}

/// A number format of 16 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AutocastDtype {
    /// bfloat16: the exponents of 32 bits, 8 bits of precision.
    Bf16,
    /// IEEE half precision: 11 bits of precision, exponents from 6e-8 to 65504.
    Fp16,
}

/// Runs `work` with matrix products and convolutions in 16 bits on `device`, on this thread.
pub fn autocast<T>(device: Device, half: AutocastDtype, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let guard = Autocast { device, before: ffi::autocast_begin(device.is_cuda(), half == AutocastDtype::Fp16)? };
    let result = work();
    drop(guard);
    result
}

/// Ends mixed precision however its scope is left.
struct Autocast {
    device: Device,
    before: bool,
}

impl Drop for Autocast {
    fn drop(&mut self) {
        // Fails only for a kind of device that the beginning would have refused.
        let _ = ffi::autocast_end(self.device.is_cuda(), self.before);
    }
}

/// Constants of one step of stochastic gradient descent.
#[derive(Debug, Clone, Copy)]
pub struct SgdConstants {
    /// Learning rate.
    pub lr: f64,
    /// Share of the last update that is kept; 0 for none, and then no momenta are given.
    pub momentum: f64,
    /// Nesterov's form.
    pub nesterov: bool,
    /// L2 penalty, added to the gradient.
    pub weight_decay: f64,
}

/// One step of stochastic gradient descent, as `torch.optim.SGD(fused=True)`, in place; nothing where the scalar `found` is 1.
pub fn sgd_step(
    parameters: &[Tensor],
    gradients: &[Tensor],
    momenta: &[Tensor],
    constants: SgdConstants,
    found: Option<&Tensor>,
) -> Result<()> {
    let SgdConstants { lr, momentum, nesterov, weight_decay } = constants;
    let constants = ffi::SgdConstants { lr, momentum, nesterov, weight_decay };
    Ok(ffi::sgd_step(&lend(parameters), &lend(gradients), &lend(momenta), &constants, &lend_any(found))?)
}

/// Constants of one step of AdamW.
#[derive(Debug, Clone, Copy)]
pub struct AdamwConstants {
    /// Learning rate.
    pub lr: f64,
    /// Decay rates of the first and second moment.
    pub betas: [f64; 2],
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay, apart from the gradient.
    pub weight_decay: f64,
}

/// One step of AdamW, as `torch.optim.AdamW(fused=True)`, in place; `step` counts from 1 and is a float32 scalar. Nothing
/// where the scalar `found` is 1.
pub fn adamw_step(
    parameters: &[Tensor],
    gradients: &[Tensor],
    [first, second]: [&[Tensor]; 2],
    step: &Tensor,
    constants: AdamwConstants,
    found: Option<&Tensor>,
) -> Result<()> {
    let AdamwConstants { lr, betas: [beta1, beta2], eps, weight_decay } = constants;
    let constants = ffi::AdamwConstants { lr, beta1, beta2, eps, weight_decay };
    let (first, second) = (lend(first), lend(second));
    let (parameters, gradients, found) = (lend(parameters), lend(gradients), lend_any(found));
    Ok(ffi::adamw_step(&parameters, &gradients, &first, &second, borrow(step), &constants, &found)?)
}

/// The L2 norm of all gradients taken as one vector, a scalar on their device; nothing waits for it.
pub fn gradient_norm(gradients: &[Tensor]) -> Result<Tensor> {
    Ok(adopt(ffi::gradient_norm(&lend(gradients))?))
}

/// Whether no value of these tensors, as far as they hold floating-point numbers, is infinite or NaN. Waits for the device
/// once for each kind of number.
pub fn are_finite<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<bool> {
    let mut kinds: Vec<(Kind, Device, Vec<Tensor>)> = Vec::new();
    for tensor in tensors.into_iter().filter(|tensor| tensor.is_floating_point() && tensor.numel() > 0) {
        let (kind, device) = (tensor.kind(), tensor.device());
        match kinds.iter_mut().find(|(known, place, _)| (*known, *place) == (kind, device)) {
            Some((_, _, alike)) => alike.push(tensor.f_detach()?),
            None => kinds.push((kind, device, vec![tensor.f_detach()?])),
        }
    }
    for (_, _, alike) in &kinds {
        // The largest magnitude of all; NaN is larger than any.
        if !adopt(ffi::largest(&lend(alike))?).f_double_value(&[])?.is_finite() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Multiplies every tensor by the scalar `factor`, in place.
pub fn scale(tensors: &[Tensor], factor: &Tensor) -> Result<()> {
    Ok(ffi::scale(&lend(tensors), borrow(factor))?)
}

/// Sets every tensor to zero, in place.
pub fn zero(tensors: &[Tensor]) -> Result<()> {
    Ok(ffi::zero(&lend(tensors))?)
}

/// Forgets the gradients, so that the next backward pass hands over its own instead of adding to zeros.
pub fn drop_gradients(parameters: &[Tensor]) -> Result<()> {
    Ok(ffi::drop_gradients(&lend(parameters))?)
}

/// Multiplies every gradient by the scalar `inverse`, in place, and sets the scalar `found` to 1 if one of them is not
/// finite; it stays as it is otherwise.
pub fn unscale(gradients: &[Tensor], found: &Tensor, inverse: &Tensor) -> Result<()> {
    Ok(ffi::unscale(&lend(gradients), borrow(found), borrow(inverse))?)
}

/// Moves every tensor by `share` of the way to the one it is paired with, in place.
pub fn lerp(tensors: &[Tensor], towards: &[Tensor], share: f64) -> Result<()> {
    Ok(ffi::lerp(&lend(tensors), &lend(towards), share)?)
}

/// `work(x, false)`, of which autograd saves only `x`: the backward pass runs `work(x, true)` to recompute the rest.
pub fn recompute(x: &Tensor, work: impl Fn(&Tensor, bool) -> Result<Tensor> + 'static) -> Result<Tensor> {
    Ok(adopt(ffi::recompute(borrow(x), Box::new(AutogradClosure::new(Box::new(work))))?))
}

/// The same for work that is done several times with the same `parameters`, which all require gradients: they get one
/// gradient, the sum.
pub fn recompute_with(
    x: &Tensor,
    parameters: &[Tensor],
    work: impl Fn(&Tensor, bool) -> Result<Tensor> + 'static,
) -> Result<Tensor> {
    let work = Box::new(AutogradClosure::new(Box::new(work)));
    Ok(adopt(ffi::recompute_with(borrow(x), &lend(parameters), work)?))
}

/// The same values, with a backward hook: `work` runs before the gradient is passed on.
pub fn backward_hook(x: &Tensor, work: impl Fn() -> Result<()> + 'static) -> Result<Tensor> {
    let work = move |gradient: &Tensor, _: bool| work().map(|()| gradient.shallow_clone());
    Ok(adopt(ffi::gate(borrow(x), Box::new(AutogradClosure::new(Box::new(work))))?))
}

/// Hands every parameter its gradient, of the same shape.
pub fn set_gradients(parameters: &[Tensor], gradients: &[Tensor]) -> Result<()> {
    if parameters.len() != gradients.len() {
        return Err(Error::new(format!("{} gradients for {} parameters", gradients.len(), parameters.len())));
    }
    Ok(ffi::set_gradients(&lend(parameters), &lend(gradients))?)
}

/// Adds to every tensor the one it is paired with, in place.
pub fn add(tensors: &[Tensor], others: &[Tensor]) -> Result<()> {
    Ok(ffi::add(&lend(tensors), &lend(others))?)
}

/// Copies to every tensor the values of the one it is paired with.
pub fn copy(tensors: &[Tensor], others: &[Tensor]) -> Result<()> {
    Ok(ffi::copy(&lend(tensors), &lend(others))?)
}

/// Gives back the memory of a tensor, which its views share. Until [`allocate_memory`], each lies where there is no
/// memory: a processor that reads or writes one ends the process, and touches nothing else. On a CUDA device the address
/// is none of the device's: a kernel fails there, which a later call reports as an illegal access, and not where it began;
/// that was never run.
pub fn release_memory(tensor: &Tensor) -> Result<()> {
    Ok(ffi::release_memory(borrow(tensor))?)
}

/// New memory for a tensor and its views, from which [`release_memory`] took it; whatever is in it.
pub fn allocate_memory(tensor: &Tensor) -> Result<()> {
    Ok(ffi::allocate_memory(borrow(tensor))?)
}

/// The same values in memory of their own, in the same memory format; they need no gradient.
pub fn copied(tensor: &Tensor) -> Result<Tensor> {
    let values = tensor.f_detach()?;
    let mut copy = values.f_empty_like()?;
    copy.f_copy_(&values)?;
    Ok(copy)
}

/// Copies a tensor's values to memory of the host, in C order.
///
/// # Errors
/// If there are not as many bytes as the values have.
pub fn copy_to_bytes(values: &Tensor, bytes: &mut [u8]) -> Result<()> {
    match bridge::copy_to_bytes(&values.f_detach()?, bytes)? {
        true => Ok(()),
        false => Err(Error::new(format!("{} bytes cannot hold a tensor of {:?}", bytes.len(), values.size()))),
    }
}

/// Seeds the generators of every device.
pub fn seed(value: u64) -> Result<()> {
    Ok(ffi::seed(value)?)
}

/// The state of the device's generator, as bytes on the CPU.
pub fn random_state(device: Device) -> Result<Tensor> {
    Ok(adopt(ffi::random_state(place(device))?))
}

/// Puts back what [`random_state`] returned.
pub fn set_random_state(device: Device, state: &Tensor) -> Result<()> {
    Ok(ffi::set_random_state(place(device), borrow(state))?)
}

/// The number of a CUDA device; −1 for the CPU.
fn place(device: Device) -> i32 {
    match device {
        Device::Cuda(place) => i32::try_from(place).unwrap_or(0),
        Device::Cpu | Device::Mps | Device::Vulkan => -1,
    }
}

/// The same values, pixel by pixel in memory (NHWC); needs four dimensions.
pub fn channels_last(tensor: &Tensor) -> Result<Tensor> {
    Ok(adopt(ffi::channels_last(borrow(tensor))?))
}

/// Only operations whose result is the same on every run.
pub fn set_deterministic(on: bool) -> Result<()> {
    Ok(ffi::set_deterministic(on)?)
}

/// For tests: the `after`-th allocation of host memory from now on fails as if there were none left, once; 0 for none.
///
/// # Errors
/// When libtorch refuses another allocator.
pub fn fail_allocation(after: u64) -> Result<()> {
    Ok(ffi::fail_allocation(after)?)
}

/// Whether CUDA devices compute 32-bit products from 19 bits.
pub fn set_tf32(on: bool) -> Result<()> {
    Ok(ffi::set_tf32(on)?)
}

/// Threads within one operation and between operations; part of the result of a run.
pub fn set_threads(threads: u32) {
    tch::set_num_threads(i32::try_from(threads.max(1)).unwrap_or(i32::MAX));
}

/// Microseconds of processor time that this process has taken, all its threads together; 0 where the system does not
/// state it.
pub fn processor_micros() -> u64 {
    /// Linux states the time in this unit on every architecture (`USER_HZ`, `man 5 proc`).
    const TICK_MICROS: u64 = 10_000;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The program's name, in brackets, may hold anything; the first field after it is the third.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    ticks * TICK_MICROS
}

/// Random number generators belong to the process, so tests that use them take turns.
#[cfg(test)]
pub(crate) fn turn() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
