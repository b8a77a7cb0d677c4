//! Token ids on disk: texts are tokenized once per machine, and training reads rows from there.
//!
//! A store is a folder in the cache, named after a hash of all that its tokens depend on. The first rank that needs it
//! writes it; the others wait. Progress is recorded in a journal, so that a killed writer resumes where it stopped;
//! when the store is complete, a manifest replaces the journal. Every block of 4 KiB has a checksum, which is verified
//! on each read. Without a folder, tokens are held in memory.
//!
//! Read on in `column` (one file of a store) and `writer` (how it is written).

mod column;
#[cfg(test)]
mod tests;
mod writer;

use std::fs::{self, File, TryLockError};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::tokens::widen;
use crate::Error;
use crate::error::layout;
use crate::identity::preparation::Preparation;
use column::{BLOCK, Column};
pub(super) use writer::TokenWriter;

/// The version of a store.
const SCHEMA: u32 = 1;
/// Describes a complete store.
const MANIFEST: &str = "manifest.json";
/// Progress of an incomplete store.
const JOURNAL: &str = "journal.jsonl";
/// The checksums of the blocks of all columns.
const SUMS: &str = "sums";
/// Held by who writes.
const LOCK: &str = "lock";
/// Interval at which a waiting rank checks the writer's progress.
const POLL: Duration = Duration::from_millis(200);

/// Columns of tokens and of document ends.
#[derive(Debug)]
pub(super) struct TokenStore {
    /// `None` if the store is in memory.
    folder: Option<PathBuf>,
    columns: Vec<Column>,
    /// Bytes of a token.
    width: u32,
    /// Every token is below it.
    vocabulary: u32,
}

/// Manifest of a complete store.
#[derive(Debug, Serialize, Deserialize)]
struct StoreManifest {
    schema: u32,
    width: u32,
    vocabulary: u32,
    /// Bytes of each column.
    columns: Vec<u64>,
    /// CRC32C of the file of checksums.
    sums: u32,
}

/// Outcome of a request for a store.
pub(super) enum StoreAccess {
    /// It is complete.
    Complete(TokenStore),
    /// It is this process's to write, for which it holds the lock.
    Write(File),
}

impl TokenStore {
    /// Opens the store in `folder`, or locks it to be written; while another process writes it, waits for that.
    pub fn access(folder: &Path, preparation: &Preparation) -> Result<StoreAccess, Error> {
        let refused = |source| Error::Write { name: folder.display().to_string(), source };
        fs::create_dir_all(folder).map_err(refused)?;
        let lock = File::options().create(true).truncate(false).write(true).open(folder.join(LOCK)).map_err(refused)?;
        let mut written = 0;
        loop {
            let is_ours = match lock.try_lock() {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) => false,
                Err(TryLockError::Error(error)) => return Err(refused(error)),
            };
            if let Some(store) = TokenStore::open(folder)? {
                return Ok(StoreAccess::Complete(store));
            }
            if is_ours {
                return Ok(StoreAccess::Write(lock));
            }
            let now = fs::metadata(folder.join(JOURNAL)).map_or(0, |journal| journal.len());
            preparation.advance(usize::from(now != written));
            written = now;
            std::thread::sleep(POLL);
        }
    }

    /// A complete store; `None` if there is none that can be used.
    fn open(folder: &Path) -> Result<Option<TokenStore>, Error> {
        let Some(manifest) = fs::read(folder.join(MANIFEST)).ok() else { return Ok(None) };
        let manifest: Option<StoreManifest> = serde_json::from_slice(&manifest).ok();
        let Some(manifest) = manifest.filter(|manifest| manifest.schema == SCHEMA) else { return Ok(None) };
        let sums = fs::read(folder.join(SUMS)).unwrap_or_default();
        let blocks: u64 = manifest.columns.iter().map(|bytes| bytes.div_ceil(BLOCK)).sum();
        if crc32c::crc32c(&sums) != manifest.sums || sums.len() as u64 != blocks * 4 {
            return Ok(None);
        }
        let mut sums =
            sums.chunks_exact(4).map(|sum| sum.iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte)));
        let mut columns = Vec::with_capacity(manifest.columns.len());
        for (number, bytes) in manifest.columns.iter().enumerate() {
            let path = folder.join(column_name(number));
            let Ok(file) = File::open(&path) else { return Ok(None) };
            if file.metadata().map_or(0, |metadata| metadata.len()) != *bytes {
                return Ok(None);
            }
            let sums = sums.by_ref().take(bytes.div_ceil(BLOCK) as usize).collect();
            columns.push(Column::Disk { path, file, bytes: *bytes, sums });
        }
        let StoreManifest { width, vocabulary, .. } = manifest;
        Ok(Some(TokenStore { folder: Some(folder.to_owned()), columns, width, vocabulary }))
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    /// Tokens in a column.
    pub fn tokens(&self, column: usize) -> u64 {
        self.columns[column].bytes() / u64::from(self.width)
    }

    /// Appends the tokens in a range of a column.
    pub fn read(&self, column: usize, range: Range<u64>, into: &mut Vec<u32>) -> Result<(), Error> {
        let width = u64::from(self.width);
        let bytes = self.bytes(column, range.start * width..range.end * width)?;
        widen(&bytes, self.width, self.vocabulary, into).map_err(Error::Internal)
    }

    /// Number of ends in a column of ends.
    pub fn ends(&self, column: usize) -> u64 {
        self.columns[column].bytes() / 8
    }

    /// Returns the ends in a range of a column of ends.
    pub fn read_ends(&self, column: usize, range: Range<u64>) -> Result<Vec<u64>, Error> {
        let bytes = self.bytes(column, range.start * 8..range.end * 8)?;
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
        Ok(bytes.chunks_exact(8).map(number).collect())
    }

    fn bytes(&self, column: usize, range: Range<u64>) -> Result<Vec<u8>, Error> {
        let start = range.start;
        if let Some(bytes) = self.columns[column].read(range)? {
            return Ok(bytes);
        }
        let folder = self.folder.clone().unwrap_or_default();
        // Without its manifest it is written again from the texts, when it is opened next.
        let removed = fs::remove_file(folder.join(MANIFEST));
        let why =
            format!("the block of tokens at byte {start} of `{}` does not match its checksum", column_name(column));
        let hint = match removed {
            Ok(()) => "resume the run: the texts are tokenized again".to_owned(),
            Err(_) => format!("remove `{}` and resume the run: the texts are tokenized again", folder.display()),
        };
        Err(layout(&folder, why, &hint))
    }
}

fn column_name(number: usize) -> String {
    format!("column-{number}")
}
