//! Unusable data and its error messages.

use std::fs;
use std::io::Write;
use std::sync::Arc;

use domain::train::{Corrupt, Data, Folders, Normalize, Split};
use flate2::Compression;
use flate2::write::GzEncoder;
use image::ImageFormat;
use proptest::prelude::*;

use super::{Files, complains, encoded, image, refused, scratch, spec};
use crate::{Cursor, Dataset, Loader, LoaderOptions, Part};

#[test]
fn paths_without_data() {
    let root = scratch();
    let at = |name: &str| root.path().join(name);
    refused(&spec(), &at("nothing"), "there is no data at", "relative to the job file");
    fs::create_dir(at("empty")).unwrap();
    refused(&spec(), &at("empty"), "no file in it ends in `.jpg`", "…/<class>/<file>");
    for name in ["empty.tar", "text.tar"] {
        fs::write(at(name), if name == "empty.tar" { vec![] } else { b"no tar at all".repeat(100) }).unwrap();
    }
    refused(&spec(), &at("empty.tar"), "no file in it ends in `.jpg`", "…/<class>/<file>");
    refused(&spec(), &at("text.tar"), "the tar is damaged", "get the file again");
    for (name, why, hint) in [
        ("a.tar.gz", "the tar is damaged: it cannot be unpacked to its end", "tar -tf"),
        ("a.tar.zst", "the tar is damaged: it cannot be unpacked to its end", "tar -tf"),
        ("a.tar.xz", "it is a tar of a compression that is not read", "tar -xf "),
        ("a.zip", "the zip is damaged", "unzip -t"),
        ("a.7z", "it is an archive of a kind that is not read", "unpack it"),
        ("a.npz", "the archive is damaged", "unzip -t"),
        ("a.npy", "it holds arrays", "numpy.savez_compressed"),
        ("train-images-idx3-ubyte.gz", "it is one of the idx files", "give the folder"),
        ("a.bin", "its form is not known", "give a folder"),
    ] {
        fs::write(at(name), "x").unwrap();
        refused(&spec(), &at(name), why, hint);
    }
}

#[test]
fn trees_without_classes() {
    let root = scratch();
    let check = |name: &str, files: Files, expected: &str, hinted: &str| {
        let root = root.path().join(name);
        fs::create_dir(&root).unwrap();
        refused(&spec(), &files.folder(&root), expected, hinted);
        refused(&spec(), &files.tar(&root), expected, hinted);
    };
    let some = || Files::of(&[""], &["a", "b"], 5);
    check("one", Files::of(&[""], &["only"], 5), "one class only, `only`", "each class a folder");
    check("loose", some().with("loose.png", "x"), "`loose.png` is not in a class folder", "<class>/<file>");
    check("few", Files::of(&[""], &["a", "b"], 1), "none for", "more images");
    let folder = some().with("c/readme.txt", "soon").folder(root.path());
    refused(&spec(), &folder, "no file in its folder `c` ends in `.jpg`", "remove it");
}

