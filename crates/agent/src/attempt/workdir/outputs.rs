//! Folders of a program that outlive its attempts: `outputs` of the job. Each is a link from the attempt's working folder to a
//! folder beside the checkpoints, so that what is written is kept at once, however the attempt ends, and travels as
//! checkpoints do.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use domain::{Cause, Finding};

use node::folder::not_written;

/// Folder of a run's checkpoints that holds them.
const KEPT: &str = "outputs";

/// Makes each of the folders a link. What the working folder has there is what the first attempt begins with.
pub fn link(workdir: &Path, checkpoints: &Path, outputs: &[String]) -> Result<(), Finding> {
    for output in outputs {
        let (place, kept) = (workdir.join(output), checkpoints.join(KEPT).join(output));
        let failed = |error: std::io::Error| *not_written("make", &place, &error);
        let about = fs::symlink_metadata(&place).ok();
        if about.as_ref().is_some_and(|about| !about.is_dir()) {
            let message = format!("`outputs` names `{output}`, which is a file or link in the working folder");
            return Err(Finding::new(Cause::Job, message).hint("name a folder, or one that is not there yet"));
        }
        for folder in [kept.parent(), place.parent()].into_iter().flatten() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        match (about.is_some(), kept.exists()) {
            (true, false) => fs::rename(&place, &kept).map_err(failed)?,
            (true, true) => fs::remove_dir_all(&place).map_err(failed)?,
            (false, false) => fs::create_dir_all(&kept).map_err(failed)?,
            (false, true) => {}
        }
        symlink(&kept, &place).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_attempt_writes_is_there_for_the_next() {
        let temporary = tempfile::tempdir().unwrap();
        let checkpoints = temporary.path().join("checkpoints");
        let outputs = ["out".to_owned(), "a/logs".to_owned()];
        for attempt in ["1", "2"] {
            let workdir = temporary.path().join(attempt);
            fs::create_dir_all(workdir.join("out")).unwrap();
            fs::write(workdir.join("out/shipped"), "with the job").unwrap();
            link(&workdir, &checkpoints, &outputs).unwrap();
            let written = workdir.join("a/logs/1.txt");
            assert_eq!(written.exists(), attempt == "2");
            fs::write(&written, "step 1").unwrap();
            assert!(workdir.join("out/shipped").is_file());
        }
        assert_eq!(fs::read_to_string(checkpoints.join("outputs/a/logs/1.txt")).unwrap(), "step 1");
        let workdir = temporary.path().join("3");
        fs::create_dir_all(&workdir).unwrap();
        fs::write(workdir.join("out"), "a file").unwrap();
        assert!(link(&workdir, &checkpoints, &outputs).unwrap_err().message.contains("`out`"));
    }
}
