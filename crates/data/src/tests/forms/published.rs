//! Other formats in which data sets are published: CIFAR-100, the idx files of MNIST, lists in CSV.

use std::fs;
use std::io::Write;
use std::path::Path;

use domain::train::{Corrupt, Data, Folders, Split};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::super::written::zip;
use super::super::{Files, refused, scratch, spec};
use super::{all, open};
use crate::{InspectOptions, PackOptions, Part, inspect};

fn folders() -> Data {
    Data { split: Split::Folders(Folders::Folders), ..spec() }
}

#[test]
fn the_fine_labels_of_cifar_100_are_classes() {
    let root = scratch();
    let folder = root.path().join("cifar-100-binary");
    fs::create_dir_all(&folder).unwrap();
    let record = |number: usize| {
        let pixels = (0..3072).map(move |at| (at + number) as u8);
        [19, (number % 3) as u8].into_iter().chain(pixels)
    };
    fs::write(folder.join("train.bin"), (0..20).flat_map(record).collect::<Vec<u8>>()).unwrap();
    fs::write(folder.join("test.bin"), (20..30).flat_map(record).collect::<Vec<u8>>()).unwrap();
    fs::write(folder.join("fine_label_names.txt"), "apple\nbear\ncloud\n").unwrap();
    for path in [root.path(), &folder] {
        let dataset = open(&folders(), path);
        assert_eq!(dataset.classes(), ["apple", "bear", "cloud"]);
        assert_eq!(dataset.counts(), [18, 2, 10]);
        assert_eq!(all(&dataset, Part::Test).1, (20..30).map(|number| number % 3).collect::<Vec<i64>>());
        // The test file comes first by name.
        let pixels: Vec<u8> = record(15).skip(2).collect();
        assert_eq!(dataset.planes(25, Default::default(), &mut Default::default()).unwrap(), pixels);
    }
    // The name of a file alone does not make it one.
    let other = root.path().join("other");
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join("train.bin"), [0; 3074]).unwrap();
    refused(&spec(), &other, "no file in it ends in `.jpg`", "");
}

/// An idx file with these dimensions.
fn idx(lengths: &[u32], values: impl Iterator<Item = u8>) -> Vec<u8> {
    let head = [0, 0, 8, lengths.len() as u8];
    head.into_iter().chain(lengths.iter().flat_map(|length| length.to_be_bytes())).chain(values).collect()
}

