//! Files as a format's library sees them: here or remote, read by position.

use std::fmt::Debug;
use std::io;

/// No image file is larger, in bytes; a hostile one is refused before it is read.
pub const LARGEST_FILE: u64 = 256 << 20;

/// A file that many threads read by position.
pub trait ReadAt: Debug + Send + Sync {
    /// Bytes of the whole file.
    ///
    /// # Errors
    /// When the system does not say.
    fn length(&self) -> io::Result<u64>;

    /// Fills `bytes` from `offset`, which may be needed again some time.
    ///
    /// # Errors
    /// When they cannot be read, or the file ends before.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// The same for bytes that are needed once.
    ///
    /// # Errors
    /// When they cannot be read, or the file ends before.
    fn read_once(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Reads up to as many bytes as there is room for from `offset`; none at the end.
    ///
    /// # Errors
    /// When they cannot be read.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Bytes that are worth reading at once by who looks at many close places.
    fn window(&self) -> u64;
}
