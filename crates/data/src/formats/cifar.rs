//! The binary form of CIFAR-10: records of one label byte and 3×32×32 pixels, red, green and blue.
//!
//! The form is described at <https://www.cs.toronto.edu/~kriz/cifar.html>. The files are read whole.

use std::fs;
use std::path::{Path, PathBuf};

use super::index::{ByFolders, Content, Decoded, Index, Skipped};
use crate::error::layout;
use crate::files::plain_file;
use crate::{Error, Part};

const PIXELS: usize = 3 * 32 * 32;
const RECORD: usize = 1 + PIXELS;
/// The folder that the published archive unpacks to.
const FOLDER: &str = "cifar-10-batches-bin";

/// The folder with the binary files, if `path` is it or holds it.
pub(super) fn find(path: &Path) -> Result<Option<PathBuf>, Error> {
    for folder in [path.to_owned(), path.join(FOLDER)] {
        if folder.is_dir() && !files(&folder)?.is_empty() {
            return Ok(Some(folder));
        }
    }
    Ok(None)
}

/// The binary files of a folder, sorted, with the part that each belongs to.
fn files(folder: &Path) -> Result<Vec<(String, Part)>, Error> {
    let refused = |source| Error::Read { name: folder.display().to_string(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(refused)? {
        let name = entry.map_err(refused)?.file_name().to_string_lossy().into_owned();
        if name == "test_batch.bin" {
            files.push((name, Part::Test));
        } else if name.starts_with("data_batch_") && name.ends_with(".bin") {
            files.push((name, Part::Train));
        }
    }
    files.sort();
    Ok(files)
}

/// All records of the folder's files.
pub(super) fn index(folder: &Path, by_folders: ByFolders, skip: bool) -> Result<Index, Error> {
    let classes = classes(folder)?;
    let (mut labels, mut homes, mut pixels, mut skipped) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (file, part) in files(folder)? {
        let bytes =
            plain_file::bytes(&folder.join(&file)).map_err(|source| Error::Read { name: file.clone(), source })?;
        for (record, number) in bytes.chunks(RECORD).zip(1..) {
            let label = usize::from(record[0]);
            let why = if record.len() < RECORD {
                format!("it has {} of {RECORD} bytes", record.len())
            } else if label >= classes.len() {
                format!("its label is {label}, and there are {} classes", classes.len())
            } else {
                labels.push(u32::from(record[0]));
                homes.push(part);
                pixels.extend_from_slice(&record[1..]);
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
        return Err(layout(folder, "there is no `data_batch_1.bin`", "get the files again"));
    }
    let content = Content::Decoded(Decoded { channels: 3, height: 32, width: 32, full: 255, pixels });
    Ok(Index {
        classes,
        labels,
        homes: by_folders.then_some(homes),
        content,
        skipped,
        replaced: Vec::new(),
        unread: Vec::new(),
    })
}

/// The names in `batches.meta.txt`, one a line; without that file the numbers 0 to 9.
fn classes(folder: &Path) -> Result<Vec<String>, Error> {
    let path = folder.join("batches.meta.txt");
    match plain_file::text(&path) {
        Ok(text) => Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok((0..10).map(|n| n.to_string()).collect()),
        Err(source) => Err(Error::Read { name: path.display().to_string(), source }),
    }
}
