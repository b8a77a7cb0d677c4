//! What is asked of a transfer, and what comes of it.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How a data set is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StoreFormat {
    /// As chunks in bundles: only what is new travels.
    #[default]
    Chunks,
    /// A file an object, for programs that know nothing of gradus.
    Plain,
}

/// How to push or pull.
#[derive(Debug, Clone)]
pub struct Options {
    /// How it is stored; a pull sees for itself.
    pub form: StoreFormat,
    /// Only say what would be done.
    pub dry_run: bool,
    /// Remove at the target what the source does not have.
    pub delete: bool,
    /// How long a push of chunks leaves what is not needed any more, so that readers of older heads can finish.
    pub grace: Duration,
    /// Read all that is stored at the target already, rather than go by a listing; for a push of chunks.
    pub verify: bool,
    /// Threads that cut, hash and compress.
    pub threads: NonZero<usize>,
    /// Folder of ours for what must outlive the process.
    pub journals: PathBuf,
}

/// What a push did, or would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pushed {
    /// Files of the data set.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of them that are not there yet, before compression.
    pub new_bytes: u64,
    /// Bytes that went over the network, as they were stored; 0 in a dry run.
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

/// How long what is not needed any more is left, unless somebody says otherwise.
pub const GRACE: Duration = Duration::from_secs(24 * 3600);

/// What a pull did, or would do.
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
    /// Objects that are missing or damaged, each with what is wrong.
    pub broken: Vec<(String, String)>,
    /// Files that cannot be fetched because of that, sorted.
    pub lost: Vec<String>,
}

/// Data that is here now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// The file or folder to read.
    pub path: PathBuf,
    /// What it took.
    pub pulled: Pulled,
}

/// Where things are put on this machine.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    /// A new folder, which will look like the data.
    pub folder: &'a Path,
    /// The folder of all caches.
    pub cache: &'a Path,
    /// The socket to listen at; not longer than a socket's path may be.
    pub socket: &'a Path,
}
