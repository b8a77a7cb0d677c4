//! Validates the pages of one column of a Parquet file before they are decoded.
//!
//! The library allocates memory for the declared size of a page, and a declared size of billions aborts the process
//! (parquet 60.1). So every page is validated first: no page has more values than its row group has rows. Read on in
//! `parquet`, which reads rows through this.

use std::sync::Arc;

use parquet::basic::{Encoding, Type};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::{ColumnReaderImpl, get_column_reader, get_typed_column_reader};
use parquet::data_type::{ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::ChunkReader;
use parquet::file::serialized_reader::SerializedPageReader;

/// A reader of one flat column of one row group.
pub(crate) enum Column {
    Short(ColumnReaderImpl<Int32Type>),
    Long(ColumnReaderImpl<Int64Type>),
    Bytes(ColumnReaderImpl<ByteArrayType>),
}

/// Values of a column; `None` where a row has none.
pub(crate) fn read<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    depth: i16,
    rows: usize,
) -> Result<Vec<Option<T::T>>, ParquetError> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    reader.read_records(rows, Some(&mut levels), None, &mut values)?;
    if depth == 0 {
        return Ok(values.into_iter().map(Some).collect());
    }
    let mut values = values.into_iter();
    Ok(levels.into_iter().map(|level| if level == depth { values.next() } else { None }).collect())
}

/// Opens a column of a row group.
pub(crate) fn column<R: ChunkReader + 'static>(
    file: R,
    metadata: &ParquetMetaData,
    group: usize,
    leaf: usize,
) -> Result<Column, ParquetError> {
    let group = metadata.row_group(group);
    let (chunk, kind) = match group.columns().get(leaf) {
        Some(chunk) => (chunk, chunk.column_descr_ptr()),
        None => return Err(ParquetError::General("a row group lacks a column".into())),
    };
    if kind.max_rep_level() > 0 {
        return Err(ParquetError::General(format!("`{}` holds lists", kind.path())));
    }
    let rows = usize::try_from(group.num_rows()).unwrap_or(0);
    let pages = SerializedPageReader::new(Arc::new(file), chunk, rows, None)?;
    let levelled = kind.max_def_level() > 0;
    let reader = |pages| get_column_reader(Arc::clone(&kind), Box::new(Checked { pages, rows, levelled }));
    Ok(match kind.physical_type() {
        Type::INT32 => Column::Short(get_typed_column_reader(reader(pages))),
        Type::INT64 => Column::Long(get_typed_column_reader(reader(pages))),
        Type::BYTE_ARRAY => Column::Bytes(get_typed_column_reader(reader(pages))),
        other @ (Type::BOOLEAN | Type::INT96 | Type::FLOAT | Type::DOUBLE | Type::FIXED_LEN_BYTE_ARRAY) => {
            return Err(ParquetError::General(format!("`{}` is of type {other}", kind.path())));
        }
    })
}

struct Checked<R: ChunkReader> {
    pages: SerializedPageReader<R>,
    /// Rows of the row group.
    rows: usize,
    /// Whether values have levels in front of them, as they can be absent.
    levelled: bool,
}

impl<R: ChunkReader> Iterator for Checked<R> {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Result<Page, ParquetError>> {
        self.get_next_page().transpose()
    }
}

impl<R: ChunkReader> PageReader for Checked<R> {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        let page = self.pages.get_next_page()?;
        if let Some(page) = &page {
            check(page, self.rows, self.levelled).map_err(|why| ParquetError::General(why.into()))?;
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.pages.skip_next_page()
    }
}

const TOO_MANY: &str = "a page claims more values than there are";
const CUT: &str = "a page is cut";

fn check(page: &Page, rows: usize, levelled: bool) -> Result<(), &'static str> {
    let (bytes, levels) = match page {
        Page::DictionaryPage { buf, num_values, .. } => {
            // A value takes at least the four bytes of a small number, or of a length.
            return if *num_values as usize > buf.len() / 4 { Err(TOO_MANY) } else { Ok(()) };
        }
        Page::DataPage { buf, .. } => match levelled {
            true => (buf, buf.first_chunk().map(|length| u64::from(u32::from_le_bytes(*length)) + 4)),
            false => (buf, Some(0)),
        },
        Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
            (buf, Some(u64::from(*def_levels_byte_len) + u64::from(*rep_levels_byte_len)))
        }
    };
    if page.num_values() as usize > rows {
        return Err(TOO_MANY);
    }
    let values = || levels.and_then(|levels| bytes.get(usize::try_from(levels).ok()?..)).ok_or(CUT);
    match page.encoding() {
        Encoding::DELTA_BINARY_PACKED | Encoding::DELTA_LENGTH_BYTE_ARRAY => numbers(values()?, rows).map(|_| ()),
        // Lengths of the common prefixes with the previous value, then those of the suffixes.
        Encoding::DELTA_BYTE_ARRAY => numbers(numbers(values()?, rows)?, rows).map(|_| ()),
        _ => Ok(()),
    }
}

