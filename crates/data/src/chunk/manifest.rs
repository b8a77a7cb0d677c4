//! The manifest of a data set in chunks, and its validation.

use std::collections::HashSet;

use super::ContentHash;

/// A data set: its files, and the positions of their chunks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChunkManifest {
    /// The stored objects.
    pub bundles: Vec<Bundle>,
    /// The frames in them.
    pub frames: Vec<CompressedFrame>,
    /// The files, sorted by name.
    pub files: Vec<ChunkedFile>,
}

/// A stored object, named by the hash of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bundle {
    /// Its name.
    pub id: ContentHash,
    /// Its length.
    pub bytes: u64,
}

/// Consecutive chunks in a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompressedFrame {
    /// Index of its bundle in [`ChunkManifest::bundles`].
    pub bundle: u32,
    /// Where it begins in the bundle.
    pub offset: u32,
    /// Its length there; less than `raw` if it is compressed.
    pub stored: u32,
    /// Total length of its chunks.
    pub raw: u32,
}

/// A file of the data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkedFile {
    /// Its path below the folder of the data set, parts separated by `/`.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Its chunks, in order.
    pub pieces: Vec<ChunkRef>,
}

/// A chunk of a file, and its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkRef {
    /// Its name.
    pub id: ContentHash,
    /// Its length.
    pub bytes: u32,
    /// Index of its frame in [`ChunkManifest::frames`].
    pub frame: u32,
    /// Where it begins in the frame.
    pub at: u32,
}

/// Why a manifest is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidManifest(pub String);

/// The longest decompressed frame, which bounds the memory that a hostile manifest can claim per stream.
pub const LARGEST_FRAME: u32 = 8 << 20;

/// The longest bundle.
const LARGEST_BUNDLE: u64 = 1 << 30;

impl CompressedFrame {
    /// Whether its bytes are compressed.
    pub fn is_compressed(&self) -> bool {
        self.stored != self.raw
    }
}

impl ChunkManifest {
    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Validates every number and name; afterwards all indices are in range and all names are safe.
    ///
    /// # Errors
    /// The first [`InvalidManifest`].
    pub fn check(&self) -> Result<(), InvalidManifest> {
        let defect = |text: String| Err(InvalidManifest(text));
        for bundle in &self.bundles {
            if bundle.bytes > LARGEST_BUNDLE {
                return defect(format!("bundle `{}` is {} bytes long", bundle.id, bundle.bytes));
            }
        }
        for (number, frame) in self.frames.iter().enumerate() {
            let Some(bundle) = self.bundles.get(frame.bundle as usize) else {
                return defect(format!("frame {number} is in bundle {}, which does not exist", frame.bundle));
            };
            let is_inside = u64::from(frame.offset) + u64::from(frame.stored) <= bundle.bytes;
            let is_small = !frame.is_compressed() || (frame.stored < frame.raw && frame.raw <= LARGEST_FRAME);
            if !is_inside || !is_small {
                return defect(format!("frame {number} is not within its bundle, or unpacks to {} bytes", frame.raw));
            }
        }
        let mut names = HashSet::with_capacity(self.files.len());
        let mut total = 0_u64;
        for file in &self.files {
            check_name(&file.name)
                .map_err(|why| InvalidManifest(format!("the file name {:?} is refused: {why}", file.name)))?;
            if !names.insert(file.name.as_str()) {
                return defect(format!("the file `{}` is listed twice", file.name));
            }
            self.check_pieces(file)?;
            total = total.saturating_add(file.bytes);
        }
        for file in &self.files {
            let folder = parents(&file.name).find(|folder| names.contains(folder));
            if let Some(folder) = folder {
                return defect(format!("`{folder}` is a file and a folder at once"));
            }
        }
        match total {
            u64::MAX => defect("its files are longer than any disk".to_owned()),
            _ => Ok(()),
        }
    }

    fn check_pieces(&self, file: &ChunkedFile) -> Result<(), InvalidManifest> {
        let mut bytes = 0_u64;
        for piece in &file.pieces {
            let frame = self.frames.get(piece.frame as usize);
            let end = u64::from(piece.at) + u64::from(piece.bytes);
            if frame.is_none_or(|frame| end > u64::from(frame.raw)) || piece.bytes > LARGEST_FRAME {
                return Err(InvalidManifest(format!("a chunk of `{}` is not within its frame", file.name)));
            }
            bytes += u64::from(piece.bytes);
        }
        match bytes == file.bytes {
            true => Ok(()),
            false => Err(InvalidManifest(format!(
                "the chunks of `{}` have {bytes} bytes, but the file has {}",
                file.name, file.bytes
            ))),
        }
    }
}

/// The parent folders of a name, innermost first.
fn parents(name: &str) -> impl Iterator<Item = &str> {
    name.rmatch_indices('/').map(|(at, _)| &name[..at])
}

/// Checks whether a remote name may become a file below a local folder.
///
/// # Errors
/// The reason why it may not.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.len() > 4096 {
        return Err("it is empty or longer than 4096 bytes");
    }
    if name.chars().any(char::is_control) {
        return Err("it holds control characters");
    }
    for part in name.split('/') {
        match part {
            "" => return Err("it begins or ends with `/`, or has two in a row"),
            "." | ".." => return Err("it holds `.` or `..`"),
            _ if part.len() > 255 => return Err("a part of it is longer than 255 bytes"),
            _ if part == super::manifest::OWN => return Err("`.gradus` is reserved for gradus"),
            _ => {}
        }
    }
    Ok(())
}

/// The folder that unfinished files lie in, below the folder of a data set.
pub(super) const OWN: &str = ".gradus";
