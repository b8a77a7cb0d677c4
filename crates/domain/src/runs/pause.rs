//! What a rank does where it makes no step.

use serde::{Deserialize, Serialize};

/// What steps pause for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pause {
    /// A split is scored.
    Evaluation,
    /// The state is copied, and saved until a report says that it is durable.
    Checkpoint,
    /// A model is written.
    Export,
    /// An earlier state is loaded, as at the start.
    SetUp,
    /// All ranks have ended, and what they have written travels to the loop's machine or to a store. Said by the agent, of one
    /// that takes long.
    Sending {
        /// For so many microseconds.
        us: u64,
    },
}
