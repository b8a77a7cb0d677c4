//! Which files of a user's working folder are copied to a machine: all but `.git` and what its `.skyignore` names, or
//! where there is none, what the repository's `.gitignore` files match, whether or not git tracks it. Both have the same
//! syntax.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ignore::{DirEntry, WalkBuilder};

/// The file whose patterns replace those of git.
pub const IGNORE_FILE: &str = ".skyignore";

/// A file, folder, link or other entry of a working folder.
#[derive(Debug)]
pub struct WorkdirEntry {
    /// Its path below the working folder.
    pub path: PathBuf,
    /// Its type; that of a link's target where links are followed.
    pub kind: fs::FileType,
}

/// How a working folder is read.
#[derive(Debug, Clone, Default)]
pub struct Walk {
    /// Left out with all that it holds: a home that lies within the working folder, by its path.
    pub except: Option<PathBuf>,
    /// Whether links stand for what they lead to.
    pub follows_links: bool,
    /// Which entries are left out beside `.git`.
    pub leaves_out: LeavesOut,
}

/// Which entries of a folder are left out beside `.git`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LeavesOut {
    /// What the list of the folder names, or without one what git ignores: of a working folder.
    #[default]
    Ignored,
    /// What the list of the folder names: of one that was named by itself, and may be ignored by git for its size.
    Listed,
    /// Nothing: of a copy, in which that was done already; a node has no repository, or another one.
    Nothing,
}

impl Walk {
    /// Everything below `root` that is copied, each folder before what it holds, in the order of names.
    pub fn entries(&self, root: &Path) -> impl Iterator<Item = io::Result<WorkdirEntry>> + use<> {
        let except = self.except.clone();
        let is_copied = move |entry: &DirEntry| {
            let is_except = except.as_deref().is_some_and(|except| except == entry.path());
            entry.depth() == 0 || (entry.file_name() != ".git" && !is_except)
        };
        let has_list = root.join(IGNORE_FILE).is_file() && self.leaves_out != LeavesOut::Nothing;
        let mut walk = builder(root, !has_list && self.leaves_out == LeavesOut::Ignored);
        if has_list {
            walk.add_custom_ignore_filename(IGNORE_FILE);
        }
        walk.follow_links(self.follows_links).sort_by_file_name(Ord::cmp).filter_entry(is_copied);
        let root = root.to_owned();
        walk.build().filter_map(move |entry| entry_of(entry, &root, has_list).transpose())
    }
}

/// An entry of a walk below `root`; none for the root itself, and for a link that leads nowhere where links are followed.
fn entry_of(entry: Result<DirEntry, ignore::Error>, root: &Path, has_list: bool) -> io::Result<Option<WorkdirEntry>> {
    // A link in a circle is told: what it leads to may be meant.
    let leads_nowhere =
        |error: &ignore::Error| error.io_error().is_some() && path_of(error).is_some_and(Path::is_symlink);
    let entry = match entry {
        Err(error) if leads_nowhere(&error) => return Ok(None),
        entry => entry.map_err(io::Error::other)?,
    };
    // A pattern that is no pattern would copy what was to be left out.
    if let Some(error) = entry.error().filter(|_| has_list) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, error.to_string()));
    }
    let kind = entry.file_type().filter(|_| entry.depth() > 0);
    let path = entry.path().strip_prefix(root).map_err(io::Error::other)?.to_owned();
    Ok(kind.map(|kind| WorkdirEntry { path, kind }))
}

fn path_of(error: &ignore::Error) -> Option<&Path> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => path_of(err),
        _ => None,
    }
}

/// Walks with or without the rules of git: those of the repository and its parents, never the user's own settings.
fn builder(root: &Path, of_git: bool) -> WalkBuilder {
    let mut walk = WalkBuilder::new(root);
    walk.standard_filters(false).git_ignore(of_git).git_exclude(of_git).parents(of_git);
    walk
}

