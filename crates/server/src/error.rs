//! Errors of the control loop.

use std::path::PathBuf;

use rusqlite::ErrorCode;
use rusqlite::ffi::{SQLITE_IOERR_SHMOPEN, SQLITE_IOERR_SHMSIZE, SQLITE_IOERR_WRITE};

/// An error of the control loop.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder of the home could not be used.
    #[error("cannot {doing} `{}`", path.display())]
    File {
        /// The operation.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// The state could not be read or written.
    #[error("cannot {doing} the state in `{}`", path.display())]
    State {
        /// The operation.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: rusqlite::Error,
    },
    /// The event log holds something that this version cannot read.
    #[error("cannot read event {seq} in `{}`", path.display())]
    Unreadable {
        /// Where in the log.
        seq: u64,
        /// Which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: serde_json::Error,
    },
    /// An event cannot follow the history.
    #[error("the event log does not allow it")]
    Illegal(#[from] plan::Illegal),
    /// An error of a provider.
    #[error(transparent)]
    Provider(#[from] cloud::Error),
    /// Values of jobs were sealed by a key that is not there any more.
    #[error("the key in `{}` does not open the values of `envs` and `secrets` in the event log", .0.display())]
    Key(PathBuf),
    /// The file with the name of a home is empty.
    #[error("`{}` does not have the name of this home, with which everything rented from it is tagged", .0.display())]
    Owner(PathBuf),
    /// No run, sweep or pipeline has this name.
    #[error("no run, sweep or pipeline is called `{0}`")]
    NoRun(String),
}

impl Error {
    pub(crate) fn file(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::File { doing, path, source }
    }

    /// Whether it failed because the disk has no space left.
    pub fn lacks_space(&self) -> bool {
        match self {
            Error::State { source, .. } => source.sqlite_error_code() == Some(ErrorCode::DiskFull),
            Error::File { source, .. } => is_full(source),
            Error::Unreadable { .. } | Error::Illegal(_) | Error::Provider(_) => false,
            Error::Key(_) | Error::Owner(_) | Error::NoRun(_) => false,
        }
    }

    /// Whether SQLite says no more than that a write failed, as it does of a quota of the file system, and of a file beside the
    /// database.
    pub(crate) fn is_failed_write(&self) -> bool {
        let Error::State { source, .. } = self else { return false };
        let failures = [SQLITE_IOERR_WRITE, SQLITE_IOERR_SHMSIZE, SQLITE_IOERR_SHMOPEN];
        source.sqlite_error().is_some_and(|error| failures.contains(&error.extended_code))
    }

    /// The error with its cause, in one line.
    pub(crate) fn with_cause(&self) -> String {
        let cause = std::error::Error::source(self);
        cause.map_or_else(|| self.to_string(), |cause| format!("{self}: {cause}"))
    }

    /// The next thing to type, if known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::NoRun(_) => Some("list the runs with `gradus status`".into()),
            Error::Unreadable { .. } => Some("was the log written by a newer gradus? update this one".into()),
            Error::File { source, .. } => file_hint(source),
            Error::State { source, .. } if is_damaged(source) => Some(
                "it is damaged, or no state of gradus: put a copy of it back, or start a new one with `gradus home \
                 rebuild`; models and checkpoints stay"
                    .into(),
            ),
            Error::State { .. } => Some(
                "check that the home folder is on a writable disk with free space, or choose another with `--home`"
                    .into(),
            ),
            Error::Key(path) => Some(format!("put back the `{}` that this home was used with", path.display())),
            Error::Owner(path) => Some(format!(
                "put a copy of it back; where nothing is rented from this home, delete `{}`, and it gets a new name",
                path.display()
            )),
            Error::Illegal(_) | Error::Provider(_) => None,
        }
    }
}

fn file_hint(source: &std::io::Error) -> Option<String> {
    match source.kind() {
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
            Some("choose a folder that you can write with `--home`".into())
        }
        _ if is_full(source) => Some("free some space, or choose another folder with `--home`".into()),
        _ => Some("choose another folder with `--home FOLDER` or `GRADUS_HOME`".into()),
    }
}

/// Whether a disk, or what a user may use of it, is full.
pub(crate) fn is_full(source: &std::io::Error) -> bool {
    matches!(source.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

/// Whether the contents of the database are damaged.
fn is_damaged(source: &rusqlite::Error) -> bool {
    matches!(source.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}
