//! Programs of others that our files are held against: Python packages in a folder of the user's cache, so that a
//! fresh machine needs nothing but Python and pip, and the machine's own Python stays as it is.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::{doing, setup};

/// What reads our event files back. The version is pinned, for a test should fail for our reasons only.
const TENSORBOARD: &str = "tensorboard==2.21.0";

/// The folder that `PYTHONPATH` names, filled on first use (178 MB on disk, seconds on a fast line).
pub fn tensorboard() -> Result<PathBuf, Box<dyn Error>> {
    let parent = setup::cache()?.join("gradus");
    let folder = parent.join(TENSORBOARD.replace("==", "-"));
    if folder.is_dir() {
        return Ok(folder);
    }
    let python = setup::python()?;
    let unfinished = parent.join(format!(".tensorboard.{}", std::process::id()));
    fs::create_dir_all(&parent)?;
    eprintln!("fetching {TENSORBOARD} through pip, which reads our event files in a test");
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-warn-conflicts"]);
    pip.arg("--target").arg(&unfinished).arg(TENSORBOARD).env("PIP_ROOT_USER_ACTION", "ignore");
    let installed = doing::run(&mut pip, "check the network and pip's index");
    match installed.and_then(|()| Ok(fs::rename(&unfinished, &folder)?)) {
        Ok(()) => Ok(folder),
        // Another test run was faster.
        Err(_) if folder.is_dir() => Ok(folder),
        Err(error) => {
            let _ = fs::remove_dir_all(&unfinished);
            Err(error)
        }
    }
}
