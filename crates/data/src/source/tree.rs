//! Pictures in a folder tree.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::labels::{is_hidden, is_picture};
use super::layout;
use crate::Error;

/// All pictures below `root`, relative to it and sorted by path, whatever order the file system lists them in.
///
/// Links are followed, each folder once. Hidden files and files of other kinds are passed over.
pub(super) fn walk(root: &Path) -> Result<Vec<PathBuf>, Error> {
    let refused = |path: &Path, source| Error::Read { name: path.display().to_string(), source };
    let mut pictures = Vec::new();
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
            // A link to nothing stays in the list, so that it is reported by name when it is met.
            let (is_folder, is_file) = match fs::metadata(path.join(&name)) {
                Ok(metadata) => (metadata.is_dir(), metadata.is_file()),
                Err(_) => (false, true),
            };
            useful |= is_folder;
            if is_folder {
                open.push(relative);
            } else if is_file && is_picture(&relative) {
                useful = true;
                pictures.push(relative);
            }
        }
        if !useful && folder != Path::new("") {
            without.push(folder);
        }
    }
    if let (Some(folder), false) = (without.iter().min(), pictures.is_empty()) {
        let why = format!("no file in its folder `{}` ends in `.jpg`, `.jpeg` or `.png`", folder.display());
        return Err(layout(root, why, "put pictures into that folder, or remove it"));
    }
    pictures.sort();
    Ok(pictures)
}
