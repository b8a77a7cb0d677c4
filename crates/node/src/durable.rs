//! Files that are whole or not there, also after a loss of power: contents get their name only once they are on the disk, and
//! the name is on the disk when a call returns. Only this user can read them.
//!
//! Contents are written to a draft beside the file. No draft that is there already is opened, whether another process of the
//! same number in another container writes it, or one that was killed has left it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Replaces a file, or makes it. Of several calls at the same time, each gives it all of its contents.
///
/// # Errors
/// If its folder cannot be written; then the file is as it was.
pub fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let draft = written(path, contents)?;
    fs::rename(&draft, path).inspect_err(|_| forget(&draft))?;
    sync_folder(path)
}

/// Makes a file, unless it is there; whether it was not. Of several calls at the same time one makes it, and the others find its
/// contents.
///
/// # Errors
/// If its folder cannot be written.
pub fn create(path: &Path, contents: &[u8]) -> io::Result<bool> {
    let draft = written(path, contents)?;
    let linked = fs::hard_link(&draft, path);
    forget(&draft);
    let is_new = match linked {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
        Err(error) => return Err(error),
    };
    // Whoever has made it may not have got so far yet.
    sync_folder(path)?;
    Ok(is_new)
}

/// A draft of a file, with these contents on the disk.
fn written(path: &Path, contents: &[u8]) -> io::Result<PathBuf> {
    let (mut file, draft) = begun(path)?;
    let synced = file.write_all(contents).and_then(|()| file.sync_all());
    synced.inspect_err(|_| forget(&draft))?;
    Ok(draft)
}

/// An empty draft of a file that nobody else has open.
fn begun(path: &Path) -> io::Result<(File, PathBuf)> {
    let mut number = 0;
    loop {
        let draft = draft_of(path, number);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            opened => return opened.map(|file| (file, draft)),
        }
    }
}

fn draft_of(path: &Path, number: u32) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}-{number}.partial", std::process::id()))
}

/// Deletes a draft. One that stays is never opened again.
fn forget(draft: &Path) {
    let _ = fs::remove_file(draft);
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        entries.collect()
    }

    #[test]
    fn a_file_is_made_once_and_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("owner");
        assert!(create(&path, b"first").unwrap() && !create(&path, b"second").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"first");
        replace(&path, b"third").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"third");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(names(folder.path()), ["owner"], "no draft is left");
        assert!(replace(&folder.path().join("no/folder"), b"x").is_err());
    }

    /// Another process of the same number has linked its draft and not deleted it yet, as one in another container may have.
    #[test]
    fn the_draft_of_another_process_is_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret.key");
        fs::write(&path, "theirs").unwrap();
        fs::hard_link(&path, draft_of(&path, 0)).unwrap();
        assert!(!create(&path, b"ours").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"theirs");
        replace(&path, b"ours").unwrap();
        assert_eq!(fs::read(draft_of(&path, 0)).unwrap(), b"theirs");
    }

    #[test]
    fn all_that_make_a_file_at_the_same_time_find_the_same() {
        let folder = tempfile::tempdir().unwrap();
        for round in 0..20 {
            let path = folder.path().join(round.to_string());
            let start = std::sync::Barrier::new(4);
            let make = |number: u8| {
                start.wait();
                create(&path, &[number; 1000]).unwrap();
                fs::read(&path).unwrap()
            };
            let found: Vec<Vec<u8>> = std::thread::scope(|scope| {
                let makers: Vec<_> = (0..4).map(|number| scope.spawn(move || make(number))).collect();
                makers.into_iter().map(|maker| maker.join().unwrap()).collect()
            });
            assert!(found.iter().all(|one| one.len() == 1000 && *one == found[0]), "round {round}");
        }
    }
}
