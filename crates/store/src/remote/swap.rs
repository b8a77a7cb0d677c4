//! Compare-and-swap of an object.
//!
//! Object stores support it (`If-Match`, `If-None-Match`). In a local folder the swap holds a lock file of the folder
//! (`flock`, so a killed process releases it), compares the bytes, and renames. On a service without conditional
//! requests the object is compared right before the write, which leaves a short race; the locks of pushes narrow it.

use std::fs::File;
use std::path::Path as FilePath;
use std::time::Duration;

use object_store::{PutMode, UpdateVersion};
use tokio::time::{Instant, sleep};

use super::Remote;
use crate::Error;
use crate::location::Location;

/// The file of a local folder that is locked during a swap.
pub(crate) const LOCK_FILE: &str = "gradus.lock";

/// An object as it was read.
#[derive(Debug, Clone)]
pub(crate) struct ObjectRevision {
    pub bytes: Vec<u8>,
    pub version: UpdateVersion,
}

impl Remote {
    /// Replaces `name` by `bytes` if it still equals `seen`; `None` if it must not exist.
    ///
    /// # Errors
    /// [`Error::Raced`] if another process was faster.
    pub(crate) async fn swap(&self, name: &str, bytes: Vec<u8>, seen: Option<&ObjectRevision>) -> Result<(), Error> {
        if let Location::Local(folder) = self.location() {
            let _lock = self.lock_folder(folder).await?;
            return self.compare_and_write(name, bytes, seen).await;
        }
        let mode = seen.map_or(PutMode::Create, |seen| PutMode::Update(seen.version.clone()));
        match self.put(name, bytes.clone(), mode).await {
            Ok(_) => Ok(()),
            // Our own answer may have been lost, and the second try found the first.
            Err(error @ Error::Raced { .. }) => match self.get(name, bytes.len() as u64).await {
                Ok(Some((now, _))) if now == bytes => Ok(()),
                Ok(_) | Err(_) => Err(error),
            },
            Err(Error::Network { why, .. }) if why.contains("NotImplemented") => {
                self.compare_and_write(name, bytes, seen).await
            }
            Err(error) => Err(error),
        }
    }

    async fn compare_and_write(&self, name: &str, bytes: Vec<u8>, seen: Option<&ObjectRevision>) -> Result<(), Error> {
        let most = seen.map_or(0, |seen| seen.bytes.len() as u64);
        let is_as_seen = match self.get(name, most).await {
            Ok(now) => now.map(|(bytes, _)| bytes).as_ref() == seen.map(|seen| &seen.bytes),
            // It is longer than the bytes seen.
            Err(Error::Damaged { .. }) => false,
            Err(error) => return Err(error),
        };
        match is_as_seen {
            true => self.put(name, bytes, PutMode::Overwrite).await.map(drop),
            false => Err(Error::Raced { location: self.address(name) }),
        }
    }

    /// Waits for the lock of a folder, and syncs earlier writes to it.
    async fn lock_folder(&self, folder: &FilePath) -> Result<File, Error> {
        let path = folder.join(LOCK_FILE);
        let opened = File::options().append(true).create(true).open(&path);
        let file = opened.map_err(Error::file("open", &path))?;
        let began = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(std::fs::TryLockError::Error(error)) => return Err(Error::file("lock", &path)(error)),
                Err(std::fs::TryLockError::WouldBlock) if began.elapsed() >= self.limits.patience => {
                    return Err(Error::Raced { location: path.display().to_string() });
                }
                Err(std::fs::TryLockError::WouldBlock) => sleep(Duration::from_millis(10)).await,
            }
        }
        rustix::fs::syncfs(&file).map_err(|error| Error::file("sync", folder)(error.into()))?;
        Ok(file)
    }
}
