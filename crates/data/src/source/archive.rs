//! Pictures in an uncompressed tar, which is never unpacked.
//!
//! One pass over the headers notes where each picture's bytes begin; they are read by position afterwards. Paths
//! inside the tar are labels only and never touch the file system, so a hostile one can do no harm.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use tar::EntryType;

use super::labels::{is_hidden, is_picture};
use super::{Member, layout};
use crate::Error;

/// The tar, and its pictures sorted by path. Of two with one path the later counts, as when unpacking.
pub(super) fn members(path: &Path) -> Result<(File, Vec<Member>), Error> {
    let refused = |source| Error::Read { name: path.display().to_string(), source };
    let file = File::open(path).map_err(refused)?;
    let length = file.metadata().map_err(refused)?.len();
    let mut archive = tar::Archive::new(file);
    let (mut found, links) = headers(&mut archive).map_err(|error| damaged(path, &error.to_string()))?;
    for (name, target) in links {
        if let Some(&span) = found.get(&target) {
            found.insert(name, span);
        }
    }
    let mut members = Vec::with_capacity(found.len());
    for (path_inside, (offset, bytes)) in found {
        if offset.checked_add(bytes).is_none_or(|end| end > length) {
            return Err(damaged(path, &format!("it ends inside `{}`", path_inside.display())));
        }
        members.push(Member { path: path_inside, offset, bytes });
    }
    Ok((archive.into_inner(), members))
}

type Spans = BTreeMap<PathBuf, (u64, u64)>;

/// Where each picture lies, and the hard links among them: a tar keeps the second name of a file as one.
fn headers(archive: &mut tar::Archive<File>) -> io::Result<(Spans, Vec<(PathBuf, PathBuf)>)> {
    let (mut found, mut links) = (Spans::new(), Vec::new());
    for entry in archive.entries_with_seek()? {
        let entry = entry?;
        let Some(name) = picture(&entry.path_bytes()) else {
            continue;
        };
        match entry.header().entry_type() {
            EntryType::Regular | EntryType::Continuous => {
                found.insert(name, (entry.raw_file_position(), entry.size()));
            }
            EntryType::Link => {
                if let Some(target) = entry.link_name_bytes().and_then(|target| picture(&target)) {
                    links.push((name, target));
                }
            }
            EntryType::GNUSparse => {
                let why = format!("`{}` is stored as a sparse file, which is not read", name.display());
                return Err(io::Error::new(io::ErrorKind::Unsupported, why));
            }
            _ => {} // Folders, symbolic links and devices hold no pictures.
        }
    }
    Ok((found, links))
}

/// The path of a picture that is not hidden, without `.` and empty parts.
fn picture(bytes: &[u8]) -> Option<PathBuf> {
    let name = String::from_utf8_lossy(bytes);
    let parts: Vec<&str> = name.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let path: PathBuf = parts.iter().collect();
    (!name.ends_with('/') && is_picture(&path) && !parts.iter().any(|part| is_hidden(part))).then_some(path)
}

fn damaged(path: &Path, why: &str) -> Error {
    layout(path, format!("the tar is damaged: {why}"), "get the file again, or check it with `tar -tf`")
}
