//! The fence: the attempt that owns a folder.
//!
//! An agent claims the folder with its attempt's number before it starts a rank; from then on no lower number can
//! publish a manifest there, however long its process was suspended. Claims and manifests are serialized by one file
//! lock, so a manifest is either durable before the claim, and visible to it, or refused.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use domain::id::Fence;
use rustix::fs::{FlockOperation, flock};

use crate::Error;
use crate::disk::Disk;

/// The lock is held for a rename and a few syncs. A process that holds it this long hangs, and waiting longer would not
/// help.
const PATIENCE: Duration = Duration::from_secs(30);

/// A file lock, released when the process ends for any reason.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// Claims `folder` for the attempt with this number, and creates it if it is missing.
///
/// Returns once the claim is durable. Claiming again with the same number has no effect.
///
/// # Errors
/// [`Error::Fenced`] if a higher number has claimed it; otherwise if the folder cannot be written.
pub fn claim(folder: &Path, fence: Fence) -> Result<(), Error> {
    let disk = Disk::default();
    create(&disk, folder)?;
    let _lock = lock(folder)?;
    match highest(folder) {
        Ok(Some(highest)) if highest == fence => return Ok(()),
        Ok(Some(highest)) if highest > fence => return Err(fenced(folder, fence, highest)),
        Ok(Some(_) | None) => {}
        // Attempts are numbered by the run's event log, so the newest claim may replace an unreadable number.
        Err(Error::Damaged { .. }) => {}
        Err(error) => return Err(error),
    }
    let target = folder.join("fence");
    let text = format!("{}\n", fence.0);
    let mark = format!(".a{}", fence.0);
    let staged = disk.stage(&target, "fence".into(), &mark, |sink| sink.write(text.as_bytes()))?;
    disk.publish_synced(staged)?;
    Ok(())
}

/// Fails if a higher number has claimed the folder. The answer stays valid only while the lock is held.
pub(crate) fn check(folder: &Path, mine: Fence) -> Result<(), Error> {
    match highest(folder)? {
        Some(highest) if highest > mine => Err(fenced(folder, mine, highest)),
        Some(_) | None => Ok(()),
    }
}

/// Waits for the folder's lock.
pub(crate) fn lock(folder: &Path) -> Result<Lock, Error> {
    let path = folder.join("lock");
    let opened = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = opened.map_err(|error| Error::writing("open", &path, error))?;
    let began = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Lock { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::writing("lock", &path, error.into())),
        }
        if began.elapsed() > PATIENCE {
            return Err(Error::Locked { path, seconds: PATIENCE.as_secs() });
        }
        sleep(Duration::from_millis(5));
    }
}

/// The highest number that has claimed the folder; `None` if it is unclaimed.
fn highest(folder: &Path) -> Result<Option<Fence>, Error> {
    let path = folder.join("fence");
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::File { doing: "read", path, source }),
    };
    let number = std::str::from_utf8(&bytes).ok().and_then(|text| text.trim_end().parse().ok());
    number.map(|number| Some(Fence(number))).ok_or(Error::Damaged { path, why: "it holds no number".into() })
}

fn fenced(folder: &Path, mine: Fence, highest: Fence) -> Error {
    Error::Fenced { folder: folder.to_owned(), mine, highest }
}

/// Makes the folder and those above it, durably.
fn create(disk: &Disk, folder: &Path) -> Result<(), Error> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        create(disk, parent)?;
    }
    match disk.create_folder(folder) {
        Ok(()) => disk.sync_folder(folder.parent().unwrap_or(Path::new("."))),
        Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        Err(error) => Err(Error::writing("create", folder, error)),
    }
}
