//! The measurements, each step once, although killed attempts repeated some of them.
//!
//! A later attempt wins: it begins at the step that it resumed from, and steps that an earlier one reported after that
//! are no longer part of the run's history.

use std::collections::BTreeMap;

use domain::Timestamp;
use domain::rank::{Checkpointed, Evaluated, EvaluatedSplit, Metrics, Report, Step};
use domain::series::Point;

/// The history of a run by step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curves {
    /// Optimiser steps, in order.
    pub steps: Vec<(Timestamp, Step)>,
    /// Evaluations on the validation samples, in order.
    pub validations: Vec<(Timestamp, Evaluated)>,
    /// The evaluation on the test samples.
    pub test: Option<(Timestamp, Evaluated)>,
    /// Durable checkpoints, in order.
    pub checkpoints: Vec<(Timestamp, Checkpointed)>,
    /// Figures with names of a user's program, in order of their steps.
    pub metrics: Vec<(Timestamp, Metrics)>,
    /// Steps that an attempt resumed from, in order of time.
    pub resumed: Vec<u64>,
}

impl Curves {
    /// Sorts out points in the order in which they arrived.
    pub fn of(points: &[Point]) -> Curves {
        let mut steps = BTreeMap::new();
        let mut validations = BTreeMap::new();
        let mut checkpoints = BTreeMap::new();
        let mut metrics: BTreeMap<(u64, usize), (Timestamp, Metrics)> = BTreeMap::new();
        let mut test = None;
        let mut resumed = Vec::new();
        for Point { at, report, attempt: _ } in points {
            match report {
                Report::Ready(ready) => {
                    steps.split_off(&(ready.step + 1));
                    validations.split_off(&(ready.step + 1));
                    checkpoints.split_off(&(ready.step + 1));
                    metrics.split_off(&(ready.step + 1, 0));
                    resumed.extend(Some(ready.step).filter(|step| *step > 0));
                }
                Report::Step(step) => {
                    steps.insert(step.step, (*at, *step));
                }
                Report::Evaluated(evaluated) => match evaluated.split {
                    EvaluatedSplit::Validation => {
                        validations.insert(evaluated.step, (*at, *evaluated));
                    }
                    EvaluatedSplit::Test => test = Some((*at, *evaluated)),
                },
                Report::Metrics(found) => {
                    // A step may be logged in several calls.
                    metrics.insert((found.step, metrics.len()), (*at, found.clone()));
                }
                Report::Checkpointed(checkpointed) => {
                    checkpoints.insert(checkpointed.step, (*at, *checkpointed));
                }
                Report::Hello { .. } | Report::Preparing { .. } | Report::Note { .. } | Report::Exported(_) => {}
                Report::Result(_) | Report::Devices { .. } | Report::Pausing { .. } => {}
                Report::Trained | Report::Stopped { .. } | Report::Failed(_) => {}
            }
        }
        Curves {
            steps: steps.into_values().collect(),
            validations: validations.into_values().collect(),
            test,
            checkpoints: checkpoints.into_values().collect(),
            metrics: metrics.into_values().collect(),
            resumed,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use domain::AttemptId;
    use domain::rank::{Fetching, Ready, TaskMetrics};

    use super::*;

    pub(crate) fn point(attempt: u64, seconds: i64, report: Report) -> Point {
        let at = Timestamp(1_700_000_000_000_000 + seconds * 1_000_000);
        Point { at, attempt: AttemptId::new(format!("digits-1-a{attempt}")), report }
    }

    pub(crate) fn ready(step: u64) -> Report {
        Report::Ready(Ready {
            step,
            steps: 12,
            steps_per_epoch: 4,
            samples: [1257, 360, 180],
            classes: (0..10).map(|digit| digit.to_string()).collect(),
            parameters: 25_450,
            passed_over: Vec::new(),
            sample: None,
            data: None,
        })
    }

    pub(crate) fn step(step: u64, loss: f64) -> Report {
        let epoch = u32::try_from((step - 1) / 4).unwrap();
        let times = (10_000, 1_000, 500);
        let (step_us, data_wait_us, checkpoint_us) = times;
        Report::Step(Step {
            step,
            epoch,
            loss,
            lr: 0.1,
            samples: 64,
            step_us,
            data_wait_us,
            checkpoint_us,
            data: Fetching::default(),
        })
    }

    pub(crate) fn evaluated(step: u64, split: EvaluatedSplit, accuracy: f64) -> Report {
        let epoch = u32::try_from((step - 1) / 4).unwrap();
        Report::Evaluated(Evaluated {
            step,
            epoch,
            split,
            loss: 1.0 - accuracy,
            accuracy,
            best: true,
            figures: TaskMetrics::default(),
        })
    }

    pub(crate) fn metric(step: u64, name: &str, value: f64) -> Report {
        let values = BTreeMap::from([(name.to_owned(), value)]);
        Report::Metrics(Metrics { step, values, ..Metrics::default() })
    }

    #[test]
    fn a_later_attempt_wins() {
        let points = [
            point(1, 0, ready(0)),
            point(1, 1, step(1, 3.0)),
            point(1, 2, step(2, 2.0)),
            point(1, 2, metric(2, "f1", 0.25)),
            point(1, 2, metric(2, "auc", 0.5)),
            point(1, 3, step(3, 1.5)),
            point(1, 3, metric(3, "f1", 0.75)),
            point(1, 4, step(4, 1.25)),
            point(1, 5, evaluated(4, EvaluatedSplit::Validation, 0.5)),
            point(2, 6, ready(2)),
            point(2, 7, step(3, 1.0)),
        ];
        let curves = Curves::of(&points);
        let losses: Vec<(u64, f64)> = curves.steps.iter().map(|(_, step)| (step.step, step.loss)).collect();
        assert_eq!(losses, [(1, 3.0), (2, 2.0), (3, 1.0)]);
        let metrics: Vec<u64> = curves.metrics.iter().map(|(_, metrics)| metrics.step).collect();
        assert_eq!(metrics, [2, 2]);
        assert_eq!(curves.validations, []);
        assert_eq!(curves.resumed, [2]);
    }
}
