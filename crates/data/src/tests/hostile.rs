//! A corpus of damaged and hostile files: each gives a clear error or is counted if requested, and nothing outside is
//! read or written. Those of our own shards are in `hostile_shards`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use domain::random::Draws;
use domain::train::{Corrupt, Data};
use image::ImageFormat;

use super::mutate::mutate;
use super::written::{ALL, Written, example, field, record, tfrecord, zip};
use super::{Files, encoded, image, scratch, spec};
use crate::{Dataset, InspectOptions, PackOptions, Renamed, inspect, pack};

/// Opens a data set with both settings of `corrupt`. It must be refused with a message that contains `message`; with
/// `skip`, `left` is the number of skipped samples, if opening succeeds.
#[track_caller]
pub(super) fn check(path: &Path, message: &str, left: Option<usize>) {
    let error = Dataset::open(&spec(), path, 0).expect_err("it opened").to_string();
    assert!(error.contains(message), "`{message}` is not in: {error}");
    let skip = Data { corrupt: Corrupt::Skip, ..spec() };
    let skipped = Dataset::open(&skip, path, 0).map(|dataset| dataset.skipped().len());
    match left {
        Some(left) => assert_eq!(skipped.unwrap_or_else(|error| panic!("{error}")), left, "{message}"),
        None => assert!(skipped.is_err(), "it opened without the damaged samples: {message}"),
    }
    let options = InspectOptions { verify: true, sheet: None, threads: 1 };
    if let Ok(found) = inspect(path, &options) {
        assert!(!found.damaged.is_empty(), "inspection found nothing: {message}");
    }
}

#[test]
fn images() {
    let jpeg = encoded(&image(3, 6), ImageFormat::Jpeg);
    let png = encoded(&image(3, 6), ImageFormat::Png);
    let at = |bytes: &[u8], offset: usize, value: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[offset..offset + value.len()].copy_from_slice(value);
        bytes
    };
    let frame = jpeg.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    let tables = jpeg.windows(2).position(|pair| pair == [0xFF, 0xC4]).unwrap();
    let plain = |height: u32, width: u32, bytes: usize| {
        [&b"gradusP1"[..], &height.to_le_bytes(), &width.to_le_bytes(), &vec![7; bytes]].concat()
    };
    let header = |width: u32, height: u32| {
        let mut bytes = at(&at(&png, 16, &width.to_be_bytes()), 20, &height.to_be_bytes());
        let mut sum = flate2::Crc::new();
        sum.update(&bytes[12..29]);
        bytes[29..33].copy_from_slice(&sum.sum().to_be_bytes());
        bytes
    };
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("empty.jpg", vec![]),
        ("text.jpg", b"hello".to_vec()),
        ("gif.png", b"GIF89a\x01\x00\x01\x00\x00\x00\x00;".to_vec()),
        ("bmp.png", b"BM\x3a\x00\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00".to_vec()),
        ("start.jpg", vec![0xFF, 0xD8]),
        ("nothing.jpg", vec![0xFF, 0xD8, 0xFF, 0xD9]),
        ("half.jpg", jpeg[..jpeg.len() / 2].to_vec()),
        ("no-end.jpg", jpeg[..jpeg.len() - 2].to_vec()),
        ("huge.jpg", at(&jpeg, frame + 5, &[0xFF, 0xF0, 0xFF, 0xF0])),
        ("no-width.jpg", at(&jpeg, frame + 7, &[0, 0])),
        ("no-components.jpg", at(&jpeg, frame + 9, &[0])),
        ("tables.jpg", at(&jpeg, tables + 5, &[0xFF; 16])),
        ("half.png", png[..png.len() / 2].to_vec()),
        ("sum.png", at(&png, 45, &[!png[45]])),
        ("bomb.png", header(50_000, 50_000)),
        ("flat.png", header(0, 5)),
        ("plain.png", plain(6, 6, 107)),
        ("plain-huge.png", plain(u32::MAX, u32::MAX, 12)),
        ("plain-flat.png", plain(0, 6, 0)),
    ];
    assert!(cases.len() >= 19);
    for (name, bytes) in cases {
        let root = scratch();
        let files = Files::of(&[""], &["a", "b"], 10).with(&format!("b/{name}"), bytes);
        check(&files.folder(root.path()), &format!("the image `b/{name}` cannot be read"), Some(1));
    }
}

