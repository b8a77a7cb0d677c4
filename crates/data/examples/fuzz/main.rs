//! Damages files of one form for some seconds, and opens them: `cargo run --release -p gradus-data --example fuzz -- tar 120`.
//!
//! Damage is drawn from a seed (the third argument), so a failure is repeated by its number. Checksums that would hide a
//! parser are made again after the damage. It tells how many files were opened or refused, and the slowest of them; a
//! panic ends it with the file kept.

#[path = "../src/tests/mutate.rs"]
mod mutate;
#[allow(dead_code)]
#[path = "../src/tests/written.rs"]
mod written;

use std::error::Error;
use std::fs;
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use data::jpeg::{Decoder, Picture, encode_strips};
use data::{Goal, InspectOptions, PackOptions, TextOptions, Texts, Vocabulary, inspect, pack};
use domain::random::Draws;
use image::{ImageFormat, RgbImage};
use mutate::mutate;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{WriterProperties, WriterVersion};
use written::Written;

/// Samples by path, as the writers want them.
struct Files(Vec<(String, Vec<u8>)>);

impl Files {
    fn tar(&self, root: &Path) -> PathBuf {
        let path = root.join("pictures.tar");
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

fn pictures(format: ImageFormat, ending: &str) -> Result<Files, Box<dyn Error>> {
    let mut files = Vec::new();
    for number in 0..8_u32 {
        let picture = RgbImage::from_fn(17, 13, |x, y| [number as u8, (x * 15) as u8, (y * number * 3) as u8].into());
        let mut bytes = Cursor::new(Vec::new());
        picture.write_to(&mut bytes, format)?;
        files.push((format!("{}/{number}.{ending}", if number % 2 == 0 { "a" } else { "b" }), bytes.into_inner()));
    }
    Ok(Files(files))
}

/// What is opened, what is damaged, and how its checksums are made again.
type Target = (PathBuf, PathBuf, fn(&mut [u8]));

fn target(form: &str, root: &Path) -> Result<Target, Box<dyn Error>> {
    let files = pictures(ImageFormat::Png, "png")?;
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
        "parquet-delta" => {
            let file = root.join("pictures.parquet");
            delta(&file, &files)?;
            Some((file.clone(), file, (|_| {}) as fn(&mut [u8])))
        }
        "coco" | "metadata" => lists(form, &files, root)?,
        "tokens" => {
            let text: String = (0..200).map(|line| format!("{{\"text\": \"some words of line {line}\"}}\n")).collect();
            let (source, out) = (root.join("text.jsonl"), root.join("out"));
            fs::write(&source, text)?;
            let text = TextOptions { vocabulary: Vocabulary::Bpe(300), columns: vec!["text".into()], label: None };
            pack(&source, &out, &PackOptions { text: Some(text), ..PackOptions::default() }, &mut |_| {})?;
            let file = out.join("data-000000.shard");
            Some((out, file, seal_shard as fn(&mut [u8])))
        }
        "coefficients" => {
            let folder = pictures(ImageFormat::Jpeg, "jpg")?.folder(root)?;
            let file = folder.join("a/0.jpg");
            let coefficients = Picture::open(&fs::read(&file)?)?.coefficients(&mut Decoder::default())?;
            fs::write(&file, encode_strips(&coefficients, 1)?)?;
            Some((folder, file, (|_| {}) as fn(&mut [u8])))
        }
        "jpeg" | "png" => {
            let (format, ending) = if form == "png" { (ImageFormat::Png, "png") } else { (ImageFormat::Jpeg, "jpg") };
            let folder = pictures(format, ending)?.folder(root)?;
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
    let forms = "tar, webdataset, tfrecord, parquet, parquet-delta, arrow, coco, metadata, tokens, coefficients, jpeg, png, \
                 shard or manifest";
    let (opened, damaged, seal) = found.ok_or_else(|| format!("give {forms}"))?;
    Ok((opened, damaged, if form == "tfrecord" { seal_records } else { seal }))
}

/// A Parquet file whose pictures are written as differences.
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

/// Pictures with a list of them.
fn lists(form: &str, files: &Files, root: &Path) -> Result<Option<Target>, Box<dyn Error>> {
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
    let arguments: Vec<String> = std::env::args().collect();
    let form = arguments.get(1).map_or("", String::as_str);
    let seconds: f64 = arguments.get(2).map_or(Ok(10.0), |text| text.parse())?;
    let mut next: u64 = arguments.get(3).map_or(Ok(1), |text| text.parse())?;
    let root = tempfile::tempdir()?;
    let (opened, damaged, seal) = target(form, root.path())?;
    let sound = fs::read(&damaged)?;
    std::panic::set_hook(Box::new(|_| {})); // Panics of other libraries are caught and told as errors.
    let (began, mut slowest) = (Instant::now(), (Duration::ZERO, 0));
    let (mut whole, mut partly, mut refused) = (0_u64, 0_u64, 0_u64);
    while began.elapsed().as_secs_f64() < seconds {
        let seed = next;
        let mut draws = Draws::new(seed);
        let mut bytes = sound.clone();
        mutate(&mut bytes, &mut draws);
        next = draws.bits();
        if !seed.is_multiple_of(4) {
            seal(&mut bytes);
        }
        // A shard is compared with the length in its manifest first; this one's is kept, to come further.
        if matches!(form, "shard" | "tokens") {
            bytes.resize(sound.len(), 0);
        }
        fs::write(&damaged, &bytes)?;
        let one = Instant::now();
        let options = InspectOptions { verify: true, sheet: None, threads: 1 };
        let look = || {
            if form == "tokens" {
                let data = serde_json::from_str(r#"{"path": "", "split": [0.6, 0.2, 0.2]}"#).expect("the keys of data");
                let text = serde_json::from_str("{}").expect("the keys of text");
                Texts::open(&data, &text, Goal::Next, &opened, 1)?;
            }
            inspect(&opened, &options)
        };
        match catch_unwind(AssertUnwindSafe(look)) {
            Ok(Ok(found)) if found.damaged.is_empty() => whole += 1,
            Ok(Ok(_)) => partly += 1,
            Ok(Err(_)) => refused += 1,
            Err(_) => {
                let kept = std::env::temp_dir().join(format!("{form}-{seed}"));
                fs::write(&kept, bytes)?;
                return Err(format!("a panic, seed {seed}; the file is {}", kept.display()).into());
            }
        }
        slowest = slowest.max((one.elapsed(), seed));
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("unknown").trim();
    println!(
        "{form}: {} files, {whole} whole, {partly} with damage told, {refused} refused; slowest {:.0} ms (seed {}); peak memory {peak}",
        whole + partly + refused,
        slowest.0.as_secs_f64() * 1e3,
        slowest.1,
    );
    Ok(())
}
