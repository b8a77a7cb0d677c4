//! The table of a sweep's trials, best first.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use domain::run::{Outcome, RunState};
use domain::sweep::{Metric, Setting};
use domain::{Cause, Elapsed, InstanceId, Money, RunId};

use super::standing::{Stand, standing};
use crate::world::{Run, SweepRecord, World};

/// One trial.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialRow {
    /// Its number, from 1.
    pub number: u32,
    /// Its run.
    pub run: RunId,
    /// The values of its keys, in the order of the sweep's parameters.
    pub values: Vec<Setting>,
    /// The state of its run, as one word.
    pub word: &'static str,
    /// Its state.
    pub state: Stand,
    /// Why it has failed; `None` if it has not.
    pub cause: Option<Cause>,
    /// Epochs of its last measurement; `None` before the first.
    pub epochs: Option<u32>,
    /// The sweep's metric at that point.
    pub value: Option<f64>,
    /// Its cost.
    pub cost: Money,
}

impl TrialRow {
    /// The value for people: `not finite` of a trial that has failed by that, and nothing where there is none.
    pub fn shown(&self, metric: Metric) -> String {
        match (self.value, self.cause) {
            (Some(value), _) => metric.say(value),
            (None, Some(Cause::NotFinite)) => "not finite".to_owned(),
            (None, _) => String::new(),
        }
    }
}

/// The trials by their last result, best first; then those without one by number, failed ones last.
pub fn rows(world: &World, sweep: &SweepRecord, meters: &BTreeMap<InstanceId, Elapsed>) -> Vec<TrialRow> {
    let row = |(id, run): (&RunId, &Run)| {
        let trial = run.trial.as_ref()?;
        let last = run.results.last();
        Some(TrialRow {
            number: trial.number,
            run: id.clone(),
            values: trial.values.clone(),
            word: run.state.word(),
            state: standing(run).state,
            cause: match &run.state {
                RunState::Done { outcome: Outcome::Failed { finding } } => Some(finding.cause),
                _ => None,
            },
            // Those of a program are not known.
            epochs: last.map(|result| result.epochs).filter(|epochs| *epochs > 0),
            value: last.and_then(|result| result.value),
            cost: crate::world::spent(world, run, meters),
        })
    };
    let mut rows: Vec<TrialRow> = world.trials(sweep).filter_map(row).collect();
    // Stable: equals stay in the order of their numbers.
    rows.sort_by(|one, other| match (one.value, other.value) {
        (Some(one), Some(other)) if sweep.search.goal.prefers(one, other) => Ordering::Less,
        (Some(one), Some(other)) if sweep.search.goal.prefers(other, one) => Ordering::Greater,
        (Some(_), Some(_)) => Ordering::Equal,
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => (one.state == Stand::Failed).cmp(&(other.state == Stand::Failed)),
    });
    rows
}
