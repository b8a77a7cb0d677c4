//! `door`: the loader, and a program's run, for Python.
//!
//! The one idea: memory is passed without copies, and slow work runs in threads without the GIL. A batch is exported
//! through DLPack, a tensor to be saved is imported by its address. The public Python API is in `python/gradus`, which
//! reads the environment, flattens states and creates tensors; this crate has the rest. Read on in `loader`, then
//! `dlpack`; in `program`, then crate `program`.

mod augment;
mod detection;
mod dlpack;
mod loader;
mod memory;
mod program;
mod samples;
mod text;

use pyo3::prelude::*;

/// The module `gradus._door`.
#[pymodule(name = "_door")]
mod module {
    #[pymodule_export]
    use crate::detection::PyDetectionLoader;
    #[pymodule_export]
    use crate::dlpack::BatchTensor;
    #[pymodule_export]
    use crate::loader::{PyLoader, variables};
    #[pymodule_export]
    use crate::program::PyProgramRun;
    #[pymodule_export]
    use crate::samples::{planned, staged};
    #[pymodule_export]
    use crate::text::PyTextLoader;

    #[allow(unused_imports)]
    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        formats::install();
        module.add("CheckpointError", module.py().get_type::<crate::program::CheckpointError>())
    }
}
