//! The same images in every form that is read, written here as the programs of others write them.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_ipc::CompressionType;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};

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
    /// The default compression of `pyarrow.feather.write_feather`.
    FeatherLz4,
    FeatherZstd,
    /// WebDataset tars, compressed.
    TarGz,
    TarZst,
    Zip,
}

pub(super) const ALL: [Written; 11] = [
    Written::Tar,
    Written::WebDataset,
    Written::TfRecord,
    Written::Parquet,
    Written::ArrowStream,
    Written::ArrowFile,
    Written::FeatherLz4,
    Written::FeatherZstd,
    Written::TarGz,
    Written::TarZst,
    Written::Zip,
];

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
                Written::FeatherLz4 => feather(&path("feather"), rows, CompressionType::LZ4_FRAME),
                Written::FeatherZstd => feather(&path("feather"), rows, CompressionType::ZSTD),
                Written::TarGz => {
                    webdataset(&path("tar"), rows, number * each);
                    let mut gz = GzEncoder::new(File::create(path("tar.gz")).unwrap(), Compression::fast());
                    gz.write_all(&fs::read(path("tar")).unwrap()).unwrap();
                    gz.finish().unwrap();
                    fs::remove_file(path("tar")).unwrap();
                }
                Written::TarZst => {
                    webdataset(&path("tar"), rows, number * each);
                    let packed = zstd::encode_all(&fs::read(path("tar")).unwrap()[..], 1).unwrap();
                    fs::write(path("tar.zst"), packed).unwrap();
                    fs::remove_file(path("tar")).unwrap();
                }
                Written::Zip => fs::write(path("zip"), zip(&members(rows, number * each))).unwrap(),
            }
        }
        folder
    }
}

pub(super) fn webdataset(path: &Path, rows: &[Row], first: usize) {
    let mut tar = tar::Builder::new(File::create(path).unwrap());
    for (name, bytes) in members(rows, first) {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, name, &bytes[..]).unwrap();
    }
    tar.finish().unwrap();
}

/// The members of a WebDataset shard.
pub(super) fn members(rows: &[Row], first: usize) -> Vec<(String, Vec<u8>)> {
    let mut members = Vec::new();
    let mut add = |name: String, bytes: &[u8]| members.push((name, bytes.to_vec()));
    for ((name, label, bytes), number) in rows.iter().zip(first..) {
        let ending = name.rsplit('.').next().unwrap();
        // Half of the classes come from a JSON.
        if number % 2 == 0 {
            add(format!("s{number:05}.cls"), format!("{label}\n").as_bytes());
        } else {
            add(format!("s{number:05}.json"), format!("{{\"label\": {label}, \"caption\": \"x\"}}").as_bytes());
        }
        add(format!("s{number:05}.{ending}"), bytes);
        add(format!("s{number:05}.txt"), b"a caption");
    }
    members
}

/// A zip of some members, of which every second one is deflated, as `zip` does depending on how well they compress.
pub(super) fn zip(members: &[(String, Vec<u8>)]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for ((name, bytes), number) in members.iter().zip(0..) {
        let (method, stored) = match number % 2 {
            0 => (0_u16, bytes.clone()),
            _ => {
                let mut deflated = DeflateEncoder::new(Vec::new(), Compression::best());
                deflated.write_all(bytes).unwrap();
                (8, deflated.finish().unwrap())
            }
        };
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        let sizes = [crc.sum(), stored.len() as u32, bytes.len() as u32];
        // Version, flags, method, time and date, checksum and sizes, lengths of the name and the extra field.
        let mut common = [&20_u16.to_le_bytes()[..], &[0, 0], &method.to_le_bytes(), &[0; 4]].concat();
        sizes.iter().for_each(|number| common.extend(number.to_le_bytes()));
        common.extend([(name.len() as u16).to_le_bytes(), [0, 0]].concat());
        let offset = (file.len() as u32).to_le_bytes();
        file.extend([b"PK\x03\x04", &common[..], name.as_bytes(), &stored].concat());
        directory.extend([b"PK\x01\x02", &[20, 3][..], &common, &[0; 10], &offset, name.as_bytes()].concat());
    }
    let count = (members.len() as u16).to_le_bytes();
    let (length, offset) = ((directory.len() as u32).to_le_bytes(), (file.len() as u32).to_le_bytes());
    let end = [b"PK\x05\x06", &[0; 4][..], &count, &count, &length, &offset, &[0, 0]].concat();
    [file, directory, end].concat()
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

pub(super) fn feather(path: &Path, rows: &[Row], compression: CompressionType) {
    use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
    let options = IpcWriteOptions::default().try_with_compression(Some(compression)).unwrap();
    let whole = batch(rows);
    let mut writer = FileWriter::try_new_with_options(File::create(path).unwrap(), &whole.schema(), options).unwrap();
    for at in (0..rows.len()).step_by(5) {
        writer.write(&whole.slice(at, 5.min(rows.len() - at))).unwrap();
    }
    writer.finish().unwrap();
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
