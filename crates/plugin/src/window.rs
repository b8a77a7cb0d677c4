//! A small buffer over a file.

use std::io;

use crate::ReadAt;

/// A file read through a small buffer, for clustered small reads.
#[derive(Debug)]
pub struct Window<'a> {
    file: &'a dyn ReadAt,
    length: u64,
    start: u64,
    buffer: Vec<u8>,
}

impl<'a> Window<'a> {
    /// Creates a window with an empty buffer.
    ///
    /// # Errors
    /// If the file's length cannot be determined.
    pub fn new(file: &'a dyn ReadAt) -> io::Result<Window<'a>> {
        let length = file.length()?;
        Ok(Window { file, length, start: 0, buffer: Vec::new() })
    }

    /// Length of the file in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Up to `most` bytes at `offset`; fewer only where the file ends.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn up_to(&mut self, offset: u64, most: u64) -> io::Result<&[u8]> {
        let end = self.length.min(offset.saturating_add(most));
        let offset = offset.min(end);
        let held = self.start..self.start + self.buffer.len() as u64;
        if !(held.contains(&offset) && end <= held.end) && offset < end {
            let end = self.length.min(offset.saturating_add(most.max(self.file.window())));
            self.buffer.resize((end - offset) as usize, 0);
            self.start = offset;
            if let Err(error) = self.file.read_once(&mut self.buffer, offset) {
                self.buffer.clear();
                return Err(error);
            }
        }
        if offset == end {
            return Ok(&[]);
        }
        let from = (offset - self.start) as usize;
        Ok(&self.buffer[from..from + (end - offset) as usize])
    }

    /// Exactly `N` bytes at `offset`; `None` where the file ends before.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn array<const N: usize>(&mut self, offset: u64) -> io::Result<Option<[u8; N]>> {
        Ok(self.up_to(offset, N as u64)?.try_into().ok())
    }
}
