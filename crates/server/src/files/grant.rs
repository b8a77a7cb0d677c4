//! The permissions of the agent of a run: `grant.json` in the folder of the run.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use axum::http::StatusCode;
use domain::files::{RunInput, local_mounts};
use domain::{Fence, Work};
use node::durable;
use serde::{Deserialize, Serialize};

use super::{Refused, failed};

/// What the agent of a run may read and write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Number of the newest attempt: no other may write.
    pub fence: Fence,
    /// Files and folders of this machine that the run reads.
    pub inputs: BTreeMap<RunInput, PathBuf>,
    /// Those that `file_mounts` names, by their place in it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mounts: BTreeMap<u32, PathBuf>,
}

impl Grant {
    /// The grant of an attempt of a job.
    pub fn new(fence: Fence, work: &Work) -> Grant {
        let inputs = RunInput::ALL.into_iter().filter_map(|input| Some((input, PathBuf::from(input.of(work)?))));
        let mounts = local_mounts(work).map(|(number, path)| (number, PathBuf::from(path)));
        Grant { fence, inputs: inputs.collect(), mounts: mounts.collect() }
    }

    /// The grant of a run, by its folder.
    pub(super) fn of(run: &Path) -> Result<Grant, Refused> {
        let path = run.join("grant.json");
        let text = fs::read(&path).map_err(failed("read", &path))?;
        serde_json::from_slice(&text).map_err(|error| failed("read", &path)(error.into()))
    }

    /// Writes it into the folder of a run if it differs. An older attempt's grant never replaces a newer one's.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn write(&self, run: &Path) -> io::Result<()> {
        if let Ok(written) = Grant::of(run)
            && (written == *self || written.fence > self.fence)
        {
            return Ok(());
        }
        fs::create_dir_all(run)?;
        durable::replace(&run.join("grant.json"), &serde_json::to_vec_pretty(self)?)
    }

    /// The path of a mount.
    pub(super) fn mount(&self, number: u32) -> Result<PathBuf, Refused> {
        let path = self.mounts.get(&number).cloned();
        path.ok_or_else(|| (StatusCode::NOT_FOUND, format!("the job has no mount {number} of this machine")))
    }

    /// The path of an input.
    pub(super) fn input(&self, input: RunInput) -> Result<PathBuf, Refused> {
        let path = self.inputs.get(&input).cloned();
        path.ok_or_else(|| (StatusCode::NOT_FOUND, format!("the job has no `{}` on this machine", input.word())))
    }
}
