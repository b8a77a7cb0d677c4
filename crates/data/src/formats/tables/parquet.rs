//! Images and texts in the rows of Parquet files, as HuggingFace publishes them.
//!
//! Only the column of classes is read when the data is opened. A row is read by position: the pages before its own in
//! the row group are passed over by their headers, and its own is unpacked, so memory stays at one page a thread. That
//! costs a few milliseconds a row where pages are large; `gradus data pack` pays it once. Read on in `pages`.

use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::{ArrowError, DataType};
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArray, DataType as Physical};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{ChunkReader, Length};

use super::columns::{Columns, Want};
use super::pages::{self, Column};
use crate::Error;
use crate::error::layout;
use crate::files::caught::caught;
use crate::files::handles::{Handles, LARGEST_FILE, Opened};
use crate::formats::class_names::Named;

/// Rows of Parquet files.
#[derive(Debug)]
pub(crate) struct Rows {
    files: Handles,
    tables: Vec<Table>,
    /// Number of the file, and row in it.
    pub places: Vec<(u32, u64)>,
}

/// What is needed to read a row of one file.
#[derive(Debug)]
struct Table {
    metadata: Arc<ParquetMetaData>,
    /// Number of the column with images or text, and its levels of what can be absent.
    content: usize,
    depth: i16,
    /// The first row of each row group, and the number of all.
    starts: Vec<u64>,
}

/// What the rows of one file are called.
pub(in crate::formats) struct Listing {
    pub rows: Rows,
    /// The class of each row; `None` where the row has none.
    pub named: Vec<Option<Named>>,
    pub names: Option<Vec<String>>,
}

/// Rows whose classes are read at a time.
const LABELS: usize = 8192;

/// Lists all rows of some files; without a column of classes, every class is `None`.
pub(in crate::formats) fn list(files: Vec<PathBuf>, want: Want<'_>) -> Result<Listing, Error> {
    let (mut tables, mut places, mut named, mut names) = (Vec::new(), Vec::new(), Vec::new(), None);
    let handles = Handles::new(files);
    for number in 0..handles.paths().len() as u32 {
        let path = handles.path(number);
        let refused = |source| Error::Read { name: path.display().to_string(), source };
        let file = Positioned::new(handles.file(number).map_err(refused)?).map_err(refused)?;
        let bytes = file.bytes;
        let (table, columns) = guarded(|| Table::open(&file, want)).map_err(|why| damaged(path, &why))?;
        let rows = table.starts.last().copied().unwrap_or(0);
        // Every sample takes a byte at least, so a file that claims more is a trap.
        if rows > bytes {
            return Err(damaged(path, &format!("it claims {rows} rows in {bytes} bytes")));
        }
        if let Some(why) = columns.unfit {
            return Err(layout(path, why, super::columns::AS_CLASSES));
        }
        let before = named.len();
        match &columns.label {
            Some((label, kind)) => guarded(|| classes(&file, &table.metadata, label, kind, &mut named)),
            None => {
                named.resize(before + rows as usize, None);
                Ok(())
            }
        }
        .map_err(|why| damaged(path, &why))?;
        if (named.len() - before) as u64 != rows {
            return Err(damaged(path, &format!("it has {} classes for {rows} rows", named.len() - before)));
        }
        places.extend((0..rows).map(|row| (number, row)));
        names = names.or(columns.names);
        tables.push(table);
    }
    Ok(Listing { rows: Rows { files: handles, tables, places }, named, names })
}

/// The texts of a file, all of them, with their classes.
pub(in crate::formats) struct Texts {
    pub texts: Vec<String>,
    pub named: Vec<Option<Named>>,
    pub names: Option<Vec<String>>,
}

/// Reads the texts in one column of a file.
pub(in crate::formats) fn texts(path: &Path, want: Want<'_>) -> Result<Texts, Error> {
    let Listing { rows, named, names } = list(vec![path.to_owned()], want)?;
    let refused = |source| Error::Read { name: path.display().to_string(), source };
    let file = Positioned::new(rows.files.file(0).map_err(refused)?).map_err(refused)?;
    let read = || {
        let (table, mut texts) = (&rows.tables[0], Vec::with_capacity(rows.places.len()));
        for group in 0..table.metadata.num_row_groups() {
            let Column::Bytes(mut reader) = pages::column(file.clone(), &table.metadata, group, table.content)? else {
                return Err(Broken("its column does not hold text".into()));
            };
            loop {
                let batch = pages::read(&mut reader, table.depth, LABELS)?;
                if batch.is_empty() {
                    break;
                }
                for value in batch {
                    let row = texts.len() + 1;
                    let value = value.ok_or_else(|| Broken(format!("row {row} has no text")))?;
                    let text =
                        std::str::from_utf8(value.data()).map_err(|_| Broken(format!("row {row} is not UTF-8")))?;
                    texts.push(text.to_owned());
                }
            }
        }
        Ok(texts)
    };
    let texts = guarded(read).map_err(|why| damaged(path, &why))?;
    Ok(Texts { texts, named, names })
}

impl Table {
    fn open(file: &Positioned, want: Want<'_>) -> Result<(Table, Columns), Broken> {
        let metadata = ArrowReaderMetadata::load(file, ArrowReaderOptions::new())?;
        let columns = Columns::find(metadata.schema(), want).map_err(Broken)?;
        let metadata = Arc::clone(metadata.metadata());
        let mut starts = vec![0_u64];
        for group in metadata.row_groups() {
            let rows =
                u64::try_from(group.num_rows()).map_err(|_| Broken("a row group has fewer than no rows".into()))?;
            let next = starts.last().and_then(|last| last.checked_add(rows));
            starts.push(next.ok_or_else(|| Broken("it claims too many rows".into()))?);
        }
        let (content, depth) = leaf(&metadata, &columns.content)?;
        Ok((Table { metadata, content, depth, starts }, columns))
    }