/// Files and folders below `root` that are not copied because a `.gitignore` matches them, by their paths; of what a folder
/// holds that is left out itself, nothing. None where `.skyignore` says what is left out, and none of a folder with `most`
/// entries or more, which takes long to look through.
///
/// # Errors
/// An I/O error of a folder.
pub fn matched_by_gitignore(root: &Path, most: usize) -> io::Result<Vec<String>> {
    if root.join(IGNORE_FILE).is_file() {
        return Ok(Vec::new());
    }
    let copied: Vec<WorkdirEntry> = Walk::default().entries(root).take(most).filter_map(Result::ok).collect();
    if copied.len() >= most {
        return Ok(Vec::new());
    }
    let paths: BTreeSet<&Path> = copied.iter().map(|entry| entry.path.as_path()).collect();
    let folders = copied.iter().filter(|entry| entry.kind.is_dir()).map(|entry| entry.path.as_path());
    let mut left_out = Vec::new();
    for folder in folders.chain([Path::new("")]) {
        for entry in fs::read_dir(root.join(folder))? {
            let path = folder.join(entry?.file_name());
            if !paths.contains(path.as_path()) && !path.ends_with(".git") {
                left_out.push(path.to_string_lossy().into_owned());
            }
        }
    }
    left_out.sort();
    Ok(left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn files(root: &Path) -> Vec<String> {
        let entries = Walk::default().entries(root).map(Result::unwrap).filter(|entry| !entry.kind.is_dir());
        entries.map(|entry| entry.path.display().to_string()).collect()
    }

    #[test]
    fn patterns_match_as_they_read() {
        let check = |line: &str, path: &str, expected: bool| {
            let path = path.replace("data/", "data/x");
            let folder = folder(&[(IGNORE_FILE, line), (&path, "")]);
            assert_eq!(!files(folder.path()).contains(&path), expected, "`{line}` on `{path}`");
        };
        check("*.pt", "a/b/model.pt", true);
        check("*.pt", "model.ptx", false);
        check("data/", "deep/data/", true);
        check("data/", "data", false);
        check("/data", "data", true);
        check("/data", "deep/data", false);
        check("a/*/c", "a/b/c", true);
        check("a/*/c", "a/b/b/c", false);
        check("a/**/c", "a/c", true);
        check("a/**/c", "a/b/b/c", true);
        check("run-?", "run-1", true);
        check("*.pt\n!best.pt", "best.pt", false);
        check("# *", "x", false);
        check("", "x", false);
    }

    /// Also what a folder below ignores, and what its parents in the repository do.
    #[test]
    fn without_a_list_of_its_own_a_folder_is_copied_as_git_would() {
        let all = [
            (".git/config", ""),
            (".git/info/exclude", "/mine\n"),
            (".gitignore", "*.log\n/job/out\n"),
            ("job/.gitignore", "data/\n"),
            ("job/train.py", ""),
            ("job/a.log", ""),
            ("job/data/x", ""),
            ("job/lib/data/x", ""),
            ("job/lib/.gitignore", "*.so\n"),
            ("job/lib/a.so", ""),
            ("job/lib/a.py", ""),
            ("job/out/model", ""),
            ("mine", ""),
        ];
        let folder = folder(&all);
        let job = folder.path().join("job");
        assert_eq!(files(&job), [".gitignore", "lib/.gitignore", "lib/a.py", "train.py"]);
        assert_eq!(matched_by_gitignore(&job, 100).unwrap(), ["a.log", "data", "lib/a.so", "lib/data", "out"]);
        assert!(matched_by_gitignore(&job, 2).unwrap().is_empty(), "not all of it was looked at");
        // Its own list replaces git's.
        fs::write(job.join(IGNORE_FILE), "lib\n").unwrap();
        assert_eq!(files(&job), [".gitignore", IGNORE_FILE, "a.log", "data/x", "out/model", "train.py"]);
        assert!(matched_by_gitignore(&job, 100).unwrap().is_empty());
    }

    /// Outside of a repository `.gitignore` is a file like any other, as it is for git.
    #[test]
    fn without_a_repository_nothing_is_ignored() {
        let folder = folder(&[(".gitignore", "*\n"), ("train.py", "")]);
        assert_eq!(files(folder.path()), [".gitignore", "train.py"]);
    }

    #[test]
    fn links_are_entries_or_what_they_lead_to() {
        let folder = folder(&[("a/x", "")]);
        std::os::unix::fs::symlink("a", folder.path().join("b")).unwrap();
        std::os::unix::fs::symlink("nowhere", folder.path().join("c")).unwrap();
        std::os::unix::fs::symlink("d", folder.path().join("d")).unwrap();
        assert_eq!(files(folder.path()), ["a/x", "b", "c", "d"]);
        let walk = Walk { follows_links: true, ..Walk::default() };
        let found: Vec<String> =
            walk.entries(folder.path()).map(|entry| entry.unwrap().path.display().to_string()).collect();
        assert_eq!(found, ["a", "a/x", "b", "b/x"]);
    }

    #[test]
    fn a_pattern_that_is_none_is_an_error() {
        let folder = folder(&[(IGNORE_FILE, "data/[z-a]\n"), ("data/x", "")]);
        let errors: Vec<String> =
            Walk::default().entries(folder.path()).filter_map(Result::err).map(|error| error.to_string()).collect();
        assert!(errors.iter().any(|error| error.contains("z-a")), "{errors:?}");
    }
}
