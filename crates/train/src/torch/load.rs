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

/// Keeps glibc from raising its threshold for mapped memory as large tensors are freed, which roughly doubles the
/// peak of a training process.
pub fn steady_allocator() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: sets one number within the allocator; the value is in its documented range.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
    }
}
