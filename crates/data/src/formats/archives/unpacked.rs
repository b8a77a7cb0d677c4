//! Compressed tars, which are unpacked into memory when the data is opened, because a compressed stream cannot be read
//! by position.
//!
//! Unpacking continues only while all such files of a data set together stay below a limit, so a decompression bomb
//! ends with an error.

use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::Error;
use crate::error::layout;
use crate::files::handles::Opened;
use crate::files::sequential::Sequential;

/// All compressed tars of a data set unpack to no more.
pub(super) const MOST: u64 = 4 << 30;
/// Bytes of the compressed file that are read at a time.
const PIECE: usize = 256 << 10;

/// How a tar is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compression {
    Gzip,
    Zstd,
}

impl Compression {
    /// The compression that a file's name implies.
    fn of(path: &Path) -> Option<Compression> {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
        match () {
            () if ends(&[".tar.gz", ".tgz"]) => Some(Compression::Gzip),
            () if ends(&[".tar.zst", ".tzst"]) => Some(Compression::Zstd),
            () => None,
        }
    }
}

/// Whether a file's name is that of a tar that is unpacked into memory.
pub(in crate::formats) fn is_compressed(path: &Path) -> bool {
    Compression::of(path).is_some()
}

/// A tar that was opened.
pub(super) struct Tar {
    pub file: Opened,
    /// Why it was not unpacked to its end.
    pub cut: Option<String>,
}

/// Opens a tar, and unpacks it if it is compressed, to at most `room` bytes.
///
/// # Errors
/// [`Error`] if it cannot be read or is too large. A damaged one is unpacked up to the damage.
pub(super) fn open(path: &Path, room: u64) -> Result<Tar, Error> {
    let refused = |source| Error::Read { name: path.display().to_string(), source };
    let file = Opened::open(path).map_err(refused)?;
    let Some(compression) = Compression::of(path) else { return Ok(Tar { file, cut: None }) };
    let packed = BufReader::with_capacity(PIECE, Sequential::new(&file).map_err(refused)?);
    let mut stream: Box<dyn Read + '_> = match compression {
        Compression::Gzip => Box::new(MultiGzDecoder::new(packed)),
        Compression::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(packed).map_err(refused)?),
    };
    let mut bytes = Vec::new();
    let cut = match stream.by_ref().take(room.saturating_add(1)).read_to_end(&mut bytes) {
        Ok(_) if bytes.len() as u64 > room => return Err(too_large(path)),
        Ok(_) => None,
        Err(error) if is_damage(&error) => Some(format!("it cannot be unpacked to its end: {error}")),
        Err(error) => return Err(refused(error)),
    };
    drop(stream);
    Ok(Tar { file: Opened::Memory(bytes), cut })
}

/// Whether an error is about the compressed bytes rather than I/O; zstd has no error kind of its own for it.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
        || error.raw_os_error().is_none() && error.kind() == io::ErrorKind::Other
}

fn too_large(path: &Path) -> Error {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let folder = path.with_file_name(name.split('.').next().unwrap_or_default());
    let why = "compressed tars are unpacked into memory, and those of this data unpack to more than 4 GiB";
    let hint = format!("unpack it: `mkdir {0} && tar -xf {1} -C {0}`", folder.display(), path.display());
    layout(path, why, hint)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn no_more_is_unpacked_than_there_is_room_for() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("bomb.tar.gz");
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gz.write_all(&vec![0; 10_000_000]).unwrap();
        std::fs::write(&path, gz.finish().unwrap()).unwrap();
        let check = |room: u64, expected: Option<u64>| {
            let opened = open(&path, room);
            assert_eq!(opened.as_ref().ok().map(|tar| tar.file.length().unwrap()), expected, "{room}");
            let Err(error) = opened else { return };
            assert!(error.to_string().contains("more than 4 GiB"), "{error}");
            assert!(error.hint().unwrap_or_default().contains("tar -xf"), "{:?}", error.hint());
        };
        check(9_999_999, None);
        check(10_000_000, Some(10_000_000));
    }
}
