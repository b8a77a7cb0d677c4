//! Images and texts in Arrow files and streams, as written by HuggingFace's `save_to_disk` and cache.
//!
//! Uncompressed columns are read in place, so a sample is a span of the file: only the schema, the positions of the
//! columns and the offsets inside them are read when the data is opened. Compressed columns are unpacked completely
//! (`compressed`), and a sample is a span of the result. The layout is that of "Serialization and Interprocess
//! Communication" in the Arrow columnar format; every position is checked against the enclosing body.

use std::ops::Range;

use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::{MessageHeader, RecordBatch, root_as_message};
use arrow_schema::{DataType, Fields, Schema};
use plugin::caught::caught;
use plugin::{ArrowRow, ArrowTable, NamedClass, ReadAt, TableClasses, TableError, Want, Window};

use crate::columns::Columns;
use crate::compressed::{Memory, Unpacking};

/// No schema or list of columns is larger.
const LARGEST_MESSAGE: u64 = 64 << 20;
/// The first message of a file begins by here.
const FURTHEST_START: u64 = 256;
/// Offsets and classes are read in batches of this many rows.
const PIECE: u64 = 4096;
const LONGEST_CLASS: u64 = 4096;

/// Lists all rows of a file, whose compressed columns may unpack to `room` bytes.
pub(crate) fn list(file: &dyn ReadAt, want: Want<'_>, room: u64) -> Result<ArrowTable, TableError> {
    let classes = TableClasses { named: Vec::new(), names: None };
    let mut reader = Reader { want, room, rows: Vec::new(), classes, unpacked: None };
    reader.read(file)?;
    let Reader { rows, classes, unpacked, .. } = reader;
    Ok(ArrowTable { rows, classes, unpacked })
}

fn broken(why: impl Into<String>) -> TableError {
    TableError::Broken(why.into())
}

struct Reader<'a> {
    want: Want<'a>,
    room: u64,
    rows: Vec<ArrowRow>,
    classes: TableClasses,
    /// The unpacked columns of all batches, if they are compressed.
    unpacked: Option<Vec<u8>>,
}

/// The relevant columns, by their numbers in a batch.
struct Known {
    content: Leaf,
    label: Option<Leaf>,
}

struct Leaf {
    kind: DataType,
    /// Its own node, and the nodes and validity buffers of its parents.
    above: Vec<(usize, usize)>,
    /// Number of its first buffer.
    buffer: usize,
}

