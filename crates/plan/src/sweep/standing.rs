//! How each trial of a sweep stands.

use domain::rank::{Metrics, NotFinite};
use domain::run::{Outcome, RunState};
use domain::sweep::Metric;
use domain::{Cause, Finding, Work};

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

/// The last value of a metric among those that a program has reported by names of its own: not finite where the loss of its
/// last step is not, whatever is compared.
pub(crate) fn reported(metric: Metric, metrics: &Metrics) -> Option<f64> {
    let Metrics { values, loss, not_finite, .. } = metrics;
    let named = |prefix: &&str| {
        let name = format!("{prefix}{}", metric.name());
        values.get(&name).copied().or_else(|| not_finite.get(&name).copied().map(NotFinite::value))
    };
    loss.map(NotFinite::value).or_else(|| PREFIXES.iter().find_map(named))
}

/// Why a trial has failed whose program has succeeded: it ended with a loss, or another value of the metric, that is not
/// finite, so that none of its values says how good it is. Our own trainer rolls back, and fails by itself.
pub(crate) fn not_finite(run: &Run) -> Option<Finding> {
    let is_program = matches!(run.job.work, Work::Command(_));
    let last = run.results.last().filter(|_| is_program)?;
    let message = "the program has succeeded, and its last loss, or the metric that is compared, is NaN or infinite";
    let finding = || Finding::new(Cause::NotFinite, message).hint("compare lower learning rates, or clip gradients");
    last.value.is_none().then(finding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_validation_is_preferred_to_a_step() {
        let all = metrics(&[("loss", 2.0), ("eval_loss", 1.0), ("val/f1", 0.5)]);
        assert_eq!(reported(Metric::Loss, &all), Some(1.0));
        assert_eq!(reported(Metric::F1, &all), Some(0.5));
        assert_eq!(reported(Metric::Accuracy, &all), None);
        assert_eq!(reported(Metric::Loss, &metrics(&[("loss", 2.0)])), Some(2.0));
    }

    fn metrics(values: &[(&str, f64)]) -> Metrics {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        Metrics { values, ..Metrics::default() }
    }

    #[test]
    fn a_value_that_is_not_finite_stands_for_no_earlier_one() {
        let lost = |name: &str| {
            let not_finite = [(name.to_owned(), NotFinite::Infinite)].into();
            Metrics { not_finite, ..metrics(&[("loss", 2.0), ("f1", 0.5)]) }
        };
        let is_infinite = |metric: Metric, metrics: Metrics| reported(metric, &metrics).is_some_and(f64::is_infinite);
        assert!(is_infinite(Metric::Loss, lost("val_loss")));
        assert_eq!(reported(Metric::F1, &lost("val_loss")), Some(0.5), "another metric is compared");
        let last_step = Metrics { loss: Some(NotFinite::Nan), ..metrics(&[("f1", 0.5), ("val_loss", 1.0)]) };
        for metric in [Metric::Loss, Metric::F1, Metric::Accuracy] {
            assert!(reported(metric, &last_step).is_some_and(f64::is_nan), "{}", metric.name());
        }
    }
}
