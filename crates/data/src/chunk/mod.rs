//! Content-addressed chunks of data sets, so that no content is sent twice.
//!
//! A file is divided where its samples end if its format is known, and by content if not ([`scan`]). Each chunk is
//! named by its BLAKE3 hash. Chunks are packed into frames, which are compressed if a probe says that it pays
//! ([`frame`]), and frames into bundles of about 64 MiB, which are the stored objects. A [`ChunkManifest`] lists the
//! files, their chunks and the position of each; it is versioned and untrusted. This module does no networking: `store`
//! transfers the bundles. Read on in `cut`, `frame`, `manifest`, `wire`.

mod cut;
pub mod frame;
mod manifest;
mod samples;
#[cfg(test)]
mod tests;
mod wire;

use std::fmt;

pub use cut::{Chunk, scan};
pub use manifest::{
    Bundle, ChunkManifest, ChunkRef, ChunkedFile, CompressedFrame, InvalidManifest, LARGEST_FRAME, check_name,
};
pub use wire::{decode, encode, patch, unpatch};

/// The name of some bytes: their BLAKE3 hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentHash(pub [u8; 32]);

impl ContentHash {
    /// The name of these bytes.
    pub fn of(bytes: &[u8]) -> ContentHash {
        ContentHash(*blake3::hash(bytes).as_bytes())
    }

    /// Reads what [`ContentHash`] prints as.
    pub fn parse(text: &str) -> Option<ContentHash> {
        blake3::Hash::from_hex(text).ok().map(|hash| ContentHash(*hash.as_bytes()))
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
