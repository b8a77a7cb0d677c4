//! The fit of what networks need of which only totals are known: a plain form first, then corrections by family.

use std::collections::{BTreeMap, BTreeSet};

use plan::estimate::machine::Machine;
use plan::estimate::totals::{PROPORTIONS, TotalsCoefficients, family_factors, proportions, shared_factors};
use plan::estimate::{FittedCoefficients, Setup};
use plan::measured::Case;
use plan::model::{ModelDescription, Summary};

use crate::least_squares::{Problem, linear, solve};

/// How strongly corrections are drawn to nothing, in rows: a constant of a family of n rows keeps n / (n + 0.05) of what
/// was measured.
const FAMILY: f64 = 0.05;
/// The same of a family's slopes.
const SLOPE: f64 = 0.7;
/// The same of what all families share: linear and quadratic.
const LINEAR: f64 = 12.0;
const QUADRATIC: f64 = 5.0;
/// A family of fewer networks has only a constant for each layout.
const FEWEST_FOR_SLOPES: usize = 2;
/// A correction of a family that changes a usual network's time by less is left out, but for its constant: it tells less
/// than two measurements of one network differ by.
const WORTH: f64 = 0.045;
/// How much a residual of this size is believed half.
const SCALE: f64 = 0.1;

/// A row of the fit.
pub struct MeasuredRow<'a> {
    pub summary: &'a Summary,
    pub setup: &'a Setup,
    pub machine: Machine,
    /// Logarithm of the measured seconds of a step.
    pub seconds: f64,
}