impl Reader<'_> {
    fn read(&mut self, file: &dyn ReadAt) -> Result<(), TableError> {
        let mut window = Window::new(file)?;
        // A file is a stream between two marks, of which the first is filled up to a round number of bytes.
        let mut at = if window.up_to(0, 6)? == b"ARROW1" { 8 } else { 0 };
        while (1..FURTHEST_START).contains(&at) && window.up_to(at, 4)? == [0; 4] {
            at += 8;
        }
        let (mut known, mut row) = (None, 0);
        while let Some(head) = window.array::<8>(at)? {
            let [mark, length] = [&head[..4], &head[4..]];
            if mark != [0xFF; 4] {
                return Err(broken(format!("there is no message at byte {at}")));
            }
            let length = length.try_into().map(u32::from_le_bytes).map_or(0, u64::from);
            if length == 0 {
                break; // The end of the stream.
            }
            if length > LARGEST_MESSAGE {
                return Err(broken(format!("a message claims to be {length} bytes")));
            }
            let bytes = window.up_to(at + 8, length)?;
            if (bytes.len() as u64) < length {
                return Err(broken("it ends inside a message"));
            }
            // The reader of flat buffers wants them aligned.
            let bytes = bytes.to_vec();
            let message = root_as_message(&bytes).map_err(|error| broken(error.to_string()))?;
            let body = at + 8 + length;
            let end = u64::try_from(message.bodyLength()).ok().and_then(|bytes| body.checked_add(bytes));
            let end = end.filter(|end| *end <= window.length()).ok_or_else(|| broken("it ends inside a batch"))?;
            match message.header_type() {
                MessageHeader::Schema => {
                    let schema = message.header_as_schema().ok_or_else(|| broken("its schema is missing"))?;
                    known = Some(self.note(&schema_of(schema)?)?);
                }
                MessageHeader::RecordBatch => {
                    let known = known.as_ref().ok_or_else(|| broken("a batch comes before the schema"))?;
                    let batch = message.header_as_record_batch().ok_or_else(|| broken("a batch is empty"))?;
                    self.batch(&mut window, known, batch, body..end, &mut row)?;
                }
                _ => {} // Dictionaries, of columns that are not read.
            }
            at = end.div_ceil(8) * 8;
        }
        match known {
            Some(_) => Ok(()),
            None => Err(broken("it has no schema")),
        }
    }

    fn note(&mut self, schema: &Schema) -> Result<Known, TableError> {
        let columns = Columns::find(schema, self.want).map_err(broken)?;
        if let Some(why) = columns.unfit {
            return Err(TableError::NoClasses(why));
        }
        self.classes.names = self.classes.names.take().or(columns.names);
        let content = leaf(schema.fields(), &columns.content)?;
        let label = columns.label.map(|(label, _)| leaf(schema.fields(), &[label])).transpose()?;
        for (leaf, what) in [(Some(&content), "samples"), (label.as_ref(), "classes")] {
            if leaf.is_some_and(|leaf| matches!(leaf.kind, DataType::Dictionary(_, _))) {
                return Err(broken(format!(
                    "its column of {what} is encoded as a dictionary, which is read from Parquet"
                )));
            }
        }
        Ok(Known { content, label })
    }

    fn batch(
        &mut self,
        window: &mut Window,
        known: &Known,
        batch: RecordBatch,
        body: Range<u64>,
        row: &mut u64,
    ) -> Result<(), TableError> {
        let rows = u64::try_from(batch.length()).map_err(|_| broken("a batch has fewer than no rows"))?;
        let before = self.unpacked.as_ref().map_or(0, |bytes| bytes.len() as u64);
        let unpacking = Unpacking::of(&batch, self.room.saturating_sub(before))?;
        if unpacking.is_some() != self.unpacked.is_some() && !self.rows.is_empty() {
            return Err(broken("some of its batches are compressed, and some are not"));
        }
        // Each row takes four bytes of offsets at least.
        if unpacking.is_none() && rows > (body.end - body.start) / 4 {
            return Err(broken(format!("a batch claims {rows} rows in {} bytes", body.end - body.start)));
        }
        let mut buffers = Buffers { batch: &batch, body: &body, unpacking };
        let content = Column::of(&known.content, &mut buffers, window, rows)?;
        let label = known.label.as_ref().map(|leaf| Column::of(leaf, &mut buffers, window, rows)).transpose()?;
        let Some(unpacking) = buffers.unpacking else {
            return self.add_rows(window, &content, label.as_ref(), (rows, body.start, 0), row);
        };
        let memory = Memory(unpacking.bytes);
        self.add_rows(&mut Window::new(&memory)?, &content, label.as_ref(), (rows, 0, before), row)?;
        self.unpacked.get_or_insert_default().extend(memory.0);
        Ok(())
    }

    /// Notes the rows of a batch. An absent sample begins at `start`; all are moved by `shift`.
    fn add_rows(
        &mut self,
        window: &mut Window,
        content: &Column,
        label: Option<&Column>,
        (rows, start, shift): (u64, u64, u64),
        row: &mut u64,
    ) -> Result<(), TableError> {
        for first in (0..rows).step_by(PIECE as usize) {
            let piece = first..rows.min(first + PIECE);
            let spans = content.spans(window, piece.clone())?;
            let classes = match label {
                Some(label) => label.classes(window, piece.clone())?,
                None => vec![None; spans.len()],
            };
            for (span, class) in spans.into_iter().zip(classes) {
                *row += 1;
                // A null sample is an empty one, refused by name when it is read.
                let span = span.unwrap_or(start..start);
                let bytes = u32::try_from(span.end - span.start).unwrap_or(u32::MAX);
                self.rows.push(ArrowRow { offset: shift + span.start, bytes, number: *row });
                self.classes.named.push(class);
            }
        }
        Ok(())
    }
}

