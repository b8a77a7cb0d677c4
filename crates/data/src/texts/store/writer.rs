//! Writes a store of tokens, and continues one that a killed process has begun.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::column::{Column, ColumnWriter, FileColumn};
use super::{JOURNAL, MANIFEST, SCHEMA, SUMS, StoreManifest, TokenStore, column_name};
use crate::Error;
use crate::files::replace::replace;

/// Bytes of tokens after which they are made durable and noted in the journal.
const NOTED: u64 = 32 << 20;

/// Tokens that are being written.
#[derive(Debug)]
pub(in crate::texts) struct TokenWriter {
    columns: Vec<ColumnWriter>,
    width: u32,
    vocabulary: u32,
    /// `None` if the store is in memory.
    journal: Option<Journal>,
    /// Records whose tokens are in the store.
    records: u64,
}

/// The journal of a store on disk.
#[derive(Debug)]
struct Journal {
    folder: PathBuf,
    file: File,
    /// Held until the store is complete.
    _lock: File,
    /// Bytes since its last line.
    unnoted: u64,
    /// After how many of them it gets another.
    every: u64,
}

/// One line of it: so many records are in the store, in so many bytes of each column with this CRC32C.
#[derive(Debug, Default, Serialize, Deserialize)]
struct JournalLine {
    records: u64,
    columns: Vec<(u64, u32)>,
}

impl TokenWriter {
    /// Tokens in memory.
    pub fn in_memory(columns: usize, vocabulary: usize) -> TokenWriter {
        let columns = (0..columns).map(|_| ColumnWriter::Memory(Vec::new())).collect();
        let vocabulary = vocabulary as u32;
        TokenWriter { columns, width: width_of(vocabulary), vocabulary, journal: None, records: 0 }
    }

    /// Opens a store in a folder whose lock is held, resuming after what is already there.
    pub fn on_disk(folder: &Path, lock: File, columns: usize, vocabulary: usize) -> Result<TokenWriter, Error> {
        let path = folder.join(JOURNAL);
        let text = fs::read_to_string(&path).unwrap_or_default();
        // A line that was not written to its end is none.
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let last = lines.filter_map(|line| serde_json::from_str::<JournalLine>(line).ok()).next_back();
        let last = last.filter(|line| line.columns.len() == columns).unwrap_or_default();
        let (found, records) = match resumed(folder, &last)? {
            Some(found) if last.records > 0 => (found, last.records),
            _ => (fresh(folder, columns)?, 0),
        };
        let refused = |source| Error::Write { name: path.display().to_string(), source };
        let complete = if records > 0 { text.rfind('\n').map_or(0, |at| at as u64 + 1) } else { 0 };
        let file = File::options().create(true).append(true).open(&path).map_err(refused)?;
        file.set_len(complete).map_err(refused)?;
        let journal = Journal { folder: folder.to_owned(), file, _lock: lock, unnoted: 0, every: NOTED };
        let vocabulary = vocabulary as u32;
        let columns = found.into_iter().map(|column| ColumnWriter::Disk(Box::new(column))).collect();
        Ok(TokenWriter { columns, width: width_of(vocabulary), vocabulary, journal: Some(journal), records })
    }

    /// Sets the interval between lines of the journal.
    #[cfg(test)]
    pub fn noted_every(mut self, bytes: u64) -> TokenWriter {
        self.journal.iter_mut().for_each(|journal| journal.every = bytes);
        self
    }

    /// Records whose tokens are in the store already.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Tokens in a column.
    pub fn tokens(&self, column: usize) -> u64 {
        self.columns[column].bytes() / u64::from(self.width)
    }

