//! The permissions of the agent of a run: `grant.json` in the folder of the run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use axum::http::StatusCode;
use domain::files::RunInput;
use domain::{Fence, Work};
use serde::{Deserialize, Serialize};

use super::{Refused, failed};

/// What the agent of a run may read and write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Number of the newest attempt: no other may write.
    pub fence: Fence,
    /// Files and folders of this machine that the run reads.
    pub inputs: BTreeMap<RunInput, PathBuf>,
}

impl Grant {
    /// The grant of an attempt of a job.
    pub fn new(fence: Fence, work: &Work) -> Grant {
        let inputs = RunInput::ALL.into_iter().filter_map(|input| Some((input, PathBuf::from(input.of(work)?))));
        Grant { fence, inputs: inputs.collect() }
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
    pub fn write(&self, run: &Path) -> std::io::Result<()> {
        if let Ok(written) = Grant::of(run)
            && (written == *self || written.fence > self.fence)
        {
            return Ok(());
        }
        fs::create_dir_all(run)?;
        let partial = run.join("grant.json.partial");
        fs::write(&partial, serde_json::to_vec_pretty(self)?)?;
        fs::rename(&partial, run.join("grant.json"))
    }

    /// The path of an input.
    pub(super) fn input(&self, input: RunInput) -> Result<PathBuf, Refused> {
        let path = self.inputs.get(&input).cloned();
        path.ok_or_else(|| (StatusCode::NOT_FOUND, format!("the job has no `{}` on this machine", input.word())))
    }
}
