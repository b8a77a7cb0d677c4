//! The next move of a sweep, from how all of its trials stand.

use domain::run::{Outcome, RunState};
use domain::sweep::Method;
use domain::{Sweep, Work};

use super::halving::{goes_on, rungs};
use super::trial::most;
use crate::world::{Measured, Run};

/// How one trial stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// Epochs that it was last told to train for.
    pub target: u32,
    /// What it came to so far, oldest first.
    pub results: Vec<Measured>,
    /// What it is at.
    pub state: Stand,
}

/// What a trial is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stand {
    /// Not at its end yet.
    Open,
    /// Trained for as long as it was told to.
    Rested,
    /// Ended without a model.
    Failed,
    /// Stopped, by the user or with its sweep.
    Stopped,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// Begin the trial of this number, from 1.
    Begin(u32),
    /// Let the trial of this number go on to so many epochs.
    Resume(u32, u32),
    /// Wait for a trial to end.
    Wait,
    /// Nothing: every trial is at its end.
    Over,
    /// Nothing: more trials have failed than may.
    TooManyFailed,
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

/// The next move. `trials` are by number, from 1 without gaps; `epochs` are those of the job; `forgiven` so many
/// failures do not count.
pub fn next(sweep: &Sweep, epochs: u32, trials: &[Standing], forgiven: u32) -> Move {
    let count = |state: Stand| trials.iter().filter(|trial| trial.state == state).count();
    let (open, failed) = (count(Stand::Open), count(Stand::Failed));
    let is_given_up = failed > sweep.max_failed.saturating_add(forgiven) as usize;
    if open >= sweep.parallel.max(1) as usize || (is_given_up && open > 0) {
        return Move::Wait;
    }
    if is_given_up {
        return Move::TooManyFailed;
    }
    if let Method::Asha(asha) = sweep.method
        && let Some((place, above)) = goes_on(trials, &rungs(sweep, epochs), asha.reduction_factor, sweep.goal)
    {
        return Move::Resume(place as u32 + 1, above);
    }
    let begun = trials.len() as u32;
    match (begun < most(sweep), open) {
        (true, _) => Move::Begin(begun + 1),
        (false, 0) => Move::Over,
        (false, _) => Move::Wait,
    }
}
