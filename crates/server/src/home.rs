//! The home folder, which contains everything that gradus stores, and what of it is refused for want of disk space.

mod space;
mod transfers;

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use domain::{PipelineId, RunId, SweepId, Timestamp};
use node::durable;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::Error;

pub use space::{DiskSpace, Shortage, StoredKind};
pub(crate) use transfers::{TransferLocks, Transfers};

/// Longest path of a Unix socket, less a margin for the terminating zero and platform differences.
const SOCKET_PATH_MAX: usize = 100;

/// Tries to take a lock that others may probe, and the time between two of them.
const PROBES: u32 = 20;
const PROBE: Duration = Duration::from_millis(5);

/// The home folder and the paths in it.
#[derive(Debug, Clone)]
pub struct Home {
    root: PathBuf,
    owner: String,
    space: Arc<DiskSpace>,
    transfers: Arc<Transfers>,
}

/// Held by the one process that runs the control loop of a home, or that is its server.
#[derive(Debug)]
pub struct LoopLock(File);

/// Held by each process that waits for a run or a sweep; work that no process waits for is not started.
#[derive(Debug)]
pub struct WatchLock(File);

// Closing the file is not enough: a child that another thread is about to start has a copy of it until it executes its
// program.
impl Drop for LoopLock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

impl Drop for WatchLock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

impl Home {
    /// Opens the home folder, made on first use.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be made or read, [`Error::Owner`] where it has lost its name.
    pub fn open(root: &Path) -> Result<Home, Error> {
        for folder in ["runs", "instances", "sweeps"] {
            let path = root.join(folder);
            // Jobs may contain private variables.
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.map_err(Error::file("make the folder", &path))?;
        }
        let root = fs::canonicalize(root).map_err(Error::file("open", root))?;
        let owner = owner(&root.join("owner"))?;
        let space = Arc::new(DiskSpace::of(&root));
        Ok(Home { root, owner, space, transfers: Arc::default() })
    }

    /// The folder itself, absolute.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What this process refuses for want of disk space; clones of a home share it.
    pub fn space(&self) -> &Arc<DiskSpace> {
        &self.space
    }

    /// What transfers of files share in this process; clones of a home share it.
    pub(crate) fn transfers(&self) -> &Arc<Transfers> {
        &self.transfers
    }

    /// What the process that runs the loop refuses for want of disk space; nothing where none does.
    pub fn shortages(&self, now: Timestamp) -> Vec<Shortage> {
        space::read(&self.root, now)
    }

    /// The name that everything rented from here is tagged with.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The event log and the rows that follow from it.
    pub fn state(&self) -> PathBuf {
        self.root.join("state.db")
    }

    /// Measurements.
    pub fn series(&self) -> PathBuf {
        self.root.join("series.db")
    }

    /// The folder of all runs.
    pub fn runs(&self) -> PathBuf {
        self.root.join("runs")
    }

    /// Everything of one run: checkpoints, logs, model, report.
    pub fn run(&self, run: &RunId) -> PathBuf {
        self.root.join("runs").join(run.as_str())
    }

    /// Files of a sweep that belong to none of its trials: its report.
    pub fn sweep(&self, sweep: &SweepId) -> PathBuf {
        self.root.join("sweeps").join(sweep.as_str())
    }

    /// Where a command that follows a pipeline registers itself.
    pub fn pipeline(&self, pipeline: &PipelineId) -> PathBuf {
        self.root.join("pipelines").join(pipeline.as_str())
    }

    /// The socket where agents of this machine find the loop; in the temporary folder if the home's path is too long
    /// for a socket.
    pub fn socket(&self) -> PathBuf {
        let path = self.root.join("loop.sock");
        if path.as_os_str().len() <= SOCKET_PATH_MAX {
            return path;
        }
        Path::new("/tmp").join(format!("gradus-{}.sock", self.owner))
    }

    /// The socket of `gradus serve`'s API; in the temporary folder if the home's path is too long.
    pub fn api_socket(&self) -> PathBuf {
        let path = self.root.join("api.sock");
        if path.as_os_str().len() <= SOCKET_PATH_MAX {
            return path;
        }
        Path::new("/tmp").join(format!("gradus-api-{}.sock", self.owner))
    }

    /// Takes the loop's lock; `None` if another process holds it.
    ///
    /// # Errors
    /// [`Error::File`] if the lock file cannot be used.
    pub fn try_loop(&self) -> Result<Option<LoopLock>, Error> {
        let path = self.root.join("loop.lock");
        let file = open_lock(&path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(LoopLock(file))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(Error::file("lock", &path)(errno.into())),
        }
    }