/// The schema of a stream. A hostile one can have types that the library cannot express, over which it panics.
fn schema_of(schema: arrow_ipc::Schema) -> Result<Schema, TableError> {
    match caught(|| try_fb_to_schema(schema)) {
        Some(read) => read.map_err(|error| broken(error.to_string())),
        None => Err(broken("its schema is not one")),
    }
}

/// One column of one batch.
struct Column<'a> {
    kind: &'a DataType,
    /// Validity bits of the column and its parents; empty if all are valid.
    valid: Vec<Range<u64>>,
    buffers: [Range<u64>; 2],
}

/// The buffers of a batch: their positions in the file, or in the unpacked bytes.
struct Buffers<'a> {
    batch: &'a RecordBatch<'a>,
    body: &'a Range<u64>,
    unpacking: Option<Unpacking>,
}

impl Buffers<'_> {
    /// The position of a buffer, by its number.
    fn place(&mut self, number: usize, window: &mut Window) -> Result<Range<u64>, TableError> {
        let buffers = self.batch.buffers().ok_or_else(|| broken("a batch lists no columns"))?;
        if number >= buffers.len() {
            return Err(broken("a batch lists too few columns"));
        }
        let buffer = buffers.get(number);
        let start = u64::try_from(buffer.offset()).ok().and_then(|offset| self.body.start.checked_add(offset));
        let end = start.zip(u64::try_from(buffer.length()).ok()).and_then(|(start, bytes)| start.checked_add(bytes));
        let place = match start.zip(end) {
            Some((start, end)) if end <= self.body.end => start..end,
            _ => return Err(broken("a column lies outside its batch")),
        };
        match &mut self.unpacking {
            None => Ok(place),
            Some(unpacking) => unpacking.add(window.up_to(place.start, place.end - place.start)?),
        }
    }
}

impl<'a> Column<'a> {
    fn of(leaf: &'a Leaf, buffers: &mut Buffers<'_>, window: &mut Window, rows: u64) -> Result<Column<'a>, TableError> {
        let nodes = buffers.batch.nodes().ok_or_else(|| broken("a batch lists no columns"))?;
        let mut valid = Vec::new();
        for &(node, buffer) in &leaf.above {
            if node >= nodes.len() || nodes.get(node).length() != rows.cast_signed() {
                return Err(broken("a column has another number of rows than its batch"));
            }
            if nodes.get(node).null_count() != 0 {
                let bits = buffers.place(buffer, window)?;
                if bits.end - bits.start < rows.div_ceil(8) {
                    return Err(broken("a column says of too few rows whether they are there"));
                }
                valid.push(bits);
            }
        }
        let first = buffers.place(leaf.buffer + 1, window)?;
        let second = if leaf.kind.is_integer() { 0..0 } else { buffers.place(leaf.buffer + 2, window)? };
        Ok(Column { kind: &leaf.kind, valid, buffers: [first, second] })
    }

    /// Whether each row is there.
    fn valid(&self, window: &mut Window, rows: Range<u64>) -> Result<Vec<bool>, TableError> {
        let mut there = vec![true; (rows.end - rows.start) as usize];
        for bits in &self.valid {
            let first = rows.start / 8;
            let bytes = window.up_to(bits.start + first, rows.end.div_ceil(8) - first)?;
            for (row, there) in rows.clone().zip(&mut there) {
                let byte = bytes.get((row / 8 - first) as usize).copied().unwrap_or(0);
                *there &= byte >> (row % 8) & 1 == 1;
            }
        }
        Ok(there)
    }

    /// Where the bytes of each row lie; `None` for a row that is not there.
    fn spans(&self, window: &mut Window, rows: Range<u64>) -> Result<Vec<Option<Range<u64>>>, TableError> {
        let width = if matches!(self.kind, DataType::LargeBinary | DataType::LargeUtf8) { 8 } else { 4 };
        let there = self.valid(window, rows.clone())?;
        let [offsets, data] = &self.buffers;
        let bytes = (rows.end - rows.start + 1) * width;
        let at = offsets.start + rows.start * width;
        if at + bytes > offsets.end {
            return Err(broken("a column has too few offsets"));
        }
        let bytes = window.up_to(at, bytes)?;
        let ends: Vec<u64> = bytes
            .chunks_exact(width as usize)
            .map(|bytes| bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
            .collect();
        let mut spans = Vec::with_capacity(there.len());
        for (pair, there) in ends.windows(2).zip(there) {
            if pair[0] > pair[1] || pair[1] > data.end - data.start {
                return Err(broken("the offsets of a column are not in order"));
            }
            spans.push(there.then(|| data.start + pair[0]..data.start + pair[1]));
        }
        Ok(spans)
    }

    fn classes(&self, window: &mut Window, rows: Range<u64>) -> Result<Vec<Option<NamedClass>>, TableError> {
        if !self.kind.is_integer() {
            let mut classes = Vec::new();
            for span in self.spans(window, rows)? {
                let text = match span {
                    Some(span) if span.end - span.start <= LONGEST_CLASS => {
                        window.up_to(span.start, span.end - span.start)?
                    }
                    Some(_) | None => &[],
                };
                classes.push(std::str::from_utf8(text).ok().and_then(NamedClass::parse));
            }
            return Ok(classes);
        }
        let width = self.kind.primitive_width().unwrap_or(8) as u64;
        let there = self.valid(window, rows.clone())?;
        let values = &self.buffers[0];
        let at = values.start + rows.start * width;
        if values.start + rows.end * width > values.end {
            return Err(broken("the column of classes is too short"));
        }
        let bytes = window.up_to(at, (rows.end - rows.start) * width)?;
        let signed = matches!(self.kind, DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64);
        let number = |bytes: &[u8]| {
            let negative = signed && bytes.last().is_some_and(|last| last & 0x80 != 0);
            let start = if negative { -1_i64 } else { 0 };
            bytes.iter().rev().fold(start, |number, byte| number << 8 | i64::from(*byte))
        };
        let values = bytes.chunks_exact(width as usize).zip(there);
        Ok(values.map(|(bytes, there)| there.then(|| NamedClass::Number(number(bytes)))).collect())
    }
}

