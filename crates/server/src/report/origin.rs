//! Where a run comes from: the commit of its job file, and versions. Written beside the run when it is submitted, because
//! nothing of it can be found out later.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};

/// File of a run's folder that holds it.
const FILE: &str = "origin.json";

/// Where a run comes from. What is not known is empty, as for a run of an earlier version.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunOrigin {
    /// Version of the program that submitted it.
    pub gradus: String,
    /// Commit of the repository that the job file or its working folder is in.
    pub commit: Option<String>,
    /// Whether tracked files differed from that commit.
    pub is_modified: bool,
    /// Identity of the data, of which the checkpoints carry the whole.
    #[serde(skip)]
    pub data: Option<String>,
}

impl RunOrigin {
    /// Keeps it in the folder of its run.
    ///
    /// # Errors
    /// What the system says.
    pub fn write(&self, run: &Path) -> io::Result<()> {
        fs::create_dir_all(run)?;
        fs::write(run.join(FILE), serde_json::to_vec(self)?)
    }

    /// What is known of a run, from its folder.
    pub fn of(run: &Path) -> RunOrigin {
        let origin: Option<RunOrigin> =
            fs::read(run.join(FILE)).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        RunOrigin { data: data(&run.join("checkpoints")), ..origin.unwrap_or_default() }
    }
}

/// The newest `data-HASH.json` beside the checkpoints.
fn data(checkpoints: &Path) -> Option<String> {
    let name = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.strip_prefix("data-")?.strip_suffix(".json")?.to_owned();
        Some((fs::metadata(&path).and_then(|about| about.modified()).ok()?, name))
    };
    let entries = fs::read_dir(checkpoints).ok()?.flatten();
    entries.filter_map(|entry| name(entry.path())).max().map(|(_, name)| name)
}