/// A tar header with these fields.
fn header(name: &str, size: &[u8; 12], kind: u8, link: &str) -> [u8; 512] {
    let mut header = [0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..107].copy_from_slice(b"0000644");
    header[124..136].copy_from_slice(size);
    header[156] = kind;
    header[157..157 + link.len()].copy_from_slice(link.as_bytes());
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

fn octal(size: usize) -> [u8; 12] {
    format!("{size:011o}\0").as_bytes().try_into().unwrap()
}

fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().div_ceil(512) * 512, 0);
    bytes
}

#[test]
fn tars() {
    let root = scratch();
    let sound = fs::read(Files::of(&[""], &["a", "b"], 10).tar(root.path())).unwrap();
    let sound = &sound[..sound.len() - 1024];
    let pax = |record: &str| [&header("x", &octal(record.len()), b'x', "")[..], &padded(record.as_bytes())].concat();
    let wide = [0x80, 0, 0, 0, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF];
    let mut summed_wrong = header("a/x.png", &octal(0), b'0', "");
    summed_wrong[0] ^= 1;
    let png = encoded(&image(1, 6), ImageFormat::Png);
    let member = |name: &str| [&header(name, &octal(png.len()), b'0', "")[..], &padded(&png)].concat();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("it ends inside `a/x.png`", header("a/x.png", &octal(1 << 30), b'0', "").to_vec()),
        ("it ends inside `a/x.png`", header("a/x.png", &wide, b'0', "").to_vec()),
        ("no size is given", header("a/x.png", b"not a number", b'0', "").to_vec()),
        ("no size is given", header("a/x.png", &[0xFF; 12], b'0', "").to_vec()),
        ("there is no header", summed_wrong.to_vec()),
        ("it ends inside a header", member("a/x.png")[..100].to_vec()),
        ("it ends inside `a/x.png`", member("a/x.png")[..560].to_vec()),
        ("a pax header is broken", [pax("12 size=NaN\n"), member("a/x.png")].concat()),
        ("a pax header is broken", [pax("99999 path=a/x.png\n"), member("a/x.png")].concat()),
        ("a pax header is broken", [pax("0 path=a/x.png\n"), member("a/x.png")].concat()),
        ("a pax header is broken", [pax("-5 path=a\n"), member("a/x.png")].concat()),
        ("a pax header is broken", [pax("12 pathaxpng\n"), member("a/x.png")].concat()),
        ("it ends inside `a/x.png`", [pax("29 size=18446744073709551615\n"), member("a/x.png")].concat()),
        ("it ends inside `././@LongLink`", header("././@LongLink", &octal(1 << 31), b'L', "").to_vec()),
        ("a name of 2097152 bytes", [&header("x", &octal(2 << 20), b'L', "")[..], &vec![b'a'; 2 << 20]].concat()),
        ("`a/x.png` is stored as a sparse file", header("a/x.png", &octal(0), b'S', "").to_vec()),
    ];
    for (message, bytes) in cases {
        let path = root.path().join("hostile.tar");
        fs::write(&path, [sound, &bytes].concat()).unwrap();
        check(&path, message, Some(1));
    }
    // Paths that lead out, links and devices: names without a meaning for the file system.
    let outside = root.path().join("outside.png");
    fs::write(&outside, &png).unwrap();
    let hostile = [
        member("../../b/out.png"),
        member("/b/absolute.png"),
        header("a/link.png", &octal(0), b'2', "/etc/passwd").to_vec(),
        header("a/hard.png", &octal(0), b'1', "../../outside.png").to_vec(),
        header("a/device.png", &octal(0), b'3', "").to_vec(),
        header("a/pipe.png", &octal(0), b'6', "").to_vec(),
    ];
    let path = root.path().join("paths.tar");
    fs::write(&path, [sound, &hostile.concat()].concat()).unwrap();
    // Paths are labels: the absolute one and the one that climbs begin at the root of the tar.
    assert_eq!(Dataset::open(&spec(), &path, 0).unwrap().counts().iter().sum::<u64>(), 22);
    let renamed = |path: &Path| {
        let options = InspectOptions { verify: false, sheet: None, threads: 1 };
        inspect(path, &options).unwrap().renamed.map(|Renamed { count, name, read_as }| (count, name, read_as))
    };
    assert_eq!(renamed(&path), Some((2, "../../b/out.png".to_owned(), "b/out.png".to_owned())));
    fs::write(&path, sound).unwrap();
    assert_eq!(renamed(&path), None);
    fs::write(&path, [sound, &hostile.concat()].concat()).unwrap();
    // PackSummary, their names stay names.
    let out = root.path().join("in/out");
    pack(&path, &out, &PackOptions::default(), &mut |_| {}).unwrap();
    let mut written: Vec<_> = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    written.sort();
    assert_eq!(written, ["data-000000.shard", "manifest.json", "pack.journal"]);
    assert_eq!(fs::read(outside).unwrap(), png);
}

