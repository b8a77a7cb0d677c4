//! What a trainer hands over to be saved, and who is saving.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use domain::id::{AttemptId, Fence, RunId};
use domain::rank::Spec;
use serde_json::Value;

use crate::Tensor;
use crate::layout::Placement;

/// Who writes: what every manifest carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterIdentity {
    /// The run.
    pub run: RunId,
    /// The attempt.
    pub attempt: AttemptId,
    /// The attempt's number; refused once a higher one has claimed the folder.
    pub fence: Fence,
    /// SHA-256 of what defines the result.
    pub job_hash: String,
}

impl WriterIdentity {
    /// Who a rank with this specification writes as.
    pub fn of(spec: &Spec) -> WriterIdentity {
        WriterIdentity {
            run: spec.run.clone(),
            attempt: spec.attempt.clone(),
            fence: spec.fence,
            job_hash: spec.job_hash.clone(),
        }
    }
}

/// The whole state after one step, already copied, so that training may go on.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The step whose state this is.
    pub step: u64,
    /// When copying it began; stall and commit time are counted from here.
    pub began: Instant,
    /// Weights and buffers, by their exported names.
    pub model: Vec<Tensor>,
    /// Optimiser state, random number generators and whatever else has the form of a tensor.
    pub training: Vec<Tensor>,
    /// Whatever else it takes to go on: epoch, position, best metric, threads. Floats come back bit for bit, except
    /// infinities and NaN, which JSON does not have.
    pub state: Value,
    /// The best weights so far, if there are any. Give the same one every time; it is written when its step is new.
    pub best: Option<Arc<BestWeights>>,
    /// Where this is one rank's part of the state: which one. Of what is not divided, only the first rank has it.
    pub part: Option<SnapshotPart>,
}

/// One rank's part of a snapshot.
#[derive(Debug, Clone)]
pub struct SnapshotPart {
    /// Which rank.
    pub rank: u32,
    /// Number of ranks.
    pub of: u32,
    /// The folder of the step, below that of all checkpoints.
    pub folder: String,
    /// The folder for the best weights, where they are new.
    pub best_folder: Option<String>,
    /// How each tensor that is a stretch of another lies in it, by its name; it has one dimension.
    pub places: Arc<BTreeMap<String, Placement>>,
}

/// The best weights so far, or one rank's part of them.
#[derive(Debug, Clone, PartialEq)]
pub struct BestWeights {
    /// The step after which they were measured.
    pub step: u64,
    /// Weights and buffers, by their exported names.
    pub model: Vec<Tensor>,
}
