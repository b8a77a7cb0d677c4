//! Where a job comes from: the commit that its file is at.

use std::path::Path;
use std::process::{Command, Stdio};

use server::report::RunOrigin;

/// The origin of a job whose file or working folder is in `folder`. Without git, or outside of a repository, no commit.
pub fn of(folder: &Path) -> RunOrigin {
    let git = |words: &[&str]| {
        let output = Command::new("git").arg("-C").arg(folder).args(words).stdin(Stdio::null()).output().ok()?;
        let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
        Some(text.trim().to_owned())
    };
    let commit = git(&["rev-parse", "HEAD"]);
    // Untracked files, such as data, are no change.
    let is_modified = commit.is_some()
        && git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
    RunOrigin { gradus: env!("CARGO_PKG_VERSION").to_owned(), commit, is_modified, data: None }
}