#[test]
fn tfrecords() {
    let root = scratch();
    let rows = Files::of(&[""], &["a", "b"], 10).rows();
    let sound = tfrecord(&rows);
    let frame = |length: u64| {
        let length = length.to_le_bytes();
        let sum = crc32c::crc32c(&length).rotate_right(15).wrapping_add(0xA282_EAD8).to_le_bytes();
        [&length[..], &sum, b"rest"].concat()
    };
    let mut many = Vec::new();
    for _ in 0..110_000 {
        many.extend(field(2, b""));
    }
    let image = &rows[0].2;
    let mut wrong_sum = record(&example(image, 1));
    *wrong_sum.last_mut().unwrap() ^= 1;
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("it ends inside record 21", frame(u64::MAX)),
        ("it ends inside record 21", frame(i64::MAX as u64)),
        ("it ends inside record 21", frame(5)),
        ("checksum of the length of record 21", vec![0; 16]),
        ("it ends inside a record", vec![1, 2, 3]),
        ("record 21` cannot be read: its checksum is wrong", wrong_sum),
        ("it is no `tf.train.Example`", record(&[0x0A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F])),
        ("it is no `tf.train.Example`", record(&[0xFF; 30])),
        ("it is no `tf.train.Example`", record(&field(1, &[0x0A, 0x7F, 1]))),
        ("it is no `tf.train.Example`", record(&many)),
        ("it is no `tf.train.Example`", record(&[0x0B])),
        ("it has no feature `image/encoded`", record(&field(1, b""))),
    ];
    for (message, bytes) in cases {
        let path = root.path().join("hostile.tfrecord");
        fs::write(&path, [&sound[..], &bytes].concat()).unwrap();
        check(&path, message, Some(1));
    }
}

#[test]
fn tables() {
    let root = scratch();
    let rows = Files::of(&[""], &["a", "b"], 10);
    let sound = |form: Written| {
        let folder = rows.written(form, root.path(), 1);
        let file = fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
        fs::read(file).unwrap()
    };
    let write = |ending: &str, bytes: &[u8]| {
        let path = root.path().join(format!("hostile.{ending}"));
        fs::write(&path, bytes).unwrap();
        path
    };
    let parquet = sound(Written::Parquet);
    let end = parquet.len();
    let with = |bytes: &[u8], at: usize, value: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[at..at + value.len()].copy_from_slice(value);
        bytes
    };
    for bytes in [
        &parquet[..end - 1],
        &parquet[..end / 2],
        b"PAR1PAR1",
        b"",
        &with(&parquet, end - 8, &u32::MAX.to_le_bytes()),
        &with(&parquet, end - 8, &0_u32.to_le_bytes()),
        &with(&parquet, end - 400, &[0xFF; 64]),
    ] {
        check(&write("parquet", bytes), "the Parquet file cannot be used", None);
    }
    let arrow = sound(Written::ArrowStream);
    let message = 8 + u32::from_le_bytes(arrow[4..8].try_into().unwrap()) as usize;
    for bytes in [
        &arrow[..arrow.len() / 2],
        &arrow[..20],
        b"",
        b"ARROW1\0\0",
        &with(&arrow, 4, &u32::MAX.to_le_bytes()),
        &with(&arrow, 4, &(40_u32 << 20).to_le_bytes()),
        &with(&arrow, 0, &[1, 2, 3, 4]),
        &with(&arrow, 8, &[0xFF; 40]),
        &with(&arrow, message, &[9; 4]),
        &with(&arrow, message + 8, &[0xFF; 24]),
    ] {
        check(&write("arrow", bytes), "the Arrow file cannot be used", None);
    }
}

