//! A commit by several ranks: each writes its part of every tensor, and the first one the manifest that lists all
//! parts.
//!
//! All ranks write into one folder of the step. Each reports there, in a small file of its own, which files it has made
//! durable; the first rank waits for these reports, so nothing that the manifest lists can be missing. A rank that
//! fails reports the error; one that dies releases the lock that it has held since its start.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use domain::id::Fence;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::disk::{Disk, Staged};
use crate::layout::Placement;
use crate::manifest::{FileEntry, PartName, StateKind};
use crate::parts::PIECES;
use crate::snapshot::{Snapshot, SnapshotPart};
use crate::tensor::{Tensor, write_to};

/// How long the parts of other ranks may stand still.
const PATIENCE: Duration = Duration::from_secs(600);

/// How long another rank may be silent before its lock is checked.
const SILENCE: Duration = Duration::from_secs(1);

/// Between two looks for them.
const LOOK: Duration = Duration::from_millis(5);

/// A rank's report about its part.
#[derive(Debug, Serialize, Deserialize)]
enum PartReport {
    /// These files are durable.
    Written(Vec<FileEntry>),
    /// They are not, and will not be.
    Failed(String),
}

/// Writes this rank's part of a snapshot durably; returns its files: of the model, of the rest, and of new best weights.
pub(crate) fn write(
    disk: &Disk,
    folder: &Path,
    mark: &str,
    snapshot: &Snapshot,
    part: &SnapshotPart,
) -> Result<Vec<FileEntry>, Error> {
    let stage = |at: &str, kind: StateKind, tensors: &[Tensor]| -> Result<Staged, Error> {
        let name = PartName { kind, rank: part.rank, of: part.of }.name();
        let pieces = pieces(part, tensors)?;
        let metadata = [("format", "pt"), (PIECES, pieces.as_str())];
        let path = folder.join(at).join(&name);
        disk.stage(&path, format!("{at}/{name}"), mark, |sink| write_to(sink, tensors, &metadata))
    };
    let mut staged = vec![
        stage(&part.folder, StateKind::Model, &snapshot.model)?,
        stage(&part.folder, StateKind::Training, &snapshot.training)?,
    ];
    let new_best = part.best_folder.as_ref().zip(snapshot.best.as_ref());
    if let Some((at, best)) = new_best {
        staged.push(stage(at, StateKind::Model, &best.model)?);
    }
    let mut entries = Vec::new();
    for staged in staged {
        chaos::point("rename.before");
        entries.push(disk.publish(staged)?);
        chaos::point("rename.after");
    }
    disk.sync_folder(&folder.join(&part.folder))?;
    if let Some((at, _)) = new_best {
        disk.sync_folder(&folder.join(at))?;
    }
    Ok(entries)
}

/// How the stretches among these tensors lie in their wholes, as JSON.
fn pieces(part: &SnapshotPart, tensors: &[Tensor]) -> Result<String, Error> {
    let places: BTreeMap<&str, &Placement> =
        tensors.iter().filter_map(|tensor| Some((tensor.name.as_str(), part.places.get(&tensor.name)?))).collect();
    serde_json::to_string(&places).map_err(|error| Error::Tensor { name: PIECES.into(), why: error.to_string() })
}

/// Reports the outcome of this rank's part to the first rank.
pub(crate) fn tell(
    disk: &Disk,
    folder: &Path,
    part: &SnapshotPart,
    written: &Result<Vec<FileEntry>, Error>,
) -> Result<(), Error> {
    let report = match written {
        Ok(entries) => PartReport::Written(entries.clone()),
        Err(error) => PartReport::Failed(error.to_string()),
    };
    let text = serde_json::to_string(&report)
        .map_err(|error| Error::Tensor { name: PIECES.into(), why: error.to_string() })?;
    let path = report_path(folder, part, part.rank);
    let staged = disk.stage(&path, String::new(), "", |sink| sink.write(text.as_bytes()))?;
    disk.publish_synced(staged).map(drop)
}

