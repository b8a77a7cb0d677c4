//! Errors of transfers, with hints that say how to fix them.

use std::io;
use std::path::{Path, PathBuf};

use domain::finding::{Cause, Finding};

/// Why bytes could not be moved.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be used.
    #[error("`{text}` is not a location of data: {why}")]
    Location {
        /// The given text, without passwords.
        text: String,
        /// What is wrong with it.
        why: String,
        /// The accepted forms.
        hint: String,
    },
    /// No credentials were found.
    #[error("no credentials are known for `{location}`")]
    NoCredentials {
        /// Where to.
        location: String,
        /// Which variables to set.
        hint: String,
    },
    /// The service refused.
    #[error("access to `{location}` was refused: {why}")]
    Refused {
        /// Which object or bucket.
        location: String,
        /// The service's message.
        why: String,
    },
    /// The bucket does not exist.
    #[error("there is no bucket `{bucket}` at `{location}`")]
    NoBucket {
        /// Its name.
        bucket: String,
        /// The requested address.
        location: String,
    },
    /// There is nothing at the location.
    #[error("there is nothing at `{location}`")]
    Missing {
        /// The requested location.
        location: String,
        /// Where else to look.
        hint: String,
    },
    /// The server of the first request cannot be reached.
    #[error("cannot reach `{host}` for `{location}`: {why}")]
    Unreachable {
        /// Host and port.
        host: String,
        /// The requested location.
        location: String,
        /// Why not.
        why: String,
        /// What names the host.
        hint: String,
    },
    /// The network or the service failed for longer than our patience.
    #[error("cannot {doing} `{location}`{host}: {why}")]
    Network {
        /// The operation.
        doing: &'static str,
        /// To what.
        location: String,
        /// ` at ` with host and port, if known.
        host: String,
        /// The last error.
        why: String,
        /// What to change, or to type again.
        hint: String,
    },
    /// A web server that does not support range requests.
    #[error("the server of `{location}` does not support range requests (`Range`)")]
    NoRanges {
        /// Which object.
        location: String,
    },
    /// The data received differs from the data sent.
    #[error("what is stored at `{location}` is damaged: {why}")]
    Damaged {
        /// Which object.
        location: String,
        /// The damage.
        why: String,
    },
    /// Another process has pushed to the same location meanwhile.
    #[error("`{location}` was changed by another push meanwhile")]
    Raced {
        /// Where.
        location: String,
    },
    /// The store has no conditional writes, or does not heed the condition.
    #[error(
        "the object store of `{location}` has no conditional writes (`If-None-Match`), without which an attempt that was replaced could overwrite checkpoints"
    )]
    NoConditions {
        /// Which object was to be written.
        location: String,
    },
    /// A data set was replaced again and again, or removed, while it was fetched.
    #[error("the data at `{location}` was replaced or removed by another push while it was fetched")]
    Replaced {
        /// Where.
        location: String,
    },
    /// A file of ours cannot be used.
    #[error("cannot {doing} `{}`", path.display())]
    File {
        /// The operation.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A file changed while it was sent.
    #[error("`{}` changed while it was sent", path.display())]
    Changed {
        /// Which.
        path: PathBuf,
    },
    /// The disk cannot hold it.
    #[error("`{}` has {free} bytes free, but {needed} are needed", path.display())]
    NoSpace {
        /// The folder.
        path: PathBuf,
        /// Bytes needed.
        needed: u64,
        /// Free bytes.
        free: u64,
    },
    /// The command cannot be carried out as given.
    #[error("{message}")]
    Usage {
        /// What is wrong.
        message: String,
        /// What to type instead.
        hint: String,
    },
    /// The executable was built without the clients of object stores and web servers.
    #[error("this executable was built without object stores and web servers")]
    LeftOut,
    /// A fault of ours.
    #[error("moving data failed: {0}")]
    Internal(String),
}

impl Error {
    /// A file of ours cannot be used.
    pub(crate) fn file(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::File { doing, path, source }
    }

    /// A file that is sent cannot be read; where it ends early, it has changed since it was listed.
    pub(crate) fn read(path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| match source.kind() {
            io::ErrorKind::UnexpectedEof => Error::Changed { path: path.to_owned() },
            _ => Error::file("read", path)(source),
        }
    }

    /// The next thing to type or change, if known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Location { hint, .. } | Error::NoCredentials { hint, .. } => Some(hint.clone()),
            Error::Missing { hint, .. } | Error::Usage { hint, .. } => Some(hint.clone()),
            Error::Refused { .. } => Some("check the keys, their region, and what they are allowed to do".into()),
            Error::NoBucket { .. } => Some("check its name and region, or create it".into()),
            Error::Network { hint, .. } | Error::Unreachable { hint, .. } => Some(hint.clone()),
            Error::NoRanges { .. } => Some(
                "serve it with one that does, such as nginx, Apache or Caddy; complete files, such as one `.tar`, can be fetched from this one too"
                    .into(),
            ),
            Error::Damaged { .. } => Some("push the data there again".into()),
            Error::Raced { .. } => Some("run the same command again: nothing is sent twice".into()),
            Error::NoConditions { .. } => Some(
                "name a bucket of a store that has them, such as Amazon S3, Google Cloud Storage or Azure Blob Storage"
                    .into(),
            ),
            Error::Replaced { .. } => Some(
                "run the same command again when nobody pushes there: what is the same is not fetched twice; a push that \
                 deletes leaves readers more time with a longer `--grace`"
                    .into(),
            ),
            Error::File { .. } => Some("check that it is there, who may use it, and the space on its disk".into()),
            Error::Changed { .. } => Some("run the same command again when nothing writes to it".into()),
            Error::NoSpace { .. } => Some("free space, or name a folder on another disk".into()),
            Error::LeftOut => Some("build all of gradus with `cargo xtask install`".into()),
            Error::Internal(_) => None,
        }
    }

    /// The same, as the finding that ends an attempt.
    pub fn finding(&self) -> Finding {
        let cause = match self {
            Error::Location { .. } | Error::NoCredentials { .. } | Error::Usage { .. } => Cause::Job,
            Error::NoConditions { .. } => Cause::Job,
            Error::Refused { .. } | Error::NoBucket { .. } | Error::Missing { .. } => Cause::Data,
            Error::Network { .. } | Error::Unreachable { .. } | Error::NoRanges { .. } => Cause::Data,
            Error::Damaged { .. } | Error::Raced { .. } | Error::Replaced { .. } => Cause::Data,
            Error::File { .. } | Error::Changed { .. } => Cause::Data,
            Error::NoSpace { .. } => Cause::DiskFull,
            Error::LeftOut | Error::Internal(_) => Cause::Internal,
        };
        let mut message = self.to_string();
        if let Some(source) = std::error::Error::source(self) {
            message.push_str(&format!(": {source}"));
        }
        Finding { cause, message, hint: self.hint() }
    }
}