/// A zip with a wrong directory, and a zip bomb.
#[test]
fn zips() {
    let root = scratch();
    let image =
        |number| (format!("{}/{number}.png", ["a", "b"][number % 2]), encoded(&image(number, 6), ImageFormat::Png));
    let members: Vec<(String, Vec<u8>)> = (0..10).map(image).collect();
    let sound = zip(&members);
    let path = root.path().join("hostile.zip");
    let of = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        path.clone()
    };
    assert_eq!(Dataset::open(&spec(), &of(&sound), 0).unwrap().counts(), [7, 2, 1]);
    // The fields of the directory's second entry, a deflated member.
    let second = sound.windows(7).rposition(|name| name == b"b/1.png").unwrap() - 46;
    let with = |at: usize, value: &[u8]| {
        let mut bytes = sound.clone();
        bytes[second + at..second + at + value.len()].copy_from_slice(value);
        bytes
    };
    check(&of(&with(8, &[1, 0])), "`b/1.png` cannot be read: it is encrypted", Some(1));
    check(&of(&with(10, &[12, 0])), "it is compressed by the method", Some(1));
    check(&of(&with(16, &[1, 2, 3, 4])), "`b/1.png` cannot be read: its checksum is wrong", Some(1));
    check(&of(&with(20, &(1_u32 << 30).to_le_bytes())), "it is outside of the zip", Some(1));
    check(&of(&with(24, &(1_u32 << 30).to_le_bytes())), "it is larger than 256 MiB", Some(1));
    check(&of(&with(24, &(200_u32 << 20).to_le_bytes())), "its unpacked size differs from the zip directory", Some(1));
    check(&of(&with(24, &7_u32.to_le_bytes())), "its unpacked size differs from the zip directory", Some(1));
    check(&of(&sound[..sound.len() - 30]), "the zip is damaged", None);
    // Files that are not images are ignored, and names never leave the zip.
    let names = [("../../a/x.png", 3), ("/etc/b/y.png", 4), ("C:/a/z.png", 6)];
    let mut more = members.clone();
    more.extend(names.map(|(name, number)| (name.to_owned(), image(number).1)));
    more.push(("a/notes.txt".into(), vec![0; 1000]));
    assert_eq!(Dataset::open(&spec(), &of(&zip(&more)), 0).unwrap().counts().iter().sum::<u64>(), 13);
    let options = InspectOptions { verify: false, sheet: None, threads: 1 };
    assert_eq!(inspect(&of(&zip(&more)), &options).unwrap().renamed.map(|renamed| renamed.count), Some(2));
}

#[test]
fn pipes_are_not_waited_for() {
    let root = scratch();
    let pipe = |path: &Path| {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    };
    for ending in ["tar", "tar.gz", "zip", "npz", "tfrecord", "parquet", "arrow", "csv", "json"] {
        let path = root.path().join(format!("pipe.{ending}"));
        pipe(&path);
        check(&path, "it is no plain file", None);
    }
    for name in ["manifest.json", "cifar-10-batches-bin/data_batch_1.bin"] {
        let folder = Files::of(&[""], &["a", "b"], 3).folder(&root.path().join(name.replace('/', "-")));
        fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
        pipe(&folder.join(name));
        check(&folder, "it is no plain file", None);
    }
}

/// Hundreds of damaged files of each format, drawn from a seed: any damage is reported.
#[test]
fn any_damage_is_reported() {
    const EACH: u64 = 60;
    let root = scratch();
    let files = Files::of(&[""], &["a", "b"], 6);
    let mut sources: Vec<(PathBuf, &str)> = ALL.iter().map(|form| (files.written(*form, root.path(), 1), "")).collect();
    let out = root.path().join("shards");
    pack(&files.folder(root.path()), &out, &PackOptions::default(), &mut |_| {}).unwrap();
    sources.extend([(out.clone(), "data-000000.shard"), (out, "manifest.json")]);
    for (number, (source, name)) in sources.iter().enumerate() {
        let file = match (source.is_file(), name.is_empty()) {
            (true, _) => source.clone(),
            (false, true) => fs::read_dir(source).unwrap().next().unwrap().unwrap().path(),
            (false, false) => source.join(name),
        };
        let sound = fs::read(&file).unwrap();
        let mut seeds = Draws::new(number as u64);
        for _ in 0..EACH {
            let seed = seeds.bits();
            let mut bytes = sound.clone();
            mutate(&mut bytes, &mut Draws::new(seed));
            fs::File::create(&file).unwrap().write_all(&bytes).unwrap();
            let run = || {
                let options = InspectOptions { verify: true, sheet: None, threads: 1 };
                let _ = inspect(source, &options);
                let _ = Dataset::open(&Data { corrupt: Corrupt::Skip, ..spec() }, source, 0);
            };
            let result = std::panic::catch_unwind(run);
            assert!(result.is_ok(), "a panic over {file:?}, seed {seed}");
        }
        fs::write(&file, sound).unwrap();
    }
}
