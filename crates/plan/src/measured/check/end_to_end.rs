//! Time to train: samples to converge × time per step, with evaluation and the start, compared with MLPerf's results.
//!
//! How many samples a benchmark takes to converge depends on its batch. MLPerf publishes reference convergence points,
//! from runs that have nothing to do with those compared here (`catalog/convergence.csv`). Between points samples are
//! interpolated.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::case::{GpuLookup, understood};
use super::super::ineligible::Ineligible;
use super::super::programs::contest;
use super::super::row::MeasuredRow;
use super::super::score::percentile;
use super::super::table;
use crate::estimate::FittedCoefficients;

const POINTS: &str = include_str!("../../../../../catalog/convergence.csv");

/// Results of more nodes tune their batch to the contest, far beyond where more samples converge as fast.
const MOST_NODES: u32 = 16;

/// Seconds of a result that are neither steps nor evaluation: the first batch, and the graph's capture. Fitted to results
/// that log their throughput.
const START: f64 = 3.0;

/// What a sample that is evaluated takes of one that is trained: its forward pass.
const FORWARD: f64 = 1.0 / 3.0;

/// How well time to train is estimated for results of so many nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrainingTimeScore {
    pub nodes: u32,
    /// Results that log their throughput.
    pub rows: usize,
    /// Relative error of their time in per cent, mean and median.
    pub mape: Option<f64>,
    pub median: Option<f64>,
    /// Per cent of them between the tenth and ninetieth percentile of their estimate, which knows of no uncertainty but that
    /// of the step.
    pub coverage: Option<f64>,
    /// Mean error where the logged throughput replaces the estimated one: that of samples, evaluation and start.
    pub mape_as_logged: Option<f64>,
    /// Results that log no throughput, which may be of another recipe, and their mean and median error.
    pub unlogged: usize,
    pub unlogged_mape: Option<f64>,
    pub unlogged_median: Option<f64>,
}

/// Scores of time to train by number of nodes, and why results are not compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrainingTimes {
    pub by_nodes: Vec<TrainingTimeScore>,
    pub ineligible: BTreeMap<String, usize>,
}

/// One result beside its estimate, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ComparedTime {
    nodes: u32,
    measured: f64,
    /// Low, middle and high.
    estimated: [f64; 3],
    /// With the logged throughput.
    as_logged: Option<f64>,
}

/// Scores every result that states a time to train. `None` if there is none.
pub(super) fn training_times(
    rows: &[MeasuredRow],
    gpus: GpuLookup,
    coefficients: &FittedCoefficients,
) -> Option<TrainingTimes> {
    let mut by_nodes: BTreeMap<u32, Vec<ComparedTime>> = BTreeMap::new();
    let mut ineligible = BTreeMap::new();
    for row in rows.iter().filter(|row| row.minutes.is_some()) {
        match outcome(row, gpus, coefficients) {
            Ok(outcome) => by_nodes.entry(outcome.nodes).or_default().push(outcome),
            Err(why) => *ineligible.entry(why).or_default() += 1,
        }
    }
    let by_nodes: Vec<TrainingTimeScore> =
        by_nodes.into_iter().map(|(nodes, outcomes)| score(nodes, &outcomes)).collect();
    (!by_nodes.is_empty() || !ineligible.is_empty()).then_some(TrainingTimes { by_nodes, ineligible })
}

fn score(nodes: u32, outcomes: &[ComparedTime]) -> TrainingTimeScore {
    let (logged, unlogged): (Vec<&ComparedTime>, Vec<&ComparedTime>) =
        outcomes.iter().partition(|outcome| outcome.as_logged.is_some());
    let error = |estimated: f64, measured: f64| 100.0 * (estimated / measured - 1.0).abs();
    let errors = |outcomes: &[&ComparedTime]| {
        let mut errors: Vec<f64> =
            outcomes.iter().map(|outcome| error(outcome.estimated[1], outcome.measured)).collect();
        errors.sort_by(f64::total_cmp);
        errors
    };
    let mean = |errors: &[f64]| (!errors.is_empty()).then(|| errors.iter().sum::<f64>() / errors.len() as f64);
    let as_logged: Vec<f64> =
        logged.iter().filter_map(|outcome| Some(error(outcome.as_logged?, outcome.measured))).collect();
    let inside = logged.iter().filter(|outcome| {
        let [low, _, high] = outcome.estimated;
        (low..=high).contains(&outcome.measured)
    });
    let inside = inside.count();
    let (known, others) = (errors(&logged), errors(&unlogged));
    TrainingTimeScore {
        nodes,
        rows: logged.len(),
        mape: mean(&known),
        median: percentile(&known, 0.5),
        coverage: (!logged.is_empty()).then(|| 100.0 * inside as f64 / logged.len() as f64),
        mape_as_logged: mean(&as_logged),
        unlogged: unlogged.len(),
        unlogged_mape: mean(&others),
        unlogged_median: percentile(&others, 0.5),
    }
}

