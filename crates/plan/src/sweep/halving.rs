//! Asynchronous successive halving (ASHA; Li et al., "A System for Massively Parallel Hyperparameter Tuning", 2020).
//!
//! A rung is a number of epochs. When a slot is free, the best promotable trial of the highest rung is promoted, from
//! its own checkpoint; if there is none, a new trial starts. Of a rung with `n` results at most `⌊n / η⌋` are ever
//! promoted, and only those among the best so many at that time. The paper has only the second condition, so that a
//! rung may promote more than its share when late results are better; with both, the maximum work is known before the
//! start.
//!
//! A trial that has met `stop.accuracy` would end as soon as it is resumed, so it is not: while it is among the best
//! share of the rung that it reached, one place there is taken. On other rungs, and behind the best, it takes none.

use domain::Sweep;
use domain::sweep::{Goal, Method};

use super::standing::{Stand, Standing};

/// Epochs of each rung, the least first; one rung of all epochs for searches that do not halve.
pub fn rungs(sweep: &Sweep, epochs: u32) -> Vec<u32> {
    let Method::Asha(asha) = sweep.method else { return vec![epochs] };
    let most = asha.max_epochs.unwrap_or(epochs);
    let mut rungs = Vec::new();
    let mut rung = asha.min_epochs.max(1);
    while rung < most {
        rungs.push(rung);
        rung = rung.saturating_mul(asha.reduction_factor.max(2));
    }
    rungs.push(most);
    rungs
}

/// The index of the trial to promote, and its number of epochs; `None` if there is none.
pub(super) fn promotion(trials: &[Standing], rungs: &[u32], factor: u32, goal: Goal) -> Option<(usize, u32)> {
    let steps = rungs.iter().zip(rungs.iter().skip(1));
    for (rung, above) in steps.rev() {
        let mut results: Vec<(usize, f64)> = Vec::new();
        for (place, trial) in trials.iter().enumerate() {
            let result = trial.results.iter().find(|result| result.epochs == *rung);
            results.extend(result.and_then(|result| Some((place, result.value?))));
        }
        // Stable: of equals the earlier trial is the better one.
        results.sort_by(|(_, one), (_, other)| match (goal.prefers(*one, *other), goal.prefers(*other, *one)) {
            (true, _) => std::cmp::Ordering::Less,
            (false, true) => std::cmp::Ordering::Greater,
            (false, false) => std::cmp::Ordering::Equal,
        });
        let share = results.len() / factor.max(2) as usize;
        let best = &results[..share];
        let is_enough = |trial: &Standing| {
            trial.target == *rung && trial.results.iter().any(|result| result.epochs == *rung && result.is_enough)
        };
        let promoted = trials.iter().filter(|trial| trial.target > *rung).count();
        let are_enough = best.iter().filter(|(place, _)| is_enough(&trials[*place])).count();
        if promoted + are_enough >= share {
            continue;
        }
        let may = |(place, _): &&(usize, f64)| {
            let trial = &trials[*place];
            trial.target == *rung && trial.state == Stand::Rested && !is_enough(trial)
        };
        if let Some((place, _)) = best.iter().find(may) {
            return Some((*place, *above));
        }
    }
    None
}
