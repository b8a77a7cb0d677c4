//! One bundle: chunks read again, verified, grouped into frames and compressed if that pays.

use std::fs::File;
use std::os::unix::fs::FileExt;

use data::chunk::{Bundle, ChunkManifest, ChunkRef, CompressedFrame, ContentHash, frame};
use serde::{Deserialize, Serialize};

use super::Bundled;
use crate::Error;
use crate::source::Local;

/// A compressed frame is closed at this total size: small enough to be fetched for one chunk, and large enough to
/// compress well.
const FRAME: usize = 4 << 20;

/// The layout of a bundle, as recorded in a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Built {
    #[serde(with = "hex")]
    pub id: ContentHash,
    pub bytes: u64,
    /// Offset, stored and raw length of each frame.
    frames: Vec<(u32, u32, u32)>,
    /// Name, length, frame and offset in the frame of each chunk.
    pieces: Vec<(Hex, u32, u32, u32)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Hex(#[serde(with = "hex")] ContentHash);

impl Built {
    /// Adds the bundle and its frames.
    pub fn add_to(&self, manifest: &mut ChunkManifest) {
        let bundle = manifest.bundles.len() as u32;
        manifest.bundles.push(Bundle { id: self.id, bytes: self.bytes });
        let frames = self.frames.iter().map(|&(offset, stored, raw)| CompressedFrame { bundle, offset, stored, raw });
        manifest.frames.extend(frames);
    }

    /// Its chunks, if its first frame has the number `first`.
    pub fn pieces(&self, first: u32) -> impl Iterator<Item = ChunkRef> {
        self.pieces.iter().map(move |&(id, bytes, frame, at)| ChunkRef { id: id.0, bytes, frame: first + frame, at })
    }
}

/// Reads the chunks and lays them out. The same chunks always give the same bytes.
pub(crate) fn build(files: &[Local], bundled: &Bundled) -> Result<(Built, Vec<u8>), Error> {
    let mut layout = Layout::default();
    let mut open: Option<(u32, File)> = None;
    let mut buffer = Vec::new();
    for wanted in bundled {
        let path = &files[wanted.file as usize].path;
        let file = match &mut open {
            Some((number, file)) if *number == wanted.file => file,
            other => &mut other.insert((wanted.file, File::open(path).map_err(Error::file("open", path))?)).1,
        };
        buffer.resize(wanted.bytes as usize, 0);
        file.read_exact_at(&mut buffer, wanted.offset).map_err(Error::read(path))?;
        if ContentHash::of(&buffer) != wanted.id {
            return Err(Error::Changed { path: path.clone() });
        }
        layout.add(wanted.id, &buffer);
    }
    layout.close();
    let Layout { bytes, frames, pieces, .. } = layout;
    Ok((Built { id: ContentHash::of(&bytes), bytes: bytes.len() as u64, frames, pieces }, bytes))
}

#[derive(Default)]
struct Layout {
    bytes: Vec<u8>,
    frames: Vec<(u32, u32, u32)>,
    pieces: Vec<(Hex, u32, u32, u32)>,
    /// Chunks of the open frame that is to be compressed; those of plain frames are in `bytes` already.
    waiting: Vec<u8>,
    /// Where the open plain frame begins.
    plain: Option<usize>,
}

impl Layout {
    fn add(&mut self, id: ContentHash, piece: &[u8]) {
        match (frame::probe(piece), self.plain) {
            (true, Some(_)) => self.close(),
            (false, None) => {
                self.close();
                self.plain = Some(self.bytes.len());
            }
            (true, None) | (false, Some(_)) => {}
        }
        let at = match self.plain {
            Some(begin) => self.bytes.len() - begin,
            None => self.waiting.len(),
        };
        self.pieces.push((Hex(id), piece.len() as u32, self.frames.len() as u32, at as u32));
        match self.plain {
            Some(_) => self.bytes.extend_from_slice(piece),
            None => self.waiting.extend_from_slice(piece),
        }
        if self.waiting.len() >= FRAME {
            self.close();
        }
    }

    fn close(&mut self) {
        if let Some(begin) = self.plain.take() {
            let length = (self.bytes.len() - begin) as u32;
            self.frames.push((begin as u32, length, length));
        }
        if !self.waiting.is_empty() {
            let raw = std::mem::take(&mut self.waiting);
            let stored = frame::compress(&raw);
            let stored = stored.as_deref().unwrap_or(&raw);
            self.frames.push((self.bytes.len() as u32, stored.len() as u32, raw.len() as u32));
            self.bytes.extend_from_slice(stored);
        }
    }
}

/// Names as text, in the journal.
mod hex {
    use data::chunk::ContentHash;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes a hash as text.
    pub fn serialize<S: Serializer>(id: &ContentHash, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    /// Reads a hash from text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ContentHash, D::Error> {
        let text = String::deserialize(deserializer)?;
        ContentHash::parse(&text).ok_or_else(|| D::Error::custom("no hash"))
    }
}
