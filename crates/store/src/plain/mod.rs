//! Plain transfers: one object per file, as in other tools.
//!
//! Nothing is added to the remote data, so completed work is recorded locally: a list of receipts (name, length, time
//! and version) next to the journals for a push, below `.gradus/` in the target for a pull. A file with a valid receipt
//! is not transferred again. Objects are sent and fetched in parts of one length, so an interrupted one resumes.

mod objects;
mod pull;
mod push;
mod receipt;

pub(crate) use pull::pull;
pub(crate) use push::push;

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use data::chunk::ContentHash;

use crate::failure::NO_LIST;
use crate::lock::is_lock;
use crate::remote::swap::LOCK_FILE;
use crate::remote::{Object, Remote};
use crate::source::OWN;
use crate::{Error, location::Location};

/// The objects at a location: all below a prefix, or the one of that name.
pub(crate) async fn objects(remote: &Remote) -> Result<Vec<Object>, Error> {
    if remote.can_list() {
        let mut objects = remote.list().await?;
        // Leftovers of a push in chunks, our own folder, and folder markers of some tools.
        objects.retain(|object| !is_ours(&object.name) && !object.name.ends_with('/'));
        if !objects.is_empty() {
            return Ok(objects);
        }
    }
    let is_whole_bucket = matches!(remote.location(), Location::Object { path, .. } if path.is_empty());
    let name = remote.location().name().to_owned();
    let found = if is_whole_bucket || name.is_empty() { None } else { remote.look("").await? };
    match found {
        Some(object) => Ok(vec![Object { name, ..object }]),
        None => {
            let location = remote.location().to_string();
            let hint = match (remote.can_list(), remote.unreadable().first()) {
                (true, Some(key)) => format!(
                    "rename the objects there: no file can have a key with an empty part (`//`), `.` or `..`, \
                     such as `{key}`"
                ),
                (true, None) => "check the path: neither objects below it nor one of its name are there".into(),
                (false, _) => NO_LIST.into(),
            };
            Err(Error::Missing { location, hint })
        }
    }
}

/// Whether an object belongs to the other form.
fn is_ours(name: &str) -> bool {
    let is_part = |folder: &str| name.strip_prefix(folder).is_some_and(|rest| ContentHash::parse(rest).is_some());
    name.starts_with(OWN) || name == LOCK_FILE || is_lock(name) || is_part("bundles/") || is_part("manifests/")
}

/// When a file was last changed, in nanoseconds.
fn changed(metadata: &Metadata) -> i128 {
    i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec())
}