    /// Registers this process as the home's server, which runs the loop independently of other waiting processes;
    /// `None` if another is.
    ///
    /// # Errors
    /// [`Error::File`] if the lock file cannot be used.
    pub fn try_server(&self) -> Result<Option<LoopLock>, Error> {
        let path = self.root.join("server.lock");
        // A process that checks for a server holds the lock for an instant.
        for _ in 0..PROBES {
            let file = open_lock(&path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(LoopLock(file))),
                Err(Errno::WOULDBLOCK) => std::thread::sleep(PROBE),
                Err(errno) => return Err(Error::file("lock", &path)(errno.into())),
            }
        }
        Ok(None)
    }

    /// Whether a server runs the loop, or waits for it.
    pub fn has_server(&self) -> bool {
        let Ok(file) = File::open(self.root.join("server.lock")) else { return false };
        is_locked(&file, FlockOperation::NonBlockingLockShared)
    }

    /// Registers this process as waiting for the run, sweep or pipeline of this folder.
    ///
    /// # Errors
    /// [`Error::File`] if the lock file cannot be used.
    pub fn watch(&self, folder: &Path) -> Result<WatchLock, Error> {
        fs::create_dir_all(folder).map_err(Error::file("make the folder", folder))?;
        let path = folder.join("attend.lock");
        let file = open_lock(&path)?;
        let locked = flock(&file, FlockOperation::LockShared);
        locked.map_err(|errno| Error::file("lock", &path)(errno.into()))?;
        Ok(WatchLock(file))
    }

    /// Records that the end of the run or sweep of this folder was reported.
    ///
    /// # Errors
    /// [`Error::File`] if the mark cannot be written.
    pub fn mark_reported(&self, folder: &Path) -> Result<(), Error> {
        let path = folder.join("told");
        File::create(&path).map(|_| ()).map_err(Error::file("write", &path))
    }

    /// Removes that record, for work that is resumed.
    pub fn unmark_reported(&self, folder: &Path) {
        let _ = fs::remove_file(folder.join("told"));
    }

    /// Whether the end of the run or sweep of this folder was reported.
    pub fn is_reported(&self, folder: &Path) -> bool {
        folder.join("told").exists()
    }

    /// Whether some process waits for the run, sweep or pipeline of this folder. A server waits for all of them.
    pub fn is_watched(&self, folder: &Path) -> bool {
        self.has_server() || self.is_followed(folder)
    }

    /// Whether a command waits for the run, sweep or pipeline of this folder.
    pub fn is_followed(&self, folder: &Path) -> bool {
        let Ok(file) = File::open(folder.join("attend.lock")) else { return false };
        is_locked(&file, FlockOperation::NonBlockingLockExclusive)
    }
}

/// Whether a lock is held in a way that excludes this one, which is taken and let go.
fn is_locked(file: &File, tried: FlockOperation) -> bool {
    let is_locked = matches!(flock(file, tried), Err(Errno::WOULDBLOCK));
    let _ = file.unlock();
    is_locked
}

fn open_lock(path: &Path) -> Result<File, Error> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).read(true).open(path);
    file.map_err(Error::file("open", path))
}

/// Reads the home's unique name, created once: two processes that create it at the same time agree on one. What is rented is tagged
/// with it, so it is on the disk before anything is.
fn owner(path: &Path) -> Result<String, Error> {
    let name = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let new = uuid::Uuid::now_v7().simple().to_string();
            durable::create(path, new.as_bytes()).map_err(Error::file("write", path))?;
            fs::read_to_string(path)
        }
        name => name,
    };
    let name = name.map_err(Error::file("read", path))?.trim().to_owned();
    if name.is_empty() { Err(Error::Owner(path.to_owned())) } else { Ok(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_has_one_name_and_is_refused_without_it() {
        let folder = tempfile::tempdir().unwrap();
        let name = Home::open(folder.path()).unwrap().owner().to_owned();
        assert_eq!((name.len(), Home::open(folder.path()).unwrap().owner()), (32, name.as_str()));
        // As an earlier version may have left it where the machine lost power: machines that are rented are tagged otherwise.
        fs::write(folder.path().join("owner"), "").unwrap();
        let refused = Home::open(folder.path()).unwrap_err();
        assert!(matches!(refused, Error::Owner(_)), "{refused}");
        assert!(refused.hint().unwrap().contains("put a copy of it back"));
    }
}
