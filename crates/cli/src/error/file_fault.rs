//! I/O errors of files and folders: whether the name is wrong, and hints.

use std::io::{Error, ErrorKind};
use std::path::Path;

/// Whether the name is wrong: nothing exists there, or something of another kind. Otherwise it is the environment:
/// permissions, disk space, damage.
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

/// The hint after `doing` to `path` has failed.
pub fn hint(doing: &str, path: &Path, source: &Error) -> String {
    let shown = path.display();
    let writes = ["write", "make"].iter().any(|verb| doing.starts_with(verb));
    match source.kind() {
        ErrorKind::NotFound if path.is_dir() => format!("no file can be created in `{shown}`: use another folder"),
        ErrorKind::NotFound if writes => match missing_folder(path) {
            Some(folder) => format!("create the folder first: `mkdir -p {}`", folder.display()),
            None => "use a path where files can be created".to_owned(),
        },
        ErrorKind::NotFound => match path.parent().filter(|folder| folder.is_dir() && path.is_relative()) {
            Some(folder) => format!("list what exists: `ls {}`", folder.display()),
            None if path.is_relative() && !has_folder(path) => {
                "relative paths start at the current folder: list it with `ls`".to_owned()
            }
            None => match missing_folder(path) {
                Some(folder) => format!("the folder `{}` does not exist: check the path", folder.display()),
                None => "check the path".to_owned(),
            },
        },
        ErrorKind::NotADirectory => match path.ancestors().skip(1).find(|above| above.is_file()) {
            Some(file) => format!("`{}` is a file: give a folder", file.display()),
            None => format!("`{shown}` is a file: give a folder"),
        },
        ErrorKind::AlreadyExists if !path.is_dir() => format!("`{shown}` is a file: give a folder"),
        ErrorKind::AlreadyExists => format!("`{shown}` already exists: use another path"),
        ErrorKind::IsADirectory if writes => format!("`{shown}` is a folder: give a file in it"),
        ErrorKind::IsADirectory => format!("`{shown}` is a folder: give a file, see `ls {shown}`"),
        ErrorKind::InvalidFilename => "use a shorter name: each part of a path can have at most 255 bytes".to_owned(),
        ErrorKind::PermissionDenied => {
            format!("check the permissions with `ls -ld {shown}`, or use another path")
        }
        ErrorKind::ReadOnlyFilesystem => "the file system is read-only: use another path".to_owned(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "free disk space (see `df -h`), or use a path on another disk".to_owned()
        }
        _ if writes => "check the path with `df -h` and `ls -ld`, or use another one".to_owned(),
        _ => format!("check the path: `ls -ld {shown}`"),
    }
}

/// Whether a path names a folder before its last part.
fn has_folder(path: &Path) -> bool {
    path.parent().is_some_and(|folder| !folder.as_os_str().is_empty())
}

/// The first missing parent folder of a path.
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
    fn the_hint_says_what_to_do_about_a_file_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let within = |name: &str| folder.path().join(name);
        check("write", &within("none/x"), ErrorKind::NotFound, true, "`mkdir -p ");
        check("read", &within("none/x"), ErrorKind::NotFound, true, "the folder `");
        check("read", Path::new("no-such-file"), ErrorKind::NotFound, true, "list it with `ls`");
        check("make the folder", &within("file/x"), ErrorKind::NotADirectory, true, "/file` is a file: give a folder");
        check("write", folder.path(), ErrorKind::IsADirectory, true, "is a folder: give a file in it");
        check("read", folder.path(), ErrorKind::IsADirectory, true, "give a file, see `ls ");
        check("make", &file, ErrorKind::AlreadyExists, true, "/file` is a file: give a folder");
        check("make", folder.path(), ErrorKind::AlreadyExists, true, "already exists");
        check("measure", folder.path(), ErrorKind::NotFound, true, "no file can be created in `");
        check("write", &file, ErrorKind::PermissionDenied, false, "`ls -ld ");
        check("write", &file, ErrorKind::StorageFull, false, "free disk space");
        check("write", &file, ErrorKind::InvalidFilename, true, "shorter name");
    }
}
