//! Each form of data, read from files made here.

mod published;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use domain::train::{Corrupt, Data, Folders, Normalize, Split};
use flate2::Compression;
use flate2::write::GzEncoder;
use image::ImageFormat;

use super::{Files, encoded, image, scratch, spec};
use crate::{Dataset, InspectOptions, Loader, LoaderOptions, PackOptions, Part, inspect};

pub(super) fn open(spec: &Data, path: &Path) -> Arc<Dataset> {
    Arc::new(Dataset::open(spec, path, 5).unwrap())
}

/// All values and labels of one part, in natural order.
pub(super) fn all(dataset: &Arc<Dataset>, part: Part) -> (Vec<f32>, Vec<i64>) {
    let mut loader = Loader::evaluate(Arc::clone(dataset), part, LoaderOptions { batch: 7, ..Default::default() });
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    while let Some(batch) = loader.next() {
        let batch = batch.unwrap();
        values.extend_from_slice(batch.images());
        labels.extend_from_slice(batch.labels());
    }
    (values, labels)
}

fn folders() -> Data {
    Data { split: Split::Folders(Folders::Folders), ..spec() }
}

#[test]
fn a_folder_and_its_tar_are_the_same_data() {
    let root = scratch();
    let files = Files::of(&["a/", "b/"], &["dog", "cat", "emu"], 5)
        .with(".hidden/cat/1.png", "no image")
        .with("a/cat/.2.png", "no image")
        .with("a/cat/._3.png", "no image")
        .with("__MACOSX/a/cat/3.png", "no image")
        .with("a/cat/readme.txt", "no image");
    let [folder, tar] = [files.folder(root.path()), files.tar(root.path())].map(|path| open(&spec(), &path));
    for dataset in [&folder, &tar] {
        assert_eq!(dataset.classes(), ["cat", "dog", "emu"]);
        assert_eq!((dataset.channels(), dataset.height(), dataset.width()), (3, 6, 6));
        assert_eq!(dataset.counts(), [21, 6, 3]);
        assert!(dataset.in_memory() && dataset.skipped().is_empty());
    }
    assert_eq!((folder.mean(), folder.std()), (tar.mean(), tar.std()));
    for part in [Part::Train, Part::Validation, Part::Test] {
        assert_eq!(all(&folder, part), all(&tar, part));
    }
}

#[test]
fn data_that_does_not_fit_in_memory_gives_the_same_batches() {
    let root = scratch();
    let files = Files::of(&[""], &["dog", "cat"], 20).with("dog/bad.png", "damaged");
    for (path, corrupt) in [
        (files.folder(root.path()), Corrupt::Skip),
        (files.tar(root.path()), Corrupt::Skip),
        (Files(files.0[..40].to_vec()).folder(&root.path().join("sound")), Corrupt::Fail),
    ] {
        let spec = Data { corrupt, ..spec() };
        let in_memory = Arc::new(Dataset::open_keeping(&spec, &path, 1, usize::MAX).unwrap());
        let read = Arc::new(Dataset::open_keeping(&spec, &path, 1, 0).unwrap());
        assert!(in_memory.in_memory() && !read.in_memory());
        assert_eq!((in_memory.mean(), in_memory.std(), in_memory.skipped()), (read.mean(), read.std(), read.skipped()));
        for part in [Part::Train, Part::Validation, Part::Test] {
            assert_eq!(all(&in_memory, part), all(&read, part));
            let names = |dataset: &Dataset| -> Vec<String> {
                dataset.part(part).iter().map(|sample| dataset.name(*sample)).collect()
            };
            assert_eq!(names(&in_memory), names(&read));
        }
    }
}

