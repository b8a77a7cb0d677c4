//! A file that lines are added to.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A file that lines are added to. Those that the disk refuses wait in memory, and are written to the same place later: none is
/// torn by the next one.
#[derive(Debug)]
pub(super) struct GrowingFile {
    path: PathBuf,
    /// Made with the first write.
    file: Option<File>,
    written: u64,
    /// How much of that was synced.
    synced: u64,
    pending: Vec<u8>,
}

impl GrowingFile {
    /// An empty file, which is not there yet.
    pub fn new(path: PathBuf) -> GrowingFile {
        GrowingFile { path, file: None, written: 0, synced: 0, pending: Vec::new() }
    }

    /// Makes the file, or empties the one that is there.
    pub fn create(&mut self) -> io::Result<&File> {
        let file = match self.file.take() {
            Some(file) => file,
            None => OpenOptions::new().create(true).truncate(true).write(true).open(&self.path)?,
        };
        Ok(self.file.insert(file))
    }

    /// Adds a line, to be written with the next flush.
    pub fn add(&mut self, line: &[u8]) {
        self.pending.extend_from_slice(line);
    }

    /// Writes what is pending.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let (pending, at) = (std::mem::take(&mut self.pending), self.written);
        let written = self.create().and_then(|file| file.write_all_at(&pending, at));
        self.pending = pending;
        written?;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Writes what is pending, and returns once all is on the disk.
    pub fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        if let Some(file) = self.file.as_ref().filter(|_| self.synced < self.written) {
            file.sync_data()?;
            self.synced = self.written;
        }
        Ok(())
    }

    /// Drops all lines.
    pub fn empty(&mut self) -> io::Result<()> {
        if let Some(file) = &self.file {
            file.set_len(0)?;
        }
        self.pending.clear();
        (self.written, self.synced) = (0, 0);
        Ok(())
    }

    /// Drops the lines that are not written.
    pub fn drop_pending(&mut self) {
        self.pending.clear();
    }

    /// Bytes in the file.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// What is not there yet.
    pub fn pending(&self) -> &[u8] {
        &self.pending
    }

    /// Bytes of all lines.
    pub fn size(&self) -> u64 {
        self.written + self.pending.len() as u64
    }
}

impl Drop for GrowingFile {
    fn drop(&mut self) {
        let _ = self.flush();
    }
}
