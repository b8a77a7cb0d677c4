//! Scores of estimates over measured rows.

use std::collections::BTreeMap;

use serde::Serialize;

use super::case::{Case, Gpus, case};
use super::row::Row;
use super::score::{Pair, Score};
use crate::estimate::Coefficients;
use crate::estimate::memory::memory_with;
use crate::estimate::time::class;

/// Scores by source.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    pub sources: BTreeMap<String, Score>,
}

/// Estimates every eligible row and scores each source.
pub fn check(rows: &[Row], gpus: Gpus, coefficients: &Coefficients) -> Report {
    let mut sources: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        sources.entry(row.source.clone()).or_default().push(row);
    }
    let score = |(source, rows): (String, Vec<&Row>)| {
        let (mut pairs, mut memory, mut ineligible) = (Vec::new(), Vec::new(), BTreeMap::new());
        for row in &rows {
            match case(row, gpus) {
                Ok(case) => {
                    pairs.push(pair(&case, coefficients));
                    if let Some(measured) = case.peak {
                        memory.push(Pair { measured, estimated: peak(&case) });
                    }
                }
                Err(why) => *ineligible.entry(why.reason()).or_default() += 1,
            }
        }
        (source, Score::of(rows.len(), &pairs, &memory, ineligible))
    };
    Report { sources: sources.into_iter().map(score).collect() }
}

/// Measured throughput beside the estimated, lowest first.
fn pair(case: &Case, coefficients: &Coefficients) -> Pair {
    let work = case.work();
    let band = coefficients.bands.around(class(&work, &case.setup, coefficients), case.seconds(&work, coefficients));
    let samples = case.samples() * case.overstated;
    let estimated = [band.high, band.middle, band.low].map(|seconds| samples / seconds);
    let usable = estimated.iter().all(|estimate| estimate.is_finite() && *estimate > 0.0);
    Pair { measured: case.samples_per_second, estimated: usable.then_some(estimated) }
}

/// Estimated peak memory in bytes, as the measurement saw it.
fn peak(case: &Case) -> Option<[f64; 3]> {
    let memory = memory_with(&case.model, &case.setup, &case.savings);
    let seen = case.seen.of_estimate(&memory);
    let [low, high] = [memory.low, memory.high].map(|edge| seen * edge / memory.middle);
    (seen.is_finite() && seen > 0.0).then_some([low, seen, high])
}
