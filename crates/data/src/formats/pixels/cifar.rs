//! The binary format of CIFAR-10 and CIFAR-100: records of a label and 3×32×32 pixels, red, green and blue. CIFAR-100
//! has a byte for the coarse label before the fine label, which is the class here.
//!
//! The format is described at <https://www.cs.toronto.edu/~kriz/cifar.html>. The files are read completely.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::layout;
use crate::files::plain_file;
use crate::formats::index::{ByFolders, Content, Decoded, Index, Skipped};
use crate::{Error, Part};

const PIXELS: usize = 3 * 32 * 32;

/// What differs between the two.
struct Variant {
    /// The folder that the published archive unpacks to.
    folder: &'static str,
    /// Bytes of labels, of which the last is the class.
    labels: usize,
    classes: usize,
    /// The file of the classes' names, one a line.
    names: &'static str,
    train: fn(&str) -> bool,
    test: &'static str,
}

const VARIANTS: [Variant; 2] = [
    Variant {
        folder: "cifar-10-batches-bin",
        labels: 1,
        classes: 10,
        names: "batches.meta.txt",
        train: |name| name.starts_with("data_batch_") && name.ends_with(".bin"),
        test: "test_batch.bin",
    },
    Variant {
        folder: "cifar-100-binary",
        labels: 2,
        classes: 100,
        names: "fine_label_names.txt",
        train: |name| name == "train.bin",
        test: "test.bin",
    },
];

/// A folder with binary files.
pub(in crate::formats) struct Binary {
    folder: PathBuf,
    variant: &'static Variant,
}

/// The folder with the binary files, if `path` is it or holds it.
pub(in crate::formats) fn find(path: &Path) -> Result<Option<Binary>, Error> {
    for variant in &VARIANTS {
        for folder in [path.to_owned(), path.join(variant.folder)] {
            // `train.bin` alone is a common name of other files.
            let is_meant =
                variant.labels == 1 || folder.ends_with(variant.folder) || folder.join(variant.names).is_file();
            if is_meant && folder.is_dir() && !files(&folder, variant)?.is_empty() {
                return Ok(Some(Binary { folder, variant }));
            }
        }
    }
    Ok(None)
}

/// The binary files of a folder, sorted, with the part that each belongs to.
fn files(folder: &Path, variant: &Variant) -> Result<Vec<(String, Part)>, Error> {
    let refused = |source| Error::Read { name: folder.display().to_string(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(refused)? {
        let name = entry.map_err(refused)?.file_name().to_string_lossy().into_owned();
        if name == variant.test {
            files.push((name, Part::Test));
        } else if (variant.train)(&name) {
            files.push((name, Part::Train));
        }
    }
    files.sort();
    Ok(files)
}

/// All records of the folder's files.
pub(in crate::formats) fn index(binary: &Binary, by_folders: ByFolders, skip: bool) -> Result<Index, Error> {
    let Binary { folder, variant } = binary;
    let length = variant.labels + PIXELS;
    let classes = classes(folder, variant)?;
    let (mut labels, mut homes, mut pixels, mut skipped) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (file, part) in files(folder, variant)? {
        let bytes =
            plain_file::bytes(&folder.join(&file)).map_err(|source| Error::Read { name: file.clone(), source })?;
        for (record, number) in bytes.chunks(length).zip(1..) {
            let label = usize::from(record.get(variant.labels - 1).copied().unwrap_or(0));
            let why = if record.len() < length {
                format!("it has {} of {length} bytes", record.len())
            } else if label >= classes.len() {
                format!("its label is {label}, and there are {} classes", classes.len())
            } else {
                labels.push(label as u32);
                homes.push(part);
                pixels.extend_from_slice(&record[variant.labels..]);
                continue;
            };
            let name = format!("{file}, record {number}");
            if !skip {
                return Err(Error::Image { name, why });
            }
            skipped.push(Skipped { name, why });
        }
    }
    if labels.is_empty() {
        return Err(layout(folder, "its binary files hold no image", "get the files again"));
    }
    let by_folders = by_folders != ByFolders::No;
    if by_folders && !homes.contains(&Part::Train) {
        return Err(layout(folder, "its file of training images is missing", "get the files again"));
    }
    let content = Content::Decoded(Decoded { channels: 3, height: 32, width: 32, full: 255, pixels });
    Ok(Index { skipped, ..Index::whole(classes, labels, by_folders.then_some(homes), content) })
}

/// The names of the classes, one a line; without their file numbers from 0.
fn classes(folder: &Path, variant: &Variant) -> Result<Vec<String>, Error> {
    let path = folder.join(variant.names);
    match plain_file::text(&path) {
        Ok(text) => Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok((0..variant.classes).map(|number| number.to_string()).collect())
        }
        Err(source) => Err(Error::Read { name: path.display().to_string(), source }),
    }
}
