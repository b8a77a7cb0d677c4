//! Copies the user's working folder for one attempt, so that its changes never reach the original.
//!
//! `.git` is skipped, and so are the patterns in `.skyignore`: one per line, `*` and `?` within a name, `**` for any
//! folders, a leading `/` for the top only, a trailing `/` for folders only. A link that leads out of the folder is
//! refused, because its target would be shared with the original.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use domain::{Cause, Finding};

use super::process::not_written;

mod outputs;

/// Copies `source` to `target`, and has the folders that are to outlive the attempt there be links to those that are kept
/// beside the checkpoints.
pub fn prepare(
    source: Option<&Path>,
    target: &Path,
    (checkpoints, outputs): &(PathBuf, Vec<String>),
) -> Result<(), Finding> {
    copy(source, target)?;
    outputs::link(target, checkpoints, outputs)
}

/// Copies `source` to `target`, which is created; without a source it is empty.
pub fn copy(source: Option<&Path>, target: &Path) -> Result<(), Finding> {
    fs::create_dir_all(target).map_err(|error| *not_written("make", target, &error))?;
    let Some(source) = source else { return Ok(()) };
    let root = fs::canonicalize(source).map_err(|error| unreadable(source, &error))?;
    let ignored = ignored(&root);
    let target = fs::canonicalize(target).map_err(|error| *not_written("open", target, &error))?;
    Copy { root: &root, target: &target, ignored }.folder(Path::new(""))
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
    let copy = Copy { root: &root, target: Path::new(""), ignored: ignored(&root) };
    let mut size = WorkdirSize::default();
    for entry in fs::read_dir(&root)? {
        let name = entry?.file_name();
        let before = size.bytes;
        copy.measure(Path::new(&name), &mut size, most_files)?;
        let bytes = size.bytes - before;
        if size.largest.as_ref().is_none_or(|(_, most)| bytes > *most) {
            size.largest = Some((name.to_string_lossy().into_owned(), bytes));
        }
    }
    Ok(size)
}

/// The patterns of a folder's `.skyignore`.
fn ignored(root: &Path) -> Vec<Pattern> {
    match fs::read_to_string(root.join(".skyignore")) {
        Ok(text) => text.lines().filter_map(Pattern::read).collect(),
        Err(_) => Vec::new(),
    }
}

struct Copy<'a> {
    root: &'a Path,
    target: &'a Path,
    ignored: Vec<Pattern>,
}

