//! The lock that an agent holds while it lives: `agent.lock` in the folder of its instance.
//!
//! The provider takes it, passes it to the agent that it starts, and determines by it whether the agent is alive.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::{Folder, found};

/// The lock of a folder; free again when this and every copy of its file is closed.
#[derive(Debug)]
pub struct Lock(File);

impl Folder {
    /// Takes the lock; `None` if another process holds it.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn lock(&self) -> io::Result<Option<Lock>> {
        let file = OpenOptions::new().create(true).read(true).write(true).truncate(false).open(self.lock_path())?;
        take(file)
    }

    /// Takes over the lock held by `file`, such as the standard input of an agent; `None` if `file` is another file, or
    /// another process holds the lock.
    ///
    /// # Errors
    /// If the lock cannot be queried.
    pub fn inherit(&self, file: File) -> io::Result<Option<Lock>> {
        use std::os::unix::fs::MetadataExt;
        let Some(expected) = found(fs::metadata(self.lock_path()))? else { return Ok(None) };
        let given = file.metadata()?;
        if (given.dev(), given.ino()) == (expected.dev(), expected.ino()) { take(file) } else { Ok(None) }
    }

    /// Whether an agent holds the lock.
    ///
    /// # Errors
    /// If the lock cannot be queried.
    pub fn is_held(&self) -> io::Result<bool> {
        let Some(file) = found(File::open(self.lock_path()))? else { return Ok(false) };
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {
                // Closing it leaves a copy to a child that another thread is about to start.
                flock(&file, FlockOperation::Unlock)?;
                Ok(false)
            }
            Err(Errno::WOULDBLOCK) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// The process that wrote itself into the lock it holds, if one did already.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn holder(&self) -> io::Result<Option<i32>> {
        let text = found(fs::read_to_string(self.lock_path()))?.unwrap_or_default();
        Ok(text.trim().parse().ok())
    }

    fn lock_path(&self) -> PathBuf {
        self.path().join("agent.lock")
    }
}

impl Lock {
    /// Writes the process id into the lock file, so that the provider knows which process to signal.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn sign(&mut self) -> io::Result<()> {
        self.0.set_len(0)?;
        self.0.seek(SeekFrom::Start(0))?;
        writeln!(self.0, "{}", std::process::id())
    }

    /// The locked file, to be passed to the process that will hold the lock.
    pub fn into_file(self) -> File {
        self.0
    }
}

fn take(file: File) -> io::Result<Option<Lock>> {
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Lock(file))),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::temporary;
    use super::*;

    #[test]
    fn the_lock_is_held_once_and_can_be_handed_on() {
        let (_temporary, folder) = temporary();
        assert!(!folder.is_held().unwrap());
        let lock = folder.lock().unwrap().unwrap();
        assert!(folder.is_held().unwrap());
        assert!(folder.lock().unwrap().is_none());

        let file = lock.into_file();
        let copy = file.try_clone().unwrap();
        drop(file);
        let mut inherited = folder.inherit(copy).unwrap().unwrap();
        inherited.sign().unwrap();
        assert_eq!(folder.holder().unwrap(), Some(std::process::id() as i32));
        assert!(folder.inherit(File::open("/dev/null").unwrap()).unwrap().is_none());
        drop(inherited);
        // A process that another test is about to start has a copy of the lock until it executes its program.
        while folder.is_held().unwrap() {
            std::thread::yield_now();
        }
    }
}
