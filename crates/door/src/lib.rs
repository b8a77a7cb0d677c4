//! `door`: the loader, and a program's run, for Python.
//!
//! The one idea: memory is handed over as it lies, and whatever takes time happens in threads without Python's lock. A batch
//! goes out by DLPack, a tensor to be saved comes in by its address. What people call is below `python/gradus`, which
//! gathers the environment, takes states apart and makes tensors; here is what it cannot do itself. Read on in `loader`,
//! then `dlpack`; in `program`, then crate `program`.

mod dlpack;
mod loader;
mod memory;
mod program;

use pyo3::prelude::*;

/// The module `gradus._door`.
#[pymodule(name = "_door")]
mod module {
    #[pymodule_export]
    use crate::dlpack::BatchTensor;
    #[pymodule_export]
    use crate::loader::{PyLoader, variables};
    #[pymodule_export]
    use crate::program::PyProgramRun;

    #[allow(unused_imports)]
    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        formats::install();
        module.add("CheckpointError", module.py().get_type::<crate::program::CheckpointError>())
    }
}
