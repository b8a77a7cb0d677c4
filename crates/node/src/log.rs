//! Logs with bounded disk usage: the middle of a log is deallocated.
//!
//! A process appends to its log itself, so that the log is complete whatever happens to its agent. The middle is
//! therefore punched out of the file in place: offsets do not change, and readers see a hole.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

/// Allocation unit: a partial block would be zeroed but not deallocated.
const BLOCK: u64 = 4096;

/// Bytes of a log that are looked at for a message.
const TAIL: u64 = 4096;

/// Lines of a log in a message.
const LINES: usize = 5;

/// Retention of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogBound {
    /// Once a log takes more bytes on disk, its middle is dropped.
    pub most: u64,
    /// Bytes retained at its start.
    pub head: u64,
    /// Bytes retained at its end when the middle is dropped.
    pub tail: u64,
}

/// 1 GiB for each log; 256 MiB of the beginning stay, and between 256 and 768 MiB of the end.
pub const LOG_BOUND: LogBound = LogBound { most: 1 << 30, head: 256 << 20, tail: 256 << 20 };

impl LogBound {
    /// Drops the middle of a log that is too large; returns whether it did. `log` is open for writing.
    ///
    /// # Errors
    /// If the file system does not support it.
    pub fn keep(&self, log: &File) -> io::Result<bool> {
        let meta = log.metadata()?;
        // Counted in units of 512 bytes, independent of the file system's block size.
        if meta.blocks().saturating_mul(512) <= self.most {
            return Ok(false);
        }
        let from = self.head.next_multiple_of(BLOCK);
        let to = meta.len().saturating_sub(self.tail) / BLOCK * BLOCK;
        if to <= from {
            return Ok(false);
        }
        fallocate(log, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, from, to - from)?;
        Ok(true)
    }
}

/// The offset of the next data of a log: `offset`, or the end of the hole it is in. Changes the file position of `log`.
///
/// # Errors
/// If the file cannot be read.
pub fn next_data(log: &File, offset: u64) -> io::Result<u64> {
    match seek(log, SeekFrom::Data(offset)) {
        Ok(at) => Ok(at),
        // There is no more data, or the file system does not report holes.
        Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => Ok(offset),
        Err(errno) => Err(errno.into()),
    }
}

/// Where the bytes of a log that begin at an offset end: at the next hole, or at its end. The position of `log` changes.
///
/// # Errors
/// When the file cannot be read.
pub fn data_end(log: &File, offset: u64) -> io::Result<u64> {
    match seek(log, SeekFrom::Hole(offset)) {
        Ok(at) => Ok(at),
        Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => Ok(log.metadata()?.len()),
        Err(errno) => Err(errno.into()),
    }
}

/// The last lines of a log.
pub fn tail(log: &Path) -> String {
    last_lines(&end(log, TAIL), |_| true)
}

/// At most so many bytes at the end of a log, as text; nothing of one that cannot be read.
pub fn end(log: &Path, most: u64) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(io::SeekFrom::Start(length.saturating_sub(most)))?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// The last of the lines that count, as many as belong into a message; empty ones do not.
pub fn last_lines(text: &str, counts: impl Fn(&str) -> bool) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty() && counts(line)).collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;

    use super::*;

    const BOUND: LogBound = LogBound { most: 64 << 10, head: 8 << 10, tail: 16 << 10 };

    #[test]
    fn the_middle_of_a_log_is_dropped_and_every_offset_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = OpenOptions::new().create(true).append(true).read(true).open(&path).unwrap();
        log.write_all(&[b'a'; 60 << 10]).unwrap();
        assert!(!BOUND.keep(&log).unwrap(), "it takes no more than it may");
        for _ in 0..20 {
            log.write_all(&[b'b'; 40 << 10]).unwrap();
            BOUND.keep(&log).unwrap();
        }
        let meta = log.metadata().unwrap();
        assert_eq!(meta.len(), 860 << 10);
        assert!(meta.blocks() * 512 <= 104 << 10, "{} bytes on disk", meta.blocks() * 512);
        let (begin, end) = (data_end(&log, 0).unwrap(), next_data(&log, 8 << 10).unwrap());
        assert_eq!((begin, next_data(&log, 5).unwrap()), (8 << 10, 5));
        assert!(end > 700 << 10 && end <= (860 - 16) << 10, "{end}");
        assert_eq!(data_end(&log, end).unwrap(), 860 << 10);
        assert_eq!(next_data(&log, 860 << 10).unwrap(), 860 << 10, "nothing comes after the end");
    }
}
