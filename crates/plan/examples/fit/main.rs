//! `cargo xtask fit FOLDER…`: fits the numbers of `catalog/fitted.json` to tables of measurements.
//!
//! Groups of rows that belong together (one source, network and GPU) are held out in turn, so that bands and the
//! report's cross-validated figures come from estimates of held-out rows. The same folders give the same file.

// A program for developers: it reads tables and writes a file, which the library never does.
#![allow(clippy::disallowed_methods)]

mod bands;
mod graphs;
mod least_squares;
mod memory;
mod outcome;
mod sources;
mod totals;
mod unseen;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plan::estimate::memory::MemoryCoefficients;
use plan::estimate::totals::TotalsCoefficients;
use plan::estimate::{ErrorBands, FittedCoefficients, Origin};
use plan::measured::{self, Case, MeasuredRow};
use plan::model::ModelDescription;

use graphs::{Fit, Samples};
use least_squares::solve;

/// How many parts groups are divided into.
const FOLDS: usize = 10;
/// Steps of one fit at most.
const STEPS: usize = 150;

fn main() -> Result<(), String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (dated, out, rows_out, folders) = match words.as_slice() {
        [flag, rows, dated, out, folders @ ..] if flag == "--rows" => (dated, out, Some(rows), folders),
        [dated, out, folders @ ..] => (dated, out, None, folders),
        _ => return Err("usage: fit [--rows ROWS.tsv] DATE OUT.json FOLDER…".to_owned()),
    };
    let mut cases = Vec::new();
    for folder in folders {
        cases.extend(cases_of(Path::new(folder))?);
    }
    // What a program keeps is not told by the words of a table.
    let known: Vec<Case> = cases.iter().filter(|case| case.row.origin != Origin::Unknown).cloned().collect();
    let command = "cargo xtask fit FOLDER…, on the calibration tables of public measurements".to_owned();
    let base = FittedCoefficients {
        dated: dated.clone(),
        command,
        shared: Default::default(),
        generations: BTreeMap::new(),
        unmeasured: Default::default(),
        totals: TotalsCoefficients::default(),
        memory: memory::fit(&known),
        bands: ErrorBands::default(),
        anchors: Vec::new(),
        report: serde_json::Value::Null,
    };
    let of_graphs: Vec<&Case> = cases.iter().filter(|case| matches!(case.model, ModelDescription::Graph(_))).collect();
    let data = graphs::samples(&of_graphs);
    let all: Vec<usize> = (0..data.samples.len()).collect();
    let (mut fitted, end) = graph_fit(&data, all.clone(), &base, None);
    let rows: Vec<totals::MeasuredRow> =
        cases.iter().filter_map(|case| totals::MeasuredRow::of(case, &fitted)).collect();
    fitted.totals = totals::fit(&rows.iter().collect::<Vec<_>>());

    let mut left_out: BTreeMap<&str, (usize, FittedCoefficients)> = BTreeMap::new();
    for fold in 0..FOLDS {
        let mut groups: Vec<&str> = cases.iter().map(|case| case.row.group.as_str()).collect();
        groups.sort_unstable();
        groups.dedup();
        let held: Vec<&str> =
            groups.into_iter().enumerate().filter(|(at, _)| at % FOLDS == fold).map(|(_, group)| group).collect();
        let train = all.iter().copied().filter(|at| !held.contains(&data.samples[*at].group.as_str())).collect();
        let (mut partial, _) = graph_fit(&data, train, &base, Some(&end));
        let kept: Vec<&Case> = cases.iter().filter(|case| !held.contains(&case.row.group.as_str())).collect();
        let rows: Vec<totals::MeasuredRow> =
            kept.iter().filter_map(|case| totals::MeasuredRow::of(case, &partial)).collect();
        partial.totals = totals::fit(&rows.iter().collect::<Vec<_>>());
        for group in held {
            left_out.insert(group, (fold, partial.clone()));
        }
        eprintln!("fold {} of {FOLDS}", fold + 1);
    }
    let measured: Vec<outcome::Outcome> = cases
        .iter()
        .map(|case| {
            let work = case.work();
            let (fold, without) = &left_out[case.row.group.as_str()];
            outcome::Outcome::of(case, &work, *fold, &fitted, without)
        })
        .collect();
    fitted.bands = sources::widened(&measured.iter().collect::<Vec<_>>());
    let unseen = unseen::unseen(&data, &mut |chosen| graph_fit(&data, chosen, &base, Some(&end)).0);
    fitted.bands.unmeasured_generation = unseen::reach(&unseen, &fitted.bands);
    fitted.anchors = outcome::anchors(&measured);
    let by_fold = sources::by_fold(&measured);
    fitted.report = outcome::report(&measured, &fitted, &by_fold);
    outcome::print(&measured, &fitted, &by_fold);
    unseen::print(&unseen, &fitted);
    sources::print(&measured, fitted.bands.unstated_details);
    if let Some(path) = rows_out {
        std::fs::write(path, outcome::rows(&measured, &fitted.memory))
            .map_err(|error| format!("cannot write `{path}`: {error}"))?;
    }
    let text = serde_json::to_string_pretty(&outcome::rounded(&fitted)).map_err(|error| error.to_string())?;
    std::fs::write(out, text + "\n").map_err(|error| format!("cannot write `{out}`: {error}"))
}

/// A fit and where it ended, so that the next can begin there.
fn graph_fit(
    data: &Samples,
    chosen: Vec<usize>,
    base: &FittedCoefficients,
    from: Option<&[f64]>,
) -> (FittedCoefficients, Vec<f64>) {
    let fit = Fit::new(data, chosen, base);
    let start = fit.start();
    let end = solve(&fit, &start, from.unwrap_or(&start), STEPS);
    (fit.coefficients(&end), end)
}

/// Every eligible row of a folder's tables.
fn cases_of(folder: &Path) -> Result<Vec<Case>, String> {
    let catalog = cloud::catalog::Catalog::embedded().map_err(|error| error.to_string())?;
    let networks = measured::Networks::published();
    let gpus = |spelling: &str, memory: Option<f64>| {
        let memory = memory.map(|gb| domain::Bytes((gb * f64::from(1 << 30)) as u64));
        catalog.gpu(spelling, memory).cloned()
    };
    let unreadable = |error: std::io::Error| format!("cannot read `{}`: {error}", folder.display());
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_table = name.starts_with("throughput_") || name.starts_with("mlperf_");
        if is_table && name.ends_with(".csv") {
            files.push(path);
        }
    }
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let text =
            std::fs::read_to_string(&file).map_err(|error| format!("cannot read `{}`: {error}", file.display()))?;
        let rows =
            MeasuredRow::table(&text).map_err(|error| format!("cannot use `{}`: {}", file.display(), error.0))?;
        let understood =
            measured::cases(&rows.iter().collect::<Vec<_>>(), &networks, &gpus, &MemoryCoefficients::default());
        cases.extend(
            understood.into_iter().filter_map(Result::ok).filter(|case| case.untimed.is_none() && !case.is_idle()),
        );
    }
    match cases.is_empty() {
        true => Err(format!("`{}` holds no eligible rows in files `throughput_….csv`", folder.display())),
        false => Ok(cases),
    }
}
