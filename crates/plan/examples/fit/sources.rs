//! How far estimates of a source are off that nothing is known of: each source, left out of the bands in turn.
//!
//! Rows of a source have its program in common, so rows of a group that is held out are estimated, and their bands made,
//! with what other rows of the source say about it. A plan is for a program that no row is of. Where details of the program
//! are not stated, what is left between sources is a term of its own.

use std::collections::BTreeSet;

use plan::estimate::{ErrorBands, ProgramDetails};

use crate::bands::bands;
use crate::outcome::Outcome;

/// The share of rows that P10–P90 is to hold.
const WITHIN: f64 = 0.8;
/// No band is widened by more.
const MOST: f64 = 1.0;

/// Bands with what unstated details of programs add to them.
pub fn widened(outcomes: &[&Outcome]) -> ErrorBands {
    ErrorBands { unstated_details: reach(&held_out(outcomes)), ..bands(outcomes) }
}

/// For each fold, bands in which its rows took no part.
pub fn by_fold(outcomes: &[Outcome]) -> Vec<ErrorBands> {
    let folds = outcomes.iter().map(|outcome| outcome.fold + 1).max().unwrap_or(1);
    let without = |fold: usize| widened(&outcomes.iter().filter(|outcome| outcome.fold != fold).collect::<Vec<_>>());
    (0..folds).map(without).collect()
}

/// Rows of a source, and bands in which the source took no part.
struct HeldOut<'o, 'a> {
    rows: Vec<&'o Outcome<'a>>,
    bands: ErrorBands,
}

impl<'o, 'a> HeldOut<'o, 'a> {
    fn of(outcomes: &[&'o Outcome<'a>], source: &str) -> HeldOut<'o, 'a> {
        let (mut rows, mut others) = (Vec::new(), Vec::new());
        for outcome in outcomes {
            let side = if outcome.case.row.source == source { &mut rows } else { &mut others };
            side.push(*outcome);
        }
        HeldOut { rows, bands: bands(&others) }
    }

    /// The share of its rows that lie in their bands, wider by so much where details are not stated.
    fn share_inside(&self, by: f64) -> f64 {
        let wider = ErrorBands { unstated_details: by, ..self.bands.clone() };
        let inside = self.rows.iter().filter(|row| {
            let band = row.band(&wider);
            (band.low..=band.high).contains(&row.measured)
        });
        inside.count() as f64 / self.rows.len().max(1) as f64
    }
}

fn is_unstated(outcome: &Outcome) -> bool {
    outcome.details == ProgramDetails::Unstated
}

/// The rows without details of each source that has any.
fn held_out<'o, 'a>(outcomes: &[&'o Outcome<'a>]) -> Vec<HeldOut<'o, 'a>> {
    let unstated = outcomes.iter().filter(|outcome| is_unstated(outcome));
    let sources: BTreeSet<&str> = unstated.map(|outcome| outcome.case.row.source.as_str()).collect();
    let mut all: Vec<HeldOut> = sources.into_iter().map(|source| HeldOut::of(outcomes, source)).collect();
    for source in &mut all {
        source.rows.retain(|outcome| is_unstated(outcome));
    }
    all
}

/// What bands must be widened by where details are not stated, so that four fifths of such rows lie within them. A source of
/// n rows counts as the root of n, as a group does in the bands: no table speaks for all programs.
fn reach(sources: &[HeldOut]) -> f64 {
    let weight = |source: &HeldOut| (source.rows.len() as f64).sqrt();
    let weights: f64 = sources.iter().map(weight).sum();
    let inside = |by: f64| sources.iter().map(|source| weight(source) * source.share_inside(by)).sum::<f64>() / weights;
    if weights <= 0.0 || inside(0.0) >= WITHIN {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, MOST);
    for _ in 0..20 {
        let middle = 0.5 * (low + high);
        if inside(middle) < WITHIN { low = middle } else { high = middle }
    }
    high
}

/// Prints for each source how many of its rows lie in bands in which it took no part, without what unstated details add and
/// with it.
pub fn print(outcomes: &[Outcome], by: f64) {
    let all: Vec<&Outcome> = outcomes.iter().collect();
    let sources: BTreeSet<&str> = outcomes.iter().map(|outcome| outcome.case.row.source.as_str()).collect();
    for source in sources {
        let held_out = HeldOut::of(&all, source);
        let unstated = held_out.rows.iter().filter(|outcome| is_unstated(outcome)).count();
        let [before, after] = [0.0, by].map(|by| 100.0 * held_out.share_inside(by));
        println!(
            "without source {source:20} {:5} rows, {unstated:5} without details: {before:3.0} % inside, with {by:.3} {after:3.0} %",
            held_out.rows.len(),
        );
    }
}
