//! TorchScript modules: loaded from a file, run, and saved with their current tensors.
//!
//! A module runs operation by operation, as in Python: the library's graph optimizer is off, because with it the first
//! passes compute differently from later ones. A file is a program: it is run only where its user may run programs.

mod bridge;

use std::cell::Cell;
use std::path::Path;

use bridge::{adopt, ffi, lend};
use cxx::UniquePtr;
use tch::{Device, Tensor};

use super::Result;

/// A module on a device.
pub struct ScriptModule {
    inner: UniquePtr<ffi::Script>,
    /// Unknown before the first pass.
    is_training: Cell<Option<bool>>,
}

impl ScriptModule {
    /// Reads a file that `torch.jit.ScriptModule.save` has written.
    pub fn load(path: &Path, device: Device) -> Result<ScriptModule> {
        let place = match device {
            Device::Cuda(place) => u32::try_from(place).unwrap_or(0),
            Device::Cpu | Device::Mps | Device::Vulkan => 0,
        };
        let inner = ffi::script_load(&path.to_string_lossy(), device.is_cuda(), place)?;
        Ok(ScriptModule { inner, is_training: Cell::new(None) })
    }

    /// Writes such a file, of a module that is not in training.
    pub fn save(&self, path: &Path) -> Result<()> {
        self.set_training(false)?;
        Ok(ffi::script_save(&self.inner, &path.to_string_lossy())?)
    }

    /// Its parameters, by name, in the order of its layers; writing to the tensors changes the module.
    pub fn parameters(&self) -> Result<Vec<(String, Tensor)>> {
        self.tensors(false)
    }

    /// Its buffers.
    pub fn buffers(&self) -> Result<Vec<(String, Tensor)>> {
        self.tensors(true)
    }

    /// How many values `forward` must be given, and how many it can be given.
    pub fn inputs(&self) -> Result<[u32; 2]> {
        Ok([ffi::script_least_inputs(&self.inner)?, ffi::script_most_inputs(&self.inner)?])
    }

    /// What `forward` makes of the values, in training or not.
    pub fn forward(&self, values: &[Tensor], train: bool) -> Result<Tensor> {
        self.set_training(train)?;
        Ok(adopt(ffi::script_forward(&self.inner, &lend(values))?))
    }

    fn set_training(&self, on: bool) -> Result<()> {
        if self.is_training.get() != Some(on) {
            ffi::script_train(&self.inner, on)?;
            self.is_training.set(Some(on));
        }
        Ok(())
    }

    fn tensors(&self, buffers: bool) -> Result<Vec<(String, Tensor)>> {
        let names = ffi::script_names(&self.inner, buffers)?;
        let each = names.into_iter().zip(0..);
        each.map(|(name, place)| Ok((name, adopt(ffi::script_tensor(&self.inner, buffers, place)?)))).collect()
    }
}
