//! What must happen to the process before the first tensor: the CUDA half of the library, and the allocator.

#![allow(unsafe_code)]

/// Loads the CUDA half of the library if it is there; without it, the CPU is all there is.
///
/// The executable links the CPU half only, so that it runs where no CUDA is installed. Opening the other half
/// registers its devices.
pub fn open_cuda() -> bool {
    let name = c"libtorch_cuda.so";
    // SAFETY: the name ends with a zero byte; the library's initialisers run before any tensor exists, on the only
    // thread. The handle is never closed.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    !handle.is_null()
}

/// Largest tensor whose memory is kept when it is freed; glibc accepts no more.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT: libc::c_int = 32 << 20;

/// Keeps what tensors leave behind within the process.
///
/// By default glibc gives freed memory of this size back to the kernel, until it has learnt not to, and takes it anew a
/// moment later: with zeroed pages, one fault every 4 KiB. When every tensor above 1 MiB was mapped anew, a step of a
/// ResNet-18 (batch 32, 32×32, two cores) took 1.4 to 1.8 times as long, for 0.75 of the memory.
pub fn steady_allocator() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: sets two numbers within the allocator; both values are in their documented range.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, KEPT);
        libc::mallopt(libc::M_TRIM_THRESHOLD, -1);
    }
}

/// The generation of the first CUDA device, such as 9 for H100 and 8 for A100; none without one.
///
/// Asked of the run-time library that the CUDA half brought along, for the executable does not link it.
pub fn cuda_generation() -> Option<i32> {
    type GetAttribute = unsafe extern "C" fn(*mut libc::c_int, libc::c_int, libc::c_int) -> libc::c_int;
    /// `cudaDevAttrComputeCapabilityMajor` of `driver_types.h`.
    const MAJOR: libc::c_int = 75;
    // SAFETY: looks a name up; the name ends with a zero byte.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"cudaDeviceGetAttribute".as_ptr()) };
    if symbol.is_null() {
        return None;
    }
    // SAFETY: the function of this name has this signature in every version of the CUDA run-time library.
    let get = unsafe { std::mem::transmute::<*mut libc::c_void, GetAttribute>(symbol) };
    let mut major = 0;
    // SAFETY: writes one number to the place it is given, or fails.
    let failed = unsafe { get(&raw mut major, MAJOR, 0) };
    (failed == 0).then_some(major)
}
