//! Copies the user's working folder for one attempt, so that its changes never reach the original.
//!
//! What is left out is known to [`node::workdir`]. A link that leads out of the folder is refused, because its target would
//! be shared with the original.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use domain::{Cause, Finding};
use node::workdir::{LeavesOut, Walk, WorkdirEntry};

use node::folder::not_written;

mod mounts;
mod outputs;
mod placed;
mod placed_list;

pub use mounts::{MOUNTS, MountTarget, place};
pub use placed::Placed;

/// A folder to copy.
#[derive(Debug, Clone)]
pub enum WorkdirSource {
    /// The user's.
    Original(PathBuf),
    /// What was brought of it to this machine.
    Brought(PathBuf),
}

/// Copies `source` to `target`, and has the folders that are to outlive the attempt there be links to those that are kept
/// beside the checkpoints.
pub fn prepare(
    source: Option<&WorkdirSource>,
    target: &Path,
    (checkpoints, outputs): &(PathBuf, Vec<String>),
) -> Result<(), Finding> {
    copy(source, target)?;
    outputs::link(target, checkpoints, outputs)
}

/// Copies `source` to `target`, which is created; without a source it is empty.
pub fn copy(source: Option<&WorkdirSource>, target: &Path) -> Result<(), Finding> {
    fs::create_dir_all(target).map_err(|error| *not_written("make", target, &error))?;
    let (source, leaves_out) = match source {
        None => return Ok(()),
        Some(WorkdirSource::Original(source)) => (source, LeavesOut::Ignored),
        Some(WorkdirSource::Brought(source)) => (source, LeavesOut::Nothing),
    };
    let root = fs::canonicalize(source).map_err(|error| unreadable(source, &error))?;
    let target = fs::canonicalize(target).map_err(|error| *not_written("open", target, &error))?;
    // The home may lie within the working folder; a copy of the copy would have no end.
    let home = target.strip_prefix(&root).ok().and_then(|inner| inner.iter().next()).map(|name| root.join(name));
    let walk = Walk { except: home, follows_links: false, leaves_out };
    for entry in walk.entries(&root) {
        let WorkdirEntry { path, kind } = entry.map_err(|error| unreadable(source, &error))?;
        let (from, to) = (root.join(&path), target.join(&path));
        if kind.is_dir() {
            fs::create_dir_all(&to).map_err(|error| *not_written("make", &to, &error))?;
        } else if kind.is_symlink() {
            link(&root, &from, &to)?;
        } else if kind.is_file() {
            let copied = fs::copy(&from, &to).and_then(|_| keep_time(&from, &to));
            copied.map_err(|error| *not_written("copy", &from, &error))?;
        }
        // Sockets, pipes and devices are not source files.
    }
    Ok(())
}

/// Gives a copy the time of its source: build tools, and the note on files that a program has written, take it for old. Only
/// the owner of a file may set its time; one that only its group may write has another.
fn keep_time(from: &Path, to: &Path) -> io::Result<()> {
    let modified = fs::metadata(from)?.modified()?;
    let _ = File::open(to).and_then(|file| file.set_modified(modified));
    Ok(())
}

/// The size of the copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkdirSize {
    /// Bytes of all files.
    pub bytes: u64,
    /// Files and links.
    pub files: u64,
    /// The largest entry of the folder itself, and its bytes.
    pub largest: Option<(String, u64)>,
}

/// Measures the files to copy of `source`; stops after `most_files`.
///
/// # Errors
/// An I/O error of a folder.
pub fn measure(source: &Path, most_files: u64) -> io::Result<WorkdirSize> {
    let root = fs::canonicalize(source)?;
    let mut size = WorkdirSize::default();
    let mut of_entries: BTreeMap<PathBuf, u64> = BTreeMap::new();
    for entry in Walk::default().entries(&root) {
        let WorkdirEntry { path, kind } = entry?;
        if kind.is_dir() {
            continue;
        }
        if size.files >= most_files {
            break;
        }
        let bytes = if kind.is_file() { fs::symlink_metadata(root.join(&path))?.len() } else { 0 };
        size.files += 1;
        size.bytes += bytes;
        *of_entries.entry(path.iter().take(1).collect()).or_default() += bytes;
    }
    let largest = of_entries.into_iter().rev().max_by_key(|(_, bytes)| *bytes);
    size.largest = largest.map(|(name, bytes)| (name.to_string_lossy().into_owned(), bytes));
    Ok(size)
}