/// Skips delta-encoded integers, at most `most`; returns the bytes after them.
fn numbers(mut bytes: &[u8], most: usize) -> Result<&[u8], &'static str> {
    let block = varint(&mut bytes)?;
    let parts = varint(&mut bytes)?;
    let count = varint(&mut bytes)?;
    varint(&mut bytes)?;
    if count > most as u64 {
        return Err(TOO_MANY);
    }
    if parts == 0 || parts > 1 << 16 || block == 0 || block > 1 << 24 || block % (parts * 8) != 0 {
        return Err("a page is damaged");
    }
    let mut left = count.saturating_sub(1);
    while left > 0 {
        varint(&mut bytes)?;
        let (widths, rest) = bytes.split_at_checked(parts as usize).ok_or(CUT)?;
        bytes = rest;
        for width in widths {
            // Miniblocks after the last number may be omitted.
            if left == 0 {
                break;
            }
            let length = usize::from(*width) * (block / parts / 8) as usize;
            bytes = bytes.get(length..).ok_or(CUT)?;
            left = left.saturating_sub(block / parts);
        }
    }
    Ok(bytes)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, &'static str> {
    let mut number = 0;
    for place in 0..10 {
        let (byte, rest) = bytes.split_first().ok_or(CUT)?;
        *bytes = rest;
        number |= u64::from(byte & 0x7F) << (7 * place).min(63);
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err("a page is damaged")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn page(encoding: Encoding, num_values: u32, buf: &[u8]) -> Page {
        let (def_level_encoding, rep_level_encoding) = (Encoding::RLE, Encoding::RLE);
        let buf = Bytes::copy_from_slice(buf);
        Page::DataPage { buf, num_values, encoding, def_level_encoding, rep_level_encoding, statistics: None }
    }

    #[test]
    fn claims_are_checked_before_memory_is_taken() {
        // Blocks of 128 in 4 parts, so many numbers, the first of them 0.
        let numbers = |count: &[u8], rest: &[u8]| [&[0x80, 1, 4][..], count, &[0], rest].concat();
        let one = numbers(&[1], &[]);
        let three = numbers(&[3], &[0, 8, 0, 0, 0]);
        let check = |encoding, rows: u32, bytes: &[u8], wanted: Result<(), &'static str>| {
            assert_eq!(check(&page(encoding, rows.min(10), bytes), 10, false), wanted, "{encoding} {bytes:?}");
        };
        let deltas = [Encoding::DELTA_LENGTH_BYTE_ARRAY, Encoding::DELTA_BINARY_PACKED, Encoding::DELTA_BYTE_ARRAY];
        for encoding in deltas {
            check(encoding, 3, &[&three[..], &[0; 32], &three, &[0; 32]].concat(), Ok(()));
            check(encoding, 1, &[&one[..], &one].concat(), Ok(()));
            check(encoding, 3, &numbers(&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x3F], &[]), Err(TOO_MANY));
            check(encoding, 3, &numbers(&[11], &[]), Err(TOO_MANY));
            check(encoding, 3, &three, Err(CUT));
            check(encoding, 3, &[0x80, 1, 0, 3, 0], Err("a page is damaged"));
            check(encoding, 3, &[0xFF; 30], Err("a page is damaged"));
            check(encoding, 3, &[], Err(CUT));
        }
        let more = [&three[..], &[0; 32], &[0xFF; 12]].concat();
        check(Encoding::DELTA_BYTE_ARRAY, 3, &more, Err("a page is damaged"));
        let dictionary = |num_values, bytes: &[u8]| {
            let (encoding, buf) = (Encoding::PLAIN, Bytes::copy_from_slice(bytes));
            super::check(&Page::DictionaryPage { buf, num_values, encoding, is_sorted: false }, 10, true)
        };
        assert_eq!(dictionary(2, &[0; 8]), Ok(()));
        assert_eq!(dictionary(u32::MAX, &[0; 8]), Err(TOO_MANY));
        assert_eq!(super::check(&page(Encoding::PLAIN, u32::MAX, &[]), 10, true), Err(TOO_MANY));
    }
}
