//! A file read from front to back, for libraries that want a stream of it.

use std::io::{self, Read, Seek, SeekFrom};

use super::handles::{Opened, Window};

/// A read position in an open file, local or remote.
#[derive(Debug)]
pub(crate) struct Sequential<'a> {
    window: Window<'a>,
    at: u64,
}

impl<'a> Sequential<'a> {
    /// Reads the file from its start.
    ///
    /// # Errors
    /// If its length cannot be determined.
    pub fn new(file: &'a Opened) -> io::Result<Sequential<'a>> {
        Ok(Sequential { window: Window::new(file)?, at: 0 })
    }
}

impl Read for Sequential<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let there = self.window.up_to(self.at, bytes.len() as u64)?;
        bytes[..there.len()].copy_from_slice(there);
        self.at += there.len() as u64;
        Ok(there.len())
    }
}

impl Seek for Sequential<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.window.length().checked_add_signed(by),
        };
        self.at = position
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a position before the start of the file"))?;
        Ok(self.at)
    }
}
