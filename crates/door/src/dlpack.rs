#![allow(unsafe_code)]
//! Exposes a batch's memory through DLPack, without a copy.
//!
//! The structures are those of DLPack's `dlpack.h` before version 1.0, which every consumer supports. They cannot mark
//! memory as read-only, so it is exported only once, and the tensor made of it may be written to. That tensor keeps the
//! batch alive; when the last one is dropped, the memory returns to the loader, which overwrites all of it before the
//! next export.

use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

use data::{Batch, BatchDtype, HandedMemory, MemoryHandover};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

/// Which numbers of a batch.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    Images,
    Labels,
}

/// Memory that holds numbers: of a batch of images, which returns to its loader, or a list's.
#[derive(Clone)]
enum Memory {
    Batch(Arc<Batch>, Place),
    Floats(Arc<Vec<f32>>),
    Integers(Arc<Vec<i64>>),
}

/// Numbers of a batch, to be given to `from_dlpack`.
#[pyclass(frozen)]
pub struct BatchTensor {
    memory: Memory,
    shape: Vec<usize>,
    handover: MemoryHandover,
}

/// A cache line, aligned for any data type.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; 64]);

/// Keeps exported memory alive.
enum Kept {
    Memory(#[expect(dead_code, reason = "it is only kept")] Memory),
    Copy(#[expect(dead_code, reason = "it is only kept")] Vec<Line>),
}

/// `DLDevice`.
#[repr(C)]
struct Device {
    kind: i32,
    id: i32,
}

/// `DLDataType`.
#[repr(C)]
struct Type {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    kind: Type,
    shape: *mut i64,
    strides: *mut i64,
    offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    delete: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// An exported tensor's shape and header; one allocation that `delete` frees.
struct Lent {
    managed: Managed,
    shape: Vec<i64>,
    _kept: Kept,
}

/// `kDLCPU`.
const CPU: i32 = 1;
const INTEGER: u8 = 0;
const UNSIGNED: u8 = 1;
const FLOAT: u8 = 2;
const BFLOAT: u8 = 4;

/// The name of a capsule that was not consumed.
const FRESH: &CStr = c"dltensor";

impl BatchTensor {
    /// The values at `place`, of this shape, row by row.
    pub fn new(batch: Arc<Batch>, place: Place, shape: Vec<usize>) -> BatchTensor {
        BatchTensor::of(Memory::Batch(batch, place), shape)
    }

    /// These values, of this shape, row by row.
    pub fn floats(values: Vec<f32>, shape: Vec<usize>) -> BatchTensor {
        BatchTensor::of(Memory::Floats(Arc::new(values)), shape)
    }

    /// These whole numbers, of this shape, row by row.
    pub fn integers(values: Vec<i64>, shape: Vec<usize>) -> BatchTensor {
        BatchTensor::of(Memory::Integers(Arc::new(values)), shape)
    }

    fn of(memory: Memory, shape: Vec<usize>) -> BatchTensor {
        BatchTensor { memory, shape, handover: MemoryHandover::default() }
    }

    /// The memory to export, which must not be exported yet, or a copy of it.
    fn take(&self, copies: bool) -> PyResult<(*mut u8, Kept)> {
        let (address, bytes, _) = self.address();
        match self.handover.take(copies) {
            Some(HandedMemory::Own) => Ok((address.cast_mut(), Kept::Memory(self.memory.clone()))),
            Some(HandedMemory::Copy) => {
                let mut copy = vec![Line([0; 64]); bytes.div_ceil(64)];
                let target: *mut u8 = copy.as_mut_ptr().cast();
                // SAFETY: the batch has `bytes` bytes at `address`, which nobody writes to while Python's lock is held and
                // the memory is not handed over; `copy` has as many, and is new.
                unsafe { std::ptr::copy_nonoverlapping(address, target, bytes) };
                Ok((target, Kept::Copy(copy)))
            }
            None => {
                let message = "the memory of this batch was handed over already, to a tensor that may write to it\n\
                    hint: copy that tensor (`x.clone()` in PyTorch, `x.copy()` in NumPy)";
                Err(PyBufferError::new_err(message))
            }
        }
    }

    fn address(&self) -> (*const u8, usize, Type) {
        let kind = |code, bits| Type { code, bits, lanes: 1 };
        match &self.memory {
            Memory::Floats(values) => (values.as_ptr().cast(), size_of_val(&values[..]), kind(FLOAT, 32)),
            Memory::Integers(values) => (values.as_ptr().cast(), size_of_val(&values[..]), kind(INTEGER, 64)),
            Memory::Batch(batch, Place::Labels) => {
                let labels = batch.labels();
                (labels.as_ptr().cast(), size_of_val(labels), kind(INTEGER, 64))
            }
            Memory::Batch(batch, Place::Images) => {
                let bytes = batch.bytes();
                let numbers = match batch.numbers() {
                    BatchDtype::F32 => kind(FLOAT, 32),
                    BatchDtype::Bf16 => kind(BFLOAT, 16),
                    BatchDtype::U8 => kind(UNSIGNED, 8),
                };
                (bytes.as_ptr(), bytes.len(), numbers)
            }
        }
    }
}

#[pymethods]
impl BatchTensor {
    /// A capsule of the memory, or of a copy if requested. It is CPU memory, so there is nothing to synchronize.
    #[pyo3(signature = (*, copy=None, **_keywords))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        copy: Option<bool>,
        _keywords: Option<&Bound<'py, pyo3::types::PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (_, bytes, kind) = self.address();
        let each = usize::from(kind.bits / 8);
        if self.shape.iter().product::<usize>() * each != bytes {
            return Err(PyValueError::new_err("a batch whose shape is not that of its memory"));
        }
        let (address, kept) = self.take(copy == Some(true))?;
        let dimensions = self.shape.len() as i32;
        let device = Device { kind: CPU, id: 0 };
        let (shape, strides) = (std::ptr::null_mut(), std::ptr::null_mut());
        let data = address.cast();
        let tensor = Tensor { data, device, dimensions, kind, shape, strides, offset: 0 };
        let mut lent = Box::new(Lent {
            managed: Managed { tensor, context: std::ptr::null_mut(), delete: Some(delete) },
            shape: self.shape.iter().map(|length| *length as i64).collect(),
            _kept: kept,
        });
        lent.managed.tensor.shape = lent.shape.as_mut_ptr();
        let lent = Box::into_raw(lent);
        // SAFETY: `lent` is a live allocation whose address stays; `context` lets `delete` find it from its header.
        let managed = unsafe {
            (*lent).managed.context = lent.cast();
            &raw mut (*lent).managed
        };
        // SAFETY: Python's lock is held (`py`), the name is static, and the pointer is not null. `release` frees what
        // nobody took. A null result is an error that Python holds; then nobody else knows of `lent`.
        unsafe {
            let capsule = ffi::PyCapsule_New(managed.cast(), FRESH.as_ptr(), Some(release));
            if capsule.is_null() {
                delete(managed);
            }
            Bound::from_owned_ptr_or_err(py, capsule)
        }
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        (CPU, 0)
    }

    /// The epoch and the position in it of the first sample, where the memory is of a batch of images.
    #[getter]
    fn begins(&self) -> Option<(u64, u64)> {
        match &self.memory {
            Memory::Batch(batch, _) => Some((batch.epoch(), batch.first())),
            Memory::Floats(_) | Memory::Integers(_) => None,
        }
    }

    /// The classes that the images were mixed with, and the weight of an image's own class; `None` if they were not.
    #[getter]
    fn mixed(&self) -> Option<(Vec<i64>, f64)> {
        match &self.memory {
            Memory::Batch(batch, _) => batch.mixed().map(|mixed| (mixed.labels.clone(), mixed.own)),
            Memory::Floats(_) | Memory::Integers(_) => None,
        }
    }

    /// Address of the values, to verify that nothing was copied.
    #[getter]
    fn pointer(&self) -> usize {
        self.address().0 as usize
    }
}

/// Frees an exported tensor. Consumers may call it on any thread, with or without the GIL: no Python objects are used.
unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: `managed` is the header of a `Lent` that `__dlpack__` leaked, and a consumer calls this once.
    unsafe { drop(Box::from_raw((*managed).context.cast::<Lent>())) }
}

/// Frees a capsule that was not consumed; a consumed one has another name, and its consumer calls `delete`.
unsafe extern "C" fn release(capsule: *mut ffi::PyObject) {
    let name: *const c_char = FRESH.as_ptr();
    // SAFETY: Python calls this with a capsule of `__dlpack__` and its lock held; one named `dltensor` holds a header.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, name) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, name).cast());
        }
    }
}
