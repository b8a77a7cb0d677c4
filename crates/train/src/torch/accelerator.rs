//! What is used of a device: its memory, and its kernels.

use std::time::Duration;

use tch::Device;

use super::Result;
use super::bridge::ffi;

/// The most memory that was ever used: of this process, and of tensors on the accelerator (0 without one).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeakMemory {
    /// Bytes of this process in RAM.
    pub host: u64,
    /// Bytes of tensors on the accelerator.
    pub device: u64,
}

impl PeakMemory {
    /// Of the accelerator where there is one, for that is the memory that runs out; else of the process.
    pub fn largest(self) -> u64 {
        if self.device > 0 { self.device } else { self.host }
    }
}

/// Reads both figures; the host's is 0 where the system does not state it.
pub fn peak_memory() -> Result<PeakMemory> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0");
    let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse().unwrap_or(0);
    Ok(PeakMemory { host: kibibytes << 10, device: device_memory()?.peak })
}

/// From now on the peak of the accelerator is measured anew; its cached memory is given back.
pub fn begin_device_peak() -> Result<()> {
    Ok(ffi::begin_device_peak()?)
}

/// Memory of the accelerator, in bytes; all 0 without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Of tensors at present.
    pub current: u64,
    /// Of tensors at most, since the peak was last begun.
    pub peak: u64,
    /// What this process has, and what is free beside it.
    pub capacity: u64,
}

/// What is used of the accelerator.
pub fn device_memory() -> Result<DeviceMemory> {
    let ffi::DeviceMemory { current, peak, capacity } = ffi::device_memory()?;
    Ok(DeviceMemory { current, peak, capacity })
}

/// The executions of one kernel of a device, or of one operator of libtorch on a CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelTime {
    /// Name of the kernel or operator.
    pub name: String,
    /// Number of executions.
    pub count: u64,
    /// Their time in all; of an operator, including the operators that it calls.
    pub time: Duration,
    /// Whether it ran on the device; otherwise it is a call of the host, such as the launch of a kernel.
    pub on_device: bool,
}

/// What `work` executes: kernels of the CUDA device and calls of its driver, or operators on a CPU. The most time first.
///
/// # Errors
/// Those of `work`, and that another profiler is at work.
pub fn profiled<T>(device: Device, work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<KernelTime>)> {
    ffi::profile_begin(device.is_cuda())?;
    let done = work();
    let found = ffi::profile_end()?.into_iter().map(|ffi::KernelTime { name, count, nanoseconds, on_device }| {
        KernelTime { name, count, time: Duration::from_nanos(nanoseconds), on_device }
    });
    let mut kernels: Vec<KernelTime> = found.collect();
    kernels.sort_by(|one, other| other.time.cmp(&one.time).then_with(|| one.name.cmp(&other.name)));
    Ok((done?, kernels))
}