#[test]
fn another_number_of_classes() {
    let root = scratch();
    let path = Files::of(&[""], &["a", "b"], 5).folder(root.path());
    refused(
        &Data { classes: Some(3), ..spec() },
        &path,
        "has 2 classes, the job specifies 3: `a`, `b`",
        "`classes: 2`",
    );
    let names: Vec<String> = (0..12).map(|class| format!("class{class:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let path = Files::of(&[""], &names, 1).folder(&root.path().join("many"));
    refused(&Data { classes: Some(2), ..spec() }, &path, "`class09` and 2 more", "");
}

#[test]
fn splits_by_folders_that_lack_some() {
    let root = scratch();
    let folders = Data { split: Split::Folders(Folders::Folders), ..spec() };
    let check = |name: &str, files: Files, expected: &str, hinted: &str| {
        refused(&folders, &files.folder(&root.path().join(name)), expected, hinted);
    };
    check("no test", Files::of(&["train/"], &["a", "b"], 5), "no `test` folder", "split at random");
    check("no train", Files::of(&["test/"], &["a", "b"], 5), "no `train` folder", "name it so");
    check("other", Files::of(&["train/", "extra/"], &["a", "b"], 5), "is in none of the folders", "move it");
    let uneven = Files::of(&["train/", "test/"], &["a", "b"], 5);
    let uneven = uneven.with("test/c/1.png", encoded(&image(1, 6), ImageFormat::Png));
    check("uneven", uneven, "`train` has no images of `c`", "give every class");
}

#[test]
fn damaged_images_are_named() {
    let root = scratch();
    let jpeg = encoded(&image(9, 6), ImageFormat::Jpeg);
    let mut png = encoded(&image(9, 6), ImageFormat::Png);
    png[45] ^= 0x55;
    let cases: [(&str, &[u8], &str); 4] = [
        ("b/cut.jpg", &jpeg[..jpeg.len() - 40], "the file ends before the image does"),
        ("b/empty.png", &[], "the file is empty"),
        ("b/flipped.png", &png, ""),
        ("b/text.jpeg", b"hello", "it is none of JPEG, PNG, WebP, BMP, GIF and TIFF"),
    ];
    for (number, (name, bytes, why)) in cases.into_iter().enumerate() {
        let files = Files::of(&[""], &["a", "b"], 30).with(name, bytes).with("b/z.png", "x");
        let root = root.path().join(number.to_string());
        for path in [files.folder(&root), files.tar(&root)] {
            let expected = format!("the image `{name}` cannot be read: {why}");
            refused(&spec(), &path, &expected, "`corrupt: skip`");
            // If images are not decoded when the data is opened, the batch that needs the image reports the error.
            let unmeasured = Data { normalize: Some(Normalize { mean: vec![0.0; 3], std: vec![1.0; 3] }), ..spec() };
            let dataset = Arc::new(Dataset::open_keeping(&unmeasured, &path, 0, 0).unwrap());
            for workers in [0, 3] {
                let mut errors = Vec::new();
                for part in [Part::Train, Part::Validation, Part::Test] {
                    let options = LoaderOptions { batch: 4, workers, ..Default::default() };
                    let mut loader = Loader::evaluate(Arc::clone(&dataset), part, options);
                    while let Some(batch) = loader.next() {
                        errors.extend(batch.err());
                    }
                    assert!(loader.next().is_none(), "something came after the error");
                }
                let messages: Vec<String> = errors.iter().map(|error| error.to_string()).collect();
                assert!(messages.iter().any(|message| message.contains(&expected)), "{messages:?}");
            }
        }
    }
}

#[test]
fn a_class_without_readable_images() {
    let root = scratch();
    let files = Files::of(&[""], &["a", "b"], 10).with("c/1.png", "x").with("c/2.png", "y");
    let skip = Data { corrupt: Corrupt::Skip, ..spec() };
    refused(&skip, &files.folder(root.path()), "not one image of the class `c`", "`c/1.png`: it is none of");
    let files = Files::default().with("a/1.png", "x").with("b/2.png", "y");
    refused(&skip, &files.tar(root.path()), "`a/1.png` cannot be read", "");
}

#[test]
fn images_of_several_sizes() {
    let root = scratch();
    let files = Files::of(&[""], &["a", "b"], 10).with("b/wide.png", encoded(&image(1, 7), ImageFormat::Png));
    let path = files.folder(root.path());
    for corrupt in [Corrupt::Fail, Corrupt::Skip] {
        let spec = Data { corrupt, ..spec() };
        refused(&spec, &path, "`b/wide.png` is 7×7 pixels, the first one is 6×6", "`size: 6`");
    }
}

#[test]
fn files_that_vanish() {
    let root = scratch();
    let path = Files::of(&[""], &["a", "b"], 10).folder(root.path());
    let given = Data { normalize: Some(Normalize { mean: vec![0.0; 3], std: vec![1.0; 3] }), ..spec() };
    let dataset = Arc::new(Dataset::open_keeping(&given, &path, 0, 0).unwrap());
    fs::remove_dir_all(path.join("b")).unwrap();
    let mut loader = Loader::train(dataset, LoaderOptions { batch: 14, ..Default::default() }, Cursor::START, 1);
    complains(&loader.next().unwrap().err().unwrap(), "cannot read `b/", "check that the file is there");
    #[cfg(unix)]
    {
        let path = Files::of(&[""], &["a", "b"], 10).folder(root.path());
        std::os::unix::fs::symlink("nowhere.png", path.join("a/link.png")).unwrap();
        std::os::unix::fs::symlink(".", path.join("a/loop")).unwrap();
        refused(&spec(), &path, "cannot read `a/link.png`: No such file", "check that the file is there");
        let dataset = Dataset::open(&Data { corrupt: Corrupt::Skip, ..spec() }, &path, 0).unwrap();
        assert_eq!((dataset.counts(), dataset.skipped().len()), ([14, 4, 2], 1));
    }
}

#[test]
fn normalisation_that_does_not_fit() {
    let root = scratch();
    let path = Files::of(&[""], &["a", "b"], 10).folder(root.path());
    let check = |mean: &[f32], std: &[f32], expected: &str| {
        let normalize = Some(Normalize { mean: mean.into(), std: std.into() });
        refused(&Data { normalize, ..spec() }, &path, expected, "leave `normalize` out");
    };
    check(&[0.5], &[0.5; 3], "`mean` has 1 values, the images have 3");
    check(&[0.5; 3], &[0.5; 4], "`std` has 4 values");
    check(&[0.5; 3], &[0.5, 0.0, 0.5], "a standard deviation is 0");
    check(&[0.5; 3], &[0.5, f32::NAN, 0.5], "a standard deviation is NaN");
    check(&[0.5, f32::INFINITY, 0.5], &[0.5; 3], "a mean is inf");
}

#[test]
fn tables_that_are_none() {
    let root = scratch();
    let check = |name: &str, bytes: &[u8], expected: &str, hinted: &str| {
        let path = root.path().join(name);
        fs::write(&path, bytes).unwrap();
        refused(&spec(), &path, expected, hinted);
    };
    let good = |label: u32| format!("{}{label}\n", "3,".repeat(64)).repeat(20);
    let both = format!("{}{}", good(0), good(1));
    check("empty.csv", b"", "no line of pixels and a label", "digits.csv.gz");
    check("short.csv", format!("{both}1,2,3\n").as_bytes(), "line 41 of `", "corrupt: skip");
    check("short.csv", format!("{both}1,2,3\n").as_bytes(), "it has 3 of 65 fields", "corrupt: skip");
    check("no label.csv", format!("{both}{}", "3,".repeat(63) + "3\n").as_bytes(), "it has 64 of 65", "skip");
    check("long.csv", format!("{both}{}3,4,5\n", "3,".repeat(64)).as_bytes(), "it has more than 65", "skip");
    check("17.csv", both.replace("3,0", "17,0").as_bytes(), "pixel 64 is `17`", "skip");
    check("text.csv", b"pixel,label\n", "no line of pixels", "28×28");
    check("iris.csv", b"sl,sw,pl,pw,species\n5.1,3.5,1.4,.2,setosa\n", "5 fields", "program of your own");
    check("colours.csv", "7,".repeat(3072).as_bytes(), "32×32 images with colours", "savez");
    check("odd.csv", "7,".repeat(700).as_bytes(), "701 fields", "785 numbers");
    check("bytes.csv", &[255; 100], "it is not text", "skip");
    check("line.csv", &[b'1'; 100_000], "line 1 of `", "skip");
    check(
        "one.csv",
        good(4).as_bytes(),
        "one class only, `4`",
        "add samples of other classes; the label is the first or",
    );
    check("semicolons.csv", b"1;2;3\n4;5;6\n", "its lines have 1 fields", "separate the fields by commas");
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(both.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    check("cut.csv.gz", &packed[..packed.len() / 2], "cannot be read", "gzip -t");
    check("plain.csv.gz", both.as_bytes(), "line 1 cannot be read: ", "gzip -t");
    let path = root.path().join("cut.csv");
    fs::write(&path, format!("{both}bad\n")).unwrap();
    let dataset = Dataset::open(&Data { corrupt: Corrupt::Skip, ..spec() }, &path, 0).unwrap();
    assert_eq!(dataset.skipped()[0].name, "cut.csv, line 41");
    let folders = Data { split: Split::Folders(Folders::Folders), ..spec() };
    refused(&folders, &path, "a CSV has no folders", "leave out");
    refused(&Data { size: Some(16), corrupt: Corrupt::Skip, ..spec() }, &path, "8×8", "leave `size` out");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Opening a damaged tar gives data or an error, whatever the damage.
    #[test]
    fn damaged_tars_never_panic(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), keep in 0.0..1.0_f64) {
        let root = scratch();
        let path = Files::of(&[""], &["a", "b"], 5).tar(root.path());
        let mut bytes = fs::read(&path).unwrap();
        bytes.truncate((bytes.len() as f64 * keep.max(0.5)) as usize);
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        fs::write(&path, bytes).unwrap();
        if let Ok(dataset) = Dataset::open(&Data { corrupt: Corrupt::Skip, ..spec() }, &path, 0) {
            prop_assert!(dataset.counts()[0] > 0);
        }
    }
}

#[test]
fn a_tar_that_ends_early_is_refused() {
    let root = scratch();
    let path = Files::of(&[""], &["a", "b"], 5).tar(root.path());
    let bytes = fs::read(&path).unwrap();
    // The last 1024 bytes are the end mark, before them the padded image.
    fs::write(&path, &bytes[..bytes.len() - 1024 - 500]).unwrap();
    refused(&spec(), &path, "the tar is damaged: it ends inside `a/000.png`", "get the file again");
}

#[test]
fn boxes_are_not_taken_for_images_of_classes() {
    let root = scratch();
    let path = Files::default()
        .with("images/train/1.png", "any")
        .with("images/val/2.png", "any")
        .with("labels/train/1.txt", "0 0.5 0.5 0.1 0.1")
        .with("labels/val/2.txt", "0 0.5 0.5 0.1 0.1")
        .folder(root.path());
    refused(&spec(), &path, "are YOLO annotations with boxes", "--as objects");
    // Classes may have these names all the same.
    let root = scratch();
    let path = Files::of(&[""], &["images", "labels"], 5).folder(root.path());
    assert_eq!(Dataset::open(&spec(), &path, 0).unwrap().classes(), ["images", "labels"]);
}

#[test]
fn a_csv_of_larger_images_is_read_wherever_its_label_stands() {
    let root = scratch();
    // Corners are black, as in MNIST; labels come in order.
    let lines = |label_first: bool, head: bool| {
        let mut text = String::new();
        if head {
            let pixels: Vec<String> = (0..784).map(|pixel| format!("pixel{pixel}")).collect();
            let names = if label_first { format!("label,{}", pixels.join(",")) } else { pixels.join(",") + ",label" };
            text.push_str(&(names + "\n"));
        }
        for sample in 0..40_u32 {
            let pixels: Vec<String> =
                (0..784).map(|pixel| if pixel == 300 { (sample * 6).to_string() } else { "0".into() }).collect();
            let (label, pixels) = (sample % 4, pixels.join(","));
            text.push_str(&if label_first { format!("{label},{pixels}\n") } else { format!("{pixels},{label}\n") });
        }
        text
    };
    let open = |name: &str, text: &str| {
        let path = root.path().join(name);
        fs::write(&path, text).unwrap();
        Dataset::open(&spec(), &path, 0).unwrap()
    };
    for (name, label_first, head) in
        [("a.csv", true, false), ("b.csv", false, false), ("c.csv", true, true), ("d.csv", false, true)]
    {
        let dataset = open(name, &lines(label_first, head));
        assert_eq!(dataset.counts().iter().sum::<u64>(), 40, "{name}");
        assert_eq!(
            (dataset.classes().len(), [dataset.channels(), dataset.height(), dataset.width()]),
            (4, [1, 28, 28]),
            "{name}"
        );
    }
    // Which end is the label is said where nothing tells it.
    let both: String = (0..40).map(|sample| format!("{0},{1}{0}\n", sample % 4, "7,".repeat(783))).collect();
    let path = root.path().join("both.csv");
    fs::write(&path, both).unwrap();
    refused(&spec(), &path, "first or the last number", "called `label`");
    let decimal: String = (0..40).map(|sample| format!("{}.0,{}{}.0\n", sample % 4, "7,".repeat(783), 0)).collect();
    assert_eq!(open("decimal.csv", &decimal).classes().len(), 4);
}
