//! Uploads an attempt's outputs to the loop: each checkpoint as soon as it is complete, logs as they grow, and
//! everything at the end.
//!
//! A manifest is sent after the files that it lists, so that the loop never has one that cannot be restored. Failed
//! uploads are retried in the next round.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant, SystemTime};

use domain::files::{BroughtPart, KEPT, KeepRequest, PARTS_MAX};
use domain::{AttemptId, Fence, RunId};

use super::checkpoints::{is_manifest, is_own};
use super::loop_files::{LoopFiles, TravelError, disk};
use crate::event::{AttemptEvent, Wakeup};

/// Interval of rounds for growing files.
const ROUND: Duration = Duration::from_secs(2);

/// Between two tries at the end.
const AGAIN: Duration = Duration::from_millis(500);

enum Order {
    /// A checkpoint is complete.
    Saved,
    /// No more output will be written; everything must be uploaded before this instant.
    Finish(Instant),
}

/// The thread that uploads an attempt's outputs; ends when this is dropped.
#[derive(Debug)]
pub struct Uploader {
    orders: Sender<Order>,
}

impl std::fmt::Debug for Order {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Order::Saved => "Saved",
            Order::Finish(_) => "Finish",
        })
    }
}

impl Uploader {
    /// Starts the thread for an attempt whose run has its files in `folder`. At its end it sends one
    /// [`AttemptEvent::Uploaded`], after [`Uploader::finish`]. With `has_only_logs`, another machine of the attempt
    /// uploads the other files.
    pub fn start(
        files: LoopFiles,
        (folder, has_only_logs): (PathBuf, bool),
        (run, attempt, fence): (RunId, AttemptId, Fence),
        events: Sender<Wakeup>,
    ) -> Uploader {
        let (orders, inbox) = mpsc::channel();
        let (sent, grown) = (BTreeMap::new(), BTreeMap::new());
        let mut upload = Upload { files, folder, has_only_logs, run, fence, sent, grown };
        std::thread::spawn(move || {
            loop {
                match inbox.recv_timeout(ROUND) {
                    Ok(Order::Saved) => drop(upload.checkpoints()),
                    Err(RecvTimeoutError::Timeout) => drop(upload.round()),
                    Err(RecvTimeoutError::Disconnected) => return,
                    Ok(Order::Finish(until)) => {
                        let result = upload.finish(until).map_err(|error| error.to_string());
                        let _ = events.send(Wakeup::Attempt(attempt, AttemptEvent::Uploaded(result)));
                        return;
                    }
                }
            }
        });
        Uploader { orders }
    }

    /// Announces a complete checkpoint.
    pub fn saved(&self) {
        let _ = self.orders.send(Order::Saved);
    }

    /// Announces the end of output.
    pub fn finish(&self, within: Duration) {
        let _ = self.orders.send(Order::Finish(Instant::now() + within));
    }
}

struct Upload {
    files: LoopFiles,
    folder: PathBuf,
    has_only_logs: bool,
    run: RunId,
    fence: Fence,
    /// Files that are there, as they were: size and time.
    sent: BTreeMap<String, (u64, SystemTime)>,
    /// Bytes of each log that are there.
    grown: BTreeMap<String, u64>,
}

impl Upload {
    fn round(&mut self) -> Result<(), TravelError> {
        self.checkpoints()?;
        self.logs()
    }

    /// Sends everything, again and again until it is there or the time is over.
    fn finish(&mut self, until: Instant) -> Result<(), TravelError> {
        loop {
            let all = self.round().and_then(|()| {
                if self.has_only_logs {
                    return Ok(());
                }
                for folder in KEPT.into_iter().filter(|folder| !matches!(*folder, "checkpoints" | "logs")) {
                    for path in below(&self.folder, folder)? {
                        self.whole(&path)?;
                    }
                }
                Ok(())
            });
            match all {
                Err(error @ TravelError::Refused(_)) => return Err(error),
                Err(_) if Instant::now() + AGAIN < until => std::thread::sleep(AGAIN),
                other => return other,
            }
        }
    }

