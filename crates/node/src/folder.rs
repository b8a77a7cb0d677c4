//! The folder of one instance: the name of each file in it.

use std::io;
use std::path::{Path, PathBuf};

/// The folder of one instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder(PathBuf);

impl Folder {
    /// The folder at `path`, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Folder {
        Folder(path.into())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The file that holds the agent's stdout and stderr.
    pub fn log(&self) -> PathBuf {
        self.0.join("agent.log")
    }

    /// The file of the agent's pending reports: one [`Entry`] per line.
    pub fn spool(&self) -> PathBuf {
        self.0.join("spool.jsonl")
    }
}

/// Converts "not found" to `None`.
pub(crate) fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