fn gzip(path: &Path, bytes: &[u8]) {
    let mut encoder = GzEncoder::new(fs::File::create(path).unwrap(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap();
}

#[test]
fn idx_files_are_read_plain_and_compressed() {
    let pixel = |image: usize, at: usize| (image * 5 + at) as u8;
    let images = |from: usize, count: usize| {
        let pixels = (from..from + count).flat_map(move |image| (0..12).map(move |at| pixel(image, at)));
        idx(&[count as u32, 3, 4], pixels)
    };
    let labels =
        |from: usize, count: usize| idx(&[count as u32], (from..from + count).map(|image| 4 + (image % 2) as u8));
    for (below, is_compressed) in [("", true), ("MNIST/raw", false)] {
        let root = scratch();
        let folder = root.path().join(below);
        fs::create_dir_all(&folder).unwrap();
        let put = |name: &str, bytes: Vec<u8>| match is_compressed {
            true => gzip(&folder.join(format!("{name}.gz")), &bytes),
            false => {
                // torchvision keeps the compressed file next to it.
                fs::write(folder.join(format!("{name}.gz")), "unused").unwrap();
                fs::write(folder.join(name), bytes).unwrap();
            }
        };
        put("train-images-idx3-ubyte", images(0, 20));
        put("train-labels-idx1-ubyte", labels(0, 20));
        put("t10k-images-idx3-ubyte", images(20, 6));
        put("t10k-labels-idx1-ubyte", labels(20, 6));
        let dataset = open(&folders(), root.path());
        assert_eq!(dataset.classes(), ["4", "5"]);
        assert_eq!((dataset.channels(), dataset.height(), dataset.width()), (1, 3, 4));
        assert_eq!(dataset.counts(), [18, 2, 6]);
        assert_eq!(all(&dataset, Part::Test).1, [0, 1, 0, 1, 0, 1]);
        // The test files come first by name.
        let planes = dataset.planes(6, Default::default(), &mut Default::default()).unwrap().to_vec();
        assert_eq!(planes, (0..12).map(|at| pixel(0, at)).collect::<Vec<u8>>());
        put("t10k-labels-idx1-ubyte", labels(20, 5));
        refused(&spec(), root.path(), "holds 6 images, and", "get the files again");
        put("t10k-images-idx3-ubyte", images(20, 6)[..40].to_vec());
        refused(&spec(), root.path(), "claims to hold 72 values", "get the file again");
        put("t10k-images-idx3-ubyte", idx(&[u32::MAX; 3], 0..9));
        refused(&spec(), root.path(), "it claims to hold [4294967295", "get the file again");
    }
}

#[test]
fn images_that_a_csv_lists_are_read() {
    let check = |text: &str, spec: &Data, counts: [u64; 3]| {
        let root = scratch();
        let folder = Files::of(&[""], &["a", "b"], 10).folder(root.path());
        let list = folder.join("list.csv");
        fs::write(&list, text).unwrap();
        let dataset = open(spec, &list);
        assert_eq!(
            (dataset.classes(), dataset.counts()),
            (&["cat".to_owned(), "dog".to_owned()][..], counts),
            "{text}"
        );
    };
    let root = scratch();
    let folder = Files::of(&[""], &["a", "b"], 10).folder(root.path());
    let mut files: Vec<String> = Vec::new();
    for class in ["a", "b"] {
        for entry in fs::read_dir(folder.join(class)).unwrap() {
            files.push(format!("{class}/{}", entry.unwrap().file_name().to_string_lossy()));
        }
    }
    files.sort();
    let lines = |line: &dyn Fn(usize, &str, &str) -> String| -> String {
        let word = |file: &str| if file.starts_with('a') { "dog" } else { "cat" };
        files.iter().enumerate().map(|(number, file)| line(number, file, word(file)) + "\n").collect()
    };
    let headless = lines(&|_, file, word| format!("{file},{word}"));
    check(&headless, &spec(), [14, 4, 2]);
    let named = lines(&|number, file, word| format!("{number},{word},{file}"));
    check(&format!("id,Label,Filename\n{named}"), &spec(), [14, 4, 2]);
    let parts =
        lines(&|number, file, word| format!("{file},{word},{}", if number % 5 == 0 { "test" } else { "train" }));
    check(&format!("path,label,split\n{parts}"), &folders(), [14, 2, 4]);
    // Absolute paths below the folder of the list, also where a link leads to it.
    let absolute = |folder: &Path| lines(&|_, file, word| format!("{},{word}", folder.join(file).display()));
    let link = root.path().join("link");
    std::os::unix::fs::symlink(&folder, &link).unwrap();
    for (list, text) in [(&folder, absolute(&folder)), (&link, absolute(&folder)), (&link, absolute(&link))] {
        let list = list.join("absolute.csv");
        fs::write(&list, format!("filename,class\n{text}")).unwrap();
        assert_eq!(open(&spec(), &list).counts(), [14, 4, 2], "{}", list.display());
        assert!(crate::lists_images(&list));
        fs::remove_file(&list).unwrap();
    }

    let refuse = |text: &str, why: &str, hint: &str| {
        fs::write(folder.join("list.csv"), text).unwrap();
        refused(&spec(), &folder.join("list.csv"), why, hint);
    };
    refuse("file,label\n../x.png,a\n", "leads out of its folder", "relative paths");
    refuse("file,label\n/elsewhere/x.png,a\n", "leads out of its folder", "above all of its images");
    refuse("file,label\nnone.png,a\n", "does not exist next to it", "name files by paths");
    refuse("file,other\na/0.png,1\n", "", "");
    let skip = Data { corrupt: Corrupt::Skip, ..spec() };
    fs::write(folder.join("list.csv"), format!("file,label\n{headless}{},\n", files[0].replace("a/", "b/"))).unwrap();
    let dataset = open(&skip, &folder.join("list.csv"));
    assert_eq!((dataset.counts().iter().sum::<u64>(), dataset.skipped().len()), (20, 1));
}

/// Arrays named and laid out like those of Keras, MedMNIST and a user's own script.
#[test]
fn images_and_labels_in_a_npz_are_read() {
    let array = |kind: &str, shape: &str, values: Vec<u8>| {
        let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
        let header = format!("{header:<117}\n");
        [b"\x93NUMPY\x01\0", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &values].concat()
    };
    let pixel = |image: usize, channel: usize, place: usize| (image * 50 + channel * 20 + place) as u8;
    let grey = |from: usize, count: usize| {
        let pixels = (from..from + count).flat_map(|image| (0..12).map(move |place| pixel(image, 0, place)));
        array("|u1", &format!("({count}, 3, 4)"), pixels.collect())
    };
    let labels = |from: usize, count: usize| {
        let labels = (from..from + count).flat_map(|image| ((image % 2) as i64).to_le_bytes());
        array("<i8", &format!("({count}, 1)"), labels.collect())
    };
    let root = scratch();
    let path = root.path().join("data.npz");
    let write = |arrays: &[(&str, Vec<u8>)]| {
        let members: Vec<(String, Vec<u8>)> =
            arrays.iter().map(|(name, bytes)| (format!("{name}.npy"), bytes.clone())).collect();
        fs::write(&path, zip(&members)).unwrap();
    };
    for names in
        [["x_train", "y_train", "x_test", "y_test"], ["train_images", "train_labels", "test_images", "test_labels"]]
    {
        let arrays = [grey(0, 20), labels(0, 20), grey(20, 6), labels(20, 6)];
        write(&names.into_iter().zip(arrays).collect::<Vec<_>>());
        let dataset = open(&folders(), &path);
        assert_eq!((dataset.classes(), dataset.counts()), (&["0".to_owned(), "1".to_owned()][..], [18, 2, 6]));
        assert_eq!((dataset.channels(), dataset.height(), dataset.width()), (1, 3, 4));
        assert_eq!(all(&dataset, Part::Test).1, [0, 1, 0, 1, 0, 1]);
        let planes = dataset.planes(3, Default::default(), &mut Default::default()).unwrap().to_vec();
        assert_eq!(planes, (0..12).map(|place| pixel(3, 0, place)).collect::<Vec<u8>>());
        assert_eq!(inspect(&path, &InspectOptions { verify: true, sheet: None, threads: 1 }).unwrap().samples, 26);
    }
    // Colours side by side, and in planes; both are packed.
    let last = (0..10).flat_map(|image| (0..4).flat_map(move |place| (0..3).map(move |c| pixel(image, c, place))));
    let first = (0..10).flat_map(|image| (0..3).flat_map(move |c| (0..4).map(move |place| pixel(image, c, place))));
    let shapes = [("(10, 2, 2, 3)", last.collect::<Vec<u8>>()), ("(10, 3, 2, 2)", first.collect())];
    for (number, (shape, pixels)) in shapes.into_iter().enumerate() {
        write(&[("images", array("|u1", shape, pixels)), ("labels", labels(0, 10)), ("weights", labels(0, 10))]);
        let dataset = open(&spec(), &path);
        let planes = dataset.planes(7, Default::default(), &mut Default::default()).unwrap().to_vec();
        let expected: Vec<u8> = (0..3).flat_map(|c| (0..4).map(move |place| pixel(7, c, place))).collect();
        assert_eq!(planes, expected, "{shape}");
        let out = root.path().join(format!("packed-{number}"));
        crate::pack(&path, &out, &PackOptions::default(), &mut |_| {}).unwrap();
        assert_eq!(open(&spec(), &out).counts(), dataset.counts());
    }
    let refuse = |arrays: &[(&str, Vec<u8>)], why: &str, hint: &str| {
        write(arrays);
        refused(&spec(), &path, why, hint);
    };
    let save = "numpy.savez_compressed";
    refuse(&[("images", grey(0, 10))], "none of its arrays holds labels", save);
    refuse(&[("images", grey(0, 10)), ("labels", labels(0, 9))], "holds 10 images, and `labels` 9 labels", save);
    refuse(&[("weights", grey(0, 10))], "is named like images or labels: `weights`", save);
    refuse(&[("x", grey(0, 10)), ("images", grey(0, 10)), ("y", labels(0, 10))], "two of its arrays hold images", save);
    let scores = array("<f4", "(10, 2)", vec![0; 80]);
    refuse(&[("x", grey(0, 10)), ("y", scores)], "`y.argmax(axis=1)` makes classes of scores", save);
    let fractions = array("<f4", "(10, 3, 4)", vec![0; 480]);
    refuse(&[("x", fractions), ("y", labels(0, 10))], "are of the type `<f4`, and bytes (`uint8`) are read", save);
    write(&[("x", grey(0, 10)), ("y", labels(0, 10))]);
    let mut broken = fs::read(&path).unwrap();
    broken[200] ^= 1;
    fs::write(&path, broken).unwrap();
    refused(&spec(), &path, "the archive is damaged: `x`: its checksum is wrong", "unzip -t");
}

/// A truncated compressed tar is read up to the truncation, if requested.
#[test]
fn a_compressed_tar_is_read_as_the_tar_is() {
    let root = scratch();
    let files = Files::of(&["train/", "test/"], &["a", "b"], 15);
    let (tar, path) = (files.tar(root.path()), root.path().join("images.tar.gz"));
    let wanted = open(&folders(), &tar);
    gzip(&path, &fs::read(&tar).unwrap());
    let found = open(&folders(), &path);
    assert_eq!(found.counts(), wanted.counts());
    for part in [Part::Train, Part::Test] {
        assert_eq!(all(&found, part), all(&wanted, part));
    }
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() * 2 / 3]).unwrap();
    refused(&spec(), &path, "the tar is damaged: it cannot be unpacked to its end", "tar -tf");
    let skip = Data { corrupt: Corrupt::Skip, ..spec() };
    let dataset = open(&skip, &path);
    let (read, why) = (dataset.counts().iter().sum::<u64>(), &dataset.skipped()[0].why);
    assert!((10..60).contains(&read) && why.contains("it cannot be unpacked to its end"), "{read}: {why}");
    let out = root.path().join("packed");
    let options = PackOptions { skip: true, split: Some([0.7, 0.2, 0.1]), ..Default::default() };
    crate::pack(&path, &out, &options, &mut |_| {}).unwrap();
    assert_eq!(open(&spec(), &out).counts().iter().sum::<u64>(), read);
}
