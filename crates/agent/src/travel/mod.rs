//! File transfers between this machine and a loop on another one, over the same socket as heartbeats; of checkpoints also
//! between this machine and the object store that the job names, as `destination` says.
//!
//! Before an attempt, [`inputs`] fetches its inputs and [`checkpoints`] its state. While it runs, and at its end,
//! [`upload`] sends its outputs. Fetched files are cached, so that the next attempt on a machine starts at once. [`left`]
//! deletes the files of runs that had the machine before.

mod checkpoints;
mod destination;
mod failure;
mod inputs;
mod left;
mod loop_files;
mod lost;
#[cfg(test)]
mod tests;
mod upload;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use destination::{AttemptOfRun, BucketDestination, LoopDestination};
use domain::files::{RunInput, local_mounts};
use domain::wire::Start;
use domain::{Cause, Finding, Work};
use loop_files::disk;

pub use destination::{CheckpointDestination, StoredCheckpoints};
pub use failure::UploadFailure;
pub use left::LeftFiles;
pub use loop_files::{LoopFiles, TravelError};
pub use upload::Uploader;

/// A loop on another machine.
#[derive(Debug, Clone)]
pub struct RemoteLoop {
    /// Its files.
    pub files: LoopFiles,
    /// The folder of the run there.
    pub folder: String,
}

impl RemoteLoop {
    /// Translates a path in the folder of the run to that on the loop's machine.
    pub fn path_there(&self, here: &str, path: &str) -> String {
        path.strip_prefix(here).map_or_else(|| path.to_owned(), |rest| format!("{}{rest}", self.folder))
    }
}

/// The local copies of an attempt's inputs.
#[derive(Debug, Clone, Default)]
pub struct Brought {
    /// The path of each.
    pub inputs: BTreeMap<RunInput, PathBuf>,
    /// Those of `file_mounts`, by their place in it.
    pub mounts: BTreeMap<u32, PathBuf>,
    /// What of the run's checkpoints is lost.
    pub warnings: Vec<String>,
}

/// Where the checkpoints of an attempt are kept, if that is not only here. Runs are those of the home with the tag `owner`.
pub fn destination(
    files: Option<&LoopFiles>,
    start: &Start,
    (owner, access): (&str, &store::Access),
) -> Option<Box<dyn CheckpointDestination>> {
    let Some(checkpoint_store) = &start.job.checkpoint_store else {
        return Some(Box::new(LoopDestination::new(files?.clone(), start.run.clone())));
    };
    let attempt = AttemptOfRun { run: start.run.clone(), owner: owner.to_owned(), fence: start.fence };
    Some(Box::new(BucketDestination::new(checkpoint_store, access, attempt)))
}

/// Fetches everything that an attempt needs into `root`, the folder of all runs and caches of this owner.
///
/// # Errors
/// [`Finding`] when the loop cannot be reached for long, does not have a file, or this disk refuses.
pub fn bring(
    files: Option<&LoopFiles>,
    destination: Option<Box<dyn CheckpointDestination>>,
    start: &Start,
    root: &Path,
) -> Result<Brought, Finding> {
    let Some(mut destination) = destination else { return Ok(Brought::default()) };
    let _alone = alone(root).map_err(|error| finding("files", &error))?;
    // Of our own trainer, only rank 0 reads checkpoints.
    let is_follower = start.member.is_some_and(|place| place.rank > 0) && matches!(start.job.work, Work::Train(_));
    let mut brought = Brought::default();
    if !is_follower {
        let warnings = checkpoints::bring(destination.as_mut(), start);
        brought.warnings = warnings.map_err(|error| no_checkpoint(&error))?;
    }
    let Some(files) = files else { return Ok(brought) };
    let bring = |address: String, source: &str| {
        let path = inputs::bring(files, &format!("runs/{}/{address}", start.run), source, &root.join("cache/inputs"));
        path.map_err(|error| finding(&format!("`{source}`"), &error))
    };
    for input in RunInput::ALL {
        if let Some(source) = input.of(&start.job.work) {
            brought.inputs.insert(input, bring(format!("inputs/{}", input.word()), source)?);
        }
    }
    for (number, source) in local_mounts(&start.job.work) {
        // What is left out of a folder differs from that of a working folder, so it has another copy.
        brought.mounts.insert(number, bring(format!("mounts/{number}"), &format!("{source}/"))?);
    }
    Ok(brought)
}

/// Waits for other threads that fetch files into the same folder: an attempt that was ended while fetching leaves a
/// thread that continues for a while, and two would write the same files.
fn alone(root: &Path) -> Result<File, TravelError> {
    let folder = root.join("cache");
    std::fs::create_dir_all(&folder).map_err(disk("make", &folder))?;
    let path = folder.join("fetching.lock");
    let file = File::create(&path).map_err(disk("open", &path))?;
    file.lock().map_err(disk("lock", &path))?;
    Ok(file)
}

/// Why the newest checkpoint is not here. A loop that refuses may have one, so the next attempt asks again.
fn no_checkpoint(error: &TravelError) -> Finding {
    let found = finding("the newest checkpoint", error);
    if !matches!(error, TravelError::Refused(_)) {
        return found;
    }
    let hint = "see `gradus events` for which attempt has the run now, then resume the run";
    Finding { cause: Cause::Unreadable, ..found }.hint(hint)
}

fn finding(what: &str, error: &TravelError) -> Finding {
    let message = format!("cannot bring {what} to the node: {error}");
    match error {
        TravelError::Disk { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
            Finding::new(Cause::DiskFull, message)
                .hint("free some space there (`gradus ssh NODE df -h` shows it), then resume the run")
        }
        TravelError::Disk { .. } => {
            Finding::new(Cause::ReadOnly, message).hint("make the folder on the node writable, then resume the run")
        }
        TravelError::Refused(_) | TravelError::Missing(_) | TravelError::Unprocessable(_) => {
            Finding::new(Cause::Data, message).hint("check the path on the machine where `gradus run` runs")
        }
        TravelError::Store(finding) | TravelError::Denied(finding) => {
            let message = format!("cannot use the `checkpoint_store` of the job: {error}");
            Finding { message, ..(**finding).clone() }
        }
        TravelError::Unreachable(_) | TravelError::Failed(_) | TravelError::Full(_) => unreachable(message),
        TravelError::Changing | TravelError::Late => unreachable(message),
    }
}

fn unreachable(message: String) -> Finding {
    Finding::new(Cause::Unreadable, message)
        .hint("check the network between this machine and the node, then resume the run")
}
