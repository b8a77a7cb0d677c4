//! The checkpoints that an object store has of a run, for commands.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use domain::RunId;
use store::{Error, Remote};

use super::index::{CheckpointIndex, IndexedFile, garbage, replaced_by};
use super::reading::{create_index, newest_index, opened};

/// For one request.
const REQUEST: Duration = Duration::from_secs(300);

/// Bytes that are read at a time.
const PART: u64 = 8 << 20;

/// The checkpoints that an object store has of a run, as its newest attempt lists them. Paths are below the folder of
/// checkpoints.
#[derive(Debug)]
pub struct StoredCheckpoints {
    remote: Remote,
    index: Option<CheckpointIndex>,
}

impl StoredCheckpoints {
    /// Reads the list of a run of a job with this `checkpoint_store`.
    ///
    /// # Errors
    /// [`Error`] if the store refuses, or cannot be reached.
    pub fn open(checkpoint_store: &str, run: &RunId, access: &store::Access) -> Result<StoredCheckpoints, Error> {
        let remote = opened(checkpoint_store, run, access)?;
        let (_, index) = newest_index(&remote, REQUEST)?;
        Ok(StoredCheckpoints { remote, index })
    }

    /// The path of each file, and when it was modified, in microseconds since 1970.
    pub fn files(&self) -> impl Iterator<Item = (&str, i64)> {
        let files = self.index.iter().flat_map(|index| &index.files);
        files.map(|(path, file)| (path.as_str(), file.modified))
    }

    /// Copies a file.
    ///
    /// # Errors
    /// [`Error::Missing`] if there is none, [`Error::File`] if `target` cannot be written, and those of the network.
    pub fn copy(&self, path: &str, target: &mut impl Write) -> Result<(), Error> {
        let IndexedFile { bytes, object, .. } = self.file(path)?;
        let mut offset = 0;
        while offset < *bytes {
            let end = (offset + PART).min(*bytes);
            let part = self.remote.read_range(object, offset..end, REQUEST)?;
            target.write_all(&part).map_err(|source| Error::File { doing: "write", path: path.into(), source })?;
            offset = end;
        }
        Ok(())
    }

    /// Deletes files, when no attempt runs.
    ///
    /// # Errors
    /// [`Error::Raced`] if an attempt has written meanwhile, and those of the network.
    pub fn remove(&self, paths: &BTreeSet<String>) -> Result<(), Error> {
        let Some(index) = &self.index else { return Ok(()) };
        let mut next = index.next();
        next.files.retain(|path, _| !paths.contains(path));
        let raced = || Error::Raced { location: self.remote.location().to_string() };
        if !create_index(&self.remote, &next, REQUEST)? {
            return Err(raced());
        }
        let (names, newest) = newest_index(&self.remote, REQUEST)?;
        if newest.as_ref() != Some(&next) || replaced_by(&names, next.fence).is_some() {
            return Err(raced());
        }
        garbage(&names, &next).into_iter().try_for_each(|name| self.remote.remove_object(name, REQUEST))
    }

    fn file(&self, path: &str) -> Result<&IndexedFile, Error> {
        let file = self.index.as_ref().and_then(|index| index.files.get(path));
        file.ok_or_else(|| {
            let location = format!("{}/{path}", self.remote.location());
            Error::Missing { location, hint: "`gradus checkpoints list` shows what is there".to_owned() }
        })
    }
}