/// Estimates the time to train of a result.
///
/// # Errors
/// Why it is not compared.
fn outcome(row: &MeasuredRow, gpus: GpuLookup, coefficients: &FittedCoefficients) -> Result<ComparedTime, String> {
    let measured = 60.0 * row.minutes.ok_or("states no time to train")?;
    let nodes = row.nodes.ok_or("states no number of nodes")?;
    if nodes > MOST_NODES {
        return Err(format!("has more than {MOST_NODES} nodes"));
    }
    let program = contest::entry(row).ok_or_else(|| Ineligible::Model.reason())?;
    let batch = row.global_batch().ok_or_else(|| Ineligible::Batch.reason())?;
    let (samples, evaluated) =
        converges_after(&row.model, batch).ok_or("no reference convergence points of its benchmark are known")?;
    // A result is read whether or not it logs a throughput; what it logs takes no part in its estimate.
    let timed = MeasuredRow { throughput: Some(samples / measured), ..row.clone() };
    let case = understood(&timed, program, gpus, &coefficients.memory).map_err(|why| why.reason())?;
    let band = case.band(&case.work(), coefficients);
    let trained = samples * (1.0 + evaluated * FORWARD);
    let estimated = [band.low, band.middle, band.high].map(|step| START + trained / case.samples() * step);
    if !estimated.iter().all(|seconds| seconds.is_finite()) {
        return Err("its step cannot be estimated".to_owned());
    }
    let as_logged = row.throughput.map(|throughput| START + trained / throughput);
    Ok(ComparedTime { nodes, measured, estimated, as_logged })
}

/// Samples until a benchmark with such a batch has converged, and how many are evaluated for each of them. Beyond the
/// outermost points those hold.
fn converges_after(benchmark: &str, batch: f64) -> Option<(f64, f64)> {
    let lines = table::lines(POINTS).into_iter().filter(|line| line.first().is_some_and(|name| name == benchmark));
    let points: Vec<[f64; 3]> = lines
        .filter_map(|line| match line.get(1..4) {
            Some([batch, samples, evaluated]) => {
                Some([batch.parse().ok()?, samples.parse().ok()?, evaluated.parse().ok()?])
            }
            _ => None,
        })
        .collect();
    let [first, last] = [points.first()?, points.last()?];
    if batch <= first[0] {
        return Some((first[1], first[2]));
    }
    let between = points.windows(2).find(|pair| batch <= pair[1][0]).map(|pair| {
        let along = (batch - pair[0][0]) / (pair[1][0] - pair[0][0]);
        let at = |column: usize| pair[0][column] + (pair[1][column] - pair[0][column]) * along;
        (at(1), at(2))
    });
    Some(between.unwrap_or((last[1], last[2])))
}

#[cfg(test)]
mod tests {
    use super::super::tests::gpu;
    use super::*;
    use crate::estimate::OpProfile;
    use crate::estimate::time::step_of;

    const HEAD: &str = "round,benchmark,accelerator,n_nodes,n_accel,global_batch_size,grad_accum,\
                        logged_throughput_median,time_to_train_min\n";

    fn times(lines: &str) -> Option<TrainingTimes> {
        let rows = MeasuredRow::table(&format!("{HEAD}{lines}")).expect("a table");
        let coefficients = FittedCoefficients::embedded().expect("embedded numbers");
        training_times(&rows, &|name, _| (name == "G").then(gpu), &coefficients)
    }

    #[test]
    fn samples_to_converge_grow_with_the_batch() {
        let samples = |benchmark: &str, batch: f64| converges_after(benchmark, batch).expect("points").0;
        assert_eq!(samples("resnet", 408.0), 44_840_845.0);
        assert_eq!(samples("resnet", 3264.0), 45_097_078.0);
        assert!((samples("resnet", 8160.0) - f64::midpoint(45_097_078.0, 58_164_982.0)).abs() < 1.0);
        assert_eq!(samples("bert", 1e6), 5_504_307.0);
        assert_eq!(converges_after("gnmt", 1024.0), None);
        let epochs = samples("resnet", 3264.0) / 1_281_167.0;
        assert!((epochs - 35.2).abs() < 1e-3, "{epochs}");
    }

