//! Images and texts in the rows of Parquet files, as HuggingFace publishes them.
//!
//! Only the column of classes is read when the data is opened. A row is read by position: earlier pages of its row
//! group are skipped by their headers, and its own is unpacked, so memory stays at one page per thread. That costs a
//! few milliseconds per row with large pages; `gradus data pack` pays it once. Read on in `pages`.

use std::io::{self, BufReader, Read};
use std::sync::Arc;

use arrow_schema::{ArrowError, DataType};
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArray, DataType as Physical};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{ChunkReader, Length};
use plugin::caught::caught;
use plugin::{LARGEST_FILE, NamedClass, ParquetTable, ReadAt, TableClasses, TableError, Want};

use crate::columns::Columns;
use crate::pages::{self, Column};

/// Everything needed to read a row of one file.
#[derive(Debug)]
struct Table {
    metadata: Arc<ParquetMetaData>,
    /// Index of the column with images or text, and its definition levels.
    content: usize,
    depth: i16,
    /// The first row of each row group, and the number of all.
    starts: Vec<u64>,
}

/// Rows whose classes are read at a time.
const LABELS: usize = 8192;

/// Opens a file, and reads the classes of all its rows; without a column of classes, every class is `None`.
pub(crate) fn open(
    file: &Arc<dyn ReadAt>,
    want: Want<'_>,
) -> Result<(Box<dyn ParquetTable>, TableClasses), TableError> {
    let file = Positioned::new(file)?;
    let (table, columns) = guarded(|| Table::open(&file, want)).map_err(TableError::Broken)?;
    let rows = table.rows();
    // Every sample takes a byte at least, so a file that claims more is a trap.
    if rows > file.bytes {
        return Err(TableError::Broken(format!("it claims {rows} rows in {} bytes", file.bytes)));
    }
    if let Some(why) = columns.unfit {
        return Err(TableError::NoClasses(why));
    }
    let mut named = Vec::new();
    match &columns.label {
        Some((label, kind)) => guarded(|| classes(&file, &table.metadata, label, kind, &mut named)),
        None => {
            named.resize(rows as usize, None);
            Ok(())
        }
    }
    .map_err(TableError::Broken)?;
    if named.len() as u64 != rows {
        return Err(TableError::Broken(format!("it has {} classes for {rows} rows", named.len())));
    }
    Ok((Box::new(table), TableClasses { named, names: columns.names }))
}

impl ParquetTable for Table {
    fn rows(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    fn read(&self, file: &Arc<dyn ReadAt>, row: u64, bytes: &mut Vec<u8>) -> Result<(), String> {
        guarded(|| self.row(Positioned::new(file)?, row, bytes))
    }

    fn texts(&self, file: &Arc<dyn ReadAt>) -> Result<Vec<String>, String> {
        guarded(|| self.all(&Positioned::new(file)?))
    }
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

    fn all(&self, file: &Positioned) -> Result<Vec<String>, Broken> {
        let mut texts = Vec::new();
        for group in 0..self.metadata.num_row_groups() {
            let Column::Bytes(mut reader) = pages::column(file.clone(), &self.metadata, group, self.content)? else {
                return Err(Broken("its column does not hold text".into()));
            };
            loop {
                let batch = pages::read(&mut reader, self.depth, LABELS)?;
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
    }

    fn row(&self, file: Positioned, row: u64, bytes: &mut Vec<u8>) -> Result<(), Broken> {
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

/// Index of a column in the file, and its definition levels.
fn leaf(metadata: &ParquetMetaData, names: &[String]) -> Result<(usize, i16), Broken> {
    let leaves = metadata.file_metadata().schema_descr().columns();
    let found = leaves.iter().enumerate().find(|(_, leaf)| leaf.path().parts() == names);
    let (number, leaf) = found.ok_or_else(|| Broken(format!("it has no column `{}`", names.join("."))))?;
    Ok((number, leaf.max_def_level()))
}

fn classes(
    file: &Positioned,
    metadata: &ParquetMetaData,
    label: &str,
    kind: &DataType,
    named: &mut Vec<Option<NamedClass>>,
) -> Result<(), Broken> {
    let (leaf, depth) = leaf(metadata, &[label.to_owned()])?;
    let wide = matches!(kind, DataType::UInt32);
    let number = |number: i64| Some(NamedClass::Number(number));
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
                NamedClass::parse(std::str::from_utf8(value.data()).ok()?)
            }),
        }?;
    }
    Ok(())
}

/// Reads a column to its end, some values at a time.
fn batches<T: Physical>(
    reader: &mut ColumnReaderImpl<T>,
    depth: i16,
    named: &mut Vec<Option<NamedClass>>,
    of: impl Fn(T::T) -> Option<NamedClass>,
) -> Result<(), Broken> {
    loop {
        let batch = pages::read(reader, depth, LABELS)?;
        if batch.is_empty() {
            return Ok(());
        }
        named.extend(batch.into_iter().map(|value| value.and_then(&of)));
    }
}

/// A message that describes the damage.
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

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
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

/// A file that is read at given offsets: the cursor of a standard file is shared by all threads.
#[derive(Debug, Clone)]
struct Positioned {
    file: Arc<dyn ReadAt>,
    bytes: u64,
}

struct At {
    file: Arc<dyn ReadAt>,
    offset: u64,
}

impl Positioned {
    fn new(file: &Arc<dyn ReadAt>) -> io::Result<Positioned> {
        Ok(Positioned { file: Arc::clone(file), bytes: file.length()? })
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
