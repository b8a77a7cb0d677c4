//! Data sets as chunks that are named by their content, so that what was sent once is never sent again.
//!
//! A file is cut where its samples end if its form is known, and where its content says so if not ([`scan`]). Each
//! piece is named by its BLAKE3 hash. Pieces are packed into frames, which are compressed where a probe says that it
//! pays ([`frame`]), and frames into bundles of about 64 MiB, which are the objects that are stored. A [`ChunkManifest`]
//! lists the files, their pieces and where each lies; it is versioned, and nothing in it is trusted. Nothing here
//! knows of networks: `store` moves the bundles. Read on in `cut`, `frame`, `manifest`, `wire`.

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
