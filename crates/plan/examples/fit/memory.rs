//! Fits the memory overheads beyond what is counted: five parameters, none of which is specific to a network or GPU.
//!
//! Two of them are about rows that state a peak of which a graph is known, two about the largest batches of networks
//! known by their totals, one about all batches that are known to fit.

use plan::estimate::Setup;
use plan::estimate::memory::{MemoryCoefficients, MemoryEstimate, MemoryFit, largest_batch, memory_with, verdict};
use plan::measured::{Case, MemoryMetric, percentile};
use plan::model::ModelDescription;

/// Fraction of the batches known to fit that must not be rejected as too large.
const BELIEVED: f64 = 0.98;
/// How far the largest batch lies above the largest that was tried and fit, in the middle: half of a rung of the ladder 64,
/// 96, 128, 192 …
const HALF_A_RUNG: f64 = 1.19;
/// A row tells how certain that is what a step adds, where it is at least this part of the peak.
const ENOUGH: f64 = 0.3;
/// Half of a normal distribution lies within this part of its standard deviation: what few rows are far off is no matter.
const HALF_WITHIN: f64 = 0.6745;

/// Fits the figures to rows.
pub fn fit(cases: &[Case]) -> MemoryCoefficients {
    let start = MemoryCoefficients::default();
    let of_graphs = |case: &&Case| matches!(case.model, ModelDescription::Graph(_));
    let peaks: Vec<(&Case, f64)> =
        cases.iter().filter(of_graphs).filter_map(|case| Some((case, case.memory.peak?))).collect();
    let held: Vec<(&Case, f64)> =
        peaks.iter().copied().filter(|(case, _)| case.memory.metric != MemoryMetric::Allocated).collect();
    let fragmentation = least(0.0, 0.5, |fragmentation| {
        let figures = MemoryCoefficients { fragmentation, ..start };
        held.iter().map(|(case, peak)| (case.memory.metric.of_estimate(&of(case, &figures)) / peak).ln().abs()).sum()
    });
    let figures = MemoryCoefficients { fragmentation, ..start };

    // Where the largest batch was searched for, unless none above it was tried.
    let searched: Vec<(&Case, u64)> = cases
        .iter()
        .filter(|case| !of_graphs(case))
        .filter_map(|case| Some((case, case.memory.tried?)))
        .filter(|(case, most)| case.setup.micro_batch < *most)
        .collect();
    let off = |figures: &MemoryCoefficients| -> Vec<f64> {
        let ratio = |(case, most): &(&Case, u64)| {
            let largest = largest_batch(&case.model, &case.setup, &case.savings, figures).unwrap_or(1).min(*most);
            (largest as f64 / (case.setup.micro_batch as f64 * HALF_A_RUNG)).ln().abs()
        };
        searched.iter().map(ratio).collect()
    };
    let kept_of_totals =
        least(1.0, 6.0, |kept_of_totals| off(&MemoryCoefficients { kept_of_totals, ..figures }).iter().sum());
    let figures = MemoryCoefficients { kept_of_totals, ..figures };

    let within = |mut off: Vec<f64>, otherwise: f64| {
        off.sort_by(f64::total_cmp);
        percentile(&off, 0.5).map_or(otherwise, |off| off / HALF_WITHIN)
    };
    let of_step = |(case, peak): &(&Case, f64)| {
        let memory = of(case, &figures);
        let added = memory.activations + memory.workspace + memory.communication;
        (added >= ENOUGH * peak).then(|| (case.memory.metric.of_estimate(&memory) - peak).abs() / added)
    };
    let deviation = within(peaks.iter().filter_map(of_step).collect(), start.deviation);
    let deviation_of_totals = within(off(&figures), start.deviation_of_totals);
    let figures = MemoryCoefficients { deviation, deviation_of_totals, ..figures };
    MemoryCoefficients { stuck: stuck(cases, &figures), ..figures }
}

/// The largest share that still believes nearly all batches that are known to fit.
fn stuck(cases: &[Case], figures: &MemoryCoefficients) -> f64 {
    let known: Vec<&Case> = cases.iter().filter(|case| case.memory.fits).collect();
    let believes = |stuck: f64| {
        let figures = MemoryCoefficients { stuck, ..*figures };
        let said = |case: &&&Case| verdict(&of(case, &figures), &case.setup.device.gpu) != MemoryFit::TooLarge;
        known.iter().filter(said).count() as f64 >= BELIEVED * known.len() as f64
    };
    let (mut low, mut high) = (0.0, figures.fragmentation);
    for _ in 0..12 {
        let middle = 0.5 * (low + high);
        if believes(middle) { low = middle } else { high = middle }
    }
    low
}

fn of(case: &Case, figures: &MemoryCoefficients) -> MemoryEstimate {
    let setup: &Setup = &case.setup;
    memory_with(&case.model, setup, &case.savings, figures)
}

/// Where between `low` and `high` a function with one valley is least, to a thousandth of the way (golden sections).
fn least(low: f64, high: f64, mut of: impl FnMut(f64) -> f64) -> f64 {
    let golden = (5f64.sqrt() - 1.0) / 2.0;
    let (mut low, mut high) = (low, high);
    let [mut one, mut two] = [high - golden * (high - low), low + golden * (high - low)];
    let [mut at_one, mut at_two] = [of(one), of(two)];
    for _ in 0..15 {
        if at_one < at_two {
            (high, two, at_two) = (two, one, at_one);
            one = high - golden * (high - low);
            at_one = of(one);
        } else {
            (low, one, at_one) = (one, two, at_two);
            two = low + golden * (high - low);
            at_two = of(two);
        }
    }
    0.5 * (low + high)
}
