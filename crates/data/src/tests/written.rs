//! The same images in every form that is read, written here as the programs of others write them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray, StructArray};
use arrow_schema::{DataType, Field, Schema};

use super::Files;

/// A form of data on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    Tar,
    WebDataset,
    TfRecord,
    Parquet,
    ArrowStream,
    ArrowFile,
}

pub(super) const ALL: [Written; 6] =
    [Written::Tar, Written::WebDataset, Written::TfRecord, Written::Parquet, Written::ArrowStream, Written::ArrowFile];

/// One sample: path, label and bytes.
pub(super) type Row = (String, i64, Vec<u8>);

impl Files {
    /// The samples as a folder gives them: sorted, with the labels of their folders.
    pub(super) fn rows(&self) -> Vec<Row> {
        let class = |path: &str| path.rsplit('/').nth(1).unwrap().to_owned();
        let mut classes: Vec<String> = self.0.iter().map(|(path, _)| class(path)).collect();
        classes.sort();
        classes.dedup();
        let label = |path: &str| classes.iter().position(|name| *name == class(path)).unwrap() as i64;
        let mut rows: Vec<Row> =
            self.0.iter().map(|(path, bytes)| (path.clone(), label(path), bytes.clone())).collect();
        rows.sort();
        rows
    }

    /// Writes the samples into some files below `root`, and returns what to open.
    pub(super) fn written(&self, form: Written, root: &Path, files: usize) -> PathBuf {
        if form == Written::Tar {
            return self.tar(root);
        }
        let rows = self.rows();
        let folder = root.join(format!("{form:?}"));
        fs::create_dir_all(&folder).unwrap();
        let each = rows.len().div_ceil(files);
        for (number, rows) in rows.chunks(each).enumerate() {
            let path = |ending: &str| folder.join(format!("train-{number:05}.{ending}"));
            match form {
                Written::Tar | Written::WebDataset => webdataset(&path("tar"), rows, number * each),
                Written::TfRecord => fs::write(path("tfrecord"), tfrecord(rows)).unwrap(),
                Written::Parquet => parquet(&path("parquet"), rows, 7),
                Written::ArrowStream => arrow(&path("arrow"), rows, true),
                Written::ArrowFile => arrow(&path("arrow"), rows, false),
            }
        }
        folder
    }
}

pub(super) fn webdataset(path: &Path, rows: &[Row], first: usize) {
    let mut tar = tar::Builder::new(File::create(path).unwrap());
    let mut add = |name: String, bytes: &[u8]| {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, name, bytes).unwrap();
    };
    for ((name, label, bytes), number) in rows.iter().zip(first..) {
        let ending = name.rsplit('.').next().unwrap();
        // Half of the classes are reported by a JSON.
        if number % 2 == 0 {
            add(format!("s{number:05}.cls"), format!("{label}\n").as_bytes());
        } else {
            add(format!("s{number:05}.json"), format!("{{\"label\": {label}, \"caption\": \"x\"}}").as_bytes());
        }
        add(format!("s{number:05}.{ending}"), bytes);
        add(format!("s{number:05}.txt"), b"a caption");
    }
    tar.finish().unwrap();
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A field of bytes of a protocol buffer.
pub(super) fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

/// A `tf.train.Example` of an image, as TensorFlow's scripts for ImageNet write it.
pub(super) fn example(bytes: &[u8], label: i64) -> Vec<u8> {
    let feature = |name: &str, value: Vec<u8>| field(1, &[field(1, name.as_bytes()), field(2, &value)].concat());
    let features = [
        feature("image/class/label", field(3, &field(1, &varint(label.cast_unsigned())))),
        feature("image/height", field(3, &[varint(1 << 3), varint(6)].concat())),
        feature("image/encoded", field(1, &field(1, bytes))),
        feature("image/format", field(1, &field(1, b"JPEG"))),
        feature("image/object/area", field(2, &field(1, &1.5_f32.to_le_bytes()))),
    ];
    field(1, &features.concat())
}

pub(super) fn record(bytes: &[u8]) -> Vec<u8> {
    let masked = |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8).to_le_bytes();
    let length = (bytes.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), bytes, &masked(bytes)].concat()
}

pub(super) fn tfrecord(rows: &[Row]) -> Vec<u8> {
    // ImageNet counts its classes from 1.
    rows.iter().flat_map(|(_, label, bytes)| record(&example(bytes, label + 1))).collect()
}

/// A table as HuggingFace's `datasets` writes it.
pub(super) fn batch(rows: &[Row]) -> RecordBatch {
    let bytes: ArrayRef = Arc::new(BinaryArray::from_iter_values(rows.iter().map(|(_, _, bytes)| bytes)));
    let path: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|(path, _, _)| path)));
    let field = |name: &str, kind: DataType| Arc::new(Field::new(name, kind, true));
    let image: ArrayRef = Arc::new(StructArray::from(vec![
        (field("bytes", DataType::Binary), bytes),
        (field("path", DataType::Utf8), Arc::clone(&path)),
    ]));
    let label: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|(_, label, _)| *label)));
    let features = r#"{"info": {"features": {"image": {"_type": "Image"}, "label": {"names": ["zero", "one", "two"], "_type": "ClassLabel"}}}}"#;
    let schema = Schema::new(vec![
        Field::new("file_name", DataType::Utf8, true),
        Field::new("image", image.data_type().clone(), true),
        Field::new("label", DataType::Int64, true),
    ]);
    let schema =
        schema.with_metadata(std::collections::HashMap::from([("huggingface".to_owned(), features.to_owned())]));
    RecordBatch::try_new(Arc::new(schema), vec![path, image, label]).unwrap()
}

pub(super) fn parquet(path: &Path, rows: &[Row], group: usize) {
    use ::parquet::arrow::ArrowWriter;
    use ::parquet::basic::Compression;
    use ::parquet::file::properties::WriterProperties;
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(group))
        .set_data_page_row_count_limit(3)
        .set_write_batch_size(1)
        .build();
    let batch = batch(rows);
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

pub(super) fn arrow(path: &Path, rows: &[Row], stream: bool) {
    use arrow_ipc::writer::{FileWriter, StreamWriter};
    let file = File::create(path).unwrap();
    let whole = batch(rows);
    let batches = (0..rows.len()).step_by(5).map(|at| whole.slice(at, 5.min(rows.len() - at)));
    if stream {
        let mut writer = StreamWriter::try_new(file, &whole.schema()).unwrap();
        batches.for_each(|batch| writer.write(&batch).unwrap());
        writer.finish().unwrap();
    } else {
        let mut writer = FileWriter::try_new(file, &whole.schema()).unwrap();
        batches.for_each(|batch| writer.write(&batch).unwrap());
        writer.finish().unwrap();
    }
}
