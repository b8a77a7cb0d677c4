//! `gradus plan check`: compare estimates with tables of measurements.

use std::path::PathBuf;

use cloud::catalog::Catalog;
use domain::Bytes;
use plan::estimate::FittedCoefficients;
use plan::measured::{self, MeasuredRow, Score};

use crate::error::Error;
use crate::printer::Printer;
use crate::table;

/// Arguments of `gradus plan check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// CSV files of measurements with a header line
    #[arg(value_name = "FILE.csv", required = true)]
    files: Vec<PathBuf>,
}

/// Prints the error of the estimates, by source.
///
/// # Errors
/// [`Error::Usage`] for a file that is not a table of measurements.
pub fn run(args: &Args, printer: &mut Printer) -> Result<u8, Error> {
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
    let report = measured::check(&rows, &gpus, &coefficients);
    if printer.is_json() {
        printer.json(&report);
        return Ok(crate::error::exit::DONE);
    }
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
        "fits, correct",
        "1.5 × refused",
    ];
    for line in table::lines(&head, &scored) {
        printer.data(line);
    }
    for (source, score) in &report.sources {
        for (reason, count) in &score.ineligible {
            printer.say(format!("{source}: skipped {count} rows: {reason}"));
        }
    }
    printer.say(format!("errors in % of the measured throughput; coefficients fitted {}", coefficients.dated));
    Ok(crate::error::exit::DONE)
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
        share(score.memory.said_to_fit, score.memory.known_to_fit),
        share(score.memory.more_refused, score.memory.filling),
    ]
}

/// An embedded table that cannot be read.
fn ours(why: &str) -> Error {
    Error::Code { message: why.to_owned(), hint: None, code: crate::error::exit::INTERNAL }
}