#[test]
fn values_are_normalised() {
    let root = scratch();
    let files = Files::of(&[""], &["a", "b"], 10);
    let given = Normalize { mean: vec![0.25, 0.5, 0.75], std: vec![0.5, 0.25, 2.0] };
    let sure = Data { normalize: Some(given), ..spec() };
    let png = Files(files.0.into_iter().filter(|(name, _)| name.ends_with("png")).collect());
    let path = png.folder(root.path());
    let dataset = open(&sure, &path);
    assert_eq!((dataset.mean(), dataset.std()), (&[0.25, 0.5, 0.75][..], &[0.5, 0.25, 2.0][..]));
    let (values, _) = all(&dataset, Part::Validation);
    for (sample, values) in dataset.part(Part::Validation).iter().zip(values.chunks_exact(108)) {
        let number: usize = png.0[*sample as usize].0[2..5].parse().unwrap();
        let expected = image(number, 6);
        for (at, value) in values.iter().enumerate() {
            let (channel, y, x) = (at / 36, at / 6 % 6, at % 6);
            let byte = f64::from(expected.get_pixel(x as u32, y as u32)[channel]);
            let mean = [0.25, 0.5, 0.75][channel];
            let expected = (byte / 255.0 - mean) / [0.5, 0.25, 2.0][channel];
            assert!((f64::from(*value) - expected).abs() < 1e-6, "{value} is not {expected}");
        }
    }
    // Normalized by its own mean and deviation, the training part has mean 0 and deviation 1.
    let (values, _) = all(&open(&spec(), &path), Part::Train);
    for channel in 0..3 {
        let of_channel: Vec<f64> =
            values.chunks_exact(108).flat_map(|v| &v[channel * 36..][..36]).map(|v| f64::from(*v)).collect();
        let count = of_channel.len() as f64;
        let mean = of_channel.iter().sum::<f64>() / count;
        let variance = of_channel.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count;
        assert!(mean.abs() < 1e-5 && (variance - 1.0).abs() < 1e-5, "mean {mean}, variance {variance}");
    }
}

#[test]
fn folders_decide_the_split() {
    let root = scratch();
    let files = Files::of(&["set/train/", "set/Valid/", "set/test/"], &["no", "yes"], 4);
    for path in [files.folder(root.path()), files.tar(root.path())] {
        let dataset = open(&folders(), &path);
        assert_eq!(dataset.counts(), [8, 8, 8]);
        assert_eq!(all(&dataset, Part::Test).1, [0, 0, 0, 0, 1, 1, 1, 1]);
    }
    let without = Files::of(&["train/", "test/"], &["no", "yes"], 30).folder(&root.path().join("without"));
    let dataset = open(&folders(), &without);
    assert_eq!(dataset.counts(), [54, 6, 60]);
    let other = Dataset::open(&folders(), &without, 6).unwrap();
    assert_ne!(dataset.part(Part::Validation), other.part(Part::Validation));
}

#[test]
fn damaged_images_are_skipped_if_requested() {
    let root = scratch();
    let sound = Files::of(&[""], &["a", "b"], 20);
    let jpeg = encoded(&image(9, 6), ImageFormat::Jpeg);
    let files =
        sound.clone().with("a/0-empty.png", "").with("b/cut.jpg", &jpeg[..jpeg.len() / 2]).with("b/text.png", "hello");
    let skip = Data { corrupt: Corrupt::Skip, ..spec() };
    let expected = open(&spec(), &sound.folder(&root.path().join("sound")));
    for path in [files.folder(root.path()), files.tar(root.path())] {
        let dataset = open(&skip, &path);
        let found: Vec<String> = dataset.skipped().iter().map(|left| format!("{}: {}", left.name, left.why)).collect();
        let reasons = [
            "the file is empty",
            "the file ends before the image does",
            "it is none of JPEG, PNG, WebP, BMP, GIF and TIFF",
        ];
        let names = ["a/0-empty.png", "b/cut.jpg", "b/text.png"];
        assert_eq!(found, [0, 1, 2].map(|i| format!("{}: {}", names[i], reasons[i])));
        assert_eq!(dataset.counts(), [28, 8, 4]);
        assert_eq!(all(&dataset, Part::Train), all(&expected, Part::Train));
    }
}

#[test]
fn images_are_resized() {
    let root = scratch();
    let files = Files::of(&[""], &["a", "b"], 10).with("a/large.png", encoded(&image(1, 50), ImageFormat::Png));
    let dataset = open(&Data { size: Some(6), ..spec() }, &files.folder(root.path()));
    assert_eq!((dataset.height(), dataset.width(), dataset.counts()), (6, 6, [15, 4, 2]));
    let dataset = open(&Data { size: Some(9), ..spec() }, &root.path().join("folder"));
    assert_eq!((dataset.height(), dataset.width()), (9, 9));
}