/// Takes the lock that a rank other than the first holds while it may write parts; `None` if the file system has no
/// locks.
pub(crate) fn hold(folder: &Path, rank: u32, fence: Fence) -> Option<File> {
    let mut file = File::create(lock_path(folder, rank)).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    write!(file, "{}", fence.0).ok()?;
    Some(file)
}

/// Whether a rank of this attempt has held its lock, and holds it no more.
fn is_gone(folder: &Path, rank: u32, fence: Fence) -> bool {
    let path = lock_path(folder, rank);
    let is_of_attempt = fs::read_to_string(&path).is_ok_and(|text| text == fence.0.to_string());
    let file = File::open(&path).ok().filter(|_| is_of_attempt);
    file.is_some_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_ok())
}

fn lock_path(folder: &Path, rank: u32) -> PathBuf {
    folder.join(format!(".rank-{rank}.lock"))
}

fn report_path(folder: &Path, part: &SnapshotPart, rank: u32) -> PathBuf {
    folder.join(&part.folder).join(format!(".part-{rank}.json"))
}

/// Waits for the parts of all other ranks, and returns all files as a manifest lists them; `own` are those of this one.
pub(crate) fn gather(
    folder: &Path,
    part: &SnapshotPart,
    fence: Fence,
    own: Vec<FileEntry>,
    ending: &AtomicBool,
) -> Result<Vec<FileEntry>, Error> {
    let mut all = vec![own];
    for rank in 1..part.of {
        all.push(wait_for(folder, part, (rank, fence), ending)?);
    }
    // The files of one kind stand together, in the order of the ranks.
    let kinds = all[0].len();
    if let Some(rank) = all.iter().position(|entries| entries.len() != kinds) {
        return Err(Error::Part { rank: rank as u32, why: "it has written other files than rank 0".into() });
    }
    for rank in 1..part.of {
        // The first rank alone needs it, and has read it.
        let _ = fs::remove_file(report_path(folder, part, rank));
    }
    Ok((0..kinds).flat_map(|kind| all.iter().map(move |entries| entries[kind].clone())).collect())
}

fn wait_for(
    folder: &Path,
    part: &SnapshotPart,
    (rank, fence): (u32, Fence),
    ending: &AtomicBool,
) -> Result<Vec<FileEntry>, Error> {
    let lost = |why: &str| Error::Part { rank, why: why.into() };
    let (began, mut seen, mut since) = (Instant::now(), 0, Instant::now());
    loop {
        if let Some(entries) = reported(folder, part, rank)? {
            return Ok(entries);
        }
        if ending.load(Ordering::Acquire) {
            return Err(lost("this rank ended before it was written"));
        }
        if began.elapsed() > SILENCE && is_gone(folder, rank, fence) {
            // It may have reported between the two looks.
            return reported(folder, part, rank)?.ok_or_else(|| lost("its process has ended"));
        }
        let best = part.best_folder.as_ref().map_or(0, |at| bytes_in(&folder.join(at)));
        let bytes = bytes_in(&folder.join(&part.folder)) + best;
        if bytes != seen {
            (seen, since) = (bytes, Instant::now());
        }
        if since.elapsed() > PATIENCE {
            return Err(lost(&format!("nothing was written for {} s", PATIENCE.as_secs())));
        }
        sleep(LOOK);
    }
}

/// The files of a rank that has reported.
fn reported(folder: &Path, part: &SnapshotPart, rank: u32) -> Result<Option<Vec<FileEntry>>, Error> {
    let path = report_path(folder, part, rank);
    let lost = |why: String| Error::Part { rank, why };
    match fs::read(&path) {
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(PartReport::Written(entries)) => Ok(Some(entries)),
            Ok(PartReport::Failed(why)) => Err(lost(why)),
            Err(error) => Err(lost(format!("its report is none: {error}"))),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Unreadable { path, source }),
    }
}

/// Bytes of all files in a folder, finished or not.
fn bytes_in(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries.flatten().filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}
