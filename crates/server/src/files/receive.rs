//! Receives parts of files, each at its offset, and renames a file once it is complete.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use axum::http::StatusCode;
use domain::Fence;
use domain::files::{BroughtPart, KEPT, KeepRequest, Received, is_safe};
use node::log::LOG_BOUND;

use super::limit::StorageLimit;
use super::{Grant, Refused, Runs, failed};
use crate::home::TransferLocks;

impl Runs {
    /// Receives a part of a file. The answer has the number of bytes received; a part at another offset has no effect.
    pub(super) fn bring(&self, run: &str, path: &str, part: &BroughtPart, bytes: &[u8]) -> Result<Received, Refused> {
        let folder = self.run(run)?;
        let place = place(&folder, path)?;
        let locks = self.transfers.of(run);
        let _one = locks.part();
        let attempt = WritingAttempt { run: &folder, fence: Fence(part.fence), locks: &locks };
        newest(&folder, attempt.fence)?;
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent).map_err(failed("make", parent))?;
        }
        match (part.total, &part.sha256) {
            (None, _) => grown(&self.limit, &place, (part.offset, part.hole), bytes),
            (Some(_), _) if part.hole > 0 => Err((StatusCode::BAD_REQUEST, "a whole file has no holes".to_owned())),
            (Some(total), Some(sha256)) => whole(&self.limit, &attempt, (&place, part), (total, sha256), bytes),
            (Some(_), None) => Err((StatusCode::BAD_REQUEST, "a whole file comes with its `sha256`".to_owned())),
        }
    }

    /// Deletes the files of checkpoints that are not named, and what the attempt had sent and its program has deleted.
    pub(super) fn keep(&self, run: &str, request: &KeepRequest) -> Result<(), Refused> {
        let folder = self.run(run)?;
        let locks = self.transfers.of(run);
        let _one = locks.part();
        let attempt = WritingAttempt { run: &folder, fence: request.fence, locks: &locks };
        attempt.change(|| keep_only(&folder.join("checkpoints"), request))
    }
}

/// An attempt that sends files of its run.
struct WritingAttempt<'a> {
    run: &'a Path,
    fence: Fence,
    locks: &'a TransferLocks,
}

impl WritingAttempt<'_> {
    /// Makes a change that the next attempt would find, unless that has begun: since the attempt was let in, a file may have been
    /// hashed for minutes.
    fn change<T>(&self, change: impl FnOnce() -> Result<T, Refused>) -> Result<T, Refused> {
        let _held = self.locks.fence();
        newest(self.run, self.fence)?;
        change()
    }
}

/// Deletes the files of checkpoints that a request does not name, and those that it names as deleted.
fn keep_only(checkpoints: &Path, request: &KeepRequest) -> Result<(), Refused> {
    let kept: BTreeSet<&str> = request.files.iter().map(String::as_str).collect();
    let mut files: Vec<String> = super::send::list(checkpoints)?.files.into_iter().map(|file| file.path).collect();
    // A manifest is removed before its files, so that none lists missing files.
    files.sort_by_key(|path| !path.starts_with("manifest-"));
    for path in files.iter().filter(|path| !kept.contains(path.as_str()) && is_checkpoint(path)) {
        let path = checkpoints.join(path);
        fs::remove_file(&path).map_err(failed("delete", &path))?;
        // The folder of a step is removed with its last file.
        let _ = path.parent().filter(|parent| *parent != checkpoints).map(fs::remove_dir);
    }
    let removed = request.removed.iter().filter(|path| !kept.contains(path.as_str()));
    for path in removed.filter(|path| is_safe(path) && !is_own(path)) {
        remove(checkpoints, &checkpoints.join(path))?;
    }
    Ok(())
}

/// Deletes a file, if it is there, and the folders above it that are empty then.
fn remove(checkpoints: &Path, path: &Path) -> Result<(), Refused> {
    let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
    let inside = parent.zip(checkpoints.canonicalize().ok()).filter(|(parent, root)| parent.starts_with(root));
    // A link may lead out of the folder.
    if inside.is_none() {
        return Ok(());
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed("delete", path)(error)),
        Ok(()) | Err(_) => {}
    }
    let mut parent = path.parent();
    while let Some(folder) = parent.filter(|folder| *folder != checkpoints) {
        if fs::remove_dir(folder).is_err() {
            break;
        }
        parent = folder.parent();
    }
    Ok(())
}

