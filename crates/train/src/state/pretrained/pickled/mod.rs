//! Weights that `torch.save` wrote: a `.pth`, `.pt` or `.bin` file, of today's form (a zip archive) or the one before
//! PyTorch 1.6.
//!
//! Such a file is a pickle, which in Python runs whatever it says. Here it is read as data ([`machine`]): a state dict, or
//! a dictionary that holds one under a usual name. Tensors are read when they are needed.

mod archive;
mod machine;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};

use checkpoint::{Dtype, Tensor};
use domain::finding::{Cause, Finding};

use self::archive::{Extent, read};
use self::machine::{Pickle, Place, Value};
use crate::error::Error;

/// Tensors of one file, of which only names and shapes are read.
#[derive(Debug)]
pub(super) struct PickledTensors {
    path: PathBuf,
    file: File,
    tensors: BTreeMap<String, Pickled>,
}

/// A tensor, and where its elements are.
#[derive(Debug, Clone, PartialEq)]
struct Pickled {
    dtype: Dtype,
    shape: Vec<u64>,
    /// Elements from one to the next along each dimension.
    strides: Vec<u64>,
    /// The first element in the storage.
    first: u64,
    storage: Extent,
}

/// Why a file cannot be read, as half a sentence.
#[derive(Debug, PartialEq)]
pub(super) struct Unreadable(String);

impl fmt::Display for Unreadable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Extensions of files that `torch.save` writes.
pub(super) const EXTENSIONS: [&str; 4] = ["pth", "pt", "bin", "ckpt"];
/// Names under which training programs keep the state dict of the model.
const STATES: [&str; 5] = ["state_dict", "model_state_dict", "model", "module", "net"];
/// What the form before PyTorch 1.6 begins with.
const MAGIC: [u8; 10] = [0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];
/// Longest pickle of a file's structure.
const LONGEST: u64 = 256 << 20;

impl PickledTensors {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// When it is no such file, or holds no state dict.
    pub fn open(path: &Path) -> Result<PickledTensors, Error> {
        let file = File::open(path).map_err(|error| {
            let message = format!("the weights `{}` cannot be opened: {error}", path.display());
            Finding::new(Cause::Job, message).hint("check `train.weights`; it is relative to the job file")
        })?;
        match tensors(&file) {
            Ok(tensors) => Ok(PickledTensors { path: path.to_owned(), file, tensors }),
            Err(why) => {
                let message = format!("the weights `{}` cannot be read: {why}", path.display());
                let hint = "save the state dict in Python: `torch.save(model.state_dict(), \"model.pth\")`";
                Err(Finding::new(Cause::Job, message).hint(hint).into())
            }
        }
    }

    /// Names of the tensors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The length of each dimension of a tensor.
    pub fn shape(&self, name: &str) -> Option<Vec<u64>> {
        self.tensors.get(name).map(|tensor| tensor.shape.clone())
    }

    /// A tensor.
    ///
    /// # Errors
    /// When its elements cannot be read.
    pub fn whole(&self, name: &str) -> Result<Option<Tensor>, Error> {
        let Some(tensor) = self.tensors.get(name) else { return Ok(None) };
        let bytes = tensor.bytes(&self.file).map_err(|why| {
            let message = format!("`{name}` of the weights `{}` cannot be read: {why}", self.path.display());
            Finding::new(Cause::Job, message).hint("copy or download the file again")
        })?;
        Ok(Some(Tensor { name: name.to_owned(), dtype: tensor.dtype, shape: tensor.shape.clone(), bytes }))
    }
}

impl Pickled {
    /// The elements in the order of the dimensions.
    fn bytes(&self, file: &File) -> Result<Vec<u8>, Unreadable> {
        if self.shape.contains(&0) {
            return Ok(Vec::new());
        }
        let size = self.dtype.bytes();
        let mut dense = 1;
        let is_dense = self.shape.iter().zip(&self.strides).rev().all(|(length, stride)| {
            let is_next = *length <= 1 || *stride == dense;
            dense *= length;
            is_next
        });
        let count: u64 = self.shape.iter().product();
        if is_dense {
            return read(file, self.storage.offset.saturating_add(self.first * size), count * size);
        }
        let storage = read(file, self.storage.offset, self.storage.length)?;
        let mut bytes = Vec::with_capacity((count * size) as usize);
        for place in 0..count {
            let (mut rest, mut at) = (place, self.first);
            for (length, stride) in self.shape.iter().zip(&self.strides).rev() {
                at += rest % length * stride;
                rest /= length;
            }
            let start = (at * size) as usize;
            bytes.extend_from_slice(&storage[start..start + size as usize]);
        }
        Ok(bytes)
    }

    /// Whether every element lies in the storage.
    fn is_inside(&self) -> bool {
        let count = self.shape.iter().try_fold(1_u64, |count, length| count.checked_mul(*length));
        let last = self.shape.iter().zip(&self.strides).try_fold(self.first, |last, (length, stride)| {
            last.checked_add(length.saturating_sub(1).checked_mul(*stride)?)
        });
        match (count, last) {
            (_, _) if self.shape.contains(&0) => true,
            (Some(count), Some(last)) => {
                // Elements that repeat, as after `expand`, could be more than memory holds.
                let stored = self.storage.length / self.dtype.bytes();
                last < stored && count <= stored
            }
            (_, _) => false,
        }
    }
}

