//! Drafts: which of the offers can run a job, how the work is divided there, how long it takes and what it costs.

use domain::problem::Problem;
use domain::{Duration, Job, Offer, Plan};

/// What is known about the data and the machine before anything runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Facts {
    /// Samples of training, validation and test.
    pub samples: Option<[u64; 3]>,
    /// Channels, height and width of a picture.
    pub input_shape: Option<[u32; 3]>,
    /// Number of classes.
    pub classes: Option<u32>,
    /// What one optimiser step took on this machine, where it was measured.
    pub measured_step: Option<Duration>,
}

/// Why no offer can run the job: every reason, each with what to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Infeasible {
    /// At least one.
    pub reasons: Vec<Problem>,
}

/// Drafts one plan for each offer that can run the job, the cheapest first; ties by lowest index.
///
/// # Errors
/// Every reason why no offer can.
pub fn draft(job: &Job, offers: &[Offer], facts: &Facts) -> Result<Vec<Plan>, Infeasible> {
    let _ = (job, offers, facts);
    Err(Infeasible { reasons: vec![Problem::at("", "drafting plans is being built")] })
}
