//! Why a rank fails, and the finding that reports it.

use domain::finding::{Cause, Finding};

use crate::torch;

/// Why a rank fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data set cannot be read or used.
    #[error(transparent)]
    Data(#[from] data::Error),
    /// An operation of libtorch failed.
    #[error("libtorch failed: {0}")]
    Torch(#[from] torch::Error),
    /// The state cannot be saved or read.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
    /// Any failure that is already a finding.
    #[error("{}", .0.message)]
    Finding(Finding),
}

impl From<Finding> for Error {
    fn from(finding: Finding) -> Error {
        Error::Finding(finding)
    }
}

impl Error {
    /// The finding that is reported to the user: cause, message and hint.
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

/// The error of a `loss` at `step` (from 1) that is infinite or NaN.
pub fn not_finite(step: u64, loss: f64) -> Error {
    Finding::new(Cause::NotFinite, format!("the loss of step {step} is `{loss}`")).hint(SMALLER_STEPS).into()
}

/// The error of a run whose last step is done, and of which no validation had a loss that is finite.
pub fn never_finite() -> Error {
    Finding::new(Cause::NotFinite, "no validation loss of the run is finite, so no weights are the best")
        .hint(SMALLER_STEPS)
        .into()
}

/// The error of a state that was rolled back twice and is not finite again, by the batch of these `samples`.
pub fn not_finite_again(why: &str, samples: &str) -> Error {
    let message = format!("{why}, again after two roll-backs; its batch has {samples}");
    Finding::new(Cause::NotFinite, message).hint(format!("{SMALLER_STEPS}; or look at these samples")).into()
}

const SMALLER_STEPS: &str = "lower the learning rate, add a `warmup`, or set `clip_norm: 1.0`";
