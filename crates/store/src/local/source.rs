//! The files of a local data set, with portable names.

use std::fs;
use std::path::{Path, PathBuf};

use data::chunk::check_name;

use crate::Error;

/// Our folder in a target: unfinished files, and receipts of finished ones.
pub(crate) const OWN: &str = ".gradus";

/// A file to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Local {
    /// Its path below the data set.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    pub bytes: u64,
}

/// All files below a folder, or the one file, sorted by name.
pub(crate) fn walk(path: &Path) -> Result<Vec<Local>, Error> {
    let metadata = fs::metadata(path).map_err(Error::file("open", path))?;
    let mut found = Vec::new();
    if metadata.is_file() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        check(&name, path)?;
        found.push(Local { name, path: path.to_owned(), bytes: metadata.len() });
        return Ok(found);
    }
    let mut waiting = vec![(path.to_owned(), String::new())];
    while let Some((folder, above)) = waiting.pop() {
        for entry in fs::read_dir(&folder).map_err(Error::file("list", &folder))? {
            let entry = entry.map_err(Error::file("list", &folder))?;
            let path = entry.path();
            let Some(last) = entry.file_name().to_str().map(str::to_owned) else {
                return Err(unfit(&path, "its name is not UTF-8"));
            };
            if above.is_empty() && last == OWN {
                continue;
            }
            let name = format!("{above}{last}");
            let kind = entry.file_type().map_err(Error::file("open", &path))?;
            let metadata = fs::metadata(&path).map_err(Error::file("open", &path))?;
            if metadata.is_dir() && kind.is_symlink() {
                return Err(unfit(&path, "it is a link to a folder, which may lead in a circle"));
            }
            if metadata.is_dir() {
                waiting.push((path, format!("{name}/")));
                continue;
            }
            if !metadata.is_file() {
                return Err(unfit(&path, "it is no plain file"));
            }
            check(&name, &path)?;
            found.push(Local { name, path, bytes: metadata.len() });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn check(name: &str, path: &Path) -> Result<(), Error> {
    check_name(name).map_err(|why| unfit(path, why))
}

fn unfit(path: &Path, why: &str) -> Error {
    let message = format!("`{}` cannot be sent: {why}", path.display());
    Error::Usage { message, hint: "rename it, or move it out of the folder".into() }
}
