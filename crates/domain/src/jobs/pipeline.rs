//! The end of a pipeline that a server runs. How its file is read is [`crate::file::JobPipeline`].

use serde::{Deserialize, Serialize};

use crate::run::StopBy;

/// How a pipeline ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum PipelineEnd {
    /// Every task has succeeded.
    Done,
    /// A task was stopped, or all of them.
    Stopped {
        /// By whom.
        by: StopBy,
    },
    /// A task has failed, could not be planned, or was not admitted.
    Failed {
        /// Its name.
        task: String,
        /// Why.
        message: String,
    },
}
