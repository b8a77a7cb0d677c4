//! Files for a format's library: local or remote, read by position.

use std::fmt::Debug;
use std::io;

/// No image file is larger, in bytes; a hostile one is refused before it is read.
pub const LARGEST_FILE: u64 = 256 << 20;

/// A file that many threads read by position.
pub trait ReadAt: Debug + Send + Sync {
    /// Length of the file in bytes.
    ///
    /// # Errors
    /// An I/O error.
    fn length(&self) -> io::Result<u64>;

    /// Fills `bytes` from `offset`, which may be needed again some time.
    ///
    /// # Errors
    /// When they cannot be read, or the file ends before.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Reads bytes that are needed only once.
    ///
    /// # Errors
    /// If they cannot be read, or the file ends earlier.
    fn read_once(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Reads at most `bytes.len()` bytes from `offset`; 0 at the end.
    ///
    /// # Errors
    /// If they cannot be read.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Bytes worth reading at once for clustered small reads.
    fn window(&self) -> u64;
}
