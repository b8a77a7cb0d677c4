//! The shard format: many samples in one file, each located and verified without reading the others.
//!
//! ```text
//! head     32 bytes: magic, version, part
//! samples  one behind another: the image's bytes, then its metadata (JSON, often empty)
//! index    32 bytes per sample: offset u64, bytes u32, note u32, id u64, label u32, codec u8, 3 zeros
//! hashes   32 bytes per sample: BLAKE3 of its bytes and metadata
//! names    one u32 per sample: the end of its name in the text that follows
//! foot     48 bytes: index offset u64, samples u64, bytes of names u64, 16 bytes of the BLAKE3 of all from the index
//!          to the names, magic
//! ```
//!
//! All numbers are little-endian. A sample's id is its position in the data that was packed, so shards yield the
//! samples in that order, however they are stored. Read on in `write`, `read`, and `manifest`, which lists a folder's
//! shards.

pub(crate) mod manifest;
mod read;
mod write;

pub(crate) use read::{Shards, verify};
pub(crate) use write::{Sample, Writer};

/// How the bytes of one sample are to be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SampleCodec {
    /// The image file as it was.
    Original,
    /// The quantised coefficients of a JPEG, packed more cheaply; decodes to the same pixels.
    Coefficients,
    /// Plain pixels.
    Pixels,
    /// Numbers of tokens.
    Tokens,
}

impl SampleCodec {
    /// In the order of their numbers in a shard.
    const ALL: [SampleCodec; 4] =
        [SampleCodec::Original, SampleCodec::Coefficients, SampleCodec::Pixels, SampleCodec::Tokens];

    /// The name of the codec.
    pub fn word(self) -> &'static str {
        match self {
            SampleCodec::Original => "original",
            SampleCodec::Coefficients => "coefficients",
            SampleCodec::Pixels => "pixels",
            SampleCodec::Tokens => "tokens",
        }
    }
}

/// The version that is written; readers refuse later ones.
const VERSION: u32 = 1;
const HEAD_MAGIC: &[u8; 8] = b"gradusS1";
const FOOT_MAGIC: &[u8; 8] = b"gradusE1";
const HEAD: u64 = 32;
const FOOT: u64 = 48;
/// Bytes of a sample in the index, and of its hash.
const RECORD: u64 = 32;
const HASH: u64 = 32;

/// The index entry of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Record {
    offset: u64,
    bytes: u32,
    note: u32,
    id: u64,
    label: u32,
    codec: SampleCodec,
}

impl Record {
    fn write(&self) -> [u8; RECORD as usize] {
        let mut record = [0; RECORD as usize];
        record[..8].copy_from_slice(&self.offset.to_le_bytes());
        record[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        record[12..16].copy_from_slice(&self.note.to_le_bytes());
        record[16..24].copy_from_slice(&self.id.to_le_bytes());
        record[24..28].copy_from_slice(&self.label.to_le_bytes());
        record[28] = self.codec as u8;
        record
    }

    /// `None` for a codec that is not known.
    fn read(record: &[u8]) -> Option<Record> {
        Some(Record {
            offset: long(record, 0),
            bytes: short(record, 8),
            note: short(record, 12),
            id: long(record, 16),
            label: short(record, 24),
            codec: *SampleCodec::ALL.get(usize::from(record[28]))?,
        })
    }
}

/// The number of 8 bytes at `at`.
fn long(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The number of 4 bytes at `at`.
fn short(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}
