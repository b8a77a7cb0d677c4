//! CUDA graphs: operations of a CUDA device that are recorded once and replayed with a single launch.
//!
//! `graph.cpp` is a separate library that is loaded at run time ([`crate::torch::open_cuda`]); without it nothing can be
//! recorded.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::ptr::NonNull;

use libc::{c_char, c_int, c_void};

use crate::torch::{Error, Result};

type Begin = unsafe extern "C" fn(c_int, *mut c_void, *mut *mut c_void) -> *const c_char;
type Act = unsafe extern "C" fn(*mut c_void) -> *const c_char;
type Forget = unsafe extern "C" fn(*mut c_void);

/// The functions of the library.
#[derive(Debug, Clone, Copy)]
pub struct CudaGraphLibrary {
    begin: Begin,
    end: Act,
    repeat: Act,
    forget: Forget,
}

/// A recorded graph. It owns the memory that its operations use.
#[derive(Debug)]
pub struct CudaGraph {
    recording: NonNull<c_void>,
    library: CudaGraphLibrary,
}

impl CudaGraphLibrary {
    /// The library, if it was opened.
    pub fn find() -> Option<CudaGraphLibrary> {
        let begin = look_up(c"gradus_graph_begin")?;
        let [end, repeat] = [look_up(c"gradus_graph_end")?, look_up(c"gradus_graph_repeat")?];
        let forget = look_up(c"gradus_graph_forget")?;
        // SAFETY: `graph.cpp` defines the functions of these names with these signatures.
        unsafe {
            Some(CudaGraphLibrary {
                begin: std::mem::transmute::<*mut c_void, Begin>(begin.as_ptr()),
                end: std::mem::transmute::<*mut c_void, Act>(end.as_ptr()),
                repeat: std::mem::transmute::<*mut c_void, Act>(repeat.as_ptr()),
                forget: std::mem::transmute::<*mut c_void, Forget>(forget.as_ptr()),
            })
        }
    }

    /// Records the operations of `work` on the CUDA device with this index; none is executed yet, and no value may be
    /// read in it. The result of `work` is the tensor that each [`CudaGraph::repeat`] writes. It shares the memory pool
    /// of an `earlier` graph, if there is one: replaying one of the two invalidates the other's results.
    ///
    /// # Errors
    /// Errors of `work`, or operations that cannot be recorded.
    pub fn record<T>(
        self,
        device: usize,
        earlier: Option<&CudaGraph>,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<(CudaGraph, T)> {
        let earlier = earlier.map_or(std::ptr::null_mut(), |graph| graph.recording.as_ptr());
        let number = c_int::try_from(device).map_err(|_| Error::new("there is no such device"))?;
        let mut recording = std::ptr::null_mut();
        // SAFETY: looks at a recording that lives; writes one pointer to the place it is given, or returns a text.
        check(unsafe { (self.begin)(number, earlier, &raw mut recording) })?;
        let recording = NonNull::new(recording).ok_or_else(|| Error::new("nothing is recorded"))?;
        let graph = CudaGraph { recording, library: self };
        let result = work();
        // SAFETY: what `begin` wrote, ended once.
        match (result, check(unsafe { (self.end)(recording.as_ptr()) })) {
            (Ok(value), Ok(())) => Ok((graph, value)),
            (Err(error), Ok(())) => Err(error),
            // A capture that cannot be ended leaves generators and allocator unusable, and must not pass for one that only
            // lacked memory.
            (Err(error), Err(_)) if !error.is_out_of_memory() => Err(error),
            (_, Err(broken)) => Err(broken),
        }
    }
}

impl CudaGraph {
    /// Launches the graph, without waiting for it.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn repeat(&self) -> Result<()> {
        // SAFETY: a recording that has ended and is not forgotten.
        check(unsafe { (self.library.repeat)(self.recording.as_ptr()) })
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        // SAFETY: what `begin` wrote, forgotten once.
        unsafe { (self.library.forget)(self.recording.as_ptr()) }
    }
}

pub(super) fn look_up(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: looks a name up; it ends with a zero byte.
    NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
}

/// The text that a function returned, as an error.
pub(super) fn check(wrong: *const c_char) -> Result<()> {
    if wrong.is_null() {
        return Ok(());
    }
    // SAFETY: a text that ends with a zero byte and stays until this thread's next call.
    Err(Error::from_text(&unsafe { CStr::from_ptr(wrong) }.to_string_lossy()))
}
