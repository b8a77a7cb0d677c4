//! Targets for text, labels and messages between processes: the file to open, the file to damage, and the reader.

use std::error::Error;
use std::fs;
use std::io::Cursor;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use data::chunk::{self, Bundle, ChunkManifest, ChunkRef, ChunkedFile, CompressedFrame, ContentHash};
use data::remote::{self, AccessTime, ByteRange, RangeRequest, RemoteFile, RemoteListing};
use data::{Dataset, DetectionDataset, Loader, LoaderOptions, TextDataset, TextObjective};
use domain::Job;
use domain::train::{Data, Text};

use super::round::Verdict;
use super::{Files, Target};

fn data(keys: &str) -> Data {
    serde_json::from_str(&format!("{{\"path\": \"\", \"split\": [0.6, 0.2, 0.2]{keys}}}")).expect("the keys of data")
}

fn text(keys: &str) -> Text {
    serde_json::from_str(keys).expect("the keys of text")
}

/// The target of a format in this file; `None` for other formats.
pub fn target(form: &str, files: &Files, root: &Path) -> Result<Option<Target>, Box<dyn Error>> {
    let words = |number: usize| format!("some words, \"{number}\" of a line");
    let rows = |row: &dyn Fn(usize) -> String| (0..60).map(row).collect::<String>();
    let found = match form {
        "csv" => {
            let body = rows(&|number| format!("\"{}\",{}\r\n", words(number).replace('"', "\"\""), number % 3));
            let keys = r#"{"label": "label", "vocabulary": 300}"#;
            texts("texts.csv", format!("text,label\r\n{body}").into_bytes(), root, keys, TextObjective::Class)
        }
        "jsonl" => {
            let body = rows(&|number| format!("{{\"text\": {:?}, \"label\": {}}}\n", words(number), number % 3));
            texts(
                "texts.jsonl",
                body.into_bytes(),
                root,
                r#"{"label": "label", "vocabulary": 300}"#,
                TextObjective::Class,
            )
        }
        "text" => {
            let body = rows(&|number| words(number) + "\n").into_bytes();
            texts("text.txt", body, root, r#"{"vocabulary": 300}"#, TextObjective::Next)
        }
        "gzip" => {
            let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            std::io::Write::write_all(&mut packed, rows(&|number| words(number) + "\n").as_bytes())?;
            texts("text.txt.gz", packed.finish()?, root, r#"{"vocabulary": 300}"#, TextObjective::Next)
        }
        "raw-tokens" => {
            let numbers = (0..4000_u16).flat_map(|number| (number % 500).to_le_bytes()).collect();
            texts("tokens.u16", numbers, root, r#"{"vocabulary": 500}"#, TextObjective::Next)
        }
        "digits" => {
            let row = |number: usize| format!("{}{}\n", "3,".repeat(64), number % 10);
            let file = root.join("digits.csv");
            fs::write(&file, rows(&row))?;
            Ok(Target::of(file.clone(), file, super::inspected))
        }
        "tokenizer" => tokenizer(root),
        "cifar" => {
            let folder = root.join("cifar");
            fs::create_dir(&folder)?;
            let file = folder.join("data_batch_1.bin");
            fs::write(&file, (0..3 * 3073_u32).map(|at| (at % 3073 % 10) as u8).collect::<Vec<u8>>())?;
            Ok(Target::of(folder, file, super::inspected))
        }
        "yolo" | "yolo-names" => yolo(form, files, root),
        "boxes" => {
            let (_, file, _) = super::lists("coco", files, root)?.ok_or("a list")?;
            Ok(Target::of(file.clone(), file, scenes))
        }
        "chunks" => chunks(root),
        "wire" => wire(root),
        "remote" => served(files, root),
        "job" => {
            let file = root.join("job.yaml");
            fs::write(&file, include_str!("../../../../examples/cifar10.yaml"))?;
            let look = |opened: &Path| {
                let text = String::from_utf8_lossy(&fs::read(opened).unwrap_or_default()).into_owned();
                Verdict::of(Job::parse(&text, "job.yaml"))
            };
            Ok(Target::of(file.clone(), file, look))
        }
        "preload" => {
            let folder = files.folder(root)?;
            let look = |opened: &Path| Verdict::of(batches(opened, r#", "preload": "1 MiB", "size": 8"#));
            Ok(Target::of(folder.clone(), folder.join("a/0.png"), look))
        }
        _ => return Ok(None),
    };
    found.map(Some)
}

fn texts(name: &str, sound: Vec<u8>, root: &Path, keys: &str, goal: TextObjective) -> Result<Target, Box<dyn Error>> {
    let (file, keys) = (root.join(name), text(keys));
    fs::write(&file, sound)?;
    let look = move |opened: &Path| Verdict::of(TextDataset::open(&data(""), &keys, goal, opened, 1));
    Ok(Target::of(file.clone(), file, look))
}

/// A small tokeniser that was trained, and texts that it divides.
fn tokenizer(root: &Path) -> Result<Target, Box<dyn Error>> {
    let (file, place) = (root.join("text.txt"), root.join("tokenizer.json"));
    fs::write(&file, "some words of a line\n".repeat(40))?;
    let trained = TextDataset::open(&data(""), &text(r#"{"vocabulary": 280}"#), TextObjective::Next, &file, 1)?;
    fs::write(&place, trained.tokenizer())?;
    let keys = text(&serde_json::json!({ "tokenizer": place }).to_string());
    let look = move |opened: &Path| Verdict::of(TextDataset::open(&data(""), &keys, TextObjective::Next, opened, 1));
    Ok(Target::of(file, place, look))
}

fn scenes(opened: &Path) -> Verdict {
    Verdict::of(DetectionDataset::open(&data(r#", "size": 32"#), opened, 1))
}

fn yolo(form: &str, files: &Files, root: &Path) -> Result<Target, Box<dyn Error>> {
    let folder = root.join("yolo");
    for part in ["images", "labels"] {
        fs::create_dir_all(folder.join(part))?;
    }
    for (number, (_, _, bytes)) in files.rows().iter().enumerate() {
        fs::write(folder.join(format!("images/{number}.png")), bytes)?;
        fs::write(folder.join(format!("labels/{number}.txt")), "0 0.5 0.5 0.25 0.25\n1 .3 .3 .1 .2\n".repeat(4))?;
    }
    fs::write(folder.join("data.yaml"), "path: .\nnames:\n  0: a bar\n  1: 'a disc' # round\n  2: other\n")?;
    let damaged = folder.join(if form == "yolo" { "labels/0.txt" } else { "data.yaml" });
    Ok(Target::of(folder, damaged, scenes))
}

/// A chunk manifest, which comes from remote storage.
fn chunks(root: &Path) -> Result<Target, Box<dyn Error>> {
    let piece = |number: u64| ChunkRef {
        id: ContentHash::of(&number.to_le_bytes()),
        bytes: 100,
        frame: 0,
        at: number as u32 * 100,
    };
    let manifest = ChunkManifest {
        bundles: vec![Bundle { id: ContentHash::of(b"bundle"), bytes: 4000 }],
        frames: vec![CompressedFrame { bundle: 0, offset: 0, stored: 4000, raw: 4000 }],
        files: (0..40)
            .map(|number| ChunkedFile { name: format!("a/{number:05}.png"), bytes: 100, pieces: vec![piece(number)] })
            .collect(),
    };
    let file = root.join("manifest");
    fs::write(&file, chunk::encode(&manifest))?;
    let look = |opened: &Path| {
        let bytes = fs::read(opened).unwrap_or_default();
        // The same bytes as a compressed frame, and as a manifest patch.
        let _ = (chunk::frame::decompress(&bytes, 4000), chunk::unpatch(b"before", &bytes, 4000));
        Verdict::of(chunk::decode(&bytes))
    };
    let seal = |bytes: &mut Vec<u8>| {
        if let Some(end) = bytes.len().checked_sub(32) {
            let sum = ContentHash::of(&bytes[..end]);
            bytes[end..].copy_from_slice(&sum.0);
        }
    };
    Ok(Target { seal: Box::new(seal), ..Target::of(file.clone(), file, look) })
}

/// Requests and answers between a rank and its server.
fn wire(root: &Path) -> Result<Target, Box<dyn Error>> {
    let (file, mut sound) = (root.join("wire"), Vec::new());
    let span = ByteRange { file: 3, offset: 1 << 20, bytes: 64 };
    for _ in 0..3 {
        remote::write_answer(&mut sound, Ok((true, &[7; 64])))?;
        remote::write_request(&mut sound, &RangeRequest::Read(span, AccessTime::SOME_TIME))?;
        remote::write_answer(&mut sound, Err("it is not there"))?;
        remote::write_request(&mut sound, &RangeRequest::Expect(span, AccessTime::ONCE))?;
    }
    fs::write(&file, sound)?;
    let look = |opened: &Path| {
        let bytes = fs::read(opened).unwrap_or_default();
        let mut from = Cursor::new(&bytes);
        let mut into = [0; 64];
        let mut all = || -> std::io::Result<()> {
            for _ in 0..3 {
                let _ = remote::read_answer(&mut from, &mut into)?;
                remote::read_request(&mut from)?;
                let _ = remote::read_answer(&mut from, &mut into)?;
                remote::read_request(&mut from)?;
            }
            Ok(())
        };
        Verdict::of(all())
    };
    Ok(Target::of(file.clone(), file, look))
}

/// A remote tar served at a socket, with a damaged listing.
fn served(files: &Files, root: &Path) -> Result<Target, Box<dyn Error>> {
    let bytes = fs::read(files.tar(root))?;
    let (folder, socket) = (root.join("served"), root.join("socket"));
    fs::create_dir(&folder)?;
    let holes = vec![RemoteFile { name: "images.tar".into(), bytes: bytes.len() as u64 }];
    remote::lay_out(&folder, &RemoteListing { schema: remote::SCHEMA, socket: socket.clone(), files: holes })?;
    let (listener, bytes) = (UnixListener::bind(&socket)?, Arc::new(bytes));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let bytes = Arc::clone(&bytes);
            std::thread::spawn(move || -> std::io::Result<()> {
                while let Some(request) = remote::read_request(&mut stream)? {
                    let RangeRequest::Read(span, _) = request else { continue };
                    let end = span.offset.saturating_add(u64::from(span.bytes));
                    let part = bytes.get(span.offset as usize..end as usize);
                    remote::write_answer(&mut stream, part.map(|part| (true, part)).ok_or("out of it"))?;
                }
                Ok(())
            });
        }
    });
    let listing = folder.join(".gradus/remote.json");
    Ok(Target::of(folder, listing, |opened: &Path| Verdict::of(batches(opened, r#", "size": 8"#))))
}

/// Every batch of an epoch.
fn batches(opened: &Path, keys: &str) -> Result<(), data::Error> {
    let spec = data(&format!(r#", "normalize": {{"mean": [0.5, 0.5, 0.5], "std": [1, 1, 1]}}{keys}"#));
    let dataset = Arc::new(Dataset::open(&spec, opened, 1)?);
    let mut loader = Loader::train(dataset, LoaderOptions { batch: 3, ..Default::default() }, data::Cursor::START, 1);
    while let Some(batch) = loader.next() {
        batch?;
    }
    Ok(())
}

/// Every form of this file.
pub const FORMS: [&str; 16] = [
    "csv",
    "jsonl",
    "text",
    "gzip",
    "raw-tokens",
    "digits",
    "tokenizer",
    "cifar",
    "yolo",
    "yolo-names",
    "boxes",
    "chunks",
    "wire",
    "remote",
    "preload",
    "job",
];