impl Copy<'_> {
    /// Copies the contents of the folder `inner` below the root.
    fn folder(&self, inner: &Path) -> Result<(), Finding> {
        let source = self.root.join(inner);
        let entries = fs::read_dir(&source).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        for entry in entries.map_err(|error| unreadable(&source, &error))? {
            let inner = inner.join(entry.file_name());
            let (from, to) = (entry.path(), self.target.join(&inner));
            let kind = entry.file_type().map_err(|error| unreadable(&from, &error))?;
            let is_left_out = entry.file_name() == ".git" || self.is_ignored(&inner, kind.is_dir());
            // The home may lie within the working folder; a copy of the copy would have no end.
            if is_left_out || self.target.starts_with(&from) {
                continue;
            }
            if kind.is_dir() {
                fs::create_dir_all(&to).map_err(|error| *not_written("make", &to, &error))?;
                self.folder(&inner)?;
            } else if kind.is_symlink() {
                self.link(&from, &to)?;
            } else if kind.is_file() {
                fs::copy(&from, &to).map_err(|error| *not_written("copy", &from, &error))?;
            }
            // Sockets, pipes and devices are not source files.
        }
        Ok(())
    }

    /// Measures the contents of `inner` below the root.
    fn measure(&self, inner: &Path, size: &mut WorkdirSize, most_files: u64) -> io::Result<()> {
        let path = self.root.join(inner);
        let about = fs::symlink_metadata(&path)?;
        let is_left_out =
            inner.file_name().is_some_and(|name| name == ".git") || self.is_ignored(inner, about.is_dir());
        if is_left_out || size.files >= most_files {
            return Ok(());
        }
        if !about.is_dir() {
            size.files += 1;
            size.bytes += if about.is_file() { about.len() } else { 0 };
            return Ok(());
        }
        for entry in fs::read_dir(&path)? {
            self.measure(&inner.join(entry?.file_name()), size, most_files)?;
        }
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> Result<(), Finding> {
        let aim = fs::read_link(from).map_err(|error| unreadable(from, &error))?;
        let leads_within = aim.is_relative() && fs::canonicalize(from).is_ok_and(|end| end.starts_with(self.root));
        if !leads_within {
            let message =
                format!("`{}` is a link that leads out of the working folder, to `{}`", from.display(), aim.display());
            let hint = "name it in `.skyignore`, or pass its target's absolute path in `envs`";
            return Err(Finding::new(Cause::Job, message).hint(hint));
        }
        symlink(&aim, to).map_err(|error| *not_written("link", to, &error))
    }

    fn is_ignored(&self, inner: &Path, is_folder: bool) -> bool {
        let parts: Vec<String> = inner.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        self.ignored.iter().any(|pattern| pattern.matches(&parts, is_folder))
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Finding {
    let message = format!("cannot read `{}` of the working folder: {error}", path.display());
    Finding::new(Cause::Job, message).hint("check `workdir` and who may read what is in it")
}

/// One line of `.skyignore`.
#[derive(Debug)]
struct Pattern {
    parts: Vec<String>,
    folders_only: bool,
}

impl Pattern {
    fn read(line: &str) -> Option<Pattern> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        let folders_only = line.ends_with('/');
        let inner = line.trim_end_matches('/');
        let mut parts: Vec<String> = inner.trim_start_matches('/').split('/').map(str::to_owned).collect();
        // Without a folder in it a pattern holds anywhere.
        if !inner.contains('/') {
            parts.insert(0, "**".into());
        }
        Some(Pattern { parts, folders_only })
    }

    fn matches(&self, path: &[String], is_folder: bool) -> bool {
        (is_folder || !self.folders_only) && parts_match(&self.parts, path)
    }
}

fn parts_match(pattern: &[String], path: &[String]) -> bool {
    match (pattern.split_first(), path.split_first()) {
        (None, None) => true,
        (None, Some(_)) => false,
        (Some((part, rest)), _) if part == "**" => (0..=path.len()).any(|skipped| parts_match(rest, &path[skipped..])),
        (Some(_), None) => false,
        (Some((part, rest)), Some((name, inner))) => {
            let (part, name): (Vec<char>, Vec<char>) = (part.chars().collect(), name.chars().collect());
            name_matches(&part, &name) && parts_match(rest, inner)
        }
    }
}

fn name_matches(pattern: &[char], name: &[char]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (None, Some(_)) => false,
        (Some(('*', rest)), _) => (0..=name.len()).any(|skipped| name_matches(rest, &name[skipped..])),
        (Some(_), None) => false,
        (Some((expected, rest)), Some((found, inner))) => {
            (*expected == '?' || expected == found) && name_matches(rest, inner)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_they_read() {
        let check = |line: &str, path: &str, expected: bool| {
            let is_folder = path.ends_with('/');
            let parts: Vec<String> = path.trim_end_matches('/').split('/').map(str::to_owned).collect();
            let matches = Pattern::read(line).is_some_and(|pattern| pattern.matches(&parts, is_folder));
            assert_eq!(matches, expected, "`{line}` on `{path}`");
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
        check("# *", "x", false);
        check("", "x", false);
    }

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
        copy(Some(root), &target).unwrap();
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
        let finding = copy(Some(root), &temporary.path().join("other")).unwrap_err();
        assert!(finding.cause == Cause::Job && finding.message.contains("outer"), "{finding:?}");
        assert!(copy(Some(&root.join("missing")), &root.join("third")).unwrap_err().message.contains("missing"));
    }

    #[test]
    fn no_folder_gives_an_empty_one() {
        let temporary = tempfile::tempdir().unwrap();
        let target = temporary.path().join("workdir");
        copy(None, &target).unwrap();
        assert!(target.is_dir() && tree(&target).is_empty());
    }
}
