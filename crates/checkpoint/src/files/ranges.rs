//! Reads ranges of a tensor file, or scans all of it in constant memory.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use safetensors::tensor::Metadata;
use sha2::{Digest, Sha256};

use crate::Error;
use crate::disk::hexadecimal;
use crate::error::Defect;
use crate::tensor::{Dtype, read_metadata};

/// Bytes read at a time by a scan; a multiple of every element's size.
const CHUNK: u64 = 1 << 20;

/// An open tensor file.
#[derive(Debug)]
pub(crate) struct TensorFile {
    file: File,
    path: PathBuf,
    metadata: Metadata,
    /// Where the values begin.
    begin: u64,
}

impl TensorFile {
    /// A file of a checkpoint, which is no link.
    pub(crate) fn open(path: &Path) -> Result<TensorFile, Error> {
        TensorFile::of(open_regular(path).map_err(|defect| failed(path, defect))?, path)
    }

    /// Any file, also behind a link.
    pub(crate) fn open_any(path: &Path) -> Result<TensorFile, Error> {
        let opened = File::open(path).map_err(|source| Error::File { doing: "open", path: path.to_owned(), source });
        TensorFile::of(opened?, path)
    }

    fn of(file: File, path: &Path) -> Result<TensorFile, Error> {
        let length = file.metadata().map_err(|error| failed(path, error.into()))?.len();
        let header = read_metadata(length, &mut |bytes| take(&file, bytes));
        let (metadata, begin) = header.map_err(|defect| failed(path, defect))?;
        Ok(TensorFile { file, path: path.to_owned(), metadata, begin })
    }

    /// Every tensor by name: its type and shape.
    pub(crate) fn tensors(&self) -> Result<Vec<(String, Dtype, Vec<u64>)>, Error> {
        let one = |name: String| {
            let info = self.metadata.info(&name).ok_or(Defect::from("its header is not valid"))?;
            let dtype = known(&name, info.dtype)?;
            let shape = info.shape.iter().map(|length| *length as u64).collect();
            Ok((name, dtype, shape))
        };
        let all: Result<Vec<_>, Defect> = self.metadata.offset_keys().into_iter().map(one).collect();
        all.map_err(|defect| failed(&self.path, defect))
    }

    /// A text of the header.
    pub(crate) fn note(&self, key: &str) -> Option<&str> {
        self.metadata.metadata().as_ref()?.get(key).map(String::as_str)
    }

    /// Fills `bytes` with those of a tensor from `offset` on.
    pub(crate) fn read(&self, name: &str, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let fits = |info: &&safetensors::tensor::TensorInfo| {
            let (start, end) = info.data_offsets;
            offset.checked_add(bytes.len() as u64).is_some_and(|last| last <= (end - start) as u64)
        };
        let info = self.metadata.info(name).filter(fits);
        let start = info.ok_or_else(|| self.damaged(&format!("`{name}` does not match its header")))?.data_offsets.0;
        self.file
            .read_exact_at(bytes, self.begin + start as u64 + offset)
            .map_err(|source| Error::Unreadable { path: self.path.clone(), source })
    }

    /// Why it cannot be used.
    pub(crate) fn damaged(&self, why: &str) -> Error {
        Error::Damaged { path: self.path.clone(), why: why.to_owned() }
    }
}

fn failed(path: &Path, defect: Defect) -> Error {
    match defect {
        Defect::Damaged(why) => Error::Damaged { path: path.to_owned(), why },
        Defect::Unreadable(source) => Error::Unreadable { path: path.to_owned(), source },
    }
}

fn known(name: &str, dtype: safetensors::Dtype) -> Result<Dtype, Defect> {
    Dtype::known(dtype).ok_or_else(|| format!("`{name}` is of the unknown type {dtype}").into())
}

/// The next bytes of a file.
pub(crate) fn take(mut file: &File, bytes: u64) -> Result<Vec<u8>, Defect> {
    let mut buffer = Vec::new();
    let size = usize::try_from(bytes).map_err(|_| "it is larger than memory")?;
    // The size is at most that of the file, so a failure means that memory is short.
    buffer.try_reserve_exact(size).map_err(|_| std::io::Error::from(std::io::ErrorKind::OutOfMemory))?;
    (&mut file).take(bytes).read_to_end(&mut buffer)?;
    if buffer.len() != size {
        return Err("it is cut short".into());
    }
    Ok(buffer)
}

/// Scans all of an open tensor file. Returns its SHA-256, and the first tensor with a value that is not finite.
pub(crate) fn scan(file: &File) -> Result<(String, Option<String>), Defect> {
    let mut hash = Sha256::new();
    let mut next = |bytes: u64| -> Result<Vec<u8>, Defect> {
        let buffer = take(file, bytes)?;
        hash.update(&buffer);
        Ok(buffer)
    };
    let (metadata, _) = read_metadata(file.metadata()?.len(), &mut next)?;
    let mut not_finite = None;
    for name in metadata.offset_keys() {
        let info = metadata.info(&name).ok_or("its header is not valid")?;
        let dtype = known(&name, info.dtype)?;
        let mut left = (info.data_offsets.1 - info.data_offsets.0) as u64;
        while left > 0 {
            let bytes = next(left.min(CHUNK))?;
            left -= bytes.len() as u64;
            if not_finite.is_none() && !dtype.is_finite(&bytes) {
                not_finite = Some(name.clone());
            }
        }
    }
    Ok((hexadecimal(&hash.finalize()), not_finite))
}

/// Opens a file that is neither a link nor something that reading could hang on.
pub(crate) fn open_regular(path: &Path) -> Result<File, Defect> {
    use rustix::io::Errno;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Err("it is missing".into()),
        Err(Errno::LOOP) => return Err("it is a link, not a file".into()),
        Err(error @ (Errno::NOTDIR | Errno::NXIO | Errno::NAMETOOLONG | Errno::INVAL)) => {
            return Err(format!("it cannot be opened: {error}").into());
        }
        Err(error) => return Err(Defect::Unreadable(error.into())),
    };
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err("it is no file".into()),
    }
}
