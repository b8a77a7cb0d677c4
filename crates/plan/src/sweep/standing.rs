//! How each trial of a sweep stands.

use std::collections::BTreeMap;

use domain::Work;
use domain::run::{Outcome, RunState};
use domain::sweep::Metric;

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

/// What a program's name of a metric may begin with, the best first: validation is preferred to training.
const PREFIXES: [&str; 7] = ["val_", "val/", "eval_", "eval/", "validation_", "validation/", ""];

/// The value of a metric among those that a program has reported by names of its own.
pub(crate) fn reported(metric: Metric, values: &BTreeMap<String, f64>) -> Option<f64> {
    let named = PREFIXES.iter().find_map(|prefix| values.get(&format!("{prefix}{}", metric.name())));
    named.copied().filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_validation_is_preferred_to_a_step() {
        let values = |all: &[(&str, f64)]| all.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let all: BTreeMap<String, f64> = values(&[("loss", 2.0), ("eval_loss", 1.0), ("val/f1", 0.5)]);
        assert_eq!(reported(Metric::Loss, &all), Some(1.0));
        assert_eq!(reported(Metric::F1, &all), Some(0.5));
        assert_eq!(reported(Metric::Accuracy, &all), None);
        assert_eq!(reported(Metric::Loss, &values(&[("loss", 2.0)])), Some(2.0));
        assert_eq!(reported(Metric::Loss, &values(&[("loss", f64::NAN)])), None);
    }
}
