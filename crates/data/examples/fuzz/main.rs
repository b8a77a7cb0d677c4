//! Damages files of one format for some seconds, and opens them: `cargo run --release -p gradus-data --example fuzz --
//! tar 120`. `all` runs the formats one after another.
//!
//! Damage is drawn from a seed (the third argument), so a failure can be reproduced by its number. Checksums that would
//! hide a parser are recomputed after the damage. It prints how many files were opened or refused, and the slowest of
//! them; a panic stops it and saves the file.

#[path = "../../src/tests/mutate.rs"]
mod mutate;
mod round;
mod texts;
#[allow(dead_code)]
#[path = "../../src/tests/written.rs"]
mod written;

use std::error::Error;
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use data::jpeg::{Decoder, JpegFile, encode_strips};
use data::{InspectOptions, PackOptions, TextDataset, TextObjective, TextOptions, TokenizerSource, inspect, pack};
use image::{ImageFormat, RgbImage};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{WriterProperties, WriterVersion};
use round::{Verdict, round};
use written::Written;

/// Samples by path, as the writers want them.
struct Files(Vec<(String, Vec<u8>)>);

impl Files {
    fn tar(&self, root: &Path) -> PathBuf {
        let path = root.join("images.tar");
        let mut tar = tar::Builder::new(fs::File::create(&path).expect("a tar"));
        for (name, bytes) in &self.0 {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, name, &bytes[..]).expect("a member");
        }
        tar.finish().expect("a tar");
        path
    }

    fn folder(&self, root: &Path) -> std::io::Result<PathBuf> {
        let root = root.join("folder");
        for (name, bytes) in &self.0 {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap_or(&root))?;
            fs::write(path, bytes)?;
        }
        Ok(root)
    }
}

fn images(format: ImageFormat, ending: &str) -> Result<Files, Box<dyn Error>> {
    let mut files = Vec::new();
    for number in 0..8_u32 {
        let image = RgbImage::from_fn(17, 13, |x, y| [number as u8, (x * 15) as u8, (y * number * 3) as u8].into());
        let mut bytes = Cursor::new(Vec::new());
        image.write_to(&mut bytes, format)?;
        files.push((format!("{}/{number}.{ending}", if number % 2 == 0 { "a" } else { "b" }), bytes.into_inner()));
    }
    Ok(Files(files))
}

/// Reads a damaged file.
type Look = Box<dyn Fn(&Path) -> Verdict>;

/// Makes the checksums of a damaged file again.
type Seal = Box<dyn Fn(&mut Vec<u8>)>;

/// The path to open, the file to damage, how to recompute its checksums, and the reader.
struct Target {
    opened: PathBuf,
    damaged: PathBuf,
    seal: Seal,
    look: Look,
}

impl Target {
    fn of(opened: PathBuf, damaged: PathBuf, look: impl Fn(&Path) -> Verdict + 'static) -> Target {
        Target { opened, damaged, seal: Box::new(|_| {}), look: Box::new(look) }
    }
}

/// Images, tables and shards, with every hash.
fn inspected(opened: &Path) -> Verdict {
    match inspect(opened, &InspectOptions { verify: true, sheet: None, threads: 1 }) {
        Ok(found) if found.damaged.is_empty() => Verdict::Whole,
        Ok(_) => Verdict::Partly,
        Err(_) => Verdict::Refused,
    }
}

