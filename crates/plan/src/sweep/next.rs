//! The next move of a sweep, from how all of its trials stand.

use domain::Sweep;
use domain::sweep::Method;

use super::halving::{promotion, rungs};
use super::standing::{Stand, Standing};
use super::trial::most;

/// The next decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// Begin the trial of this number, from 1.
    Begin(u32),
    /// Resume the trial of this number up to an epoch.
    Resume(u32, u32),
    /// Wait for a trial to end.
    Wait,
    /// Every trial has ended.
    Over,
    /// More trials have failed than allowed.
    TooManyFailed,
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
        && let Some((place, above)) = promotion(trials, &rungs(sweep, epochs), asha.reduction_factor, sweep.goal)
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
