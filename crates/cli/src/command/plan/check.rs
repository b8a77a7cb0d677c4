//! `gradus plan check`: compare estimates with tables of measurements.

use std::path::{Path, PathBuf};

use cloud::catalog::Catalog;
use domain::Bytes;
use plan::estimate::FittedCoefficients;
use plan::measured::{self, AccuracyReport, CheckedRow, MeasuredRow, NetworkSource, Networks, Score, TrainingTimes};

use super::model::file;

use crate::error::Error;
use crate::figures::counted;
use crate::printer::Printer;
use crate::table;

/// Arguments of `gradus plan check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// CSV files of measurements, whose header line names the columns: `source_id`, `model`, `gpu`, `n_gpus`, `precision`,
    /// `batch_per_gpu`, `throughput`, `unit`; see docs/estimate.md
    #[arg(value_name = "FILE.csv", required = true)]
    files: Vec<PathBuf>,
    /// Networks of the tables: a CSV file with the columns `model` and `shape` (a description) or `file`, or a folder of
    /// model files named after their networks
    #[arg(long, value_name = "models.csv|FOLDER")]
    models: Option<PathBuf>,
    /// Write each row with its estimates and the parts of its memory to this CSV file
    #[arg(long, value_name = "FILE.csv")]
    rows: Option<PathBuf>,
}

/// Prints the error of the estimates, by source.
///
/// # Errors
/// [`Error::Usage`] for a file that is not a table of measurements.
pub fn run(args: &Args, printer: &mut Printer) -> Result<u8, Error> {
    if let Some(file) = args.rows.as_deref().filter(|file| args.files.iter().any(|table| is_same(table, file))) {
        return Err(Error::Usage {
            message: format!("`--rows {}` is one of the tables, and would be overwritten", file.display()),
            hint: "name a file that is not there yet, such as `--rows checked.csv`".to_owned(),
        });
    }
    let mut rows = Vec::new();
    for file in &args.files {
        let unusable = |why: String| Error::Usage {
            message: format!("cannot use the table `{}`: {why}", file.display()),
            hint: "use a CSV file with the columns `source_id`, `model`, `gpu`, `n_gpus`, `precision`, \
                   `batch_per_gpu`, `throughput`, `unit`; see `docs/estimate.md`"
                .to_owned(),
        };
        let text = std::fs::read_to_string(file).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidData => unusable("not UTF-8 text".to_owned()),
            _ => Error::file("read the table", file)(error),
        })?;
        rows.extend(MeasuredRow::table(&text).map_err(|error| unusable(error.0))?);
    }
    let catalog = Catalog::embedded().map_err(|error| ours(&error.to_string()))?;
    let coefficients = FittedCoefficients::embedded().map_err(|error| ours(&error.to_string()))?;
    let gpus = |spelling: &str, memory: Option<f64>| {
        let memory = memory.map(|gigabytes| Bytes((gigabytes * f64::from(1 << 30)) as u64));
        catalog.gpu(spelling, memory).cloned()
    };
    let (networks, named) = args.models.as_deref().map_or_else(|| Ok((Networks::published(), Vec::new())), networks)?;
    for name in networks.unused(&named, rows.iter().map(|row| row.model.as_str())) {
        printer.say(format!("warning: no row measures the network `{name}` of `--models`"));
    }
    if let Some(file) = &args.rows {
        let checked = measured::checked(&rows, &networks, &gpus, &coefficients);
        write(&checked, file).map_err(|error| Error::file("write the rows", file)(error.into()))?;
        printer.say(format!("wrote {} rows to `{}`", checked.len(), file.display()));
    }
    let report = measured::check(&rows, &networks, &gpus, &coefficients);
    if printer.is_json() {
        printer.json(&report);
        return Ok(crate::error::exit::DONE);
    }
    tell(&report, printer);
    printer.say(format!("errors in % of the measured throughput; coefficients fitted {}", coefficients.dated));
    Ok(crate::error::exit::DONE)
}