impl<'a> MeasuredRow<'a> {
    pub fn of(case: &'a Case, coefficients: &FittedCoefficients) -> Option<MeasuredRow<'a>> {
        let ModelDescription::Summary(summary) = &case.model else { return None };
        let setup = &case.setup;
        let samples = setup.micro_batch as f64 * f64::from(setup.parallel.data);
        let seconds = (samples / case.samples_per_second).ln();
        Some(MeasuredRow {
            summary,
            setup,
            machine: Machine::of(setup, &coefficients.generation(&setup.device.gpu), coefficients.shared),
            seconds,
        })
    }
}

/// Fits rows.
pub fn fit(rows: &[&MeasuredRow]) -> TotalsCoefficients {
    let plain = Plain { rows, all: (0..rows.len()).collect(), weights: vec![1.0; rows.len()] };
    let mut totals = Plain::totals(&solve(&plain, &[0.0; 5], &[0.0; 5], 60));
    let left: Vec<f64> = rows.iter().map(|row| row.seconds - logarithm(&totals, row)).collect();
    let factors: Vec<(Vec<f64>, Vec<f64>)> = rows
        .iter()
        .map(|row| {
            let at = proportions(row.summary, row.setup.micro_batch as f64);
            (shared_factors(&at, row.setup.layout), family_factors(&at, row.setup.layout))
        })
        .collect();
    let family = |row: &MeasuredRow| row.summary.family.clone().unwrap_or_default();
    let shared = factors.first().map_or(0, |(shared, _)| shared.len());
    let own = factors.first().map_or(0, |(_, own)| own.len());
    let mut networks: BTreeMap<String, Vec<&Summary>> = BTreeMap::new();
    for row in rows {
        let known = networks.entry(family(row)).or_default();
        if !known.contains(&row.summary) {
            known.push(row.summary);
        }
    }
    let sloped: BTreeSet<String> = networks
        .iter()
        .filter(|(_, networks)| networks.len() >= FEWEST_FOR_SLOPES)
        .map(|(family, _)| family.clone())
        .collect();
    let families: BTreeMap<String, usize> =
        networks.into_keys().enumerate().map(|(at, family)| (family, shared + at * own)).collect();
    let size = shared + families.len() * own;
    let mut pull = vec![0.0; size];
    for (at, pull) in pull.iter_mut().enumerate() {
        *pull = match at {
            at if at < shared => match at % (shared / 2) {
                0 => 0.1,
                at if at <= PROPORTIONS => LINEAR,
                _ => QUADRATIC,
            },
            at if (at - shared).is_multiple_of(own / 2) => FAMILY,
            _ => SLOPE,
        };
    }
    let mut entries: Vec<Vec<(usize, f64)>> = rows
        .iter()
        .zip(&factors)
        .map(|(row, (common, owned))| {
            let from = families[&family(row)];
            let slopes = sloped.contains(&family(row));
            let own = owned.iter().enumerate().filter(|(at, _)| slopes || at.is_multiple_of(own / 2));
            let own = own.map(|(at, factor)| (from + at, *factor));
            common.iter().copied().enumerate().chain(own).collect()
        })
        .collect();
    let all = corrections(&entries, &left, &pull);
    // Factors of a layout are half of those of both.
    let is_worth = |at: usize| {
        let of_family = (at - shared) % own;
        let change = all[at].abs() * if of_family >= own / 2 { 0.5 } else { 1.0 };
        of_family == 0 || change >= WORTH
    };
    for entries in &mut entries {
        entries.retain(|(at, _)| *at < shared || is_worth(*at));
    }
    let solution = corrections(&entries, &left, &pull);
    totals.shared = solution[..shared].to_vec();
    totals.families =
        families.into_iter().map(|(family, from)| (family, solution[from..from + own].to_vec())).collect();
    totals
}

/// Corrections for what is `left` of each row, drawn to nothing: robust least squares.
fn corrections(entries: &[Vec<(usize, f64)>], left: &[f64], pull: &[f64]) -> Vec<f64> {
    let size = pull.len();
    let mut solution = vec![0.0; size];
    for _ in 0..12 {
        let mut normal = vec![vec![0.0; size]; size];
        let mut right = vec![0.0; size];
        for (at, pull) in pull.iter().enumerate() {
            normal[at][at] = *pull;
        }
        for (entries, left) in entries.iter().zip(left) {
            let estimated: f64 = entries.iter().map(|(at, factor)| solution[*at] * factor).sum();
            let weight = 1.0 / (1.0 + ((left - estimated) / SCALE).powi(2)).sqrt();
            for (one, factor) in entries {
                right[*one] += weight * factor * left;
                for (other, second) in entries {
                    normal[*one][*other] += weight * factor * second;
                }
            }
        }
        if let Some(next) = linear(normal, right) {
            solution = next;
        }
    }
    solution
}

fn logarithm(totals: &TotalsCoefficients, row: &MeasuredRow) -> f64 {
    totals.plain(row.summary, row.setup.micro_batch as f64, &row.machine).ln()
}

/// The form without corrections.
struct Plain<'a> {
    rows: &'a [&'a MeasuredRow<'a>],
    all: Vec<usize>,
    weights: Vec<f64>,
}

impl Plain<'_> {
    fn totals(at: &[f64]) -> TotalsCoefficients {
        let bounded = |at: f64, low: f64, high: f64| low * (high / low).powf(1.0 / (1.0 + (-at).exp()));
        TotalsCoefficients {
            arithmetic: bounded(at[0], 0.15, 1.0),
            passes: bounded(at[1], 1.0, 12.0),
            weights: bounded(at[2], 2.0, 60.0),
            step: bounded(at[3], 0.002, 0.2),
            sharpness: bounded(at[4], 1.0, 6.0),
            ..TotalsCoefficients::default()
        }
    }
}

impl Problem for Plain<'_> {
    fn residuals(&self, at: &[f64]) -> Vec<f64> {
        self.some(at, &self.all)
    }

    fn touched(&self, _coordinate: usize) -> &[usize] {
        &self.all
    }

    fn some(&self, at: &[f64], rows: &[usize]) -> Vec<f64> {
        let totals = Plain::totals(at);
        rows.iter().map(|row| logarithm(&totals, self.rows[*row]) - self.rows[*row].seconds).collect()
    }

    fn weights(&self) -> &[f64] {
        &self.weights
    }
}
