//! Assigns chunks to bundles: a pure function of the chunks' order and of what is stored.

use std::collections::HashSet;

use data::chunk::ContentHash;

use super::scan::Scanned;
use super::{Bundled, Places};

/// A chunk to send, and where to read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub id: ContentHash,
    /// Index of its file in the list of files.
    pub file: u32,
    pub offset: u64,
    pub bytes: u32,
}

/// A bundle is closed at this total size.
const BUNDLE: u64 = 64 << 20;

/// The missing chunks, in the order in which files first contain them, as bundles.
pub(super) fn bundles(files: &[Scanned], known: &Places) -> Vec<Bundled> {
    let (mut bundles, mut open, mut bytes) = (Vec::new(), Vec::new(), 0);
    let mut taken = HashSet::new();
    for (number, file) in files.iter().enumerate() {
        for chunk in &file.chunks {
            if known.contains_key(&chunk.id) || !taken.insert(chunk.id) {
                continue;
            }
            open.push(Wanted { id: chunk.id, file: number as u32, offset: chunk.offset, bytes: chunk.bytes });
            bytes += u64::from(chunk.bytes);
            if bytes >= BUNDLE {
                bundles.push(std::mem::take(&mut open));
                bytes = 0;
            }
        }
    }
    if !open.is_empty() {
        bundles.push(open);
    }
    bundles
}
