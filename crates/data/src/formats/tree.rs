//! The contents of a folder tree: images, or files that hold many each.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::archives::{is_compressed, tfrecord};
use super::index::Home;
use super::labels::{EXTENSIONS, home, is_hidden, is_image, is_unread};
use crate::Error;
use crate::error::layout;

/// The files found below a folder.
pub(super) struct Tree {
    root: PathBuf,
    /// Relative to the root and sorted.
    pub images: Vec<PathBuf>,
    others: Vec<(Form, PathBuf)>,
    /// Images of kinds that are not read.
    pub unread: Vec<String>,
}

/// A form of file that holds many samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    Tar,
    Zip,
    TfRecord,
    Parquet,
    Arrow,
}

impl Form {
    /// The format that a file's name implies. Without extension, `train-00000-of-01024` is TensorFlow's name for
    /// TFRecords.
    pub fn of(path: &Path) -> Option<Form> {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        match name.rsplit_once('.').map(|(_, ending)| ending) {
            Some("tar") => Some(Form::Tar),
            _ if is_compressed(path) => Some(Form::Tar),
            Some("zip") => Some(Form::Zip),
            Some("parquet") => Some(Form::Parquet),
            Some("arrow" | "feather") => Some(Form::Arrow),
            _ if name.contains("tfrecord") && !name.ends_with(".gz") => Some(Form::TfRecord),
            None if name.contains("-of-") => Some(Form::TfRecord),
            _ => None,
        }
    }

    /// Whether a file is of this format, if the name alone is ambiguous.
    pub fn is_meant(self, path: &Path) -> bool {
        match self {
            Form::Tar | Form::Zip | Form::Parquet | Form::Arrow => true,
            Form::TfRecord => path.to_string_lossy().to_lowercase().contains("tfrecord") || tfrecord::is_one(path),
        }
    }

    fn word(self) -> &'static str {
        match self {
            Form::Tar => "tars",
            Form::Zip => "zips",
            Form::TfRecord => "TFRecords",
            Form::Parquet => "Parquet files",
            Form::Arrow => "Arrow files",
        }
    }
}

impl Tree {
    /// The files that hold many samples, sorted by path; an error if they are of several forms.
    pub fn tables(&self) -> Result<Option<(Form, Vec<PathBuf>)>, Error> {
        let mut files: Vec<&(Form, PathBuf)> = self.others.iter().collect();
        files.retain(|(form, path)| form.is_meant(&self.root.join(path)));
        files.sort_by(|a, b| a.1.cmp(&b.1));
        let Some((first, _)) = files.first() else {
            return Ok(None);
        };
        if let Some((other, _)) = files.iter().find(|(form, _)| form != first) {
            let why = format!("it holds both {} and {}", first.word(), other.word());
            return Err(layout(&self.root, why, "give the folder of one of them"));
        }
        Ok(Some((*first, files.iter().map(|(_, path)| self.root.join(path)).collect())))
    }
}

/// The part that a path implies: by a folder of that name, or by the start of the file's, as in `train-00000-of-00002`.
pub(super) fn home_of(path: &Path) -> Home {
    let folders = path.parent().into_iter().flatten().find_map(|folder| home(&folder.to_string_lossy()));
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let start = file.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default().to_owned();
    folders.or_else(|| home(&start))
}

/// All images below `root`, relative to it and sorted by path, independent of the order of the file system.
///
/// Links are followed, each folder once. Hidden files and files of other kinds are ignored.
pub(super) fn walk(root: &Path) -> Result<Tree, Error> {
    let refused = |path: &Path, source| Error::Read { name: path.display().to_string(), source };
    let (mut images, mut others, mut unread) = (Vec::new(), Vec::new(), Vec::new());
    let mut without = Vec::new();
    let mut seen = HashSet::new();
    let mut open = vec![PathBuf::new()];
    while let Some(folder) = open.pop() {
        let path = root.join(&folder);
        if !seen.insert(fs::canonicalize(&path).map_err(|source| refused(&path, source))?) {
            continue;
        }
        let mut useful = false;
        for entry in fs::read_dir(&path).map_err(|source| refused(&path, source))? {
            let name = entry.map_err(|source| refused(&path, source))?.file_name();
            if is_hidden(&name.to_string_lossy()) {
                continue;
            }
            let relative = folder.join(&name);
            // A dangling link stays in the list, so that it is reported by name when it is read.
            let (is_folder, is_file) = match fs::metadata(path.join(&name)) {
                Ok(metadata) => (metadata.is_dir(), metadata.is_file()),
                Err(_) => (false, true),
            };
            useful |= is_folder;
            if is_folder {
                open.push(relative);
            } else if is_file && is_image(&relative) {
                useful = true;
                images.push(relative);
            } else if is_file && is_unread(&relative) {
                unread.push(relative.display().to_string());
            } else if is_file && let Some(form) = Form::of(&relative) {
                others.push((form, relative));
            }
        }
        if !useful && folder != Path::new("") {
            without.push(folder);
        }
    }
    if let (Some(folder), false) = (without.iter().min(), images.is_empty()) {
        let why = format!("no file in its folder `{}` ends in `.{}`", folder.display(), EXTENSIONS.join("`, `."));
        return Err(layout(root, why, "put images into that folder, or remove it"));
    }
    images.sort();
    unread.sort();
    Ok(Tree { root: root.to_owned(), images, others, unread })
}
