//! Why a rank cannot go on, and the finding that says so.

use domain::finding::{Cause, Finding};

use crate::torch;

/// Why a rank cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data set.
    #[error(transparent)]
    Data(#[from] data::Error),
    /// The tensor library.
    #[error("the tensor library refused: {0}")]
    Torch(#[from] torch::Error),
    /// Saving or reading the state.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
    /// Anything that is already said as it should be.
    #[error("{}", .0.message)]
    Finding(Finding),
}

impl From<Finding> for Error {
    fn from(finding: Finding) -> Error {
        Error::Finding(finding)
    }
}

impl Error {
    /// What the user is told.
    pub fn finding(&self) -> Finding {
        match self {
            Error::Data(error) => error.finding(),
            Error::Checkpoint(error) => error.finding(),
            Error::Torch(error) if error.is_out_of_memory() => {
                Finding::new(Cause::OutOfMemory, format!("memory ran out: {error}"))
                    .hint("lower `batch`, or raise `accumulate` to split each batch into smaller parts")
            }
            Error::Torch(_) => Finding::new(Cause::Internal, self.to_string())
                .hint("run it again; if it happens again, report it with the rank's log"),
            Error::Finding(finding) => finding.clone(),
        }
    }
}

/// The loss of `step` is not a number.
pub fn not_finite(step: u64, loss: f64) -> Error {
    Finding::new(Cause::NotFinite, format!("the loss of step {step} is `{loss}`"))
        .hint("lower the learning rate, add a `warmup`, or set `clip_norm: 1.0`")
        .into()
}
