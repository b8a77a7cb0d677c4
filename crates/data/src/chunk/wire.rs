//! The binary format of a manifest, stable across versions.
//!
//! ```text
//! "GRADUSDM"  schema u32  bundles u32  frames u32  files u32
//! bundle      id 32 bytes, length u64
//! frame       bundle u32, offset u32, stored u32, raw u32
//! file        name length u16, name, length u64, pieces u32
//! piece       id 32 bytes, length u32, frame u32, place in the frame u32
//! BLAKE3 of all before, 32 bytes
//! ```
//!
//! Numbers are little-endian. Existing entries keep their indices when a data set grows, so a new manifest is similar
//! to its predecessor and is sent as a zstd patch of it ([`patch`]).

use super::{Bundle, ChunkManifest, ChunkRef, ChunkedFile, CompressedFrame, ContentHash, InvalidManifest};

const MAGIC: &[u8; 8] = b"GRADUSDM";

/// The version that is written, and the newest that is read.
const SCHEMA: u32 = 1;

/// No manifest is longer: 80 million samples.
const LARGEST: usize = 4 << 30;

/// The manifest's bytes.
pub fn encode(manifest: &ChunkManifest) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for count in [SCHEMA as usize, manifest.bundles.len(), manifest.frames.len(), manifest.files.len()] {
        bytes.extend((count as u32).to_le_bytes());
    }
    for bundle in &manifest.bundles {
        bytes.extend(bundle.id.0);
        bytes.extend(bundle.bytes.to_le_bytes());
    }
    for frame in &manifest.frames {
        for number in [frame.bundle, frame.offset, frame.stored, frame.raw] {
            bytes.extend(number.to_le_bytes());
        }
    }
    for file in &manifest.files {
        bytes.extend((file.name.len() as u16).to_le_bytes());
        bytes.extend(file.name.as_bytes());
        bytes.extend(file.bytes.to_le_bytes());
        bytes.extend((file.pieces.len() as u32).to_le_bytes());
        for piece in &file.pieces {
            bytes.extend(piece.id.0);
            for number in [piece.bytes, piece.frame, piece.at] {
                bytes.extend(number.to_le_bytes());
            }
        }
    }
    bytes.extend(ContentHash::of(&bytes).0);
    bytes
}

/// Reads and validates a manifest.
///
/// # Errors
/// [`InvalidManifest`]. In a returned manifest every index is in range and every name is safe.
pub fn decode(bytes: &[u8]) -> Result<ChunkManifest, InvalidManifest> {
    let damaged = || InvalidManifest("it is cut short or damaged".to_owned());
    let (body, sum) = bytes.split_last_chunk::<32>().ok_or_else(damaged)?;
    if !body.starts_with(MAGIC) {
        return Err(InvalidManifest("it is no manifest of gradus".to_owned()));
    }
    let mut reader = Reader(&body[MAGIC.len()..]);
    let schema = reader.number().ok_or_else(damaged)?;
    if schema > SCHEMA {
        return Err(InvalidManifest(format!("it is of version {schema}, this program reads up to {SCHEMA}")));
    }
    if ContentHash::of(body).0 != *sum {
        return Err(damaged());
    }
    let manifest = reader.manifest().ok_or_else(damaged)?;
    manifest.check()?;
    Ok(manifest)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn long(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn id(&mut self) -> Option<ContentHash> {
        self.take(32)?.try_into().ok().map(ContentHash)
    }

    /// Reads `count` entries, allocating no more memory than the remaining bytes can fill.
    fn list<T>(&mut self, count: u32, least: usize, mut read: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut list = Vec::with_capacity((count as usize).min(self.0.len() / least));
        for _ in 0..count {
            list.push(read(self)?);
        }
        Some(list)
    }

    fn manifest(&mut self) -> Option<ChunkManifest> {
        let (bundles, frames, files) = (self.number()?, self.number()?, self.number()?);
        let bundles = self.list(bundles, 40, |reader| Some(Bundle { id: reader.id()?, bytes: reader.long()? }))?;
        let frames = self.list(frames, 16, |reader| {
            let [bundle, offset, stored, raw] =
                [reader.number()?, reader.number()?, reader.number()?, reader.number()?];
            Some(CompressedFrame { bundle, offset, stored, raw })
        })?;
        let files = self.list(files, 14, Reader::file)?;
        self.0.is_empty().then_some(ChunkManifest { bundles, frames, files })
    }

    fn file(&mut self) -> Option<ChunkedFile> {
        let length = self.take(2)?.try_into().ok().map(u16::from_le_bytes)?;
        let name = String::from_utf8(self.take(usize::from(length))?.to_vec()).ok()?;
        let bytes = self.long()?;
        let count = self.number()?;
        let pieces = self.list(count, 44, |reader| {
            Some(ChunkRef { id: reader.id()?, bytes: reader.number()?, frame: reader.number()?, at: reader.number()? })
        })?;
        Some(ChunkedFile { name, bytes, pieces })
    }
}

/// The zstd patch from `old`, which may be empty, to `new`.
///
/// # Errors
/// Errors of zstd.
pub fn patch(old: &[u8], new: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = zstd::stream::write::Encoder::with_ref_prefix(Vec::new(), LEVEL, old)?;
    encoder.set_pledged_src_size(Some(new.len() as u64))?;
    encoder.include_contentsize(true)?;
    encoder.long_distance_matching(true)?;
    encoder.window_log(window(old.len() + new.len()))?;
    std::io::Write::write_all(&mut encoder, new)?;
    encoder.finish()
}

/// Makes from `old` what [`patch`] was given as `new`, which must be `length` long.
///
/// # Errors
/// [`InvalidManifest`] when it is damaged or longer.
pub fn unpatch(old: &[u8], patch: &[u8], length: u64) -> Result<Vec<u8>, InvalidManifest> {
    let defect = |why: &dyn std::fmt::Display| InvalidManifest(format!("it cannot be unpacked: {why}"));
    let length = usize::try_from(length).ok().filter(|length| *length <= LARGEST);
    let length = length.ok_or_else(|| defect(&"it is larger than 4 GiB"))?;
    let mut decoder = zstd::stream::read::Decoder::with_ref_prefix(patch, old).map_err(|error| defect(&error))?;
    decoder.window_log_max(WINDOWS.1).map_err(|error| defect(&error))?;
    let mut bytes = Vec::new();
    let mut limited = std::io::Read::take(decoder, length as u64 + 1);
    std::io::Read::read_to_end(&mut limited, &mut bytes).map_err(|error| defect(&error))?;
    match bytes.len() == length {
        true => Ok(bytes),
        false => Err(defect(&"it has another length than stated")),
    }
}

/// The level of patches: they are small, and sent once.
const LEVEL: i32 = 12;

/// Least and most bits of a window.
const WINDOWS: (u32, u32) = (20, 31);

/// A window that reaches back to the start of the old manifest.
fn window(bytes: usize) -> u32 {
    (usize::BITS - bytes.leading_zeros()).clamp(WINDOWS.0, WINDOWS.1)
}
