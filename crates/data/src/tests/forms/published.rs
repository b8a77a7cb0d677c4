//! Forms in which data sets are published besides the usual ones: CIFAR-100, the idx files of MNIST, lists in CSV.

use std::fs;
use std::io::Write;
use std::path::Path;

use domain::train::{Corrupt, Data, Folders, Split};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::super::{Files, encoded, image, refused, scratch, spec};
use super::{all, open};
use crate::Part;

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
                // torchvision leaves the compressed one beside it.
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

    let refuse = |text: &str, why: &str, hint: &str| {
        fs::write(folder.join("list.csv"), text).unwrap();
        refused(&spec(), &folder.join("list.csv"), why, hint);
    };
    refuse("file,label\n../x.png,a\n", "leads out of its folder", "relative paths");
    refuse("file,label\nnone.png,a\n", "is not beside it", "name files by paths");
    refuse("file,other\na/0.png,1\n", "", "");
    let skip = Data { corrupt: Corrupt::Skip, ..spec() };
    fs::write(folder.join("list.csv"), format!("file,label\n{headless}{},\n", files[0].replace("a/", "b/"))).unwrap();
    let dataset = open(&skip, &folder.join("list.csv"));
    assert_eq!((dataset.counts().iter().sum::<u64>(), dataset.skipped().len()), (20, 1));
}

/// Feather files are Arrow files; those that are compressed are refused with how to write them again.
#[test]
fn feather_files_are_read_unless_they_are_compressed() {
    use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
    let root = scratch();
    let images: Vec<Vec<u8>> = (0..12).map(|number| encoded(&image(number, 6), image::ImageFormat::Png)).collect();
    for (compression, name) in [(None, "plain.feather"), (Some(arrow_ipc::CompressionType::LZ4_FRAME), "lz4.feather")] {
        let batch = arrow_array::RecordBatch::try_from_iter([
            (
                "image",
                std::sync::Arc::new(arrow_array::BinaryArray::from_iter_values(&images)) as arrow_array::ArrayRef,
            ),
            ("label", std::sync::Arc::new(arrow_array::Int64Array::from_iter_values((0..12).map(|n| n % 2)))),
        ])
        .unwrap();
        let file = fs::File::create(root.path().join(name)).unwrap();
        let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
        let mut writer = FileWriter::try_new_with_options(file, &batch.schema(), options).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
    }
    assert_eq!(open(&spec(), &root.path().join("plain.feather")).counts().iter().sum::<u64>(), 12);
    refused(
        &spec(),
        &root.path().join("lz4.feather"),
        "its columns are compressed as a whole",
        "compression=\"uncompressed\"",
    );
}
