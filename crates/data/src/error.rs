//! Errors of a data set, with hints that say how to fix them.

use std::io;
use std::path::{Path, PathBuf};

use domain::finding::{Cause, Finding};

use crate::identity::DataChange;

/// Why a data set cannot be opened, or an image of it cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no file or folder at the path.
    #[error("there is no data at `{path}`")]
    Missing {
        /// The path that was given.
        path: PathBuf,
    },
    /// The system refused to read a file or folder.
    #[error("cannot read `{name}`: {source}")]
    Read {
        /// The file or folder.
        name: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The system refused to write a file or folder.
    #[error("cannot write `{name}`: {source}")]
    Write {
        /// The file or folder.
        name: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The layout of the files is not supported.
    #[error("the data at `{path}` cannot be used: {why}")]
    Layout {
        /// The path that was given.
        path: PathBuf,
        /// What was found instead.
        why: String,
        /// What to change.
        hint: String,
    },
    /// The data has another number of classes than the job specifies.
    #[error("the data has {found} classes, the job specifies {wanted}: {}", shorten(names))]
    Classes {
        /// Classes in the data.
        found: usize,
        /// Classes in the job.
        wanted: u32,
        /// Names of the classes in the data.
        names: Vec<String>,
    },
    /// The data has classes that the model does not know.
    #[error("the data has classes that the model does not know: {}", shorten(names))]
    UnknownClasses {
        /// Their names.
        names: Vec<String>,
        /// Names of the classes of the model.
        known: Vec<String>,
    },
    /// An image is damaged, or of a kind that is not read.
    #[error("the image `{name}` cannot be read: {why}")]
    Image {
        /// File, or path inside an archive.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// A line of a table of pixels does not hold an image.
    #[error("line {line} of `{name}` cannot be read: {why}")]
    Line {
        /// The table.
        name: String,
        /// Its line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// A file is cut off, or its compression is damaged.
    #[error("the data at `{path}` is damaged: {why}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// An image is of another size than the first one, and no size was given.
    #[error("the image `{name}` is {}×{} pixels, the first one is {}×{}", found.1, found.0, wanted.1, wanted.0)]
    Size {
        /// File, or path inside an archive.
        name: String,
        /// Its height and width.
        found: (u32, u32),
        /// Height and width of the first image.
        wanted: (u32, u32),
    },
    /// The samples cannot be split as requested.
    #[error("the data cannot be split: {why}")]
    Split {
        /// What is wrong.
        why: String,
        /// What to change.
        hint: String,
    },
    /// The given mean or standard deviation does not fit the images.
    #[error("`normalize` does not fit the data: {why}")]
    Normalize {
        /// What is wrong.
        why: String,
    },
    /// A position that is not in the data: it is not the data that the run was started with.
    #[error("epoch {epoch} was left at sample {pos}, and there are {samples} to train on")]
    Position {
        /// The epoch, from 0.
        epoch: u64,
        /// The position in it.
        pos: u64,
        /// Samples of the training split.
        samples: u64,
    },
    /// The data differs from what the run was trained on.
    #[error("the data has changed since the run was trained on it: {0}")]
    Changed(Box<DataChange>),
    /// Changes that only images with colours can have.
    #[error("changes of colour need three channels, and these images have {channels} channel")]
    Grey {
        /// Values of a pixel.
        channels: usize,
    },
    /// The executable was built without a feature that the data needs.
    #[error("this executable was built without {what}")]
    LeftOut {
        /// The missing feature.
        what: &'static str,
    },
    /// A fault of this program.
    #[error("the loader failed: {0}")]
    Internal(String),
}

impl Error {
    /// The next thing to type or change, if known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Missing { path } if path.components().any(|part| is_unexpanded(part.as_os_str())) => {
                Some("write the whole path: `~` and variables are not expanded in a job file".into())
            }
            Error::Missing { .. } => {
                Some("check the path: `train.data.path` is relative to the job file, an argument to this folder".into())
            }
            Error::Read { .. } => Some("check that the file is there and that you may read it".into()),
            Error::Write { .. } => Some("check write permissions and free disk space".into()),
            Error::Layout { hint, .. } | Error::Split { hint, .. } => Some(hint.clone()),
            Error::Classes { found, .. } => {
                Some(format!("set `classes: {found}`, or leave it out, or correct the data"))
            }
            Error::UnknownClasses { known, .. } => {
                Some(format!("leave these samples out, or name them as the model does: {}", shorten(known)))
            }
            Error::Image { .. } => {
                let hint =
                    "replace the file, or leave such images out: `corrupt: skip` in a job, `--skip-corrupt` to pack";
                Some(hint.into())
            }
            Error::Line { .. } => Some("correct the line, or leave such lines out with `corrupt: skip`".into()),
            Error::Damaged { .. } => Some("get the file again, or check it with `gzip -t`".into()),
            Error::Size { wanted: (height, _), .. } => {
                Some(format!("set a size, such as `size: {height}`, to have all images resized"))
            }
            Error::Normalize { .. } => Some("leave `normalize` out to have it measured on the training split".into()),
            Error::Position { .. } => Some("give the data that the run was started with, or start a new run".into()),
            Error::Changed(change) if change.can_be_accepted() => {
                let hint = "put the data back, or accept it with `gradus resume RUN --accept-data-change`: samples that \
                            the run knows then stay in their split";
                Some(hint.into())
            }
            Error::Changed(_) => Some("put the data back, or start a new run".into()),
            Error::Grey { .. } => Some(
                "leave `rand_augment`, `auto_augment`, `trivial_augment` and `color_jitter` out of `augment`".into(),
            ),
            Error::LeftOut { .. } => Some("build all of gradus with `cargo xtask install`".into()),
            Error::Internal(_) => None,
        }
    }

    /// The same, as the finding that ends an attempt.
    pub fn finding(&self) -> Finding {
        let cause = match self {
            Error::Missing { .. } | Error::Read { .. } | Error::Write { .. } | Error::Layout { .. } => Cause::Data,
            Error::Image { .. } | Error::Position { .. } | Error::Changed(_) => Cause::Data,
            Error::Line { .. } | Error::Damaged { .. } => Cause::Data,
            Error::Classes { .. } | Error::Size { .. } | Error::Split { .. } | Error::Normalize { .. } => Cause::Job,
            Error::Grey { .. } | Error::UnknownClasses { .. } => Cause::Job,
            Error::LeftOut { .. } | Error::Internal(_) => Cause::Internal,
        };
        Finding { cause, message: self.to_string(), hint: self.hint() }
    }
}

/// The first names of a list, and how many more there are.
pub(crate) fn shorten(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    match names.len().checked_sub(SHOWN) {
        None | Some(0) => shown.join(", "),
        Some(more) => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The error of data whose layout does not match its format.
pub(crate) fn layout(path: &Path, why: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::Layout { path: path.to_owned(), why: why.into(), hint: hint.into() }
}

/// Whether a part of a path is one that only a shell expands.
fn is_unexpanded(part: &std::ffi::OsStr) -> bool {
    part == "~" || part.as_encoded_bytes().starts_with(b"$")
}