    /// Adds tokens to a column.
    pub fn add(&mut self, column: usize, tokens: &[u32]) -> Result<(), Error> {
        let width = self.width as usize;
        if let Some(token) = tokens.iter().find(|token| **token >= self.vocabulary) {
            let why = format!("the tokenizer gave token {token}, and its vocabulary has {}", self.vocabulary);
            return Err(Error::Internal(why));
        }
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes().into_iter().take(width)).collect();
        self.journal.iter_mut().for_each(|journal| journal.unnoted += bytes.len() as u64);
        self.columns[column].add(&bytes)
    }

    /// Notes in `ends`, a column of ends, that a row or document ends where the tokens of `column` do.
    pub fn end(&mut self, column: usize, ends: usize) -> Result<(), Error> {
        let end = self.tokens(column);
        self.columns[ends].add(&end.to_le_bytes())
    }

    /// Counts records as written, once all that belongs to them is added.
    pub fn complete(&mut self, records: u64) -> Result<(), Error> {
        self.records += records;
        match &self.journal {
            Some(journal) if journal.unnoted >= journal.every => self.note().map(drop),
            Some(_) | None => Ok(()),
        }
    }

    /// Syncs what is written and then records it in the journal.
    fn note(&mut self) -> Result<(), Error> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let mut line = JournalLine { records: self.records, columns: Vec::with_capacity(self.columns.len()) };
        for column in &mut self.columns {
            if let ColumnWriter::Disk(column) = column {
                line.columns.push(column.sync()?);
            }
        }
        let text = serde_json::to_string(&line).map_err(|error| Error::Internal(error.to_string()))? + "\n";
        let written = journal.file.write_all(text.as_bytes()).and_then(|()| journal.file.sync_data());
        written.map_err(|source| Error::Write { name: journal.folder.join(JOURNAL).display().to_string(), source })?;
        journal.unnoted = 0;
        Ok(())
    }

    /// Discards what is written, because the texts have changed.
    pub fn discard(self) -> Result<(), Error> {
        let Some(Journal { folder, .. }) = self.journal else { return Ok(()) };
        fs::remove_file(folder.join(JOURNAL))
            .map_err(|source| Error::Write { name: folder.join(JOURNAL).display().to_string(), source })
    }

    /// The complete store.
    pub fn finish(mut self) -> Result<TokenStore, Error> {
        self.note()?;
        let (width, vocabulary) = (self.width, self.vocabulary);
        let columns = self.columns.into_iter().map(ColumnWriter::finish).collect::<Result<Vec<Column>, Error>>()?;
        let Some(Journal { folder, file, _lock: lock, .. }) = self.journal else {
            return Ok(TokenStore { folder: None, columns, width, vocabulary });
        };
        let mut sums = Vec::new();
        for column in &columns {
            if let Column::Disk { sums: of_column, .. } = column {
                sums.extend(of_column.iter().flat_map(|sum| sum.to_le_bytes()));
            }
        }
        let bytes = columns.iter().map(Column::bytes).collect();
        let manifest = StoreManifest { schema: SCHEMA, width, vocabulary, columns: bytes, sums: crc32c::crc32c(&sums) };
        let manifest = serde_json::to_vec(&manifest).map_err(|error| Error::Internal(error.to_string()))?;
        let written = replace(&folder, SUMS, &sums).and_then(|()| replace(&folder, MANIFEST, &manifest));
        written.map_err(|source| Error::Write { name: folder.display().to_string(), source })?;
        drop(file);
        // The manifest supersedes the journal; a leftover one does no harm.
        let _ = fs::remove_file(folder.join(JOURNAL));
        drop(lock);
        Ok(TokenStore { folder: Some(folder), columns, width, vocabulary })
    }
}

/// Opens the columns at the state recorded in a line of the journal; `None` if they do not match it.
fn resumed(folder: &Path, line: &JournalLine) -> Result<Option<Vec<FileColumn>>, Error> {
    let mut columns = Vec::with_capacity(line.columns.len());
    for (number, (bytes, sum)) in line.columns.iter().enumerate() {
        match FileColumn::resume(&folder.join(column_name(number)), *bytes, *sum)? {
            Some(column) => columns.push(column),
            None => return Ok(None),
        }
    }
    Ok(Some(columns))
}

/// Empty columns.
fn fresh(folder: &Path, columns: usize) -> Result<Vec<FileColumn>, Error> {
    let line = JournalLine { records: 0, columns: vec![(0, 0); columns] };
    resumed(folder, &line)?.ok_or_else(|| Error::Internal("an empty file does not match its checksum".into()))
}

/// Bytes of each token of a vocabulary.
fn width_of(vocabulary: u32) -> u32 {
    if vocabulary <= 1 << 16 { 2 } else { 4 }
}
