//! Where the checkpoints of a run are kept, apart from the machine that makes them: with its loop ([`with_loop`]), or in the
//! object store that its job names ([`bucket`]).

mod bucket;
mod index;
mod reading;
mod sending;
mod stored;
#[cfg(test)]
mod tests;
mod with_loop;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use domain::files::{BroughtPart, FileListing, FilePart, KeepRequest, Received};

use super::loop_files::TravelError;

pub use bucket::{AttemptOfRun, BucketDestination};
pub use stored::StoredCheckpoints;
pub use with_loop::LoopDestination;

/// Where the checkpoints of a run are kept for its next attempts. Paths are below the folder of checkpoints.
///
/// Every change belongs to an attempt: what one sends that was replaced is refused, or seen by nobody.
pub trait CheckpointDestination: fmt::Debug + Send {
    /// The files that are there. Without a time, it is asked for again until there is an answer.
    ///
    /// # Errors
    /// [`TravelError`].
    fn list(&mut self, within: Option<Duration>) -> Result<FileListing, TravelError>;

    /// The files that are listed and whose contents are not there any more, each with the name of what had them. A loop
    /// lists the files themselves.
    ///
    /// # Errors
    /// [`TravelError`].
    fn gone(&mut self) -> Result<BTreeMap<String, String>, TravelError> {
        Ok(BTreeMap::new())
    }

    /// The contents of parts, one after the other.
    ///
    /// # Errors
    /// [`TravelError`].
    fn parts(&mut self, parts: Vec<FilePart>) -> Result<Vec<u8>, TravelError>;

    /// Sends a part of a file, and returns how much of it is there. A part at another offset has no effect.
    ///
    /// # Errors
    /// [`TravelError`].
    fn bring(&mut self, path: &str, part: &BroughtPart, sent: (Vec<u8>, Duration)) -> Result<Received, TravelError>;

    /// Deletes what is not needed any more.
    ///
    /// # Errors
    /// [`TravelError`].
    fn keep(&mut self, request: &KeepRequest, within: Duration) -> Result<(), TravelError>;

    /// Has other attempts see what was sent and deleted since the last call.
    ///
    /// # Errors
    /// [`TravelError`]; they see what they saw before, then.
    fn publish(&mut self, within: Duration) -> Result<(), TravelError>;
}