    fn read(&self, file: Positioned, row: u64, bytes: &mut Vec<u8>) -> Result<(), Broken> {
        let group = self.starts.partition_point(|start| *start <= row) - 1;
        let before = (row - self.starts[group]) as usize;
        let Column::Bytes(mut reader) = pages::column(file, &self.metadata, group, self.content)? else {
            return Err(Broken("its column does not hold bytes".into()));
        };
        if reader.skip_records(before)? != before {
            return Err(Broken("the row is not there".into()));
        }
        let value =
            pages::read(&mut reader, self.depth, 1)?.pop().ok_or_else(|| Broken("the row is not there".into()))?;
        bytes.extend_from_slice(value.ok_or_else(|| Broken("it is not stored with the row".into()))?.data());
        Ok(())
    }
}

/// Number of a column in the file, and its levels of what can be absent.
fn leaf(metadata: &ParquetMetaData, names: &[String]) -> Result<(usize, i16), Broken> {
    let leaves = metadata.file_metadata().schema_descr().columns();
    let found = leaves.iter().enumerate().find(|(_, leaf)| leaf.path().parts() == names);
    let (number, leaf) = found.ok_or_else(|| Broken(format!("it has no column `{}`", names.join("."))))?;
    Ok((number, leaf.max_def_level()))
}

impl Rows {
    /// What a row is called in messages: its file and its number, from 1.
    pub fn name(&self, sample: usize) -> String {
        let (file, row) = self.places[sample];
        let path = self.files.path(file);
        format!("{}, row {}", path.file_name().unwrap_or_default().to_string_lossy(), row + 1)
    }

    /// The Parquet files.
    pub fn files(&self) -> &Handles {
        &self.files
    }

    /// Reads the bytes of an image or text into `bytes`.
    pub fn read(&self, sample: usize, bytes: &mut Vec<u8>) -> Result<(), Error> {
        bytes.clear();
        let (number, row) = self.places[sample];
        let opened = self.files.file(number).and_then(Positioned::new);
        let file = opened.map_err(|source| Error::Read { name: self.name(sample), source })?;
        let read = guarded(|| self.tables[number as usize].read(file, row, bytes));
        read.map_err(|why| Error::Image { name: self.name(sample), why })
    }
}

fn classes(
    file: &Positioned,
    metadata: &ParquetMetaData,
    label: &str,
    kind: &DataType,
    named: &mut Vec<Option<Named>>,
) -> Result<(), Broken> {
    let (leaf, depth) = leaf(metadata, &[label.to_owned()])?;
    let wide = matches!(kind, DataType::UInt32);
    let number = |number: i64| Some(Named::Number(number));
    for group in 0..metadata.num_row_groups() {
        // What numbers without a sign are in Parquet: those with one, of the same bits.
        match pages::column(file.clone(), metadata, group, leaf)? {
            Column::Short(mut reader) => batches(&mut reader, depth, named, |value: i32| {
                number(if wide { i64::from(value.cast_unsigned()) } else { value.into() })
            }),
            Column::Long(mut reader) => batches(&mut reader, depth, named, |value| match kind {
                DataType::UInt64 if value < 0 => None,
                _ => number(value),
            }),
            Column::Bytes(mut reader) => batches(&mut reader, depth, named, |value: ByteArray| {
                Named::parse(std::str::from_utf8(value.data()).ok()?)
            }),
        }?;
    }
    Ok(())
}

/// Reads a column to its end, some values at a time.
fn batches<T: Physical>(
    reader: &mut ColumnReaderImpl<T>,
    depth: i16,
    named: &mut Vec<Option<Named>>,
    of: impl Fn(T::T) -> Option<Named>,
) -> Result<(), Broken> {
    loop {
        let batch = pages::read(reader, depth, LABELS)?;
        if batch.is_empty() {
            return Ok(());
        }
        named.extend(batch.into_iter().map(|value| value.and_then(&of)));
    }
}

/// What is wrong, in words.
struct Broken(String);

impl From<ParquetError> for Broken {
    fn from(error: ParquetError) -> Broken {
        Broken(error.to_string())
    }
}

impl From<ArrowError> for Broken {
    fn from(error: ArrowError) -> Broken {
        Broken(error.to_string())
    }
}

/// Runs the Parquet reader, which panics over some damaged files.
fn guarded<T>(work: impl FnOnce() -> Result<T, Broken>) -> Result<T, String> {
    match caught(work) {
        Some(result) => result.map_err(|Broken(why)| why),
        None => Err("the reader gave up on it".into()),
    }
}

fn damaged(path: &Path, why: &str) -> Error {
    layout(
        path,
        format!("the Parquet file cannot be used: {why}"),
        "get the file again, or name its columns as they are usually named: `image`, `text`, `label`",
    )
}

/// A file that is read at given offsets: the cursor of a standard file is shared by all threads.
#[derive(Debug, Clone)]
struct Positioned {
    file: Arc<Opened>,
    bytes: u64,
}

struct At {
    file: Arc<Opened>,
    offset: u64,
}

impl Positioned {
    fn new(file: Arc<Opened>) -> io::Result<Positioned> {
        let bytes = file.length()?;
        Ok(Positioned { file, bytes })
    }
}

impl Length for Positioned {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for Positioned {
    type T = BufReader<At>;

    fn get_read(&self, start: u64) -> Result<BufReader<At>, ParquetError> {
        Ok(BufReader::new(At { file: Arc::clone(&self.file), offset: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let end = start.checked_add(length as u64);
        if end.is_none_or(|end| end > self.bytes) || length as u64 > LARGEST_FILE {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} of {}", self.bytes)));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}

impl Read for At {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}