/// Whether a file in `checkpoints/` is this machine's own: no agent sends it.
fn is_own(path: &str) -> bool {
    matches!(path, "fence" | "lock") || path.rsplit('/').next().is_some_and(|name| name.starts_with('.'))
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

/// A file that grows: the part is written at its offset, unless an earlier one is missing. A hole makes the file longer, and
/// leaves what is there of it already.
fn grown(limit: &StorageLimit, place: &Path, (offset, hole): (u64, u64), bytes: &[u8]) -> Result<Received, Refused> {
    if hole > 0 && !bytes.is_empty() {
        return Err((StatusCode::BAD_REQUEST, "a hole comes without contents".to_owned()));
    }
    let end = offset.checked_add(hole.max(bytes.len() as u64)).filter(|end| i64::try_from(*end).is_ok());
    let end = end.ok_or_else(|| (StatusCode::BAD_REQUEST, "no file can be that long".to_owned()))?;
    let mut file =
        OpenOptions::new().create(true).truncate(false).write(true).open(place).map_err(failed("write", place))?;
    let length = file.metadata().map_err(failed("read", place))?.len();
    if offset > length {
        return Ok(Received { bytes: length, is_whole: false });
    }
    // Data dropped on the machine takes no space here either; older agents send it as zeros.
    let are_zeros = || offset == length && bytes.len() as u64 >= HOLE && bytes.iter().all(|byte| *byte == 0);
    let is_dropped = hole > 0 || are_zeros();
    let added = if is_dropped { 0 } else { end.saturating_sub(length) };
    limit.require(added)?;
    let written = match is_dropped {
        true => file.set_len(end.max(length)),
        false => file.seek(SeekFrom::Start(offset)).and_then(|_| file.write_all(bytes)),
    };
    written.map_err(failed("write", place))?;
    // A file system without hole punching keeps all of it.
    let _ = LOG_BOUND.keep(&file);
    Ok(Received { bytes: length.max(end), is_whole: false })
}

/// A file that is renamed when it is complete and its checksum matches; until then its parts are stored next to it, under
/// a name with that checksum: what was sent of other contents is never continued.
fn whole(
    limit: &StorageLimit,
    attempt: &WritingAttempt,
    (place, part): (&Path, &BroughtPart),
    (total, sha256): (u64, &str),
    bytes: &[u8],
) -> Result<Received, Refused> {
    if sha256.len() < NAMED || !sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err((StatusCode::BAD_REQUEST, format!("`{sha256}` is no SHA-256 in hexadecimal digits")));
    }
    let partial = beside(place, sha256);
    let is_begun = partial.exists();
    if !is_begun && is_there(place, total, sha256) {
        if let Ok(file) = File::open(place) {
            date(&file, part.modified);
        }
        return Ok(Received { bytes: total, is_whole: true });
    }
    if !is_begun && (bytes.len() as u64) < total {
        remove_other_partials(place);
    }
    // What is here already was not refused above: on a full disk an attempt must learn what it need not send again.
    if part.offset == fs::metadata(&partial).map_or(0, |meta| meta.len()) {
        limit.require(bytes.len() as u64)?;
    }
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
    date(&file, part.modified);
    file.sync_all().map_err(failed("write", &partial))?;
    attempt.change(|| fs::rename(&partial, place).map_err(failed("write", place)))?;
    let parent = place.parent().unwrap_or(place);
    File::open(parent).and_then(|folder| folder.sync_all()).map_err(failed("write", place))?;
    Ok(Received { bytes: total, is_whole: true })
}

/// Sets the time at which the file was modified on its machine, which tells older copies from newer ones. Without it, a
/// copy is only fetched more often.
fn date(file: &File, modified: Option<i64>) {
    if let Some(micros) = modified.and_then(|micros| u64::try_from(micros).ok()) {
        let _ = file.set_modified(UNIX_EPOCH + Duration::from_micros(micros));
    }
}

fn is_there(place: &Path, total: u64, sha256: &str) -> bool {
    fs::metadata(place).is_ok_and(|meta| meta.len() == total) && hash(place).is_ok_and(|hash| hash == sha256)
}

/// So many digits of a checksum are in the name of an incomplete file.
const NAMED: usize = 16;

/// Of a longer name nothing is in it: file systems allow 255 bytes.
const LONGEST: usize = 200;

fn beside(place: &Path, sha256: &str) -> PathBuf {
    place.with_file_name(partial_prefix(place) + sha256.get(..NAMED).unwrap_or(sha256))
}

fn partial_prefix(place: &Path) -> String {
    let name = place.file_name().and_then(|name| name.to_str()).filter(|name| name.len() <= LONGEST);
    let name = name.unwrap_or("file");
    format!(".{name}.partial-")
}

/// Deletes what interrupted uploads have left of other contents of a file, which nobody will continue.
fn remove_other_partials(place: &Path) {
    let prefix = partial_prefix(place);
    let Some(Ok(entries)) = place.parent().map(fs::read_dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let mark = name.to_str().and_then(|name| name.strip_prefix(&prefix));
        // Older versions have put the number of the attempt there, such as `a1`.
        if mark.is_some_and(|mark| mark.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// SHA-256 of a file, in hexadecimal digits.
fn hash(path: &Path) -> std::io::Result<String> {
    node::sha256(File::open(path)?)
}
