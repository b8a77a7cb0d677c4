//! File requests to the loop: small, and repeated while the loop cannot be reached.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use domain::files::{BroughtPart, FileListing, FilePart, KeepRequest, PartsRequest, Received};
use domain::{Finding, RunId};
use hyper::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::loop_request::{LoopAnswer, LoopPlace, LoopRequest};

/// How long the loop may be unreachable before a transfer is given up.
const AWAY: Duration = Duration::from_secs(120);

/// Between two tries.
const AGAIN: Duration = Duration::from_millis(500);

/// For one request.
pub(super) const REQUEST: Duration = Duration::from_secs(60);

/// Why a file did not travel.
#[derive(Debug, thiserror::Error)]
pub enum TravelError {
    /// The loop has answered, and will not do it.
    #[error("the loop says: {0}")]
    Refused(String),
    /// The loop has answered that there is no such file, folder or run.
    #[error("the loop says: {0}")]
    Missing(String),
    /// The loop has answered that the contents are not right, such as after an error on their way.
    #[error("the loop says: {0}")]
    Unprocessable(String),
    /// The loop has answered that it could not do it.
    #[error("the loop's machine failed: {0}")]
    Failed(String),
    /// The loop's disk is full.
    #[error("the loop's machine has no space left: {0}")]
    Full(String),
    /// A file here is written while it is read.
    #[error("it changes while it is sent")]
    Changing,
    /// There was no more time.
    #[error("the time to send it was over")]
    Late,
    /// The loop did not answer for long.
    #[error("the loop does not answer: {0}")]
    Unreachable(String),
    /// The object store of the job refuses, or does not answer.
    #[error("{}", .0.message)]
    Store(Box<Finding>),
    /// The object store of the job refuses the credentials, or there are none: they may have expired.
    #[error("{}", .0.message)]
    Denied(Box<Finding>),
    /// This disk refuses.
    #[error("cannot {doing} `{}`: {source}", path.display())]
    Disk {
        /// The operation.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// A file or folder here that cannot be used.
pub(super) fn disk(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TravelError {
    let path = path.to_owned();
    move |source| TravelError::Disk { doing, path, source }
}

/// Files of the loop's machine.
#[derive(Debug, Clone)]
pub struct LoopFiles {
    place: LoopPlace,
}

impl LoopFiles {
    /// Files of the loop that is there.
    pub fn new(place: &LoopPlace) -> LoopFiles {
        LoopFiles { place: place.clone() }
    }

    /// The files below an address.
    pub(super) fn list(&self, address: &str) -> Result<FileListing, TravelError> {
        parsed(&self.patiently(&LoopRequest::new(Method::GET, address, Vec::new()))?)
    }

    /// The same within a time, without a second try.
    pub(super) fn list_once(&self, address: &str, within: Duration) -> Result<FileListing, TravelError> {
        parsed(&self.once(&LoopRequest::new(Method::GET, address, Vec::new()), within)?)
    }

    /// The contents of parts, one after the other.
    pub(super) fn parts(&self, address: &str, parts: Vec<FilePart>) -> Result<Vec<u8>, TravelError> {
        let answer = self.patiently(&json(address, &PartsRequest { parts })?)?;
        Ok(answer.body.into())
    }

    /// Uploads a part of a file of a run within a time, without a second try.
    pub(super) fn bring(
        &self,
        run: &RunId,
        path: &str,
        part: &BroughtPart,
        (bytes, within): (Vec<u8>, Duration),
    ) -> Result<Received, TravelError> {
        let address = format!("runs/{run}/files/{}?{}", escaped(path), query(part));
        parsed(&self.once(&LoopRequest::new(Method::PUT, &address, bytes), within)?)
    }

    /// Reports which checkpoint files are still needed, within a time, without a retry.
    pub(super) fn keep(&self, run: &RunId, request: &KeepRequest, within: Duration) -> Result<(), TravelError> {
        self.once(&json(&format!("runs/{run}/keep"), request)?, within).map(|_| ())
    }

    /// Retries until there is an answer.
    fn patiently(&self, request: &LoopRequest) -> Result<LoopAnswer, TravelError> {
        let begun = Instant::now();
        loop {
            match self.once(request, REQUEST) {
                Err(TravelError::Unreachable(_) | TravelError::Failed(_)) if begun.elapsed() < AWAY => {
                    std::thread::sleep(AGAIN);
                }
                answer => return answer,
            }
        }
    }

    /// One try: a refusal is final; other errors may be transient.
    fn once(&self, request: &LoopRequest, within: Duration) -> Result<LoopAnswer, TravelError> {
        let answer = request.send(&self.place, within).map_err(TravelError::Unreachable)?;
        match answer.status {
            status if status.is_success() => Ok(answer),
            StatusCode::INSUFFICIENT_STORAGE => Err(TravelError::Full(answer.refusal())),
            StatusCode::INTERNAL_SERVER_ERROR => Err(TravelError::Failed(answer.refusal())),
            StatusCode::UNPROCESSABLE_ENTITY => Err(TravelError::Unprocessable(answer.refusal())),
            StatusCode::NOT_FOUND => Err(TravelError::Missing(answer.refusal())),
            status if status.is_client_error() => Err(TravelError::Refused(answer.refusal())),
            _ => Err(TravelError::Unreachable(answer.refusal())),
        }
    }
}

fn json(address: &str, value: &impl Serialize) -> Result<LoopRequest, TravelError> {
    let request = LoopRequest::json(Method::POST, address, value);
    request.map_err(|error| TravelError::Unreachable(error.to_string()))
}

fn parsed<T: DeserializeOwned>(answer: &LoopAnswer) -> Result<T, TravelError> {
    serde_json::from_slice(&answer.body).map_err(|error| TravelError::Unreachable(error.to_string()))
}

/// A part in a URL query; it needs no escaping.
fn query(part: &BroughtPart) -> String {
    let mut query = format!("fence={}&offset={}", part.fence, part.offset);
    if let (Some(total), Some(sha256)) = (part.total, &part.sha256) {
        query.push_str(&format!("&total={total}&sha256={sha256}"));
    }
    if let Some(modified) = part.modified {
        query.push_str(&format!("&modified={modified}"));
    }
    if part.hole > 0 {
        query.push_str(&format!("&hole={}", part.hole));
    }
    query
}

/// A path in a URL, with reserved characters percent-encoded.
fn escaped(path: &str) -> String {
    let mut escaped = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => escaped.push(byte as char),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// Fetches the files of `wanted` that are missing or differ into a folder, by requests for `parts`. Each is renamed once it
/// is complete.
pub(super) fn fetch(
    parts: &mut dyn FnMut(Vec<FilePart>) -> Result<Vec<u8>, TravelError>,
    wanted: &[domain::files::FileInfo],
    folder: &Path,
) -> Result<(), TravelError> {
    let mut batch: Vec<(&domain::files::FileInfo, FilePart)> = Vec::new();
    let mut bytes = 0;
    for file in wanted.iter().filter(|file| !is_current(file, folder)) {
        let mut offset = 0;
        loop {
            let length = (file.bytes - offset).min(domain::files::PARTS_MAX - bytes);
            batch.push((file, FilePart { path: file.path.clone(), offset, bytes: length }));
            bytes += length;
            offset += length;
            if bytes == domain::files::PARTS_MAX || batch.len() == BATCH {
                take(parts, &mut batch, folder)?;
                bytes = 0;
            }
            if offset == file.bytes {
                break;
            }
        }
    }
    take(parts, &mut batch, folder)
}

/// Maximum number of parts per request.
const BATCH: usize = 512;

/// Whether a file is here as it was listed.
fn is_current(file: &domain::files::FileInfo, folder: &Path) -> bool {
    let Ok(meta) = fs::metadata(folder.join(&file.path)) else { return false };
    meta.len() == file.bytes && micros(&meta) == file.modified
}

/// The modification time, as the loop lists it: in microseconds since 1970.
pub(super) fn micros(meta: &fs::Metadata) -> i64 {
    let modified = meta.modified().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    modified.map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

fn modified(file: &domain::files::FileInfo) -> std::time::SystemTime {
    std::time::UNIX_EPOCH + Duration::from_micros(u64::try_from(file.modified).unwrap_or(0))
}

/// Requests a batch of parts and writes each to its file.
fn take(
    parts: &mut dyn FnMut(Vec<FilePart>) -> Result<Vec<u8>, TravelError>,
    batch: &mut Vec<(&domain::files::FileInfo, FilePart)>,
    folder: &Path,
) -> Result<(), TravelError> {
    if batch.is_empty() {
        return Ok(());
    }
    let contents = parts(batch.iter().map(|(_, part)| part.clone()).collect())?;
    let mut rest = &contents[..];
    for (file, part) in batch.drain(..) {
        let length = usize::try_from(part.bytes).unwrap_or(usize::MAX);
        let Some((bytes, after)) = rest.split_at_checked(length) else {
            return Err(TravelError::Unreachable(format!("the answer is shorter than `{}`", file.path)));
        };
        rest = after;
        put(file, &part, bytes, folder)?;
    }
    Ok(())
}

fn put(file: &domain::files::FileInfo, part: &FilePart, bytes: &[u8], folder: &Path) -> Result<(), TravelError> {
    use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
    if !domain::files::is_safe(&file.path) {
        return Err(TravelError::Refused(format!("`{}` is not a relative path inside the folder", file.path)));
    }
    let path = folder.join(&file.path);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(disk("make", parent))?;
    }
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("file");
    let partial = path.with_file_name(format!(".{name}.partial"));
    let mut options = fs::OpenOptions::new();
    let opened = options.create(true).write(true).truncate(part.offset == 0).mode(0o600).open(&partial);
    let target = opened.map_err(disk("write", &partial))?;
    target.write_all_at(bytes, part.offset).map_err(disk("write", &partial))?;
    if part.offset + part.bytes < file.bytes {
        return Ok(());
    }
    let mode = match (file.is_executable, file.is_private) {
        (true, false) => 0o755,
        (false, false) => 0o644,
        (true, true) => 0o700,
        (false, true) => 0o600,
    };
    let done = target
        .set_permissions(fs::Permissions::from_mode(mode))
        .and_then(|()| target.set_modified(modified(file)))
        .and_then(|()| fs::rename(&partial, &path));
    done.map_err(disk("write", &path))
}
