//! The tensors of a state, stored in one file or in parts that several ranks have written.
//!
//! Only the requested values are read, so that no process has to hold more than its own part. The header of a part's
//! file describes its placement in the full tensor, under [`PIECES`]; a tensor without an entry there is complete.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::layout::{Placement, c_strides, reordered};
use crate::manifest::FileEntry;
use crate::ranges::TensorFile;
use crate::tensor::{Dtype, Tensor};

/// Under which name a header holds the [`Placement`] of each tensor that is a stretch of another, as JSON.
pub(crate) const PIECES: &str = "pieces";

/// Tensors in files that have been verified.
#[derive(Debug)]
pub struct TensorSource {
    files: Vec<TensorFile>,
    tensors: BTreeMap<String, Stored>,
}

/// Where the values of one tensor lie.
#[derive(Debug)]
struct Stored {
    dtype: Dtype,
    /// Shape and strides of the full tensor.
    place: Placement,
    /// Number of the file, first value in the full tensor, and number of values; in order, without gaps.
    stretches: Vec<(usize, u64, u64)>,
}

impl TensorSource {
    /// The tensors of these files, all of one kind, as a manifest names them.
    ///
    /// # Errors
    /// When a file cannot be read, or they do not hold all of every tensor.
    pub fn open(folder: &Path, entries: &[&FileEntry]) -> Result<TensorSource, Error> {
        TensorSource::of(entries.iter().map(|entry| TensorFile::open(&folder.join(&entry.name))))
    }

    /// The tensors of files of any origin.
    ///
    /// # Errors
    /// As [`TensorSource::open`].
    pub fn of_files(paths: impl IntoIterator<Item = PathBuf>) -> Result<TensorSource, Error> {
        TensorSource::of(paths.into_iter().map(|path| TensorFile::open_any(&path)))
    }

    fn of(files: impl Iterator<Item = Result<TensorFile, Error>>) -> Result<TensorSource, Error> {
        let mut source = TensorSource { files: Vec::new(), tensors: BTreeMap::new() };
        for file in files {
            source.add(file?)?;
        }
        for (name, stored) in &mut source.tensors {
            stored.stretches.sort_unstable_by_key(|(_, from, _)| *from);
            let mut end = 0;
            let follows = stored.stretches.iter().all(|(_, from, length)| {
                let is_next = *from == end;
                end = from.saturating_add(*length);
                is_next
            });
            if !follows || stored.place.count() != Some(end) {
                let file = &source.files[0];
                return Err(file.damaged(&format!("this and the other parts do not hold all of `{name}`")));
            }
        }
        Ok(source)
    }

    fn add(&mut self, file: TensorFile) -> Result<(), Error> {
        let number = self.files.len();
        let pieces: BTreeMap<String, Placement> = match file.note(PIECES) {
            Some(text) => serde_json::from_str(text)
                .map_err(|error| file.damaged(&format!("the placement of its parts cannot be read: {error}")))?,
            None => BTreeMap::new(),
        };
        for (name, dtype, shape) in file.tensors()? {
            let length = shape.iter().product();
            let place = pieces.get(&name).cloned().unwrap_or_else(|| Placement::whole(&shape));
            let from = place.from;
            let place = Placement { from: 0, ..place };
            let known = self.tensors.entry(name.clone()).or_insert_with(|| Stored {
                dtype,
                place: place.clone(),
                stretches: vec![],
            });
            if known.dtype != dtype || known.place != place || !place.is_dense() {
                return Err(file.damaged(&format!("`{name}` in it is of another tensor than in the other parts")));
            }
            known.stretches.push((number, from, length));
        }
        self.files.push(file);
        Ok(())
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The shape of a tensor; `None` if there is no tensor of this name.
    pub fn shape(&self, name: &str) -> Option<&[u64]> {
        self.tensors.get(name).map(|stored| stored.place.shape.as_slice())
    }

    /// Reads a complete tensor; `None` if there is no tensor of this name.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn whole(&self, name: &str) -> Result<Option<Tensor>, Error> {
        let Some(stored) = self.tensors.get(name) else { return Ok(None) };
        let Stored { dtype, place, .. } = stored;
        let bytes = self.all_in(name, stored, &c_strides(&place.shape))?;
        Ok(Some(Tensor { name: name.to_owned(), dtype: *dtype, shape: place.shape.clone(), bytes }))
    }

    /// Reads `length` values from the start of `place`, as a tensor of one dimension; `None` if there is no tensor of
    /// this name and shape.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn stretch(&self, name: &str, place: &Placement, length: u64) -> Result<Option<Tensor>, Error> {
        let stored = self.tensors.get(name).filter(|stored| stored.place.shape == place.shape);
        let Some(stored) = stored.filter(|stored| {
            let end = place.from.checked_add(length);
            end.is_some_and(|end| stored.place.count().is_some_and(|count| end <= count))
        }) else {
            return Ok(None);
        };
        let size = stored.dtype.bytes();
        let bytes = if stored.place.is_ordered_as(place) {
            self.read(name, stored, place.from, length)?
        } else {
            let all = self.all_in(name, stored, &place.strides)?;
            all[(place.from * size) as usize..((place.from + length) * size) as usize].to_vec()
        };
        Ok(Some(Tensor { name: name.to_owned(), dtype: stored.dtype, shape: vec![length], bytes }))
    }

    /// All values of a tensor in this order.
    fn all_in(&self, name: &str, stored: &Stored, strides: &[u64]) -> Result<Vec<u8>, Error> {
        let Stored { dtype, place, .. } = stored;
        let bytes = self.read(name, stored, 0, place.count().unwrap_or(0))?;
        let expected = Placement { strides: strides.to_vec(), ..place.clone() };
        if place.is_ordered_as(&expected) {
            return Ok(bytes);
        }
        Ok(reordered(&bytes, dtype.bytes() as usize, &place.shape, [&place.strides, strides]))
    }

    /// Values of a tensor in the order in which they are stored.
    fn read(&self, name: &str, stored: &Stored, from: u64, length: u64) -> Result<Vec<u8>, Error> {
        let size = stored.dtype.bytes();
        let mut bytes = vec![0; (length * size) as usize];
        for (file, start, count) in &stored.stretches {
            let (first, end) = (from.max(*start), (from + length).min(start + count));
            if first < end {
                let target = &mut bytes[((first - from) * size) as usize..((end - from) * size) as usize];
                self.files[*file].read(name, (first - start) * size, target)?;
            }
        }
        Ok(bytes)
    }
}
