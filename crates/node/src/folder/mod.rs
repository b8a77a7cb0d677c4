//! The folder of one instance: the name of each file in it, and what to say of one that cannot be made. A module for each file that
//! is more than text.

mod launch;
mod lock;
mod meter;
mod spool;

use std::io;
use std::path::{Path, PathBuf};

use domain::{Cause, Finding};

pub use launch::{LaunchSpec, SCHEMA, read_secret, write_secret};
pub use lock::Lock;
pub use meter::MeterFile;
pub use spool::{Spool, SpoolLimits, SpoolPart, SpoolRead};

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

    /// The file of the agent's pending reports whose loss would cost work, one per line.
    pub fn spool(&self) -> PathBuf {
        self.0.join("spool.jsonl")
    }

    /// The folder of its pending measurements: `SEQ.jsonl` has entry SEQ and later ones, one per line.
    pub fn measurements(&self) -> PathBuf {
        self.0.join("measurements")
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

/// What to say when a file of the run cannot be made.
pub fn not_written(doing: &str, path: &Path, error: &io::Error) -> Box<Finding> {
    use io::ErrorKind::*;
    let (cause, hint) = match error.kind() {
        StorageFull | QuotaExceeded | FileTooLarge => {
            (Cause::DiskFull, "free some space there (`df -h` shows it), then resume the run")
        }
        ReadOnlyFilesystem | PermissionDenied | NotADirectory => {
            (Cause::ReadOnly, "make the folder writable, or choose another with `--home`")
        }
        _ => (Cause::Internal, "check the disk (`dmesg` shows its errors), then resume the run"),
    };
    Box::new(Finding::new(cause, format!("cannot {doing} `{}`: {error}", path.display())).hint(hint))
}

/// A folder for a test, which is deleted with the first value.
#[cfg(test)]
fn temporary() -> (tempfile::TempDir, Folder) {
    let temporary = tempfile::tempdir().unwrap();
    let folder = Folder::new(temporary.path());
    (temporary, folder)
}
