//! Every operation that changes a folder, so that a file appears complete or not at all.
//!
//! A file is [staged](Disk::stage) — written under a temporary name, hashed meanwhile and synced — and then
//! [published](Disk::publish) by a rename, which is durable once its folder is [synced](Disk::sync_folder). Tests
//! interrupt the sequence between any two operations and check the result.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::Error;
use crate::manifest::FileEntry;

/// Bytes hashed and then written at a time: few enough to be still in the processor's cache when they are written.
const CHUNK: usize = 256 << 10;

/// The end of every temporary name.
pub(crate) const TEMPORARY: &str = ".tmp";

/// The folder's file system, or a rehearsal of its failing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk {
    #[cfg(test)]
    pub(crate) rehearsal: Option<std::sync::Arc<rehearsal::Rehearsal>>,
}

/// A file that is complete and synced under its temporary name.
#[derive(Debug)]
pub(crate) struct Staged {
    temporary: PathBuf,
    target: PathBuf,
    pub(crate) entry: FileEntry,
}

/// A writer for the bytes of one file, which hashes them.
pub(crate) struct Sink<'a> {
    disk: &'a Disk,
    path: &'a Path,
    file: BufWriter<File>,
    hash: Sha256,
    bytes: u64,
}

/// Writes a file that appears under `path` complete and durable, or not at all.
///
/// The folder must exist. The entry's name is the file's name.
///
/// # Errors
/// When the folder cannot be written or is full; `path` is then as before.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<FileEntry, Error> {
    let disk = Disk::default();
    let staged = disk.stage(path, file_name(path), "", |sink| sink.write(bytes))?;
    disk.publish_synced(staged)
}

/// The last part of a path, as text.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl Disk {
    /// Writes the output of `fill` under a temporary name next to `target`, hashed and synced. `mark` is part of that
    /// name, so that two attempts never share one.
    pub(crate) fn stage(
        &self,
        target: &Path,
        name: String,
        mark: &str,
        fill: impl FnOnce(&mut Sink) -> Result<(), Error>,
    ) -> Result<Staged, Error> {
        let mut temporary = OsString::from(target);
        temporary.push(format!("{mark}{TEMPORARY}"));
        let temporary = PathBuf::from(temporary);
        let written = self.write_synced(&temporary, fill);
        if written.is_err() {
            // Frees the space again on a full disk; a file that cannot be removed is swept by a later attempt.
            let _ = self.remove_file(&temporary);
        }
        let (bytes, sha256) = written?;
        Ok(Staged { temporary, target: target.to_owned(), entry: FileEntry { name, bytes, sha256 } })
    }

    fn write_synced(
        &self,
        path: &Path,
        fill: impl FnOnce(&mut Sink) -> Result<(), Error>,
    ) -> Result<(u64, String), Error> {
        self.operation("create", path).map_err(|error| Error::writing("create", path, error))?;
        let file = File::create(path).map_err(|error| Error::writing("create", path, error))?;
        let mut sink = Sink { disk: self, path, file: BufWriter::new(file), hash: Sha256::new(), bytes: 0 };
        fill(&mut sink)?;
        let (bytes, hash) = (sink.bytes, sink.hash);
        let file = sink.file.into_inner().map_err(|error| Error::writing("write", path, error.into_error()))?;
        self.operation("sync", path)
            .and_then(|()| file.sync_all())
            .map_err(|error| Error::writing("sync", path, error))?;
        Ok((bytes, hexadecimal(&hash.finalize())))
    }

    /// Gives a staged file its name. Durable only once the folder is synced.
    pub(crate) fn publish(&self, staged: Staged) -> Result<FileEntry, Error> {
        let Staged { temporary, target, entry } = staged;
        let renamed = self.operation("rename", &target).and_then(|()| fs::rename(&temporary, &target));
        renamed.map_err(|error| Error::writing("rename", &target, error))?;
        Ok(entry)
    }

    /// Renames a staged file to its final name and syncs its folder.
    pub(crate) fn publish_synced(&self, staged: Staged) -> Result<FileEntry, Error> {
        let folder = staged.target.parent().unwrap_or(Path::new(".")).to_owned();
        let entry = self.publish(staged)?;
        self.sync_folder(&folder)?;
        Ok(entry)
    }

    /// Makes renames and removals in `folder` durable.
    pub(crate) fn sync_folder(&self, folder: &Path) -> Result<(), Error> {
        // A bare file name has the empty path for its parent.
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let synced = self.operation("sync", folder).and_then(|()| File::open(folder)?.sync_all());
        synced.map_err(|error| Error::writing("sync", folder, error))
    }

    /// Makes a folder; one that exists is an error of the kind [`io::ErrorKind::AlreadyExists`].
    pub(crate) fn create_folder(&self, folder: &Path) -> io::Result<()> {
        self.operation("create", folder)?;
        fs::create_dir(folder)
    }

    /// Moves a file within the folder of checkpoints.
    pub(crate) fn rename(&self, path: &Path, target: &Path) -> io::Result<()> {
        self.operation("rename", target)?;
        fs::rename(path, target)
    }

    pub(crate) fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.operation("remove", path)?;
        fs::remove_file(path)
    }

    pub(crate) fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        self.operation("remove", folder)?;
        fs::remove_dir_all(folder)
    }

    #[cfg(not(test))]
    #[inline]
    fn operation(&self, _doing: &'static str, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    #[cfg(test)]
    fn operation(&self, doing: &'static str, path: &Path) -> io::Result<()> {
        self.rehearsal.as_ref().map_or(Ok(()), |rehearsal| rehearsal.operation(doing, path))
    }
}