/// The numbers of a column's node and buffers. A batch lists those of all columns in depth-first order.
fn leaf(fields: &Fields, path: &[String]) -> Result<Leaf, TableError> {
    let (mut node, mut buffer, mut above) = (0, 0, Vec::new());
    let mut fields = fields;
    for (depth, name) in path.iter().enumerate() {
        let mut found = None;
        for field in fields {
            if field.name() == name {
                found = Some(field);
                break;
            }
            (node, buffer) = pass(field.data_type(), node, buffer, 0)?;
        }
        let field = found.ok_or_else(|| broken(format!("it has no column `{name}`")))?;
        above.push((node, buffer));
        match field.data_type() {
            DataType::Struct(children) if depth + 1 < path.len() => {
                (node, buffer) = (node + 1, buffer + 1);
                fields = children;
            }
            kind => return Ok(Leaf { kind: kind.clone(), above, buffer }),
        }
    }
    Err(broken("its columns hold no samples"))
}

/// The numbers behind a column of this type.
fn pass(kind: &DataType, node: usize, buffer: usize, depth: usize) -> Result<(usize, usize), TableError> {
    const DEEPEST: usize = 32;
    if depth > DEEPEST {
        return Err(broken("its columns lie too deep"));
    }
    let (own, children): (usize, Vec<&DataType>) = match kind {
        DataType::Null => (0, vec![]),
        DataType::Binary | DataType::LargeBinary | DataType::Utf8 | DataType::LargeUtf8 => (3, vec![]),
        DataType::List(child) | DataType::LargeList(child) | DataType::Map(child, _) => (2, vec![child.data_type()]),
        DataType::FixedSizeList(child, _) => (1, vec![child.data_type()]),
        DataType::Struct(fields) => (1, fields.iter().map(|field| field.data_type()).collect()),
        DataType::Boolean | DataType::FixedSizeBinary(_) | DataType::Dictionary(_, _) => (2, vec![]),
        primitive if primitive.is_primitive() => (2, vec![]),
        other => return Err(broken(format!("it has a column of type {other}, which is not read"))),
    };
    let mut at = (node + 1, buffer + own);
    for child in children {
        at = pass(child, at.0, at.1, depth + 1)?;
    }
    Ok(at)
}
