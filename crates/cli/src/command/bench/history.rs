//! `gradus bench history`: what was measured before, and how the newest figure of each case stands to it.

use std::path::PathBuf;

use serde_json::json;

use super::record::{self, BenchComparison, BenchRecord, BenchVerdict};
use crate::error::Error;
use crate::error::exit;
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use crate::table;

/// Arguments of `gradus bench history`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// File of measurements [default: `bench.jsonl` in the home folder]
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// List every measurement, oldest first, instead of the newest of each case
    #[arg(long)]
    all: bool,
}

/// Prints a line for each case.
///
/// # Errors
/// [`Error`].
pub fn run(args: &Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let path = record::file(args.history.as_deref(), settings);
    let entries = record::read(&path, printer)?;
    if args.history.is_some() && !path.exists() {
        let message = format!("there is no history at `{}`", path.display());
        let hint = Some("check `--history`, or leave it out for that of the home folder".to_owned());
        return Err(Error::Code { message, hint, code: exit::WORLD });
    }
    if args.all {
        list(&entries, printer);
        return Ok(exit::DONE);
    }
    let comparisons = record::compare(&entries);
    if printer.is_json() {
        for one in &comparisons {
            printer.json(&json!({
                "newest": one.newest, "figure": one.figure, "before": one.before,
                "change": one.change(), "verdict": one.verdict(),
            }));
        }
        return Ok(exit::DONE);
    }
    if comparisons.is_empty() {
        printer.say(format!("nothing was measured yet; `gradus bench train` adds to `{}`", path.display()));
        return Ok(exit::DONE);
    }
    let rows: Vec<Vec<String>> = comparisons.iter().map(row).collect();
    let head = ["date", "case", "machine", "build", "newest", "before", "change", ""];
    table::lines(&head, &rows).into_iter().for_each(|line| printer.data(line));
    Ok(exit::DONE)
}

fn list(entries: &[BenchRecord], printer: &mut Printer) {
    if printer.is_json() {
        entries.iter().for_each(|entry| printer.json(entry));
        return;
    }
    let row = |entry: &BenchRecord| {
        let (figure, unit) = entry.figure();
        let figure = figure.map_or_else(|| "–".to_owned(), |figure| amount(figure, unit));
        let note = entry.note.clone().unwrap_or_default();
        vec![date(entry), entry.told(), entry.machine.clone(), entry.build.clone(), figure, note]
    };
    let rows: Vec<Vec<String>> = entries.iter().map(row).collect();
    let head = ["date", "case", "machine", "build", "figure", "note"];
    table::lines(&head, &rows).into_iter().for_each(|line| printer.data(line));
}

fn row(one: &BenchComparison<'_>) -> Vec<String> {
    let (_, unit) = one.newest.figure();
    let before = one.before.map_or_else(String::new, |before| match before.count {
        1 => amount(before.median, unit),
        count => {
            format!("{} ({count}: {} to {})", amount(before.median, unit), number(before.least), number(before.most))
        }
    });
    let change = one.change().map_or_else(String::new, |change| format!("{:+.1} %", 100.0 * change));
    let verdict = match (one.verdict(), one.before) {
        (BenchVerdict::Unknown, None) => "the first",
        (BenchVerdict::Unknown, Some(_)) => "too few to tell",
        (BenchVerdict::Usual, _) => "within what was seen",
        (BenchVerdict::Better, _) => "faster than all before",
        (BenchVerdict::Worse, _) => "slower than all before",
    };
    let newest = one.newest;
    vec![
        date(newest),
        newest.told(),
        newest.machine.clone(),
        newest.build.clone(),
        amount(one.figure, unit),
        before,
        change,
        verdict.to_owned(),
    ]
}

/// The day, in UTC.
fn date(entry: &BenchRecord) -> String {
    match jiff::Timestamp::from_microsecond(entry.at.0) {
        Ok(time) => time.strftime("%Y-%m-%d").to_string(),
        Err(_) => "beyond the calendar".to_owned(),
    }
}

fn amount(figure: f64, unit: &str) -> String {
    format!("{} {unit}", number(figure))
}

/// Three digits, or all before the point.
fn number(figure: f64) -> String {
    match figure.abs() {
        size if size < 10.0 => format!("{figure:.2}"),
        size if size < 100.0 => format!("{figure:.1}"),
        _ => format!("{figure:.0}"),
    }
}