/// The tensors of a file of either form.
fn tensors(file: &File) -> Result<BTreeMap<String, Pickled>, Unreadable> {
    let size = file.metadata().map_err(|error| Unreadable(error.to_string()))?.len();
    let head = read(file, 0, size.min(64))?;
    if head.starts_with(b"PK\x03\x04") {
        let files = archive::files(file)?;
        let extent =
            files.get("data.pkl").ok_or_else(|| Unreadable("it is a zip archive without `data.pkl`".into()))?;
        if let Some(order) = files.get("byteorder")
            && read(file, order.offset, order.length)? != b"little"
        {
            return Err(Unreadable("its numbers are big-endian".into()));
        }
        let pickle = Pickle::read(&read(file, extent.offset, extent.length.min(LONGEST))?)?;
        return state(&pickle, &|key| files.get(&format!("data/{key}")).copied());
    }
    if !head.windows(MAGIC.len()).any(|window| window == MAGIC) {
        return Err(Unreadable("`torch.save` did not write it".into()));
    }
    // A number that marks the form, its version, the machine, the object, and the keys of the storages behind them.
    let bytes = read(file, 0, size.min(LONGEST))?;
    let mut at = 0;
    let mut next = || -> Result<(Pickle, usize), Unreadable> {
        let pickle = Pickle::read(&bytes[at..])?;
        at += pickle.length;
        Ok((pickle, at))
    };
    for _ in 0..3 {
        next()?;
    }
    let (object, _) = next()?;
    let (keys, mut at) = next()?;
    let sizes = sizes(&object);
    let mut storages = BTreeMap::new();
    for key in keys.elements(keys.root).unwrap_or_default() {
        let key = keys.text(*key).unwrap_or_default();
        let length = sizes.get(key).copied().ok_or_else(|| Unreadable(format!("its storage `{key}` has no type")))?;
        let offset = (at as u64).saturating_add(8);
        storages.insert(key.to_owned(), Extent { offset, length });
        at = usize::try_from(offset.saturating_add(length)).unwrap_or(usize::MAX);
    }
    if at as u64 > size {
        return Err(Unreadable("it is cut off".into()));
    }
    state(&object, &|key| storages.get(key).copied())
}

/// Bytes of each storage that a pickle refers to.
fn sizes(pickle: &Pickle) -> BTreeMap<String, u64> {
    let mut sizes = BTreeMap::new();
    for place in 0..pickle.count() {
        if let Value::Persistent(id) = pickle.get(place)
            && let Some((dtype, key, count)) = storage(pickle, *id)
        {
            sizes.insert(key.to_owned(), count.saturating_mul(dtype.bytes()));
        }
    }
    sizes
}

/// Type, key and number of elements of the storage that a persistent id names.
fn storage(pickle: &Pickle, id: Place) -> Option<(Dtype, &str, u64)> {
    let [word, kind, key, _, count, ..] = pickle.elements(id)? else { return None };
    let Value::Global(kind) = pickle.get(*kind) else { return None };
    let dtype = match kind.rsplit([' ', '.']).next()? {
        "FloatStorage" => Dtype::F32,
        "DoubleStorage" => Dtype::F64,
        "HalfStorage" => Dtype::F16,
        "BFloat16Storage" => Dtype::BF16,
        "LongStorage" => Dtype::I64,
        "IntStorage" => Dtype::I32,
        "ByteStorage" => Dtype::U8,
        "BoolStorage" => Dtype::Bool,
        _ => return None,
    };
    let count = pickle.int(*count).and_then(|count| u64::try_from(count).ok())?;
    (pickle.text(*word)? == "storage").then_some((dtype, pickle.text(*key)?, count))
}

/// The tensors of the state dict in a pickle, or of the one that it holds under a usual name.
fn state(pickle: &Pickle, extent: &dyn Fn(&str) -> Option<Extent>) -> Result<BTreeMap<String, Pickled>, Unreadable> {
    let none = || Unreadable("it holds no state dict, but a whole module or something else".into());
    let entries = pickle.entries(pickle.root).ok_or_else(none)?;
    let named = |name: &str| entries.iter().find(|(key, _)| pickle.text(*key) == Some(name)).map(|(_, value)| *value);
    let inner = STATES.iter().find_map(|name| named(name).and_then(|place| pickle.entries(place)));
    let mut tensors = BTreeMap::new();
    for (key, value) in inner.unwrap_or(entries) {
        let (Some(name), Value::Tensor(arguments)) = (pickle.text(*key), pickle.get(*value)) else { continue };
        let tensor = tensor(pickle, arguments, extent);
        let unknown = || Unreadable(format!("`{name}` is of an unknown form"));
        tensors.insert(name.to_owned(), tensor.filter(Pickled::is_inside).ok_or_else(unknown)?);
    }
    if tensors.is_empty() { Err(none()) } else { Ok(tensors) }
}

/// The tensor that these arguments of `_rebuild_tensor_v2` make.
fn tensor(pickle: &Pickle, arguments: &[Place], extent: &dyn Fn(&str) -> Option<Extent>) -> Option<Pickled> {
    let [id, first, shape, strides, ..] = arguments else { return None };
    let Value::Persistent(id) = pickle.get(*id) else { return None };
    let (dtype, key, _) = storage(pickle, *id)?;
    let number = |place: &Place| pickle.int(*place).and_then(|number| u64::try_from(number).ok());
    let numbers = |place: Place| pickle.elements(place)?.iter().map(number).collect::<Option<Vec<u64>>>();
    let (shape, strides) = (numbers(*shape)?, numbers(*strides)?);
    (shape.len() == strides.len()).then_some(())?;
    Some(Pickled { dtype, shape, strides, first: number(first)?, storage: extent(key)? })
}
