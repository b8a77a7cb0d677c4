//! Why the state could not be saved, claimed or read.

use std::io;
use std::path::{Path, PathBuf};

use domain::finding::{Cause, Finding};
use domain::id::Fence;

/// Why the state could not be saved, claimed or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk, the quota or the allowed file size is used up.
    #[error("no space left to write `{}`", path.display())]
    DiskFull {
        /// The file being written.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The folder cannot be written, or is no folder.
    #[error("`{}` cannot be written", path.display())]
    ReadOnly {
        /// The file being written.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A later attempt has claimed the folder; nothing was published.
    #[error("attempt {} may not write to `{}`: attempt {} has taken over", mine.0, folder.display(), highest.0)]
    Fenced {
        /// The folder of checkpoints.
        folder: PathBuf,
        /// The attempt that was refused.
        mine: Fence,
        /// The attempt that holds the folder.
        highest: Fence,
    },
    /// Another process held the folder's lock for too long.
    #[error("`{}` is held by another process for more than {seconds} s", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// How long it was waited for.
        seconds: u64,
    },
    /// Any other trouble with a file.
    #[error("could not {doing} `{}`", path.display())]
    File {
        /// A verb such as `sync`.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file or folder exists, but could not be read. Its contents may be intact.
    #[error("cannot read `{}`", path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file does not contain what its name implies.
    #[error("`{}` is damaged: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage.
        why: String,
    },
    /// A tensor to be saved is inconsistent, or its name is not unique.
    #[error("tensor `{name}` cannot be saved: {why}")]
    Tensor {
        /// The tensor's name.
        name: String,
        /// The inconsistency.
        why: String,
    },
    /// Another rank's part of a checkpoint was not written.
    #[error("rank {rank} has not saved its part of the checkpoint: {why}")]
    Part {
        /// The rank.
        rank: u32,
        /// Why it failed.
        why: String,
    },
    /// The thread that writes has ended by a panic.
    #[error("the checkpoint writer ended unexpectedly")]
    WriterGone,
}

/// Why a file of a checkpoint was not read.
#[derive(Debug)]
pub(crate) enum Defect {
    /// It is verifiably damaged; the text is part of a sentence.
    Damaged(String),
    /// The system could not read it now: an I/O error, missing permissions, a stale handle, too little memory.
    Unreadable(io::Error),
}

impl From<&str> for Defect {
    fn from(why: &str) -> Defect {
        Defect::Damaged(why.to_owned())
    }
}

impl From<String> for Defect {
    fn from(why: String) -> Defect {
        Defect::Damaged(why)
    }
}

impl From<io::Error> for Defect {
    fn from(error: io::Error) -> Defect {
        Defect::Unreadable(error)
    }
}

impl Error {
    /// Classifies an I/O error while writing `path` by what the user can do about it.
    pub(crate) fn writing(doing: &'static str, path: &Path, source: io::Error) -> Error {
        use io::ErrorKind::*;
        let path = path.to_owned();
        match source.kind() {
            StorageFull | QuotaExceeded | FileTooLarge => Error::DiskFull { path, source },
            ReadOnlyFilesystem | PermissionDenied | NotADirectory | AlreadyExists => Error::ReadOnly { path, source },
            _ => Error::File { doing, path, source },
        }
    }

    /// Converts the error to the finding that ends an attempt: cause, message and hint.
    pub fn finding(&self) -> Finding {
        let (cause, hint) = match self {
            Error::DiskFull { .. } => {
                (Cause::DiskFull, "free some space there (`df -h` shows it), then resume the run")
            }
            Error::ReadOnly { .. } => (Cause::ReadOnly, "make the folder writable, or choose another with `--home`"),
            Error::Fenced { .. } => (Cause::Fenced, "nothing to do: the later attempt continues"),
            Error::Locked { .. } => {
                (Cause::Internal, "look for a rank that hangs (`ps -ef | grep gradus-rank`) and end it")
            }
            Error::File { .. } => (Cause::Internal, "check the disk (`dmesg` shows its errors), then resume the run"),
            Error::Unreadable { .. } => (
                Cause::Unreadable,
                "check the disk or mount (`dmesg` shows errors) and who may read it, then resume the run: nothing was removed",
            ),
            Error::Damaged { .. } => (Cause::Internal, "remove that file, then resume the run"),
            Error::Part { .. } => (Cause::RankLost, "see that rank's log; the run resumes from its newest checkpoint"),
            Error::Tensor { .. } | Error::WriterGone => (Cause::Internal, "report this with the rank's log"),
        };
        let mut message = self.to_string();
        if let Some(source) = std::error::Error::source(self) {
            message = format!("{message}: {source}");
        }
        Finding::new(cause, message).hint(hint)
    }
}
