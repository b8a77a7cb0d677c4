//! The snapshot that a trainer passes on to be saved, and the identity of the writer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use domain::id::{AttemptId, Fence, RunId};
use domain::rank::Spec;
use serde_json::Value;

use crate::Tensor;
use crate::layout::Placement;

/// Identity of the writer, stored in every manifest.
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

/// The complete state after one step, copied, so that training can continue.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The step of the state.
    pub step: u64,
    /// When copying it began; stall and commit time are counted from here.
    pub began: Instant,
    /// Weights and buffers, by their exported names.
    pub model: Vec<Tensor>,
    /// Optimizer state, random number generators and other tensors.
    pub training: Vec<Tensor>,
    /// The remaining state needed to resume: epoch, position, best metric, threads. Floats round-trip exactly, except
    /// infinities and NaN, which JSON does not support.
    pub state: Value,
    /// The best weights, if there are any. Pass the same value every time; it is written when its step is new.
    pub best: Option<Arc<BestWeights>>,
    /// If this is one rank's part of the state, which part. Undivided state is saved by the first rank only.
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
    /// The folder for the best weights, if they are new.
    pub best_folder: Option<String>,
    /// The placement of each flattened range in its tensor, by name.
    pub places: Arc<BTreeMap<String, Placement>>,
}

/// The best weights, or one rank's part of them.
#[derive(Debug, Clone, PartialEq)]
pub struct BestWeights {
    /// The step after which they were measured.
    pub step: u64,
    /// Weights and buffers, by their exported names.
    pub model: Vec<Tensor>,
}
