//! Where samples come from: each form of data is read into the same [`Index`].
//!
//! Pictures that are files (a folder, a tar) stay encoded and are read one at a time by position; forms that hold
//! plain pixels (CIFAR-10, the CSV) are read whole. Read on in `labels`, which turns paths into classes.

mod archive;
mod cifar;
mod labels;
mod table;
mod tree;

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use domain::train::{Corrupt, Data, Folders, Split};

use crate::dataset::Skipped;
use crate::{Error, Part};

/// All samples of a data set, in the order of their names.
#[derive(Debug)]
pub(crate) struct Index {
    /// Names of the classes, in label order.
    pub classes: Vec<String>,
    /// One label a sample.
    pub labels: Vec<u32>,
    /// The part that the layout of the data names for each sample; `None` when the split is drawn.
    pub homes: Option<Vec<Part>>,
    /// The pictures.
    pub content: Content,
    /// Samples of plain pixels that were left out.
    pub skipped: Vec<Skipped>,
}

/// Pictures, as they were found.
#[derive(Debug)]
pub(crate) enum Content {
    /// JPEG and PNG files.
    Encoded(Encoded),
    /// Plain pixels.
    Decoded(Decoded),
}

/// JPEG and PNG files that are read when they are needed.
#[derive(Debug)]
pub(crate) enum Encoded {
    /// Files under a folder.
    Files { root: PathBuf, paths: Vec<PathBuf> },
    /// Members of an uncompressed tar.
    Members { file: File, members: Vec<Member> },
}

/// One file inside a tar.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub path: PathBuf,
    pub offset: u64,
    pub bytes: u64,
}

/// Pictures as plain pixels: sample by sample, then channel by channel, then row by row.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub channels: usize,
    pub height: usize,
    pub width: usize,
    /// The largest value a pixel can have, which stands for 1.
    pub full: u8,
    pub pixels: Vec<u8>,
}

/// No picture file is larger; a hostile one is refused before it is read.
const LARGEST_FILE: u64 = 256 << 20;

/// Finds out what lies at `path`, and lists its samples.
pub(crate) fn index(spec: &Data, path: &Path) -> Result<Index, Error> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::Missing { path: path.to_owned() });
        }
        Err(source) => return Err(Error::Read { name: path.display().to_string(), source }),
    };
    let by_folders = matches!(spec.split, Split::Folders(Folders::Folders));
    let skip = match spec.corrupt {
        Corrupt::Fail => false,
        Corrupt::Skip => true,
    };
    if metadata.is_dir() {
        if let Some(folder) = cifar::find(path)? {
            return cifar::index(&folder, by_folders, skip);
        }
        let paths = tree::walk(path)?;
        let labels = labels::from_paths(path, &paths, by_folders)?;
        return Ok(labels.into_index(Encoded::Files { root: path.to_owned(), paths }));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    if name.ends_with(".csv") || name.ends_with(".csv.gz") {
        return table::index(path, by_folders, skip);
    }
    if name.ends_with(".tar") {
        let (file, members) = archive::members(path)?;
        let paths: Vec<PathBuf> = members.iter().map(|member| member.path.clone()).collect();
        let labels = labels::from_paths(path, &paths, by_folders)?;
        return Ok(labels.into_index(Encoded::Members { file, members }));
    }
    let packed = [".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2", ".zip"].iter().any(|end| name.ends_with(end));
    let hint = match packed {
        true => "unpack it, and give the folder or the plain `.tar`; pictures are compressed already",
        false => {
            "give a folder or `.tar` of `…/<class>/<file>.jpg|png`, a CIFAR-10 binary folder, a `.csv` or a `.csv.gz`"
        }
    };
    Err(layout(path, "its form is not known", hint))
}

impl Encoded {
    /// Number of pictures.
    pub fn len(&self) -> usize {
        match self {
            Encoded::Files { paths, .. } => paths.len(),
            Encoded::Members { members, .. } => members.len(),
        }
    }

    /// What a picture is called in messages: its path below the root.
    pub fn name(&self, sample: usize) -> String {
        match self {
            Encoded::Files { paths, .. } => paths[sample].display().to_string(),
            Encoded::Members { members, .. } => members[sample].path.display().to_string(),
        }
    }

    /// Reads the file of one picture into `bytes`.
    pub fn read(&self, sample: usize, bytes: &mut Vec<u8>) -> Result<(), Error> {
        let read = match self {
            Encoded::Files { root, paths } => read_file(&root.join(&paths[sample]), bytes),
            Encoded::Members { file, members } => {
                let Member { offset, bytes: length, .. } = members[sample];
                bytes.clear();
                bytes.resize(length.min(LARGEST_FILE + 1) as usize, 0);
                file.read_exact_at(bytes, offset)
            }
        };
        read.map_err(|source| Error::Read { name: self.name(sample), source })?;
        let why = match bytes.len() as u64 {
            0 => "the file is empty",
            1..=LARGEST_FILE => return Ok(()),
            _ => "the file is larger than 256 MiB",
        };
        Err(Error::Picture { name: self.name(sample), why: why.into() })
    }

    /// Keeps the pictures for which `keep` holds.
    pub fn retain(&mut self, keep: &[bool]) {
        let mut flags = keep.iter();
        match self {
            Encoded::Files { paths, .. } => paths.retain(|_| flags.next() == Some(&true)),
            Encoded::Members { members, .. } => members.retain(|_| flags.next() == Some(&true)),
        }
    }
}

fn read_file(path: &Path, bytes: &mut Vec<u8>) -> std::io::Result<()> {
    bytes.clear();
    let file = File::open(path)?;
    bytes.reserve(file.metadata()?.len().min(LARGEST_FILE) as usize);
    file.take(LARGEST_FILE + 1).read_to_end(bytes)?;
    Ok(())
}

fn layout(path: &Path, why: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::Layout { path: path.to_owned(), why: why.into(), hint: hint.into() }
}