fn link(root: &Path, from: &Path, to: &Path) -> Result<(), Finding> {
    let aim = fs::read_link(from).map_err(|error| unreadable(from, &error))?;
    let leads_within = aim.is_relative() && fs::canonicalize(from).is_ok_and(|end| end.starts_with(root));
    if !leads_within {
        let message =
            format!("`{}` is a link that leads out of the working folder, to `{}`", from.display(), aim.display());
        let hint = "name it in `.skyignore`, or pass its target's absolute path in `envs`";
        return Err(Finding::new(Cause::Job, message).hint(hint));
    }
    symlink(&aim, to).map_err(|error| *not_written("link", to, &error))
}

/// A path below the working folder that ends elsewhere.
fn outer_link(end: &Path, workdir: &Path) -> Finding {
    let message = format!("a link leads out of the working folder `{}`, to `{}`", workdir.display(), end.display());
    Finding::new(Cause::Job, message).hint("name another place in `file_mounts`")
}

fn unreadable(path: &Path, error: &io::Error) -> Finding {
    let message = format!("cannot read `{}` of the working folder: {error}", path.display());
    Finding::new(Cause::Job, message).hint("check `workdir` and who may read what is in it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(folder: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut waiting = vec![folder.to_owned()];
        while let Some(next) = waiting.pop() {
            for entry in fs::read_dir(next).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() { waiting.push(entry.path()) } else { found.push(entry.path()) }
            }
        }
        let mut found: Vec<_> = found.iter().map(|path| path.strip_prefix(folder).unwrap().to_owned()).collect();
        found.sort();
        found
    }

    #[test]
    fn a_folder_is_copied_without_what_is_ignored_and_never_into_itself() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path();
        for (path, text) in [("train.py", "print(1)"), ("lib/a.py", ""), (".git/config", ""), ("data/x.bin", "")] {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
        }
        fs::write(root.join(".skyignore"), "data/\n*.log\n").unwrap();
        fs::write(root.join("lib/noise.log"), "").unwrap();
        symlink("lib/a.py", root.join("inner")).unwrap();
        let target = root.join("home/attempts/1/workdir");
        copy(Some(&WorkdirSource::Original(root.to_owned())), &target).unwrap();
        let expected: Vec<PathBuf> = [".skyignore", "inner", "lib/a.py", "train.py"].map(PathBuf::from).into();
        assert_eq!(tree(&target), expected);
        assert_eq!(fs::read_to_string(target.join("train.py")).unwrap(), "print(1)");

        let size = measure(root, 1_000).unwrap();
        assert_eq!((size.files, measure(root, 5).unwrap().files), (8, 5), "the copy counts, too: {size:?}");
        fs::write(root.join("big.bin"), vec![0; 1_000]).unwrap();
        assert_eq!(measure(root, 1_000).unwrap().largest, Some(("big.bin".into(), 1_000)));
        fs::write(root.join(".skyignore"), "data/\n*.log\n*.bin\nhome/\n").unwrap();
        let size = measure(root, 1_000).unwrap();
        assert_eq!((size.files, size.largest.unwrap().0), (4, ".skyignore".into()));

        symlink("/etc/passwd", root.join("outer")).unwrap();
        let finding =
            copy(Some(&WorkdirSource::Original(root.to_owned())), &temporary.path().join("other")).unwrap_err();
        assert!(finding.cause == Cause::Job && finding.message.contains("outer"), "{finding:?}");
        let missing = WorkdirSource::Original(root.join("missing"));
        assert!(copy(Some(&missing), &root.join("third")).unwrap_err().message.contains("missing"));
    }

    #[test]
    fn no_folder_gives_an_empty_one() {
        let temporary = tempfile::tempdir().unwrap();
        let target = temporary.path().join("workdir");
        copy(None, &target).unwrap();
        assert!(target.is_dir() && tree(&target).is_empty());
    }
}
