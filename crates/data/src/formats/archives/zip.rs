//! The members of a zip, each stored or deflated on its own, so that a sample can be read by position.
//!
//! Only the directory and the header before each member are read when the data is opened. Names are labels and never
//! touch the file system. The unpacked size of a member is bounded when it is read, by the size in the directory and by
//! that of the largest image, so a zip bomb costs no memory.

use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use ::zip::result::ZipError;
use ::zip::{CompressionMethod, ZipArchive};
use flate2::Crc;
use flate2::bufread::DeflateDecoder;
use plugin::caught::caught;

use super::archive::Stop;
use crate::Error;
use crate::files::handles::Opened;
use crate::files::sequential::Sequential;
use crate::formats::encoded::spans::{Span, Wrapping};

/// Bytes of a large member that are read at a time.
const PIECE: usize = 256 << 10;

/// One member that is a file.
pub(in crate::formats) struct Member {
    pub name: Vec<u8>,
    /// Its position in file `number`, or why it cannot be read.
    pub piece: Result<Span, String>,
}

/// Shows every file of the zip `number` to `visit`, in the order of its directory.
///
/// # Errors
/// [`Stop`], if the system refuses or the directory cannot be read.
pub(in crate::formats) fn members(file: &Opened, number: u32, mut visit: impl FnMut(Member)) -> Result<(), Stop> {
    let (reader, length) = (Sequential::new(file)?, file.length()?);
    let opened = caught(|| ZipArchive::new(reader)).unwrap_or(Err(ZipError::UnsupportedArchive("it is not one")));
    let mut archive = opened.map_err(stop)?;
    for index in 0..archive.len() {
        let known = archive.name_for_index(index).unwrap_or_default().as_bytes().to_vec();
        let found = caught(|| member(&mut archive, index, number, length));
        match found.unwrap_or(Err(ZipError::UnsupportedArchive("its header is not one"))) {
            Ok(Some(member)) => visit(member),
            Ok(None) => {}
            Err(error) => visit(Member { name: known, piece: Err(damage(stop(error))?) }),
        }
    }
    Ok(())
}

/// Converts what stopped a listing into an error.
///
/// # Errors
/// [`Error::Read`], or what `damaged` returns for damaged data.
pub(in crate::formats) fn checked(
    listed: Result<(), Stop>,
    path: &Path,
    damaged: &dyn Fn(String) -> Error,
) -> Result<(), Error> {
    listed.map_err(|stop| match stop {
        Stop::Read(source) => Error::Read { name: path.display().to_string(), source },
        Stop::Damaged(why) => damaged(why),
    })
}

/// Reads a member of any size, unpacking at most the size in the directory.
///
/// # Errors
/// A message that describes the damage.
pub(in crate::formats) fn whole(file: &Opened, piece: &Span) -> Result<Vec<u8>, String> {
    let Wrapping::Zip { stored, is_deflated, crc } = piece.wrapping else {
        return Err("it is no member of a zip".into());
    };
    let read = || -> io::Result<Vec<u8>> {
        let mut packed = Sequential::new(file)?;
        packed.seek(SeekFrom::Start(piece.offset))?;
        let packed = BufReader::with_capacity(PIECE, packed.take(u64::from(stored)));
        let mut bytes = Vec::new();
        let most = u64::from(piece.bytes) + 1;
        match is_deflated {
            true => DeflateDecoder::new(packed).take(most).read_to_end(&mut bytes)?,
            false => packed.take(most).read_to_end(&mut bytes)?,
        };
        Ok(bytes)
    };
    let bytes = read().map_err(|error| format!("it cannot be unpacked: {error}"))?;
    let mut sum = Crc::new();
    sum.update(&bytes);
    match bytes.len() == piece.bytes as usize && sum.sum() == crc {
        true => Ok(bytes),
        false => Err("its checksum is wrong".into()),
    }
}

/// The message of a damaged member; I/O errors are returned as errors.
fn damage(stop: Stop) -> Result<String, Stop> {
    match stop {
        Stop::Damaged(why) => Ok(format!("its header is damaged: {why}")),
        Stop::Read(source) => Err(Stop::Read(source)),
    }
}

/// The member at an index of the directory; `None` if it is a folder or a link.
fn member(
    archive: &mut ZipArchive<Sequential<'_>>,
    index: usize,
    number: u32,
    length: u64,
) -> Result<Option<Member>, ZipError> {
    let member = archive.by_index_raw(index)?;
    if !member.is_file() {
        return Ok(None);
    }
    let (stored, bytes, method) = (member.compressed_size(), member.size(), member.compression());
    let offset = member.data_start().unwrap_or(u64::MAX);
    let is_inside = offset.checked_add(stored).is_some_and(|end| end <= length);
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let is_deflated = method == CompressionMethod::DEFLATE;
    let wrapping = Wrapping::Zip { stored: narrow(stored), is_deflated, crc: member.crc32() };
    let piece = if member.encrypted() {
        Err("it is encrypted".to_owned())
    } else if !is_deflated && method != CompressionMethod::STORE {
        Err(format!("it is compressed by the method {method}, and only `store` and `deflate` are read"))
    } else if !is_inside {
        Err("it is outside of the zip".to_owned())
    } else {
        Ok(Span { file: number, bytes: narrow(bytes), offset, wrapping })
    };
    Ok(Some(Member { name: member.name_raw().to_vec(), piece }))
}

/// Converts an error of the library.
fn stop(error: ZipError) -> Stop {
    match error {
        ZipError::Io(source) if !matches!(source.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData) => {
            Stop::Read(source)
        }
        other => Stop::Damaged(other.to_string()),
    }
}