/// Packed text, also as it is trained on.
fn tokens(opened: &Path) -> Verdict {
    let data = serde_json::from_str(r#"{"path": "", "split": [0.6, 0.2, 0.2]}"#).expect("the keys of data");
    let text = serde_json::from_str("{}").expect("the keys of text");
    match TextDataset::open(&data, &text, TextObjective::Next, opened, 1) {
        Ok(_) => inspected(opened),
        Err(_) => Verdict::Refused,
    }
}

const FORMS: [&str; 18] = [
    "tar",
    "tar.gz",
    "zip",
    "feather",
    "webdataset",
    "tfrecord",
    "parquet",
    "parquet-delta",
    "arrow",
    "coco",
    "metadata",
    "tokens",
    "coefficients",
    "coefficients-gjc1",
    "jpeg",
    "png",
    "shard",
    "manifest",
];

/// The path to open, the file to damage, and how to recompute its checksums.
type Parts = (PathBuf, PathBuf, fn(&mut [u8]));

fn target(form: &str, root: &Path) -> Result<Target, Box<dyn Error>> {
    let files = images(ImageFormat::Png, "png")?;
    if let Some(target) = texts::target(form, &files, root)? {
        return Ok(target);
    }
    let table = |form| {
        let folder = files.written(form, root, 1);
        let file = if folder.is_file() {
            Some(folder.clone())
        } else {
            fs::read_dir(&folder).ok()?.next()?.ok().map(|entry| entry.path())
        };
        file.map(|file| (folder, file, (|_| {}) as fn(&mut [u8])))
    };
    let found = match form {
        "tar" => table(Written::Tar),
        "webdataset" => table(Written::WebDataset),
        "tfrecord" => table(Written::TfRecord),
        "parquet" => table(Written::Parquet),
        "arrow" => table(Written::ArrowStream),
        "feather" => table(Written::FeatherLz4),
        "tar.gz" => table(Written::TarGz),
        "zip" => table(Written::Zip),
        "parquet-delta" => {
            let file = root.join("images.parquet");
            delta(&file, &files)?;
            Some((file.clone(), file, (|_| {}) as fn(&mut [u8])))
        }
        "coco" | "metadata" => lists(form, &files, root)?,
        "tokens" => {
            let text: String = (0..200).map(|line| format!("{{\"text\": \"some words of line {line}\"}}\n")).collect();
            let (source, out) = (root.join("text.jsonl"), root.join("out"));
            fs::write(&source, text)?;
            let text = TextOptions { vocabulary: TokenizerSource::Bpe(300), columns: vec!["text".into()], label: None };
            pack(&source, &out, &PackOptions { text: Some(text), ..PackOptions::default() }, &mut |_| {})?;
            let file = out.join("data-000000.shard");
            Some((out, file, seal_shard as fn(&mut [u8])))
        }
        "coefficients" => {
            let folder = images(ImageFormat::Jpeg, "jpg")?.folder(root)?;
            let file = folder.join("a/0.jpg");
            let coefficients = JpegFile::open(&fs::read(&file)?)?.coefficients(&mut Decoder::default())?;
            fs::write(&file, encode_strips(&coefficients))?;
            Some((folder, file, (|_| {}) as fn(&mut [u8])))
        }
        "coefficients-gjc1" => {
            let folder = images(ImageFormat::Jpeg, "jpg")?.folder(root)?;
            let file = folder.join("a/0.jpg");
            fs::write(&file, include_bytes!("../../src/tests/images/gjc1/420-40x25.gjc1"))?;
            Some((folder, file, (|_| {}) as fn(&mut [u8])))
        }
        "jpeg" | "png" => {
            let (format, ending) = if form == "png" { (ImageFormat::Png, "png") } else { (ImageFormat::Jpeg, "jpg") };
            let folder = images(format, ending)?.folder(root)?;
            let file = folder.join(format!("a/0.{ending}"));
            Some((folder, file, (|_| {}) as fn(&mut [u8])))
        }
        "shard" | "manifest" => {
            let out = root.join("out");
            pack(&files.folder(root)?, &out, &PackOptions::default(), &mut |_| {})?;
            let name = if form == "shard" { "data-000000.shard" } else { "manifest.json" };
            let file = out.join(name);
            let seal: fn(&mut [u8]) = if form == "shard" { seal_shard } else { |_| {} };
            Some((out, file, seal))
        }
        _ => None,
    };
    let unknown = || format!("give `all` or one of {}, {}", FORMS.join(", "), texts::FORMS.join(", "));
    let (opened, damaged, seal) = found.ok_or_else(unknown)?;
    let seal = if form == "tfrecord" { seal_records } else { seal };
    // A shard is compared with the length in its manifest first; its length is preserved, to reach later checks.
    let length = matches!(form, "shard" | "tokens").then(|| fs::read(&damaged).map(|bytes| bytes.len())).transpose()?;
    let seal = move |bytes: &mut Vec<u8>| {
        if let Some(length) = length {
            bytes.resize(length, 0);
        }
        seal(bytes);
    };
    let look = if form == "tokens" { tokens } else { inspected };
    Ok(Target { seal: Box::new(seal), ..Target::of(opened, damaged, look) })
}

/// A Parquet file whose images are delta-encoded.
fn delta(path: &Path, files: &Files) -> Result<(), Box<dyn Error>> {
    let properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_compression(Compression::UNCOMPRESSED)
        .set_dictionary_enabled(false)
        .set_column_encoding("image.bytes".into(), Encoding::DELTA_BYTE_ARRAY)
        .build();
    let batch = written::batch(&files.rows());
    let mut writer = ArrowWriter::try_new(fs::File::create(path)?, batch.schema(), Some(properties))?;
    writer.write(&batch)?;
    writer.close()?;
    Ok(())
}

/// Images with a list of them.
fn lists(form: &str, files: &Files, root: &Path) -> Result<Option<Parts>, Box<dyn Error>> {
    let folder = root.join("images");
    fs::create_dir(&folder)?;
    let (mut images, mut marks, mut lines) = (Vec::new(), Vec::new(), String::new());
    for (id, (_, label, bytes)) in files.rows().iter().enumerate() {
        let name = format!("{id}.png");
        fs::write(folder.join(&name), bytes)?;
        lines += &format!(
            "{{\"file_name\": \"{name}\", \"objects\": {{\"bbox\": [[0, 0, 2, 2]], \"categories\": [{label}]}}}}\n"
        );
        images.push(format!("{{\"id\": {id}, \"file_name\": \"{name}\"}}"));
        marks.push(format!("{{\"image_id\": {id}, \"category_id\": {label}, \"bbox\": [0, 1.5, 2, 3], \"area\": 6}}"));
    }
    let categories = "[{\"id\": 0, \"name\": \"a\"}, {\"id\": 1, \"name\": \"b\"}]";
    let (opened, file, text) = match form {
        "coco" => {
            let (images, marks) = (images.join(", "), marks.join(", "));
            let file = root.join("coco.json");
            let text = format!("{{\"images\": [{images}], \"annotations\": [{marks}], \"categories\": {categories}}}");
            (file.clone(), file, text)
        }
        _ => (folder.clone(), folder.join("metadata.jsonl"), lines),
    };
    fs::write(&file, text)?;
    Ok(Some((opened, file, |_| {})))
}

fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8).to_le_bytes()
}

