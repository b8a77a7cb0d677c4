//! Options and results of a transfer.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How a data set is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StoreFormat {
    /// As chunks in bundles: only new data is sent.
    #[default]
    Chunks,
    /// One object per file, for other programs.
    Plain,
}

/// How to push or pull.
#[derive(Debug, Clone)]
pub struct Options {
    /// Storage format; a pull detects it.
    pub form: StoreFormat,
    /// Only report what would be done.
    pub dry_run: bool,
    /// Remove data from the target that the source does not have.
    pub delete: bool,
    /// How long a push of chunks retains unneeded objects, so that readers of older heads can finish.
    pub grace: Duration,
    /// Read all that is stored at the target already, rather than go by a listing; for a push of chunks.
    pub verify: bool,
    /// Threads that cut, hash and compress.
    pub threads: NonZero<usize>,
    /// Our folder for state that must outlive the process.
    pub journals: PathBuf,
}

/// The result of a push, or of its dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pushed {
    /// Files of the data set.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of them that are not there yet, before compression.
    pub new_bytes: u64,
    /// Bytes sent over the network, as stored; 0 in a dry run.
    pub sent: u64,
    /// Objects that were written; 0 in a dry run.
    pub objects: u64,
    /// Objects that were removed; 0 in a dry run.
    pub removed: u64,
    /// Objects that are marked for removal, by a later push that deletes.
    pub marked: u64,
    /// Stored objects that were found missing or damaged, and were replaced.
    pub repaired: u64,
}

/// The default retention of unneeded objects.
pub const GRACE: Duration = Duration::from_secs(24 * 3600);

/// The result of a pull, or of its dry run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pulled {
    /// Files of the data set.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of them that are not here yet.
    pub new_bytes: u64,
    /// Bytes that come over the network for them, as they are stored.
    pub to_receive: u64,
    /// Bytes that came, the manifest included.
    pub received: u64,
    /// Files that were removed.
    pub removed: u64,
    /// The file's name, when the data set is one file and not a folder of files.
    pub single: Option<String>,
    /// Keys of objects that were left out, because no file can have them.
    pub unreadable: Vec<String>,
}

/// Tells of objects that were left out because no file can have their keys; `None` if there are none.
pub fn left_out_objects(unreadable: &[String]) -> Option<String> {
    let first = unreadable.first()?;
    let count = unreadable.len();
    let objects = if count == 1 { "object" } else { "objects" };
    Some(format!(
        "{count} {objects} left out: no file can have a key with an empty part (`//`), `.` or `..`, such as `{first}`"
    ))
}

/// What [`crate::check`] found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checked {
    /// Files of the data set.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Stored bundles that the data set consists of.
    pub bundles: u64,
    /// Objects that are missing or damaged, each with the reason.
    pub broken: Vec<(String, String)>,
    /// Files that have bytes in one of these, sorted; some may still be fetched.
    pub lost: Vec<String>,
}

/// Data that is here now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// The file or folder to read.
    pub path: PathBuf,
    /// The work done.
    pub pulled: Pulled,
}

/// Local paths.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    /// A new folder, which will look like the data.
    pub folder: &'a Path,
    /// The folder of all caches.
    pub cache: &'a Path,
    /// The socket to listen at; not longer than a socket's path may be.
    pub socket: &'a Path,
}

/// An object whose parts are being sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartedUpload {
    /// Its name below the location.
    pub(crate) name: String,
    /// What the store calls the upload.
    pub(crate) id: String,
    /// What the store calls each part that it has.
    pub(crate) parts: Vec<String>,
}
