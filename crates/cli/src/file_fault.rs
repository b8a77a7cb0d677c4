//! A file or folder that could not be used: whether it was named wrongly or the machine refuses it, and what to type.

use std::io::{Error, ErrorKind};
use std::path::Path;

/// Whether the name is what is wrong: nothing is there, or something of another kind. What is left is the machine's:
/// rights, room, damage.
pub fn is_misnamed(source: &Error) -> bool {
    matches!(
        source.kind(),
        ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::AlreadyExists
            | ErrorKind::InvalidFilename
            | ErrorKind::InvalidInput
    )
}

/// The next thing to type, after `doing` to `path` has failed.
pub fn hint(doing: &str, path: &Path, source: &Error) -> String {
    let shown = path.display();
    let writes = ["write", "make"].iter().any(|verb| doing.starts_with(verb));
    match source.kind() {
        ErrorKind::NotFound if path.is_dir() => format!("no file can be made in `{shown}`: name another folder"),
        ErrorKind::NotFound if writes => match missing_folder(path) {
            Some(folder) => format!("make the folder first: `mkdir -p {}`", folder.display()),
            None => "name a place where files can be made".to_owned(),
        },
        ErrorKind::NotFound => match path.parent().filter(|folder| folder.is_dir() && path.is_relative()) {
            Some(folder) => format!("`ls {}` shows what is there", folder.display()),
            None if path.is_relative() && !has_folder(path) => {
                "a relative path begins in this folder: `ls` shows what is in it".to_owned()
            }
            None => match missing_folder(path) {
                Some(folder) => format!("there is no folder `{}`: check the path", folder.display()),
                None => "check the path".to_owned(),
            },
        },
        ErrorKind::NotADirectory => match path.ancestors().skip(1).find(|above| above.is_file()) {
            Some(file) => format!("`{}` is a file: name a folder instead", file.display()),
            None => format!("`{shown}` is a file: name a folder instead"),
        },
        ErrorKind::AlreadyExists if !path.is_dir() => format!("`{shown}` is a file: name a folder instead"),
        ErrorKind::AlreadyExists => format!("`{shown}` is there already: name another place"),
        ErrorKind::IsADirectory if writes => format!("`{shown}` is a folder: name a file in it"),
        ErrorKind::IsADirectory => format!("`{shown}` is a folder: name a file, such as one that `ls {shown}` shows"),
        ErrorKind::InvalidFilename => {
            "name it with fewer letters: no part of a path has more than 255 bytes".to_owned()
        }
        ErrorKind::PermissionDenied => {
            format!("`ls -ld {shown}` shows who may use it: ask for it, or name another place")
        }
        ErrorKind::ReadOnlyFilesystem => "this file system cannot be written: name another place".to_owned(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "make room (`df -h` shows where there is some), or name a place on another disk".to_owned()
        }
        _ if writes => "name another place, or see what this one is: `df -h` and `ls -ld` tell".to_owned(),
        _ => format!("see what it is: `ls -ld {shown}`"),
    }
}

/// Whether a path names a folder before its last part.
fn has_folder(path: &Path) -> bool {
    path.parent().is_some_and(|folder| !folder.as_os_str().is_empty())
}

/// The folder of a path, where there is none.
fn missing_folder(path: &Path) -> Option<&Path> {
    path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(doing: &str, path: &Path, kind: ErrorKind, misnamed: bool, expected: &str) {
        let source = Error::from(kind);
        assert_eq!(is_misnamed(&source), misnamed);
        let found = hint(doing, path, &source);
        assert!(found.contains(expected), "{found}");
    }

    #[test]
    fn a_refused_file_is_told_with_what_to_type() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let within = |name: &str| folder.path().join(name);
        check("write", &within("none/x"), ErrorKind::NotFound, true, "`mkdir -p ");
        check("read", &within("none/x"), ErrorKind::NotFound, true, "there is no folder `");
        check("read", Path::new("no-such-file"), ErrorKind::NotFound, true, "`ls` shows what is in it");
        check("make the folder", &within("file/x"), ErrorKind::NotADirectory, true, "/file` is a file: name a folder");
        check("write", folder.path(), ErrorKind::IsADirectory, true, "is a folder: name a file in it");
        check("read", folder.path(), ErrorKind::IsADirectory, true, "name a file, such as one that `ls ");
        check("make", &file, ErrorKind::AlreadyExists, true, "/file` is a file: name a folder");
        check("make", folder.path(), ErrorKind::AlreadyExists, true, "is there already");
        check("measure", folder.path(), ErrorKind::NotFound, true, "no file can be made in `");
        check("write", &file, ErrorKind::PermissionDenied, false, "`ls -ld ");
        check("write", &file, ErrorKind::StorageFull, false, "make room");
        check("write", &file, ErrorKind::InvalidFilename, true, "fewer letters");
    }
}
