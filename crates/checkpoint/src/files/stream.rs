//! Writes a tensor file one tensor at a time, in any order, so that they need not be in memory together. The result is
//! identical to that of [`crate::write_tensors`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::Error;
use crate::disk::{Disk, TEMPORARY, file_name, hexadecimal};
use crate::manifest::FileEntry;
use crate::tensor::{Dtype, Tensor, header, order};

/// A tensor file that is being written. If dropped before it is finished, it leaves no file.
#[derive(Debug)]
pub struct TensorFileWriter {
    file: File,
    temporary: PathBuf,
    target: PathBuf,
    /// Where each tensor that has not come yet belongs: first byte and number of bytes.
    missing: BTreeMap<String, (u64, u64)>,
    is_done: bool,
}

impl TensorFileWriter {
    /// Begins the file at `path` for tensors of these names, types and shapes.
    ///
    /// # Errors
    /// When the folder is missing, full or read-only, or a name is given twice.
    pub fn create(
        path: &Path,
        mut tensors: Vec<(String, Dtype, Vec<u64>)>,
        metadata: &[(&str, &str)],
    ) -> Result<TensorFileWriter, Error> {
        tensors.sort_by_cached_key(|(name, dtype, _)| order(name, *dtype));
        let heads = tensors.iter().map(|(name, dtype, shape)| (name.as_str(), *dtype, shape.as_slice()));
        let header = header(heads, metadata)?;
        let mut temporary = OsString::from(path);
        temporary.push(TEMPORARY);
        let temporary = PathBuf::from(temporary);
        let options = fs::OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&temporary);
        let file = options.map_err(|error| Error::writing("create", &temporary, error))?;
        let mut offset = header.len() as u64;
        let mut missing = BTreeMap::new();
        for (name, dtype, shape) in tensors {
            let bytes = shape.iter().product::<u64>() * dtype.bytes();
            missing.insert(name, (offset, bytes));
            offset += bytes;
        }
        let writer = TensorFileWriter { file, temporary, target: path.to_owned(), missing, is_done: false };
        writer.write(&header, 0)?;
        Ok(writer)
    }

    /// Writes one of the tensors.
    ///
    /// # Errors
    /// When the disk refuses, or it is not one that is missing.
    pub fn put(&mut self, tensor: &Tensor) -> Result<(), Error> {
        let wrong = |why: String| Error::Tensor { name: tensor.name.clone(), why };
        let (offset, bytes) =
            self.missing.remove(&tensor.name).ok_or_else(|| wrong("it was not declared".to_owned()))?;
        if tensor.bytes.len() as u64 != bytes {
            return Err(wrong(format!("it has {} bytes, but {bytes} were declared", tensor.bytes.len())));
        }
        self.write(&tensor.bytes, offset)
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<(), Error> {
        self.file.write_all_at(bytes, offset).map_err(|error| Error::writing("write", &self.temporary, error))
    }

    /// Gives the file its name once it is durable.
    ///
    /// # Errors
    /// When a tensor is missing, or the disk refuses.
    pub fn finish(mut self) -> Result<FileEntry, Error> {
        if let Some(name) = self.missing.keys().next() {
            return Err(Error::Tensor { name: name.clone(), why: "it is missing".into() });
        }
        let failed = |doing: &'static str, error| Error::writing(doing, &self.temporary, error);
        self.file.sync_all().map_err(|error| failed("sync", error))?;
        let (sha256, bytes) = digest(&self.temporary).map_err(|error| failed("read", error))?;
        fs::rename(&self.temporary, &self.target).map_err(|error| failed("rename", error))?;
        self.is_done = true;
        Disk::default().sync_folder(self.target.parent().unwrap_or(Path::new(".")))?;
        Ok(FileEntry { name: file_name(&self.target), bytes, sha256 })
    }
}

impl Drop for TensorFileWriter {
    fn drop(&mut self) {
        if !self.is_done {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

fn digest(path: &Path) -> std::io::Result<(String, u64)> {
    let (mut file, mut hash, mut buffer) = (File::open(path)?, Sha256::new(), vec![0; 1 << 20]);
    let mut bytes = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((hexadecimal(&hash.finalize()), bytes)),
            read => {
                hash.update(&buffer[..read]);
                bytes += read as u64;
            }
        }
    }
}
