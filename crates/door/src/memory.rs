#![allow(unsafe_code)]
//! The memory of tensors that Python holds, read while the call that names it lasts.

use checkpoint::Dtype;
use program::TensorView;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A tensor passed from Python: name, type, shape, address, bytes, and whether it belongs to the model.
pub type Handed = (String, String, Vec<u64>, usize, usize, bool);

/// Types by the names that PyTorch and NumPy both know.
const TYPES: [(Dtype, &str); 8] = [
    (Dtype::F64, "float64"),
    (Dtype::I64, "int64"),
    (Dtype::F32, "float32"),
    (Dtype::I32, "int32"),
    (Dtype::BF16, "bfloat16"),
    (Dtype::F16, "float16"),
    (Dtype::U8, "uint8"),
    (Dtype::Bool, "bool"),
];

/// The tensors as Rust views, valid during the call to which they were passed.
pub fn views<'a>(handed: Vec<Handed>) -> PyResult<Vec<TensorView<'a>>> {
    let view = |(name, dtype, shape, address, length, is_of_model): Handed| {
        let dtype = TYPES.iter().find(|(_, known)| *known == dtype).map(|(dtype, _)| *dtype);
        let dtype =
            dtype.ok_or_else(|| PyValueError::new_err(format!("`{name}` is of a type that cannot be saved")))?;
        let bytes: &[u8] = match (address, length) {
            (0, _) | (_, 0) => &[],
            // SAFETY: only `gradus/_run.py` calls, with contiguous tensors in the processor's memory: so many initialised
            // bytes, which it holds until the call returns. Nothing keeps the slices after that.
            (address, length) => unsafe { std::slice::from_raw_parts(address as *const u8, length) },
        };
        Ok(TensorView { name, dtype, shape, bytes, is_of_model })
    };
    handed.into_iter().map(view).collect()
}

/// The name of a type in Python.
pub fn name_of(dtype: Dtype) -> &'static str {
    TYPES.iter().find(|(known, _)| *known == dtype).map_or("uint8", |(_, name)| name)
}
