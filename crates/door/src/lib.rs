//! `door`: the loader, for Python.
//!
//! The one idea: a batch is handed over as it lies in memory (DLPack), and all of a loader's state is a cursor, so
//! Python needs no more than an iterator with a `state_dict`. What people call is `python/gradus/__init__.py`, which
//! gathers the environment and makes tensors; here is what it cannot do itself. Read on in `loader`, then `dlpack`.

mod dlpack;
mod loader;

use pyo3::prelude::*;

/// The module `gradus._door`.
#[pymodule(name = "_door")]
mod module {
    #[pymodule_export]
    use crate::dlpack::BatchTensor;
    #[pymodule_export]
    use crate::loader::{PyLoader, variables};

    #[allow(unused_imports)]
    use super::*;

    #[pymodule_init]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        formats::install();
        Ok(())
    }
}
