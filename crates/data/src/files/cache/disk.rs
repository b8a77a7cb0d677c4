//! The folder of a cache: one file per chunk, with its BLAKE3 at the end.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Bytes of the hash that stands at the end of a file.
const SUM: usize = 32;

/// The name of the file being written; there is at most one, because the lock is held.
const UNFINISHED: &str = "unfinished";

/// A folder of chunks.
#[derive(Debug)]
pub(super) struct Disk {
    folder: PathBuf,
}

/// The right to change the folder.
#[derive(Debug)]
pub(super) struct Locked(File);

/// Bytes on disk of a chunk of this length.
pub(super) fn size(bytes: u64) -> u64 {
    bytes + SUM as u64
}

impl Disk {
    /// Makes the folder, for its owner only.
    pub fn open(folder: &Path) -> io::Result<Disk> {
        // The data may be private.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        fs::set_permissions(folder, Permissions::from_mode(0o700))?;
        Ok(Disk { folder: folder.to_owned() })
    }

    fn path(&self, piece: u64) -> PathBuf {
        self.folder.join(format!("{piece:016x}"))
    }

    /// Whether a chunk is on disk.
    pub fn has(&self, piece: u64) -> bool {
        self.path(piece).exists()
    }

    /// Waits until no other process changes the folder.
    pub fn lock(&self) -> io::Result<Locked> {
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(self.folder.join("lock"))?;
        file.lock()?;
        Ok(Locked(file))
    }

    /// Reads a chunk; `None` if it is missing or damaged. A damaged one is replaced by the next write.
    pub fn read(&self, piece: u64) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        match File::open(self.path(piece)) {
            Ok(mut file) => file.read_to_end(&mut bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let body = bytes.len().saturating_sub(SUM);
        if bytes.len() < SUM || blake3::hash(&bytes[..body]).as_bytes() != &bytes[body..] {
            return Ok(None);
        }
        bytes.truncate(body);
        Ok(Some(bytes))
    }

    /// Writes a chunk atomically.
    pub fn write(&self, _: &Locked, piece: u64, bytes: &[u8]) -> io::Result<()> {
        let unfinished = self.folder.join(UNFINISHED);
        let mut file = File::create(&unfinished)?;
        let written = file.write_all(bytes).and_then(|()| file.write_all(blake3::hash(bytes).as_bytes()));
        match written.and_then(|()| fs::rename(&unfinished, self.path(piece))) {
            Ok(()) => Ok(()),
            Err(error) => {
                let _ = fs::remove_file(&unfinished);
                Err(error)
            }
        }
    }

    /// Removes a chunk; a missing one is not an error.
    pub fn remove(&self, _: &Locked, piece: u64) -> io::Result<()> {
        match fs::remove_file(self.path(piece)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Removes leftovers of a killed process, and chunks damaged by a power failure.
    pub fn sweep(&self, locked: &Locked) -> io::Result<()> {
        let _ = fs::remove_file(self.folder.join(UNFINISHED));
        for (piece, bytes) in self.list(locked)? {
            // Only the lengths are looked at here; the sum is when it is read.
            if bytes < SUM as u64 {
                self.remove(locked, piece)?;
            }
        }
        Ok(())
    }

    /// All chunks and their sizes on disk.
    pub fn list(&self, _: &Locked) -> io::Result<Vec<(u64, u64)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let piece =
                name.to_str().filter(|name| name.len() == 16).and_then(|name| u64::from_str_radix(name, 16).ok());
            if let Some(piece) = piece {
                found.push((piece, entry.metadata()?.len()));
            }
        }
        Ok(found)
    }

    /// The number of changes to the folder.
    pub fn generation(&self, locked: &Locked) -> io::Result<u64> {
        let mut text = String::new();
        let mut file = &locked.0;
        file.rewind()?;
        file.read_to_string(&mut text)?;
        Ok(text.trim().parse().unwrap_or(0))
    }

    /// Notes that the folder is about to be changed.
    pub fn advance(&self, locked: &Locked) -> io::Result<u64> {
        let next = self.generation(locked)? + 1;
        let mut file = &locked.0;
        file.rewind()?;
        file.write_all(format!("{next:020}").as_bytes())?;
        Ok(next)
    }
}
