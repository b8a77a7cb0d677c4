//! Measurements of a run's steps: stored separately from the event log, and never needed to rebuild it.

use serde::{Deserialize, Serialize};

use crate::id::AttemptId;
use crate::rank::Report;
use crate::time::Timestamp;

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// When it arrived, for people.
    pub at: Timestamp,
    /// Which attempt made it.
    pub attempt: AttemptId,
    /// The measurement: a step, an evaluation, a checkpoint, a note.
    pub report: Report,
}
