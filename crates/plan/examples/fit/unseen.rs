//! How far estimates are off on generations of GPUs that nothing was measured on: each that was measured, left out in turn.

use std::collections::{BTreeMap, BTreeSet};

use plan::estimate::fitted::band::middle;
use plan::estimate::fitted::rates::die;
use plan::estimate::{Class, ErrorBands, FittedCoefficients, GpuEvidence, Origin, Percentiles, ProgramDetails};
use plan::measured::Case;

use crate::graphs::Samples;

/// The share of rows that P10–P90 is to hold.
const WITHIN: f64 = 0.8;
/// No band is widened by more.
const MOST: f64 = 1.0;

/// A row, estimated by the fit without its generation.
pub struct Unseen<'a> {
    pub case: &'a Case,
    pub class: Class,
    pub details: ProgramDetails,
    pub middles: Vec<(f64, f64)>,
    seconds: f64,
}

/// Rows of graphs, each estimated by `fit` without all rows of its generation.
pub fn unseen<'a>(data: &Samples<'a>, fit: &mut dyn FnMut(Vec<usize>) -> FittedCoefficients) -> Vec<Unseen<'a>> {
    let dies: BTreeSet<&str> = data.samples.iter().map(|sample| die(&sample.setup.device.gpu)).collect();
    let mut rows = Vec::new();
    for left_out in dies {
        let is_left_out = |at: &usize| die(&data.samples[*at].setup.device.gpu) == left_out;
        let all = 0..data.samples.len();
        let mut coefficients = fit(all.clone().filter(|at| !is_left_out(at)).collect());
        coefficients.generations.remove(left_out);
        for at in all.filter(is_left_out) {
            let (sample, work) = (&data.samples[at], &data.works[data.samples[at].work]);
            rows.push(Unseen {
                case: sample.case,
                class: plan::estimate::time::class(work, &sample.setup, &coefficients),
                details: sample.case.details(work),
                middles: sample.case.middles(work, &coefficients),
                seconds: sample.seconds,
            });
        }
    }
    rows
}

/// What the band of a plan must be widened by, so that of each generation, which count alike, four fifths of the rows lie
/// within it on average.
pub fn reach(rows: &[Unseen], bands: &ErrorBands) -> f64 {
    let inside = |by: f64| {
        let wider = ErrorBands { unmeasured_generation: by, ..bands.clone() };
        let shares = by_generation(rows, &wider).into_values().map(|rows| share_inside(&rows)).collect::<Vec<_>>();
        shares.iter().sum::<f64>() / shares.len().max(1) as f64
    };
    let (mut low, mut high) = (0.0, MOST);
    for _ in 0..20 {
        let middle = 0.5 * (low + high);
        if inside(middle) < WITHIN { low = middle } else { high = middle }
    }
    high
}

/// Errors of the rows of each generation, and whether they lie in the band of a plan.
fn by_generation<'a>(rows: &'a [Unseen], bands: &ErrorBands) -> BTreeMap<&'a str, Vec<(f64, bool)>> {
    let mut generations: BTreeMap<&str, Vec<(f64, bool)>> = BTreeMap::new();
    for row in rows {
        let of_plan = (GpuEvidence::Unmeasured, row.details);
        let Percentiles { low, high, .. } = bands.band(Origin::Unknown, row.class, of_plan, &row.middles);
        let seconds = row.seconds.exp();
        let off = (middle(&row.middles) / seconds - 1.0).abs();
        let generation = die(&row.case.setup.device.gpu);
        generations.entry(generation).or_default().push((off, (low..=high).contains(&seconds)));
    }
    generations
}

fn share_inside(rows: &[(f64, bool)]) -> f64 {
    rows.iter().filter(|(_, inside)| *inside).count() as f64 / rows.len() as f64
}

/// Prints for each generation how far it is off, and how many rows lie in the band of a plan.
pub fn print(rows: &[Unseen], fitted: &FittedCoefficients) {
    for (generation, rows) in by_generation(rows, &fitted.bands) {
        let error = rows.iter().map(|(off, _)| off).sum::<f64>() / rows.len() as f64;
        println!(
            "without {generation:18} {:5} rows: error {:5.1} %, {:3.0} % inside",
            rows.len(),
            100.0 * error,
            100.0 * share_inside(&rows),
        );
    }
}