    /// Sends complete files that are missing there, manifests last; then reports which are still needed.
    fn checkpoints(&mut self) -> Result<(), TravelError> {
        if self.has_only_logs {
            return Ok(());
        }
        // A file that is deleted meanwhile is of a checkpoint that has been replaced; the next round has the newer one.
        let mut paths = below(&self.folder, "checkpoints")?;
        paths.retain(|path| !is_own(path.trim_start_matches("checkpoints/")));
        paths.sort_by_key(|path| is_manifest(path.trim_start_matches("checkpoints/")));
        let before = self.sent.len();
        for path in &paths {
            self.whole(path)?;
        }
        if self.sent.len() == before {
            return Ok(());
        }
        let files = paths.iter().map(|path| path.trim_start_matches("checkpoints/").to_owned()).collect();
        self.files.keep(&self.run, &KeepRequest { fence: self.fence, files })
    }

    /// Sends a file that is complete according to its name.
    fn whole(&mut self, path: &str) -> Result<(), TravelError> {
        let place = self.folder.join(path);
        let Ok(meta) = fs::metadata(&place) else { return Ok(()) };
        let state = (meta.len(), meta.modified().unwrap_or(SystemTime::UNIX_EPOCH));
        if self.sent.get(path) == Some(&state) {
            return Ok(());
        }
        let mut file = File::open(&place).map_err(disk("read", &place))?;
        let sha256 = node::sha256(&file).map_err(disk("read", &place))?;
        let mut offset = 0;
        loop {
            let bytes = part(&mut file, offset).map_err(disk("read", &place))?;
            if bytes.is_empty() && offset < state.0 {
                return Err(TravelError::Unreachable(format!("`{path}` has become shorter while it was sent")));
            }
            let part = BroughtPart { fence: self.fence.0, offset, total: Some(state.0), sha256: Some(sha256.clone()) };
            let received = self.files.bring(&self.run, path, &part, bytes)?;
            if received.is_whole {
                break;
            }
            offset = received.bytes;
        }
        self.sent.insert(path.to_owned(), state);
        Ok(())
    }

    /// Sends the new output of logs.
    fn logs(&mut self) -> Result<(), TravelError> {
        for path in below(&self.folder, "logs")? {
            let place = self.folder.join(&path);
            let mut file = File::open(&place).map_err(disk("read", &place))?;
            let mut offset = self.grown.get(&path).copied().unwrap_or(0);
            loop {
                let bytes = part(&mut file, offset).map_err(disk("read", &place))?;
                if bytes.is_empty() && self.grown.contains_key(&path) {
                    break;
                }
                let end = offset + bytes.len() as u64;
                let part = BroughtPart { fence: self.fence.0, offset, total: None, sha256: None };
                // The loop may have lost earlier parts.
                offset = self.files.bring(&self.run, &path, &part, bytes)?.bytes.min(end);
                self.grown.insert(path.clone(), offset);
            }
        }
        Ok(())
    }
}

/// Every file below a folder of a run, each with its path from the run's folder.
pub(super) fn below(root: &Path, folder: &str) -> Result<Vec<String>, TravelError> {
    let mut paths = Vec::new();
    let place = root.join(folder);
    let entries = match fs::read_dir(&place) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(paths),
        Err(error) => return Err(disk("read", &place)(error)),
    };
    for entry in entries.flatten() {
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => paths.extend(below(root, &path)?),
            Ok(kind) if kind.is_file() && domain::files::is_safe(&path) => paths.push(path),
            _ => {}
        }
    }
    paths.sort();
    Ok(paths)
}

/// The next part to send.
fn part(file: &mut File, offset: u64) -> std::io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(PARTS_MAX / 2).read_to_end(&mut bytes)?;
    Ok(bytes)
}