impl Sink<'_> {
    /// Appends bytes to the file and to its hash.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        for chunk in bytes.chunks(CHUNK) {
            self.hash.update(chunk);
            let written = self.disk.operation("write", self.path).and_then(|()| self.file.write_all(chunk));
            written.map_err(|error| Error::writing("write", self.path, error))?;
        }
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// The digits of a hash, in lower case.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A disk that fails after a number of operations, or runs a hook between two of them, and records its operations.
#[cfg(test)]
pub(crate) mod rehearsal {
    use std::fmt;
    use std::io;
    use std::path::Path;
    use std::sync::Mutex;

    use super::Disk;

    type Interlude = Box<dyn FnOnce() + Send>;

    pub(crate) struct Rehearsal {
        /// Operations that still succeed.
        left: usize,
        seen: Mutex<Vec<String>>,
        interlude: Mutex<Option<(usize, Interlude)>>,
    }

    impl Rehearsal {
        /// A disk on which `operations` succeed and everything after them fails, as if the process had been killed.
        pub(crate) fn killed_after(operations: usize) -> Disk {
            let rehearsal = Rehearsal { left: operations, seen: Mutex::default(), interlude: Mutex::default() };
            Disk { rehearsal: Some(rehearsal.into()) }
        }

        /// A disk that works, but for what `interlude` does after so many operations.
        pub(crate) fn interrupted_after(operations: usize, interlude: impl FnOnce() + Send + 'static) -> Disk {
            let interlude = Mutex::new(Some((operations, Box::new(interlude) as Interlude)));
            let rehearsal = Rehearsal { left: usize::MAX, seen: Mutex::default(), interlude };
            Disk { rehearsal: Some(rehearsal.into()) }
        }

        pub(super) fn operation(&self, doing: &str, path: &Path) -> io::Result<()> {
            let done = self.seen.lock().unwrap().len();
            if done >= self.left {
                return Err(io::Error::other("killed here"));
            }
            let interlude = self.interlude.lock().unwrap().take_if(|(after, _)| done >= *after);
            if let Some((_, interlude)) = interlude {
                interlude();
            }
            self.seen.lock().unwrap().push(format!("{doing} {}", super::file_name(path)));
            Ok(())
        }
    }

    impl fmt::Debug for Rehearsal {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Rehearsal").field("seen", &self.seen).finish_non_exhaustive()
        }
    }

    impl Disk {
        /// The operations performed, such as `rename model.safetensors`.
        pub(crate) fn seen(&self) -> Vec<String> {
            self.rehearsal.as_ref().map_or(Vec::new(), |rehearsal| rehearsal.seen.lock().unwrap().clone())
        }
    }
}
