//! Opens files that a data set or a job names without trusting them: a pipe would block and a device never ends.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a file to read from it.
///
/// # Errors
/// What opening it gives, and that it is no plain file, such as a pipe, a device or a folder.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    // Without this flag opening a pipe blocks until it has a writer; for a regular file it has no effect.
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file")),
    }
}

/// All bytes of a file.
///
/// # Errors
/// As [`open`], and what reading gives.
pub(crate) fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a file in UTF-8.
///
/// # Errors
/// As [`bytes`], and that it is no UTF-8.
pub(crate) fn text(path: &Path) -> io::Result<String> {
    String::from_utf8(bytes(path)?).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}
