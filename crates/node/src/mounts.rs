//! What of a folder that `file_mounts` names comes to a machine: everything but `.git` and what its own `.skyignore` names.
//! Links stand for what they lead to, as long as that lies within the folder: what lies elsewhere was not named, and may be a
//! key or another's file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::workdir::{LeavesOut, Walk, WorkdirEntry};

/// Everything below `root`, an absolute path without links, each folder before what it holds. `except` is left out: a home
/// that lies within.
pub fn entries(
    root: &Path,
    except: Option<PathBuf>,
    leaves_out: LeavesOut,
) -> impl Iterator<Item = io::Result<WorkdirEntry>> + use<> {
    let walk = Walk { except, follows_links: true, leaves_out };
    let root = root.to_owned();
    walk.entries(&root).map(move |entry| {
        let entry = entry?;
        allowed(&root, &entry.path)?;
        Ok(entry)
    })
}

/// Refuses an entry whose name cannot travel, and a link that leads out of the folder.
fn allowed(root: &Path, path: &Path) -> io::Result<()> {
    let whole = root.join(path);
    let refused = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, format!("`{}` {why}", whole.display())));
    if !path.to_str().is_some_and(domain::files::is_safe) {
        return refused("has a name that is not Unicode or holds a `\\`; rename it");
    }
    if whole.is_symlink() && !fs::canonicalize(&whole)?.starts_with(root) {
        return refused(
            "is a link that leads out of the folder; copy there what it leads to, or name it in `.skyignore`",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stand_for_what_lies_within_and_nothing_else_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap().join("a");
        fs::create_dir_all(root.join("sub")).unwrap();
        for path in ["a/sub/x", "a/.gitignore", "a/y.log", "secret"] {
            fs::write(root.parent().unwrap().join(path), "sub/\n").unwrap();
        }
        std::os::unix::fs::symlink("sub", root.join("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", root.join("dangling")).unwrap();
        let names = |leaves_out| -> Result<Vec<String>, String> {
            let found = entries(&root, None, leaves_out);
            found.map(|entry| entry.map(|entry| entry.path.display().to_string()).map_err(|e| e.to_string())).collect()
        };
        let all = [".gitignore", "link", "link/x", "sub", "sub/x", "y.log"].map(str::to_owned);
        assert_eq!(names(LeavesOut::Listed).unwrap(), all, "also what git ignores");
        fs::write(root.join(".skyignore"), "*.log\n").unwrap();
        assert!(!names(LeavesOut::Listed).unwrap().contains(&"y.log".to_owned()));
        assert!(names(LeavesOut::Nothing).unwrap().contains(&"y.log".to_owned()), "a copy has no list any more");
        std::os::unix::fs::symlink("../../secret", root.join("sub/out")).unwrap();
        let why = names(LeavesOut::Listed).unwrap_err();
        assert!(why.contains("/out` is a link that leads out"), "{why}");
        fs::remove_file(root.join("sub/out")).unwrap();
        fs::write(root.join("sub/a\\b"), "").unwrap();
        assert!(names(LeavesOut::Listed).unwrap_err().contains("rename it"));
    }
}
