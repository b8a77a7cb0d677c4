//! What an attempt puts outside of the folders of gradus for `file_mounts`, written down before it is there: an agent that is
//! killed takes nothing away. A later attempt of the same home does, or `gradus nodes rm` in its script.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The folder of these lists, below that of all runs.
const PLACED: &str = "placed";

/// The list of one attempt, a path in each line: the folder of its copies, then links into that folder, and folders, which end
/// with `/`, outer ones first.
#[derive(Debug)]
pub(super) struct PlacedList {
    path: PathBuf,
    file: File,
}

impl PlacedList {
    /// Begins the list of the attempt that has its copies here.
    pub(super) fn create(root: &Path, copies: &Path) -> io::Result<PlacedList> {
        let folder = root.join(PLACED);
        fs::create_dir_all(&folder)?;
        let path = folder.join(node::sha256(copies.as_os_str().as_bytes())?);
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        let mut list = PlacedList { path, file };
        list.add(copies, b"\n")?;
        Ok(list)
    }

    /// Adds a folder that is about to be made.
    pub(super) fn add_folder(&mut self, folder: &Path) -> io::Result<()> {
        self.add(folder, b"/\n")
    }

    /// Adds a link that is about to be made.
    pub(super) fn add_link(&mut self, link: &Path) -> io::Result<()> {
        self.add(link, b"\n")
    }

    fn add(&mut self, path: &Path, end: &[u8]) -> io::Result<()> {
        self.file.write_all(&[path.as_os_str().as_bytes(), end].concat())?;
        self.file.sync_data()
    }

    /// Where the list is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Deletes the list once the folders are gone. One that holds something by now is taken away once it does not.
    pub(super) fn close(self, folders: &[PathBuf]) {
        if !folders.iter().any(|folder| folder.exists()) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Takes away what attempts have left whose copies are not in use any more. Folders that hold something stay.
pub(super) fn clear(root: &Path, is_in_use: impl Fn(&Path) -> bool) {
    let lists = fs::read_dir(root.join(PLACED)).into_iter().flatten().flatten();
    for list in lists.map(|entry| entry.path()) {
        let Ok(text) = fs::read(&list) else { continue };
        // A line without its end is one that a crash has cut off.
        let lines = text.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"));
        let mut paths = lines.map(|line| Path::new(OsStr::from_bytes(line)));
        let Some(copies) = paths.next() else { continue };
        if is_in_use(copies) {
            continue;
        }
        let placed: Vec<&Path> = paths.collect();
        placed.iter().rev().for_each(|path| take_away(path, copies));
        if !placed.iter().any(|path| is_folder(path) && path.exists()) {
            let _ = fs::remove_file(&list);
        }
    }
}

fn is_folder(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

fn take_away(path: &Path, copies: &Path) {
    // Fails for a folder that holds something.
    let _ = match is_folder(path) {
        true => fs::remove_dir(path),
        false if fs::read_link(path).is_ok_and(|aim| aim.starts_with(copies)) => fs::remove_file(path),
        false => Ok(()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_goes_once_it_is_not_in_use_and_empty() {
        let scene = tempfile::tempdir().unwrap();
        let path = |name: &str| scene.path().join(name);
        let copies = path("mounts");
        let mut list = PlacedList::create(scene.path(), &copies).unwrap();
        for folder in ["data", "data/deep"] {
            list.add_folder(&path(folder)).unwrap();
            fs::create_dir(path(folder)).unwrap();
        }
        for link in ["data/deep/link", "own"] {
            list.add_link(&path(link)).unwrap();
        }
        std::os::unix::fs::symlink(copies.join("0"), path("data/deep/link")).unwrap();
        std::os::unix::fs::symlink("/nonexistent", path("own")).unwrap();
        // The beginning of a line that a crash has cut off.
        list.file.write_all(path("user").as_os_str().as_bytes()).unwrap();
        fs::create_dir(path("user")).unwrap();
        clear(scene.path(), |_| true);
        assert!(path("data/deep/link").is_symlink(), "it is in use");
        fs::write(path("data/photo"), "of the user").unwrap();
        clear(scene.path(), |_| false);
        assert!(!path("data/deep").exists() && path("data/photo").exists(), "what others have put there stays");
        assert!(path("own").is_symlink() && path("user").exists(), "a link that leads to something else stays");
        fs::remove_file(path("data/photo")).unwrap();
        clear(scene.path(), |_| false);
        assert!(!path("data").exists() && !list.path.exists(), "it was known until it could go");
    }
}
