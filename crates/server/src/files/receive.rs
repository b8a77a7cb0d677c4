//! Receives parts of files, each at its offset, and renames a file once it is complete.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use axum::http::StatusCode;
use domain::Fence;
use domain::files::{BroughtPart, KEPT, KeepRequest, Received, is_safe};
use node::log::LOG_BOUND;

use super::{Grant, Refused, Runs, failed};

impl Runs {
    /// Receives a part of a file. The answer has the number of bytes received; a part at another offset has no effect.
    pub(super) fn bring(&self, run: &str, path: &str, part: &BroughtPart, bytes: &[u8]) -> Result<Received, Refused> {
        let folder = self.run(run)?;
        let place = place(&folder, path)?;
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        newest(&folder, Fence(part.fence))?;
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent).map_err(failed("make", parent))?;
        }
        match (part.total, &part.sha256) {
            (None, _) => grown(&place, part.offset, bytes),
            (Some(total), Some(sha256)) => whole(&place, part, (total, sha256), bytes),
            (Some(_), None) => Err((StatusCode::BAD_REQUEST, "a whole file comes with its `sha256`".to_owned())),
        }
    }

    /// Deletes the files of checkpoints that are not named.
    pub(super) fn keep(&self, run: &str, request: &KeepRequest) -> Result<(), Refused> {
        let folder = self.run(run)?;
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        newest(&folder, request.fence)?;
        let checkpoints = folder.join("checkpoints");
        let kept: BTreeSet<&str> = request.files.iter().map(String::as_str).collect();
        let mut files: Vec<String> = super::send::list(&checkpoints)?.files.into_iter().map(|file| file.path).collect();
        // A manifest is removed before its files, so that none lists missing files.
        files.sort_by_key(|path| !path.starts_with("manifest-"));
        for path in files.iter().filter(|path| !kept.contains(path.as_str()) && is_checkpoint(path)) {
            let path = checkpoints.join(path);
            fs::remove_file(&path).map_err(failed("delete", &path))?;
            // The folder of a step is removed with its last file.
            let _ = path.parent().filter(|parent| *parent != checkpoints).map(fs::remove_dir);
        }
        Ok(())
    }
}

/// Whether it is a file of a checkpoint, and not the fence, the lock or an incomplete file.
fn is_checkpoint(path: &str) -> bool {
    ["manifest-", "step-", "best-", "data-"].iter().any(|start| path.starts_with(start))
}

/// Where a file of a run belongs.
fn place(run: &Path, path: &str) -> Result<PathBuf, Refused> {
    let is_kept = path.split_once('/').is_some_and(|(folder, _)| KEPT.contains(&folder));
    if is_kept && is_safe(path) {
        return Ok(run.join(path));
    }
    Err((StatusCode::BAD_REQUEST, format!("`{path}` is no file of a run that is kept")))
}

/// Refuses an attempt that was replaced.
fn newest(run: &Path, fence: Fence) -> Result<(), Refused> {
    let grant = Grant::of(run)?;
    if fence >= grant.fence {
        return Ok(());
    }
    Err((StatusCode::CONFLICT, format!("attempt {} was replaced by attempt {}", fence.0, grant.fence.0)))
}

/// So many zeros are no output of a program.
const HOLE: u64 = 4096;

/// A file that grows: the part is written at its offset, unless an earlier one is missing.
fn grown(place: &Path, offset: u64, bytes: &[u8]) -> Result<Received, Refused> {
    let mut file =
        OpenOptions::new().create(true).truncate(false).write(true).open(place).map_err(failed("write", place))?;
    let length = file.metadata().map_err(failed("read", place))?.len();
    if offset > length {
        return Ok(Received { bytes: length, is_whole: false });
    }
    // Data dropped on the machine arrives as zeros, and takes no space here either.
    let is_dropped = offset == length && bytes.len() as u64 >= HOLE && bytes.iter().all(|byte| *byte == 0);
    let written = match is_dropped {
        true => file.set_len(offset + bytes.len() as u64),
        false => file.seek(SeekFrom::Start(offset)).and_then(|_| file.write_all(bytes)),
    };
    written.map_err(failed("write", place))?;
    // A file system without hole punching keeps all of it.
    let _ = LOG_BOUND.keep(&file);
    Ok(Received { bytes: length.max(offset + bytes.len() as u64), is_whole: false })
}

/// A file that is renamed when it is complete and its checksum matches; until then its parts are stored next to it.
fn whole(place: &Path, part: &BroughtPart, (total, sha256): (u64, &str), bytes: &[u8]) -> Result<Received, Refused> {
    if is_there(place, total, sha256) {
        return Ok(Received { bytes: total, is_whole: true });
    }
    let partial = beside(place, part.fence);
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&partial)
        .map_err(failed("write", &partial))?;
    let length = file.metadata().map_err(failed("read", &partial))?.len();
    if part.offset != length || part.offset.saturating_add(bytes.len() as u64) > total {
        if length > total {
            file.set_len(0).map_err(failed("write", &partial))?;
            return Ok(Received { bytes: 0, is_whole: false });
        }
        return Ok(Received { bytes: length, is_whole: false });
    }
    let written = file.seek(SeekFrom::Start(length)).and_then(|_| file.write_all(bytes));
    written.map_err(failed("write", &partial))?;
    let there = length + bytes.len() as u64;
    if there < total {
        return Ok(Received { bytes: there, is_whole: false });
    }
    if hash(&partial).map_err(failed("read", &partial))? != sha256 {
        fs::remove_file(&partial).map_err(failed("delete", &partial))?;
        return Err((StatusCode::UNPROCESSABLE_ENTITY, "its checksum is wrong; it is to be sent again".to_owned()));
    }
    let named = file.sync_all().and_then(|()| fs::rename(&partial, place)).and_then(|()| {
        let parent = place.parent().unwrap_or(place);
        File::open(parent)?.sync_all()
    });
    named.map_err(failed("write", place))?;
    Ok(Received { bytes: total, is_whole: true })
}

fn is_there(place: &Path, total: u64, sha256: &str) -> bool {
    fs::metadata(place).is_ok_and(|meta| meta.len() == total) && hash(place).is_ok_and(|hash| hash == sha256)
}

fn beside(place: &Path, fence: u64) -> PathBuf {
    let name = place.file_name().and_then(|name| name.to_str()).unwrap_or("file");
    place.with_file_name(format!(".{name}.partial-a{fence}"))
}

/// SHA-256 of a file, in hexadecimal digits.
fn hash(path: &Path) -> std::io::Result<String> {
    node::sha256(File::open(path)?)
}
