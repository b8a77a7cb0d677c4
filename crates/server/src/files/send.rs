//! Sends lists of files, and parts of them.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::UNIX_EPOCH;

use axum::http::StatusCode;
use domain::files::{FileInfo, FileListing, PARTS_MAX, PartsRequest, is_safe};
use node::mounts;
use node::workdir::{LeavesOut, Walk, WorkdirEntry};

use super::{Refused, failed};

/// Every file below a folder, or `root` if it is a file. Links are followed; other kinds of files are skipped.
pub(super) fn list(root: &Path) -> Result<FileListing, Refused> {
    let meta = fs::metadata(root).map_err(failed("read", root))?;
    if meta.is_file() {
        let name = root.file_name().and_then(|name| name.to_str()).unwrap_or("file").to_owned();
        return Ok(FileListing { is_file: true, files: vec![info(name, &meta)] });
    }
    let mut files = Vec::new();
    below(root, "", 0, &mut files)?;
    files.sort();
    Ok(FileListing { is_file: false, files })
}

/// The files of a working folder that are copied to machines. Links are followed. A home folder within it stays here: it
/// holds keys.
pub(super) fn list_workdir(root: &Path, home: &Path) -> Result<FileListing, Refused> {
    let root = &fs::canonicalize(root).map_err(failed("read", root))?;
    let home = fs::canonicalize(home).map_err(failed("read", home))?;
    let mut files = Vec::new();
    for entry in (Walk { except: Some(home), follows_links: true, leaves_out: LeavesOut::Ignored }).entries(root) {
        let WorkdirEntry { path, kind } = entry.map_err(failed("read", root))?;
        let Some(name) = path.to_str().map(str::to_owned) else {
            let message = format!("the name of `{}` is not Unicode; rename it", root.join(&path).display());
            return Err((StatusCode::UNPROCESSABLE_ENTITY, message));
        };
        if kind.is_file() && is_safe(&name) {
            let path = root.join(path);
            files.push(info(name, &fs::metadata(&path).map_err(failed("read", &path))?));
        }
    }
    files.sort();
    Ok(FileListing { is_file: false, files })
}

/// Maximum depth of folders: a link may form a cycle.
const DEEPEST: usize = 40;

fn below(folder: &Path, prefix: &str, depth: usize, files: &mut Vec<FileInfo>) -> Result<(), Refused> {
    if depth > DEEPEST {
        let message = format!("`{}` lies more than {DEEPEST} folders deep; a link may lead back", folder.display());
        return Err((StatusCode::UNPROCESSABLE_ENTITY, message));
    }
    for entry in fs::read_dir(folder).map_err(failed("read", folder))? {
        let entry = entry.map_err(failed("read", folder))?;
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
            let message = format!("the name of `{}` is not Unicode; rename it", entry.path().display());
            return Err((StatusCode::UNPROCESSABLE_ENTITY, message));
        };
        let path = entry.path();
        // A link that leads nowhere is no file.
        let Ok(meta) = fs::metadata(&path) else { continue };
        let name = format!("{prefix}{name}");
        if meta.is_dir() {
            below(&path, &format!("{name}/"), depth + 1, files)?;
        } else if meta.is_file() && is_safe(&name) {
            files.push(info(name, &meta));
        }
    }
    Ok(())
}

fn info(path: String, meta: &fs::Metadata) -> FileInfo {
    use std::os::unix::fs::PermissionsExt;
    let modified = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let modified = modified.map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX));
    let mode = meta.permissions().mode();
    let (is_executable, is_private) = (mode & 0o100 != 0, mode & 0o077 == 0);
    FileInfo { path, bytes: meta.len(), modified, is_executable, is_private }
}

/// A file, or what a folder of `file_mounts` holds. It holds nothing of what its links lead to elsewhere, which could be
/// anything of this machine's.
pub(super) fn list_mount(root: &Path, home: &Path) -> Result<FileListing, Refused> {
    if !fs::metadata(root).map_err(failed("read", root))?.is_dir() {
        return list(root);
    }
    let root = &fs::canonicalize(root).map_err(failed("read", root))?;
    let home = fs::canonicalize(home).map_err(failed("read", home))?;
    let mut files = Vec::new();
    for entry in mounts::entries(root, Some(home), LeavesOut::Listed) {
        let refused = |error: std::io::Error| (StatusCode::UNPROCESSABLE_ENTITY, error.to_string());
        let WorkdirEntry { path, kind } = entry.map_err(refused)?;
        if kind.is_file() {
            let meta = fs::metadata(root.join(&path)).map_err(failed("read", &root.join(&path)))?;
            files.push(info(path.to_string_lossy().into_owned(), &meta));
        }
    }
    files.sort();
    Ok(FileListing { is_file: false, files })
}

/// Parts of what [`list_mount`] lists.
pub(super) fn read_mount(root: &Path, request: &PartsRequest) -> Result<Vec<u8>, Refused> {
    let root = fs::canonicalize(root).map_err(failed("read", root))?;
    for part in request.parts.iter().filter(|part| root.is_dir() && is_safe(&part.path)) {
        let path = root.join(&part.path);
        if !fs::canonicalize(&path).map_err(failed("open", &path))?.starts_with(&root) {
            return Err((StatusCode::FORBIDDEN, format!("`{}` leads out of the folder", path.display())));
        }
    }
    read(&root, request)
}

/// The contents of the parts, concatenated. A truncated file is an error.
pub(super) fn read(root: &Path, request: &PartsRequest) -> Result<Vec<u8>, Refused> {
    let total = request.parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.bytes));
    if total > PARTS_MAX {
        return Err((
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("{total} bytes were asked for, and {PARTS_MAX} are the limit"),
        ));
    }
    let is_file = fs::metadata(root).map_err(failed("read", root))?.is_file();
    let mut answer = Vec::with_capacity(usize::try_from(total).unwrap_or(0));
    for part in &request.parts {
        if !is_safe(&part.path) {
            return Err((StatusCode::BAD_REQUEST, format!("`{}` is no path below the folder", part.path)));
        }
        let path = if is_file { root.to_owned() } else { root.join(&part.path) };
        let mut file = File::open(&path).map_err(failed("open", &path))?;
        file.seek(SeekFrom::Start(part.offset)).map_err(failed("read", &path))?;
        let read = file.take(part.bytes).read_to_end(&mut answer).map_err(failed("read", &path))?;
        if read as u64 != part.bytes {
            let message = format!("`{}` has become shorter while it was sent", path.display());
            return Err((StatusCode::CONFLICT, message));
        }
    }
    Ok(answer)
}
