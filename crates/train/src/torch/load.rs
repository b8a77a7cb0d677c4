//! Initialization of the process before the first tensor: the CUDA half of libtorch, and the allocator.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

/// Loads the CUDA half of libtorch if it exists; otherwise only the CPU is available.
///
/// The executable links the CPU half only, so that it runs without CUDA. Loading the other half registers its devices.
pub fn open_cuda() -> bool {
    let is_open = open(c"libtorch_cuda.so");
    if is_open {
        open_own_part();
    }
    is_open
}

/// The version of the names and arguments in `libgradus-cuda.so`, as in `cuda/version.cpp`: raised with each change.
pub(super) const CUDA_PART: u32 = 2;

/// Why a `libgradus-cuda.so` that was found is not used.
static REFUSED: OnceLock<String> = OnceLock::new();

/// Why the `libgradus-cuda.so` that was found is not used, as a sentence without its full stop; `None` if it is used,
/// or missing.
pub fn refused_cuda_part() -> Option<&'static str> {
    REFUSED.get().map(String::as_str)
}

/// Loads our own library for CUDA devices if it exists: next to this executable, or on the library path. Without it,
/// communication goes through the host, and CUDA graphs are not available.
fn open_own_part() {
    let beside = std::env::current_exe().ok().and_then(|program| {
        CString::new(program.parent()?.join("libgradus-cuda.so").into_os_string().into_encoded_bytes()).ok()
    });
    for path in beside.iter().map(CString::as_c_str).chain([c"libgradus-cuda.so"]) {
        match open_if_built_for(path, CUDA_PART, domain::torch::VERSION) {
            Ok(true) => return,
            Ok(false) => {}
            Err(why) => drop(REFUSED.set(format!("`{}` is not used: {why}", path.to_string_lossy()))),
        }
    }
}

/// Loads a library with global symbols, if it has this version and was built for this PyTorch; `false` if it does not
/// exist. Until it is verified, its symbols are local. One that is there and lacks something, such as NCCL, is refused: it
/// would be missed silently otherwise.
///
/// # Errors
/// Why it is not loaded.
pub(super) fn open_if_built_for(name: &CStr, version: u32, torch: &str) -> Result<bool, String> {
    type BuiltFor = unsafe extern "C" fn() -> *const libc::c_char;
    // SAFETY: the name ends with a zero byte; the library's initialisers run before any tensor exists, on the only
    // thread.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        let is_path = name.to_bytes().contains(&b'/');
        return match is_path && Path::new(OsStr::from_bytes(name.to_bytes())).is_file() {
            true => Err(format!("it cannot be loaded: {}", why_not_loaded(name))),
            false => Ok(false),
        };
    }
    // SAFETY: looks a name up in an open library; the name ends with a zero byte.
    let symbol = unsafe { libc::dlsym(handle, c"gradus_cuda_built_for".as_ptr()) };
    let found = if symbol.is_null() {
        None
    } else {
        // SAFETY: the function of this name has this signature in every version of the library, and returns a text that
        // lives as long as the library.
        let text = unsafe { CStr::from_ptr(std::mem::transmute::<*mut libc::c_void, BuiltFor>(symbol)()) };
        Some(text.to_string_lossy().into_owned())
    };
    let wanted = format!("version {version} for PyTorch {torch}");
    if found.as_ref() != Some(&wanted) {
        // SAFETY: the handle is open, and nothing of the library is used any more.
        unsafe { libc::dlclose(handle) };
        let found = found.unwrap_or_else(|| "of a version that does not say what it was built for".into());
        return Err(format!("it is {found}, and this program needs {wanted}; build it again with `cargo xtask cuda`"));
    }
    Ok(open(name))
}

/// Why the library of this name was not loaded just now, in the dynamic linker's words.
fn why_not_loaded(name: &CStr) -> String {
    // SAFETY: returns null, or a text that ends with a zero byte and stays until this thread's next call of its kind.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason was given".to_owned();
    }
    // SAFETY: see above.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    let start = format!("{}: ", name.to_string_lossy());
    text.strip_prefix(&start).map_or_else(|| text.clone(), str::to_owned)
}

/// Whether a name of an open library is known to all.
#[cfg(test)]
pub(super) fn is_known(name: &CStr) -> bool {
    // SAFETY: looks a name up; the name ends with a zero byte.
    !unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.is_null()
}

/// Loads a library permanently, with global symbols.
fn open(name: &CStr) -> bool {
    // SAFETY: the name ends with a zero byte; the library's initialisers run before any tensor exists, on the only
    // thread. The handle is never closed.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    !handle.is_null()
}

/// Largest tensor whose memory is retained when it is freed; the maximum of glibc.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT: libc::c_int = 32 << 20;

/// Makes the allocator retain freed memory of tensors.
///
/// By default glibc returns freed memory of this size to the kernel, until its threshold adapts, and requests it again
/// a moment later: with zeroed pages, one fault per 4 KiB. When every tensor above 1 MiB was mapped again, a step of a
/// ResNet-18 (batch 32, 32×32, two cores) took 1.4 to 1.8 times as long, for 0.75 of the memory.
pub fn steady_allocator() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: sets two numbers within the allocator; both values are in their documented range.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, KEPT);
        libc::mallopt(libc::M_TRIM_THRESHOLD, -1);
    }
}

/// The compute capability (major) of the first CUDA device, such as 9 for H100 and 8 for A100; `None` without one.
///
/// Queried from the run-time library that the CUDA half loads, because the executable does not link it.
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

/// The name of a CUDA device according to its driver, such as `NVIDIA H100 80GB HBM3`; `None` without a driver.
pub fn cuda_name(device: usize) -> Option<String> {
    type GetName = unsafe extern "C" fn(*mut libc::c_char, libc::c_int, libc::c_int) -> libc::c_int;
    // SAFETY: the name ends with a zero byte. A library that CUDA opened already is only counted once more.
    let driver = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
    if driver.is_null() {
        return None;
    }
    // SAFETY: looks a name up in an open library; the name ends with a zero byte.
    let symbol = unsafe { libc::dlsym(driver, c"cuDeviceGetName".as_ptr()) };
    if symbol.is_null() {
        return None;
    }
    // SAFETY: `cuda.h` declares the function of this name so, since the first version; a device is its number.
    let get = unsafe { std::mem::transmute::<*mut libc::c_void, GetName>(symbol) };
    let mut name = [0 as libc::c_char; 256];
    // SAFETY: writes at most as many bytes as it is told, the last of them zero, or fails.
    let failed = unsafe { get(name.as_mut_ptr(), name.len() as libc::c_int, libc::c_int::try_from(device).ok()?) };
    if failed != 0 {
        return None;
    }
    let bytes = name.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
    String::from_utf8(bytes).ok()
}
