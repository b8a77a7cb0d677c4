//! One file on its way to an object store: small ones in one request, others in parts.

use std::time::Duration;

use domain::files::BroughtPart;
use node::RunningHash;
use store::{Error, PartedUpload, Remote};

/// Bytes of a part, at least.
const PART: u64 = 8 << 20;

/// Services take ten thousand parts of an object.
const PARTS_MOST: u64 = 9_000;

/// How long to wait for an upload to be abandoned.
const SHORTLY: Duration = Duration::from_secs(3);

/// A file on its way.
#[derive(Debug)]
pub(super) struct Sending {
    /// SHA-256 of the file.
    pub sha256: String,
    /// Its size.
    pub total: u64,
    /// The object that it becomes.
    pub object: String,
    /// How many requests have failed.
    pub failures: u32,
    /// Bytes that were taken, of which the last are in `pending`.
    taken: u64,
    hash: RunningHash,
    pending: Vec<u8>,
    upload: Option<PartedUpload>,
}

/// Why a part was not sent.
#[derive(Debug)]
pub(super) enum SendError {
    /// The file is another one than it was when it was hashed.
    Changed,
    /// The store refuses, or does not answer.
    Store(Error),
}

impl From<Error> for SendError {
    fn from(error: Error) -> SendError {
        SendError::Store(error)
    }
}

impl Sending {
    /// A file of which nothing was sent.
    pub fn new(sha256: &str, total: u64, object: String) -> Sending {
        Sending {
            sha256: sha256.to_owned(),
            total,
            object,
            failures: 0,
            taken: 0,
            hash: RunningHash::default(),
            pending: Vec::new(),
            upload: None,
        }
    }

    /// Bytes that need not be given again.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes a part of the file, if it is the next one, and sends what is enough for a part of the object. Returns whether the
    /// object is there.
    ///
    /// # Errors
    /// [`SendError`]; after one of the network, the same call without new bytes tries again.
    pub fn take(
        &mut self,
        remote: &Remote,
        part: &BroughtPart,
        (bytes, within): (Vec<u8>, Duration),
    ) -> Result<bool, SendError> {
        if part.offset != self.taken {
            return Ok(false);
        }
        self.hash.add(&bytes);
        self.taken += bytes.len() as u64;
        self.pending.extend(bytes);
        if self.taken > self.total {
            return Err(SendError::Changed);
        }
        if self.taken < self.total {
            let is_part = remote.takes_parts() && self.pending.len() as u64 >= part_length(self.total);
            if is_part {
                self.flush(remote, within)?;
            }
            return Ok(false);
        }
        if self.hash.clone().digits() != self.sha256 {
            return Err(SendError::Changed);
        }
        if self.upload.is_none() {
            remote.put_object(&self.object, self.pending.clone(), within)?;
            return Ok(true);
        }
        if !self.pending.is_empty() {
            self.flush(remote, within)?;
        }
        if let Some(upload) = &self.upload {
            remote.finish_parts(upload, within)?;
        }
        self.upload = None;
        Ok(true)
    }

    /// Sends what is pending as one part.
    fn flush(&mut self, remote: &Remote, within: Duration) -> Result<(), Error> {
        let upload = match self.upload.take() {
            Some(upload) => upload,
            None => remote.begin_parts(&self.object, within)?,
        };
        let upload = self.upload.insert(upload);
        remote.send_part(upload, self.pending.clone(), within)?;
        self.pending.clear();
        Ok(())
    }

    /// Gives it up.
    pub fn abandon(self, remote: &Remote) {
        if let Some(upload) = &self.upload {
            remote.abandon_parts(upload, SHORTLY);
        }
    }
}

/// Bytes of each part of an object.
fn part_length(total: u64) -> u64 {
    PART.max(total.div_ceil(PARTS_MOST).next_multiple_of(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_has_more_parts_than_services_take() {
        for (total, expected) in [(0, 8 << 20), (80 << 30, 10 << 20), (1 << 40, 117 << 20)] {
            let length = part_length(total);
            assert_eq!(length, expected, "{total}");
            assert!(total.div_ceil(length) <= 10_000, "{total}");
        }
    }
}
