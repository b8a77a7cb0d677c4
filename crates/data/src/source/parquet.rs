//! Pictures and texts in the rows of Parquet files, as HuggingFace publishes them.
//!
//! Only the column of classes is read when the data is opened. A row is read by position: the pages before its own in
//! the row group are passed over by their headers, and its own is unpacked, so memory stays at one page a thread. That
//! costs a few milliseconds a row where pages are large; `gradus data pack` pays it once.

use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, types};
use arrow_schema::{ArrowError, DataType};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::PageIndexPolicy;
use parquet::file::reader::{ChunkReader, Length};

use super::columns::{Columns, Want};
use super::handles::Handles;
use super::labels::Named;
use super::{LARGEST_FILE, layout};
use crate::Error;
use crate::caught::caught;

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
    metadata: ArrowReaderMetadata,
    content: Vec<String>,
    mask: ProjectionMask,
    /// The first row of each row group, and the number of all.
    starts: Vec<u64>,
}

/// What the rows of one file are called.
pub(super) struct Listing {
    pub rows: Rows,
    /// The class of each row; `None` where the row has none.
    pub named: Vec<Option<Named>>,
    pub names: Option<Vec<String>>,
}

/// Rows whose classes are read at a time.
const LABELS: usize = 8192;

/// Lists all rows of some files; without a column of classes, every class is `None`.
pub(super) fn list(files: Vec<PathBuf>, want: Want) -> Result<Listing, Error> {
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
        let before = named.len();
        match &columns.label {
            Some(label) => guarded(|| classes(&file, &table.metadata, label, &mut named)),
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

impl Table {
    fn open(file: &Positioned, want: Want) -> Result<(Table, Columns), Broken> {
        // The page index says where pages begin, so that those before a row need not be looked at.
        let options = ArrowReaderOptions::new().with_offset_index_policy(PageIndexPolicy::Optional);
        let metadata = ArrowReaderMetadata::load(file, options)?;
        let columns = Columns::find(metadata.schema(), want).map_err(Broken)?;
        let mask = ProjectionMask::columns(metadata.parquet_schema(), [columns.content.join(".").as_str()]);
        let mut starts = vec![0_u64];
        for group in metadata.metadata().row_groups() {
            let rows =
                u64::try_from(group.num_rows()).map_err(|_| Broken("a row group has fewer than no rows".into()))?;
            let next = starts.last().and_then(|last| last.checked_add(rows));
            starts.push(next.ok_or_else(|| Broken("it claims too many rows".into()))?);
        }
        Ok((Table { metadata, content: columns.content.clone(), mask, starts }, columns))
    }

    fn read(&self, file: Positioned, row: u64, bytes: &mut Vec<u8>) -> Result<(), Broken> {
        let group = self.starts.partition_point(|start| *start <= row) - 1;
        let before = (row - self.starts[group]) as usize;
        let selection = RowSelection::from(vec![RowSelector::skip(before), RowSelector::select(1)]);
        let mut reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
            .with_projection(self.mask.clone())
            .with_row_groups(vec![group])
            .with_row_selection(selection)
            .with_batch_size(1)
            .build()?;
        let batch = reader.next().ok_or_else(|| Broken("the row is not there".into()))??;
        let mut column: ArrayRef = column(&batch, &self.content[0])?;
        for name in &self.content[1..] {
            let inner = column.as_struct_opt().and_then(|column| column.column_by_name(name)).cloned();
            column = inner.ok_or_else(|| Broken(format!("it has no column `{name}`")))?;
        }
        if column.len() != 1 || column.is_null(0) {
            return Err(Broken("it is not stored with the row".into()));
        }
        let value: &[u8] = match column.data_type() {
            DataType::Binary => column.as_binary::<i32>().value(0),
            DataType::LargeBinary => column.as_binary::<i64>().value(0),
            DataType::Utf8 => column.as_string::<i32>().value(0).as_bytes(),
            DataType::LargeUtf8 => column.as_string::<i64>().value(0).as_bytes(),
            other => return Err(Broken(format!("its column is of type {other}"))),
        };
        bytes.extend_from_slice(value);
        Ok(())
    }
}

impl Rows {
    pub fn name(&self, sample: usize) -> String {
        let (file, row) = self.places[sample];
        let path = self.files.path(file);
        format!("{}, row {}", path.file_name().unwrap_or_default().to_string_lossy(), row + 1)
    }

    pub fn files(&self) -> &Handles {
        &self.files
    }

    pub fn read(&self, sample: usize, bytes: &mut Vec<u8>) -> Result<(), Error> {
        bytes.clear();
        let (number, row) = self.places[sample];
        let opened = self.files.file(number).and_then(Positioned::new);
        let file = opened.map_err(|source| Error::Read { name: self.name(sample), source })?;
        let read = guarded(|| self.tables[number as usize].read(file, row, bytes));
        read.map_err(|why| Error::Picture { name: self.name(sample), why })
    }
}

fn classes(
    file: &Positioned,
    metadata: &ArrowReaderMetadata,
    label: &str,
    named: &mut Vec<Option<Named>>,
) -> Result<(), Broken> {
    let mask = ProjectionMask::columns(metadata.parquet_schema(), [label]);
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file.clone(), metadata.clone());
    for batch in builder.with_projection(mask).with_batch_size(LABELS).build()? {
        let column = column(&batch?, label)?;
        named.extend(words(&column).ok_or_else(|| Broken(format!("`{label}` is of type {}", column.data_type())))?);
    }
    Ok(())
}

/// The classes in a column of integers or words.
fn words(column: &ArrayRef) -> Option<Vec<Option<Named>>> {
    macro_rules! numbers {
        ($kind:ty) => {
            column
                .as_primitive::<$kind>()
                .iter()
                .map(|n| n.and_then(|n| i64::try_from(n).ok()).map(Named::Number))
                .collect()
        };
    }
    Some(match column.data_type() {
        DataType::Int8 => numbers!(types::Int8Type),
        DataType::Int16 => numbers!(types::Int16Type),
        DataType::Int32 => numbers!(types::Int32Type),
        DataType::Int64 => numbers!(types::Int64Type),
        DataType::UInt8 => numbers!(types::UInt8Type),
        DataType::UInt16 => numbers!(types::UInt16Type),
        DataType::UInt32 => numbers!(types::UInt32Type),
        DataType::UInt64 => numbers!(types::UInt64Type),
        DataType::Utf8 => column.as_string::<i32>().iter().map(|text| text.and_then(Named::parse)).collect(),
        DataType::LargeUtf8 => column.as_string::<i64>().iter().map(|text| text.and_then(Named::parse)).collect(),
        _ => return None,
    })
}

fn column(batch: &RecordBatch, name: &str) -> Result<ArrayRef, Broken> {
    batch.column_by_name(name).cloned().ok_or_else(|| Broken(format!("it has no column `{name}`")))
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
        "get the file again, or name its columns `image` and `label`",
    )
}

/// A file that is read by position: the standard one has a single place that all threads would move.
#[derive(Debug, Clone)]
struct Positioned {
    file: Arc<std::fs::File>,
    bytes: u64,
}

struct At {
    file: Arc<std::fs::File>,
    offset: u64,
}

impl Positioned {
    fn new(file: Arc<std::fs::File>) -> io::Result<Positioned> {
        let bytes = file.metadata()?.len();
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
