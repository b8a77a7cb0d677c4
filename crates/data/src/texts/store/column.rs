//! Numbers one after another, written once and then read anywhere: in memory, or in a file with a checksum for each block.

use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::Error;

/// Bytes per checksum: about one row of a few hundred tokens.
pub(super) const BLOCK: u64 = 4096;
/// Bytes of a column that are buffered before they are written.
const BUFFER: usize = 1 << 20;

/// A column that is complete.
#[derive(Debug)]
pub(super) enum Column {
    /// In memory.
    Memory(Vec<u8>),
    /// In a file of so many bytes, with the CRC32C of each [`BLOCK`].
    Disk { path: PathBuf, file: File, bytes: u64, sums: Vec<u32> },
}

impl Column {
    /// Bytes in it.
    pub fn bytes(&self) -> u64 {
        match self {
            Column::Memory(bytes) => bytes.len() as u64,
            Column::Disk { bytes, .. } => *bytes,
        }
    }

    /// Reads a range of bytes. Returns `None` if a block does not match its checksum.
    pub fn read(&self, range: Range<u64>) -> Result<Option<Vec<u8>>, Error> {
        let (path, file, bytes, sums) = match self {
            Column::Memory(bytes) => {
                let range = range.start.min(self.bytes()) as usize..range.end.min(self.bytes()) as usize;
                return Ok(Some(bytes[range].to_vec()));
            }
            Column::Disk { path, file, bytes, sums } => (path, file, *bytes, sums),
        };
        let range = range.start.min(bytes)..range.end.min(bytes);
        let first = range.start / BLOCK;
        let last = range.end.div_ceil(BLOCK).max(first);
        let mut blocks = vec![0; (bytes.min(last * BLOCK) - first * BLOCK) as usize];
        let refused = |source| Error::Read { name: path.display().to_string(), source };
        match file.read_exact_at(&mut blocks, first * BLOCK) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(refused(error)),
        }
        let sums = &sums[first as usize..last as usize];
        if blocks.chunks(BLOCK as usize).zip(sums).any(|(block, sum)| crc32c::crc32c(block) != *sum) {
            return Ok(None);
        }
        blocks.truncate((range.end - first * BLOCK) as usize);
        blocks.drain(..(range.start - first * BLOCK) as usize);
        Ok(Some(blocks))
    }
}

/// A column that is being written.
#[derive(Debug)]
pub(super) enum ColumnWriter {
    /// In memory.
    Memory(Vec<u8>),
    /// In a file.
    Disk(Box<FileColumn>),
}

/// Running checksums of the bytes of a file.
#[derive(Debug, Default)]
struct Sums {
    bytes: u64,
    /// Of all bytes.
    whole: u32,
    /// One per block, the last of which may grow.
    blocks: Vec<u32>,
}

impl Sums {
    fn add(&mut self, mut bytes: &[u8]) {
        self.whole = crc32c::crc32c_append(self.whole, bytes);
        while !bytes.is_empty() {
            let inside = self.bytes % BLOCK;
            if inside == 0 {
                self.blocks.push(0);
            }
            let (now, later) = bytes.split_at(bytes.len().min((BLOCK - inside) as usize));
            if let Some(last) = self.blocks.last_mut() {
                *last = crc32c::crc32c_append(*last, now);
            }
            self.bytes += now.len() as u64;
            bytes = later;
        }
    }
}

/// The file of a column that is being written.
#[derive(Debug)]
pub(super) struct FileColumn {
    path: PathBuf,
    file: BufWriter<File>,
    sums: Sums,
}

impl FileColumn {
    /// Opens the file to append after its first `bytes` bytes with the given checksum; `None` if they are missing
    /// or differ.
    pub fn resume(path: &Path, bytes: u64, whole: u32) -> Result<Option<FileColumn>, Error> {
        let refused = |source| Error::Write { name: path.display().to_string(), source };
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(refused)?;
        let mut sums = Sums::default();
        let mut buffer = vec![0; BUFFER];
        let mut reader = (&file).take(bytes);
        loop {
            match reader.read(&mut buffer).map_err(refused)? {
                0 => break,
                read => sums.add(&buffer[..read]),
            }
        }
        if (sums.bytes, sums.whole) != (bytes, whole) {
            return Ok(None);
        }
        file.set_len(bytes).and_then(|()| (&file).seek(SeekFrom::Start(bytes))).map_err(refused)?;
        Ok(Some(FileColumn { path: path.to_owned(), file: BufWriter::with_capacity(BUFFER, file), sums }))
    }

    /// Syncs what is written, and returns the number of bytes and their checksum.
    pub fn sync(&mut self) -> Result<(u64, u32), Error> {
        let synced = self.file.flush().and_then(|()| self.file.get_ref().sync_data());
        synced.map_err(|source| Error::Write { name: self.path.display().to_string(), source })?;
        Ok((self.sums.bytes, self.sums.whole))
    }
}

impl ColumnWriter {
    /// Bytes written.
    pub fn bytes(&self) -> u64 {
        match self {
            ColumnWriter::Memory(bytes) => bytes.len() as u64,
            ColumnWriter::Disk(column) => column.sums.bytes,
        }
    }

    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match self {
            ColumnWriter::Memory(all) => all.extend_from_slice(bytes),
            ColumnWriter::Disk(column) => {
                let written = column.file.write_all(bytes);
                written.map_err(|source| Error::Write { name: column.path.display().to_string(), source })?;
                column.sums.add(bytes);
            }
        }
        Ok(())
    }

    /// Returns the complete column. A file must have been synced before.
    pub fn finish(self) -> Result<Column, Error> {
        match self {
            ColumnWriter::Memory(bytes) => Ok(Column::Memory(bytes)),
            ColumnWriter::Disk(column) => {
                let FileColumn { path, file, sums: Sums { bytes, blocks, .. } } = *column;
                let file = file
                    .into_inner()
                    .map_err(|error| Error::Write { name: path.display().to_string(), source: error.into_error() })?;
                Ok(Column::Disk { path, file, bytes, sums: blocks })
            }
        }
    }
}
