//! What an object store has of the checkpoints of a run, read by the next attempt and by commands.

use std::time::Duration;

use domain::{Fence, RunId};
use store::{Error, Limits, Location, Remote};

use super::index::{CheckpointIndex, name_of, newest};

/// An index has at most so many bytes.
const INDEX_MAX: u64 = 256 << 20;

/// An index is replaced by a newer one so many times while it is looked for.
const TRIES: u32 = 8;

/// The folder of a run in the object store that its job names.
pub(super) fn opened(checkpoint_store: &str, run: &RunId, access: &store::Access) -> Result<Remote, Error> {
    let location: Location = format!("{}/{run}", checkpoint_store.trim_end_matches('/')).parse()?;
    let limits = Limits { reach: Duration::from_secs(30), ..Limits::default() };
    store::open(&location, access, limits)
}

/// The names of all objects, and the index that counts, if there is one.
pub(super) fn newest_index(remote: &Remote, within: Duration) -> Result<(Vec<String>, Option<CheckpointIndex>), Error> {
    for _ in 0..TRIES {
        let names = remote.object_names(within)?;
        let Some((fence, number)) = newest(&names) else { return Ok((names, None)) };
        if let Some(index) = read_index(remote, (fence, number), within)? {
            return Ok((names, Some(index)));
        }
    }
    Err(Error::Raced { location: remote.location().to_string() })
}

/// An index; `None` if it is not there any more.
pub(super) fn read_index(
    remote: &Remote,
    (fence, number): (Fence, u64),
    within: Duration,
) -> Result<Option<CheckpointIndex>, Error> {
    let name = name_of(fence, number);
    let Some(bytes) = remote.read_object(&name, INDEX_MAX, within)? else { return Ok(None) };
    let damaged = |why| Error::Damaged { location: format!("{}/{name}", remote.location()), why };
    CheckpointIndex::parse(&bytes).map(Some).map_err(damaged)
}

/// Creates the object of an index; `false` if there is another one.
pub(super) fn create_index(remote: &Remote, index: &CheckpointIndex, within: Duration) -> Result<bool, Error> {
    remote.create_object(&index.name(), written(index)?, within)
}

/// An index as it is written.
pub(super) fn written(index: &CheckpointIndex) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(index).map_err(|error| Error::Internal(error.to_string()))
}
