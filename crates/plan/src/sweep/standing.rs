//! How each trial of a sweep stands.

use domain::Work;
use domain::run::{Outcome, RunState};

use crate::world::{Measured, Run};

/// How one trial stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// Epochs up to which it was last told to train.
    pub target: u32,
    /// Its results, oldest first.
    pub results: Vec<Measured>,
    /// Its state.
    pub state: Stand,
}

/// The state of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stand {
    /// Not at its end yet.
    Open,
    /// Trained as long as it was told to.
    Rested,
    /// Ended without a model.
    Failed,
    /// Stopped, by the user or with its sweep.
    Stopped,
}

/// How a trial stands that is this run.
pub fn standing(run: &Run) -> Standing {
    let state = match &run.state {
        RunState::Queued | RunState::Renting { .. } | RunState::Staging { .. } | RunState::Running { .. } => {
            Stand::Open
        }
        RunState::Recovering { .. } | RunState::Stopping { .. } => Stand::Open,
        RunState::Stopped { .. } => Stand::Stopped,
        RunState::Done { outcome: Outcome::Failed { .. } } => Stand::Failed,
        RunState::Done { outcome: Outcome::Trained { .. } | Outcome::Succeeded } => Stand::Rested,
    };
    let target = match &run.job.work {
        Work::Train(train) => train.last_epoch(),
        Work::Command(_) => 0,
    };
    Standing { target, results: run.results.clone(), state }
}