    #[test]
    fn a_result_whose_throughput_is_logged_takes_what_its_samples_take() {
        // 45.1 million samples at 25,000 a second, and 0.3 % for evaluation: 1,810 s.
        let told = times("v3.0,resnet,G,1,8,3264,1,25000,30.2\n").expect("a time");
        let [score] = &told.by_nodes[..] else { panic!("{told:?}") };
        assert_eq!((score.nodes, score.rows, score.unlogged), (1, 1, 0));
        assert!(score.mape_as_logged.is_some_and(|error| error < 0.5), "{score:?}");
        assert!(score.mape.is_some_and(|error| error > score.mape_as_logged.unwrap()), "{score:?}");
    }

    #[test]
    fn results_are_scored_by_nodes_and_the_others_have_reasons() {
        let told = times(
            "v3.0,resnet,G,1,8,3264,1,25000,30\nv3.0,resnet,G,4,32,3264,1,90000,9\nv3.0,bert,G,4,32,1536,1,,4\n\
             v3.0,resnet,G,64,512,16384,1,1000000,1\nv3.0,resnet,TPU,1,8,4096,1,,20\nv3.0,gnmt,G,1,8,1024,1,,20\n\
             v3.0,resnet,G,1,8,,1,25000,30\nv3.0,resnet,G,,8,3264,1,25000,30\n",
        )
        .expect("times");
        let counts: Vec<_> = told.by_nodes.iter().map(|score| (score.nodes, score.rows, score.unlogged)).collect();
        assert_eq!(counts, [(1, 1, 0), (4, 1, 1)]);
        assert_eq!(told.ineligible.values().sum::<usize>(), 5, "{:?}", told.ineligible);
        assert_eq!(told.ineligible.get("has more than 16 nodes"), Some(&1));
        assert_eq!(times("v3.0,resnet,G,1,8,3264,1,25000,\n"), None);
    }

    #[test]
    fn more_nodes_are_estimated_to_train_sooner() {
        let seconds = |nodes: u32| {
            let line = format!("{HEAD}v3.0,resnet,G,{nodes},{},3264,1,25000,30\n", 8 * nodes);
            let rows = MeasuredRow::table(&line).expect("a table");
            let coefficients = FittedCoefficients::embedded().expect("embedded numbers");
            outcome(&rows[0], &|_, _| Some(gpu()), &coefficients).expect("an estimate").estimated
        };
        let (one, four) = (seconds(1), seconds(4));
        assert!(four[1] < one[1] && one[0] < one[1] && one[1] < one[2], "{one:?} {four:?}");
    }

    #[test]
    fn the_network_that_a_result_states_decides_how_long_nodes_exchange() {
        let seconds = |network: &str| {
            let head = HEAD.replace(",time_to_train_min", ",network,time_to_train_min");
            let rows = MeasuredRow::table(&format!("{head}v3.0,resnet,G,4,32,3264,1,25000,{network},30\n"));
            let coefficients = FittedCoefficients::embedded().expect("embedded numbers");
            let rows = rows.expect("a table");
            outcome(&rows[0], &|_, _| Some(gpu()), &coefficients).expect("an estimate").estimated[1]
        };
        assert!(seconds("2x ConnectX-6 200Gb/Sec") < seconds("1x ConnectX-5 50Gb/Sec"));
        assert!(seconds("1x Ethernet 10Gb/Sec") > seconds(""), "25 Gbit/s where nothing is stated");
    }

    #[test]
    fn images_of_the_contest_exchange_gradients_in_16_bits() {
        let rows = MeasuredRow::table(&format!("{HEAD}v3.0,resnet,G,4,32,3264,1,90000,9\n")).expect("a table");
        let coefficients = FittedCoefficients::embedded().expect("embedded numbers");
        let program = contest::entry(&rows[0]).expect("a program");
        let case = understood(&rows[0], program, &|_, _| Some(gpu()), &coefficients.memory).expect("a case");
        let exchanged = |half: bool| {
            let work = OpProfile { half, ..case.work() };
            step_of(&work, &case.setup, &coefficients).exchange.bytes
        };
        assert!(case.work().half);
        assert!((exchanged(false) / exchanged(true) - 2.0).abs() < 1e-9);
    }
}