/// Makes the checksums of TFRecords fit, as far as the lengths lead.
fn seal_records(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(head) = bytes.get(at..at + 8) {
        let length = u64::from_le_bytes(head.try_into().unwrap_or_default());
        let sum = masked(head);
        let Some(place) = bytes.get_mut(at + 8..at + 12) else { return };
        place.copy_from_slice(&sum);
        let Some(end) = usize::try_from(length).ok().and_then(|length| (at + 12).checked_add(length)) else { return };
        let Some(sum) = bytes.get(at + 12..end).map(masked) else { return };
        let Some(place) = bytes.get_mut(end..end.saturating_add(4)) else { return };
        place.copy_from_slice(&sum);
        at = end + 4;
    }
}

/// Makes the checksum of a shard's index fit.
fn seal_shard(bytes: &mut [u8]) {
    let Some(foot) = bytes.len().checked_sub(48) else { return };
    let index = u64::from_le_bytes(bytes[foot..foot + 8].try_into().unwrap_or_default());
    let Some(table) = usize::try_from(index).ok().and_then(|index| bytes.get(index..foot)) else { return };
    let sum = blake3::hash(table);
    bytes[foot + 24..foot + 40].copy_from_slice(&sum.as_bytes()[..16]);
}

fn main() -> Result<(), Box<dyn Error>> {
    formats::install();
    let (form, seconds, seed) = round::asked()?;
    let forms = match form.as_str() {
        "all" => FORMS.into_iter().chain(texts::FORMS).collect(),
        one => vec![one],
    };
    for form in forms {
        let root = tempfile::tempdir()?;
        let Target { opened, damaged, seal, look } = target(form, root.path())?;
        let sound = fs::read(&damaged)?;
        round((form, seconds, seed), &sound, seal, |bytes| {
            fs::write(&damaged, bytes).expect("a file can be written");
            look(&opened)
        })?;
    }
    Ok(())
}