#[test]
fn a_tar_is_read_in_every_dialect() {
    let root = scratch();
    let path = root.path().join("dialects.tar");
    let mut tar = tar::Builder::new(fs::File::create(&path).unwrap());
    let png = |number| encoded(&image(number, 6), ImageFormat::Png);
    let long = format!("./{}/b", "long-name-".repeat(20));
    for number in 0..20 {
        let bytes = png(number);
        let mut header = if number % 2 == 0 { tar::Header::new_gnu() } else { tar::Header::new_ustar() };
        header.set_size(bytes.len() as u64);
        match number % 4 {
            // GNU: a name over 100 bytes is an entry of its own.
            0 => tar.append_data(&mut header, format!("{long}/{number}.png"), &bytes[..]).unwrap(),
            // PAX: the name is a record before the entry, and another is in the header.
            1 => {
                let name = format!("{long}/{number}.png");
                tar.append_pax_extensions([("path", name.as_bytes())]).unwrap();
                tar.append_data(&mut header, "short/x.png", &bytes[..]).unwrap();
            }
            _ => tar.append_data(&mut header, format!("/a//{number}.png").trim_start_matches('/'), &bytes[..]).unwrap(),
        }
    }
    // A hard link is a second name of the same image; other links and devices are none.
    let mut link = tar::Header::new_gnu();
    link.set_size(0);
    link.set_entry_type(tar::EntryType::Link);
    tar.append_link(&mut link, "b/same.png", "a/2.png").unwrap();
    tar.append_link(&mut link, "b/nowhere.png", "a/none.png").unwrap();
    link.set_entry_type(tar::EntryType::Symlink);
    tar.append_link(&mut link, "a/out.png", "/etc/passwd").unwrap();
    link.set_entry_type(tar::EntryType::Fifo);
    tar.append_data(&mut link, "a/pipe.png", &[][..]).unwrap();
    // Of two with one name the later counts.
    let replaced = png(99);
    let mut header = tar::Header::new_gnu();
    header.set_size(replaced.len() as u64);
    tar.append_data(&mut header, "a/2.png", &replaced[..]).unwrap();
    tar.finish().unwrap();
    let dataset = open(&Data { split: Split::Shares([1.0, 0.0, 0.0]), ..spec() }, &path);
    assert_eq!(dataset.classes(), ["a", "b"]);
    assert_eq!(dataset.counts(), [21, 0, 0]);
    assert_eq!(dataset.skipped(), []);
    let options = InspectOptions { verify: true, sheet: None, threads: 1 };
    let found = inspect(&path, &options).unwrap();
    assert_eq!((found.replaced, found.damaged, found.renamed), (vec!["a/2.png".to_owned()], Vec::new(), None));
    let packed = crate::pack(&path, &root.path().join("packed"), &PackOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(packed.manifest.samples, 21);
    let firsts: Vec<u8> =
        (0..21).map(|sample| dataset.planes(sample, Default::default(), &mut Default::default()).unwrap()[0]).collect();
    let a = [10, 11, 14, 15, 18, 19, 99, 3, 6, 7];
    let b_link = [99];
    let b = [0, 1, 12, 13, 16, 17, 4, 5, 8, 9];
    assert_eq!(firsts, [&a[..], &b_link, &b].concat());
}

#[test]
fn cifar_binary_files_are_read() {
    let root = scratch();
    let folder = root.path().join("cifar-10-batches-bin");
    fs::create_dir_all(&folder).unwrap();
    let record = |label: u8, number: usize| {
        let mut record = vec![label];
        record.extend((0..3072).map(|at| (at + number) as u8));
        record
    };
    let batch =
        |from: usize| (from..from + 10).flat_map(|number| record((number % 3) as u8, number)).collect::<Vec<u8>>();
    fs::write(folder.join("data_batch_1.bin"), batch(0)).unwrap();
    fs::write(folder.join("data_batch_2.bin"), batch(10)).unwrap();
    fs::write(folder.join("test_batch.bin"), batch(20)).unwrap();
    fs::write(folder.join("batches.meta.txt"), "plane\ncar\nbird\n\n").unwrap();
    for path in [root.path(), &folder] {
        let dataset = open(&spec(), path);
        assert_eq!(dataset.classes(), ["plane", "car", "bird"]);
        assert_eq!((dataset.channels(), dataset.height(), dataset.width()), (3, 32, 32));
        assert_eq!(dataset.counts(), [21, 6, 3]);
        let dataset = open(&folders(), path);
        assert_eq!(dataset.counts(), [18, 2, 10]);
        assert_eq!(all(&dataset, Part::Test).1, (20..30).map(|number| number % 3).collect::<Vec<i64>>());
        assert_eq!(dataset.planes(25, Default::default(), &mut Default::default()).unwrap(), &record(0, 25)[1..]);
    }
    fs::remove_file(folder.join("batches.meta.txt")).unwrap();
    assert_eq!(open(&spec(), &folder).classes().len(), 10);
    fs::write(folder.join("data_batch_3.bin"), [record(77, 0), record(1, 5), vec![1; 50]].concat()).unwrap();
    let dataset = open(&Data { corrupt: Corrupt::Skip, ..spec() }, &folder);
    assert_eq!(dataset.counts().iter().sum::<u64>(), 31);
    let names: Vec<&str> = dataset.skipped().iter().map(|left| left.name.as_str()).collect();
    assert_eq!(names, ["data_batch_3.bin, record 1", "data_batch_3.bin, record 3"]);
}

/// The file that ships with the repository, against the figures in its description.
#[test]
fn the_digits_are_the_published_ones() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits.csv.gz");
    let dataset = open(&Data { classes: Some(10), ..spec() }, &path);
    assert_eq!(dataset.counts(), [1258, 359, 180]);
    assert_eq!((dataset.channels(), dataset.height(), dataset.width()), (1, 8, 8));
    assert!(dataset.classes().iter().map(String::as_str).eq(["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]));
    let mut counts = [0; 10];
    for part in [Part::Train, Part::Validation, Part::Test] {
        all(&dataset, part).1.iter().for_each(|label| counts[*label as usize] += 1);
    }
    assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
    let first = [0, 0, 5, 13, 9, 1, 0, 0, 0, 0, 13, 15, 10, 15, 5, 0];
    assert_eq!(dataset.planes(0, Default::default(), &mut Default::default()).unwrap()[..16], first);
    // Over all images the mean is 4.8842 of 16; a split of 1258 stays close.
    assert!((dataset.mean()[0] - 4.8842 / 16.0).abs() < 0.005, "{:?}", dataset.mean());
    assert!((dataset.std()[0] - 6.0168 / 16.0).abs() < 0.005, "{:?}", dataset.std());
}

#[test]
fn tables_are_read_plain_and_compressed() {
    let root = scratch();
    let line = |number: usize, label: u32| {
        let pixels: Vec<String> = (0..64).map(|at| ((at + number) % 17).to_string()).collect();
        format!("{},{label}", pixels.join(","))
    };
    let lines: Vec<String> = (0..30).map(|number| line(number, [2, 10, 7][number % 3])).collect();
    let text = format!("{}\r\n\n", lines.join("\r\n"));
    let (plain, packed) = (root.path().join("a.csv"), root.path().join("b.CSV.gz"));
    fs::write(&plain, &text).unwrap();
    // Two members, as `cat` of two files gives.
    let mut bytes = Vec::new();
    for half in [&text.as_bytes()[..900], &text.as_bytes()[900..]] {
        let mut encoder = GzEncoder::new(&mut bytes, Compression::fast());
        encoder.write_all(half).unwrap();
        encoder.finish().unwrap();
    }
    fs::write(&packed, bytes).unwrap();
    for path in [plain, packed] {
        let dataset = open(&Data { split: Split::Shares([1.0, 0.0, 0.0]), ..spec() }, &path);
        assert_eq!(dataset.classes(), ["2", "7", "10"]);
        assert_eq!(all(&dataset, Part::Train).1[..4], [0, 2, 1, 0]);
        assert_eq!(dataset.planes(16, Default::default(), &mut Default::default()).unwrap()[..3], [16, 0, 1]);
    }
}
