//! Writing one shard, front to back, while its hash is made.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::{FOOT_MAGIC, HEAD, HEAD_MAGIC, Record, SampleCodec, VERSION};

/// One sample, ready to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Its position in the data that is packed.
    pub id: u64,
    pub label: u32,
    pub codec: SampleCodec,
    /// Its name there.
    pub name: String,
    pub bytes: Vec<u8>,
    /// Its metadata, as JSON; may be empty.
    pub note: Vec<u8>,
}

/// A shard that is being written; only the index stays in memory.
pub(crate) struct Writer {
    out: BufWriter<File>,
    hash: blake3::Hasher,
    at: u64,
    index: Vec<u8>,
    hashes: Vec<u8>,
    ends: Vec<u8>,
    names: String,
    count: u64,
}

impl Writer {
    /// Creates a shard at `path`; `part` is 0 to 2 for training, validation and test, and 3 for none of them.
    pub fn create(path: &Path, part: u32) -> io::Result<Writer> {
        let out = BufWriter::with_capacity(1 << 20, File::create(path)?);
        let empty = (Vec::new(), Vec::new(), Vec::new());
        let (index, hashes, ends) = empty;
        let hash = blake3::Hasher::new();
        let mut writer = Writer { out, hash, at: 0, index, hashes, ends, names: String::new(), count: 0 };
        let mut head = [0; HEAD as usize];
        head[..8].copy_from_slice(HEAD_MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        head[12..16].copy_from_slice(&part.to_le_bytes());
        writer.write(&head)?;
        Ok(writer)
    }

    /// Appends a sample.
    ///
    /// # Errors
    /// An I/O error, or the sample is larger than 4 GiB.
    pub fn append(&mut self, sample: &Sample) -> io::Result<()> {
        let too_large = |_| io::Error::new(io::ErrorKind::InvalidData, "a sample is larger than 4 GiB");
        let record = Record {
            offset: self.at,
            bytes: u32::try_from(sample.bytes.len()).map_err(too_large)?,
            note: u32::try_from(sample.note.len()).map_err(too_large)?,
            id: sample.id,
            label: sample.label,
            codec: sample.codec,
        };
        self.names.push_str(&sample.name);
        let end = u32::try_from(self.names.len()).map_err(too_large)?;
        self.index.extend(record.write());
        self.hashes.extend(sample.hash().as_bytes());
        self.ends.extend(end.to_le_bytes());
        self.write(&sample.bytes)?;
        self.write(&sample.note)?;
        self.count += 1;
        Ok(())
    }

    /// Bytes of samples written.
    pub fn bytes(&self) -> u64 {
        self.at - HEAD
    }

    /// Samples written.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Writes the index and syncs the file; returns its size and hash.
    pub fn finish(mut self) -> io::Result<(u64, blake3::Hash)> {
        let index_at = self.at;
        let tables =
            [std::mem::take(&mut self.index), std::mem::take(&mut self.hashes), std::mem::take(&mut self.ends)];
        let names = std::mem::take(&mut self.names).into_bytes();
        let mut check = blake3::Hasher::new();
        for table in tables.iter().chain([&names]) {
            check.update(table);
            self.write(table)?;
        }
        let mut foot = Vec::with_capacity(super::FOOT as usize);
        for number in [index_at, self.count, names.len() as u64] {
            foot.extend(number.to_le_bytes());
        }
        foot.extend(&check.finalize().as_bytes()[..16]);
        foot.extend(FOOT_MAGIC);
        self.write(&foot)?;
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        Ok((self.at, self.hash.finalize()))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.at += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}

impl Sample {
    /// The BLAKE3 hash of its bytes and its note.
    pub fn hash(&self) -> blake3::Hash {
        blake3::Hasher::new().update(&self.bytes).update(&self.note).finalize()
    }
}