/// Whether both paths lead to one file.
fn is_same(left: &Path, right: &Path) -> bool {
    matches!((left.canonicalize(), right.canonicalize()), (Ok(left), Ok(right)) if left == right)
}

fn write(rows: &[CheckedRow], file: &Path) -> Result<(), csv::Error> {
    let mut writer = csv::Writer::from_path(file)?;
    rows.iter().try_for_each(|row| writer.serialize(row))?;
    Ok(writer.flush()?)
}

/// Prints each source's figures, and what of it is not eligible.
fn tell(report: &AccuracyReport, printer: &mut Printer) {
    let scored: Vec<Vec<String>> = report.sources.iter().map(|(source, score)| cells(source, score)).collect();
    let head = [
        "source",
        "rows",
        "eligible",
        "estimated",
        "MAPE",
        "median",
        "p90",
        "rank",
        "in P10–P90",
        "memory",
        "10 % too low",
        "fits, correct",
        "1.5 × refused",
    ];
    for line in table::lines(&head, &scored) {
        printer.data(line);
    }
    for (source, score) in &report.sources {
        if let Some(median) = score.idle_median {
            let count = score.idle;
            printer.say(format!(
                "{source}: throughput of {count} rows apart: below 5 % of the GPUs' rate (median error {median:.0} %)"
            ));
        }
        if let (Some(bands), Some(coverage)) = (score.dishonest_bands(), score.interval_coverage) {
            let [low, high] = measured::HONEST_COVERAGE;
            printer.say(format!(
                "{source}: P10–P90 holds {coverage:.0} % of {} rows, not {low:.0} to {high:.0} %: bands are {bands} here",
                score.predicted
            ));
        }
        if let Some(coverage) = score.unmeasured_coverage {
            printer.say(format!(
                "{source}: P10–P90 holds {coverage:.0} % of {} rows on GPUs without measurements in the fit",
                score.unmeasured
            ));
        }
        tell_skipped(source, score, printer);
    }
    if let Some(times) = &report.time_to_train {
        tell_times(times, printer);
    }
    let all: usize = report.sources.values().map(|score| score.rows).sum();
    let eligible: usize = report.sources.values().map(|score| score.eligible).sum();
    printer
        .say(format!("{eligible} of {all} rows are eligible ({:.0} %)", 100.0 * eligible as f64 / all.max(1) as f64));
    if report.sources.values().any(|score| !score.unknown_networks.is_empty()) {
        printer.say(
            "hint: describe networks that are not known with `--models models.csv` (`model,shape`: `mine,\"layers 24, hidden 2048, \
             heads 16, ffn 5632, vocab 49k\"`), or name a folder of model files",
        );
    }
}

/// Networks of a source that are named, of those that are not known.
const NAMED: usize = 6;

/// Prints why rows of a source are not compared, or in part.
fn tell_skipped(source: &str, score: &Score, printer: &mut Printer) {
    for (reason, count) in &score.memory_only {
        printer.say(format!("{source}: memory only of {}: {reason}", counted(*count as u64, "row")));
    }
    for (reason, count) in &score.ineligible {
        printer.say(format!("{source}: skipped {}: {reason}", counted(*count as u64, "row")));
    }
    if !score.unknown_networks.is_empty() {
        let names = score.unknown_networks.keys().map(|name| format!("`{name}`"));
        let named = names.take(NAMED).collect::<Vec<_>>().join(", ");
        let more = match score.unknown_networks.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        printer.say(format!("{source}: networks that are not known: {named}{more}"));
    }
}

/// Prints how well time to train is estimated, by number of nodes.
fn tell_times(times: &TrainingTimes, printer: &mut Printer) {
    let figure = |figure: Option<f64>| figure.map_or("–".to_owned(), |figure| format!("{figure:.1}"));
    let of = |unlogged: usize, mape: Option<f64>, median: Option<f64>| match unlogged {
        0 => "–".to_owned(),
        _ => format!("{}, {} of {unlogged}", figure(mape), figure(median)),
    };
    let cells = times.by_nodes.iter().map(|score| {
        vec![
            score.nodes.to_string(),
            score.rows.to_string(),
            figure(score.mape),
            figure(score.median),
            score.coverage.map_or("–".to_owned(), |share| format!("{share:.0} %")),
            figure(score.mape_as_logged),
            of(score.unlogged, score.unlogged_mape, score.unlogged_median),
        ]
    });
    let head = [
        "nodes",
        "results",
        "time to train: MAPE",
        "median",
        "in P10–P90",
        "MAPE with logged throughput",
        "no throughput logged: MAPE, median",
    ];
    printer.data("");
    for line in table::lines(&head, &cells.collect::<Vec<_>>()) {
        printer.data(line);
    }
    for (reason, count) in &times.ineligible {
        printer.say(format!("time to train: skipped {count} results: {reason}"));
    }
}

/// The published networks, and those that a `models.csv` or a folder of files names, with their names.
fn networks(path: &Path) -> Result<(Networks, Vec<String>), Error> {
    let mut networks = Networks::published();
    let mut named = Vec::new();
    let unusable = |why: String| Error::Usage {
        message: format!("cannot use the networks in `{}`: {why}", path.display()),
        hint: "use a CSV file with the columns `model` and `shape` or `file`, or a folder of files such as \
               `Llama-3.1-8B.json`; see `docs/estimate.md`"
            .to_owned(),
    };
    if path.is_dir() {
        let mut files: Vec<PathBuf> = std::fs::read_dir(path)
            .map_err(Error::file("read the folder", path))?
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|file| file.is_file())
            .collect();
        files.sort();
        if files.is_empty() {
            return Err(unusable("the folder has no files".to_owned()));
        }
        for file in files {
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            networks.add(&name, NetworkSource::File(file::bytes(&file)?));
            named.push(name);
        }
        return Ok((networks, named));
    }
    let text = std::fs::read_to_string(path).map_err(Error::file("read the networks", path))?;
    for line in measured::network_lines(&text).map_err(|error| unusable(error.0))? {
        let source = match line.file.is_empty() {
            true => NetworkSource::Words(line.shape),
            false => {
                // Files are named from where the table lies.
                let file = path.with_file_name(&line.file);
                let bytes = file::bytes(&file);
                NetworkSource::File(bytes.map_err(|error| {
                    unusable(format!("the file `{}` of `{}`: {}", file.display(), line.name, reason(&error)))
                })?)
            }
        };
        networks.add(&line.name, source);
        named.push(line.name);
    }
    Ok((networks, named))
}

/// The last cause of an error, or the error itself.
fn reason(error: &Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

fn cells(source: &str, score: &Score) -> Vec<String> {
    let figure =
        |figure: Option<f64>, digits: usize| figure.map_or("–".to_owned(), |figure| format!("{figure:.digits$}"));
    let share = |share: Option<f64>, of: usize| share.map_or("–".to_owned(), |share| format!("{share:.0} % of {of}"));
    vec![
        source.to_owned(),
        score.rows.to_string(),
        score.eligible.to_string(),
        score.predicted.to_string(),
        figure(score.mape, 1),
        figure(score.median, 1),
        figure(score.p90, 1),
        figure(score.rank, 3),
        figure(score.interval_coverage, 0),
        match score.memory.mape {
            Some(mape) => format!("{mape:.1} of {}", score.memory.rows),
            None => "–".to_owned(),
        },
        score.memory.under10.map_or("–".to_owned(), |share| format!("{share:.0} %")),
        share(score.memory.said_to_fit, score.memory.known_to_fit),
        share(score.memory.more_refused, score.memory.filling),
    ]
}

/// An embedded table that cannot be read.
fn ours(why: &str) -> Error {
    Error::Code { message: why.to_owned(), hint: None, code: crate::error::exit::INTERNAL }
}
