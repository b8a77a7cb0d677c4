//! `gradus bench lr`: the learning rate range test of a job.

use domain::train::Optimizer;
use domain::{RunId, Work};
use serde::{Deserialize, Serialize};
use serde_json::json;
use server::Home;

use crate::error::Error;
use crate::error::exit;
use crate::fetch::opened::OpenedData;
use crate::local::draft::draft;
use crate::local::job_file::JobArgs;
use crate::printer::Printer;
use crate::rank;
use crate::settings::GlobalSettings;
use crate::table;

/// Arguments of `gradus bench lr`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    job: JobArgs,
    /// Steps from the lowest rate to the highest
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(20..=100_000))]
    steps: u32,
    /// The lowest rate
    #[arg(long, default_value_t = 1e-6)]
    from: f64,
    /// The highest rate
    #[arg(long, default_value_t = 10.0)]
    to: f64,
}

/// A step of the rank's answer.
#[derive(Debug, Deserialize, Serialize)]
struct LrPoint {
    lr: f64,
    loss: f64,
    smoothed: f64,
}

/// The rank's answer.
#[derive(Debug, Deserialize)]
struct LrRange {
    points: Vec<LrPoint>,
    suggested: Option<f64>,
    has_diverged: bool,
}

/// Lines of the table that is printed; the JSON has every step.
const LINES: usize = 20;

/// Makes the steps, and prints the losses and the suggestion.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let Args { job, steps, from, to } = args;
    if !(from > 0.0 && from < to && to.is_finite()) {
        let message = format!("rates from {from} to {to} do not grow");
        return Err(Error::Usage { message, hint: "write for example `--from 1e-6 --to 1`".to_owned() });
    }
    let home = Home::open(&settings.home)?;
    let (job, plan) = draft(&job, settings, &home, printer)?;
    let Work::Train(train) = &job.work else {
        let message = "a `run:` program has no learning rate that gradus knows".to_owned();
        return Err(Error::Usage { message, hint: "name a job with `train:`".to_owned() });
    };
    let data = OpenedData::fetched(train.data.path.as_ref(), settings, printer)?;
    let path = std::path::absolute(data.path()).map_err(Error::file("find", data.path()))?;
    let folder = settings.home.join("bench");
    let mut spec = rank::spec(&RunId::new("lr-range"), train, &path.to_string_lossy(), settings, &folder)?;
    spec.threads = plan.share.map_or(1, |share| share.threads);
    let request = json!({ "spec": spec, "steps": steps, "low": from, "high": to });
    let found: LrRange = rank::ask(settings, "lr-range", &request)?;
    let key = key(&train.optimizer);
    if printer.is_json() {
        printer.json(&json!({
            "key": key, "suggested": found.suggested, "diverged": found.has_diverged, "steps": found.points,
        }));
        return Ok(exit::DONE);
    }
    let every = found.points.len().div_ceil(LINES).max(1);
    let row = |point: &LrPoint| {
        vec![format!("{:.2e}", point.lr), format!("{:.4}", point.loss), format!("{:.4}", point.smoothed)]
    };
    let rows: Vec<Vec<String>> = found.points.iter().step_by(every).map(row).collect();
    table::lines(&["rate", "loss", "smoothed"], &rows).into_iter().for_each(|line| printer.data(line));
    printer.data(advice(&found, key, to));
    Ok(exit::DONE)
}

/// What follows from the losses.
fn advice(found: &LrRange, key: &str, to: f64) -> String {
    let end = match (found.has_diverged, found.points.last()) {
        (true, Some(last)) => format!("above {:.1e} the loss grows without bound", last.lr),
        (true, None) => "the first loss is not finite".to_owned(),
        (false, _) => format!("up to {to} the loss stays bounded"),
    };
    match found.suggested {
        Some(rate) => format!("{key}: {rate:.1e}   # where the loss falls most steeply; {end}"),
        None => format!("no rate is suggested, because the loss does not fall; {end}"),
    }
}

/// The key of the rate in a job file.
fn key(optimizer: &Optimizer) -> &'static str {
    match optimizer {
        Optimizer::Sgd(_) => "optimizer.sgd.lr",
        Optimizer::Adamw(_) => "optimizer.adamw.lr",
        Optimizer::Lamb(_) => "optimizer.lamb.lr",
        Optimizer::Lars(_) => "optimizer.lars.lr",
        Optimizer::Adafactor(_) => "optimizer.adafactor.lr",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_can_be_written_into_the_job() {
        let point = LrPoint { lr: 0.25, loss: 1.0, smoothed: 1.0 };
        let mut found = LrRange { points: vec![point], suggested: Some(0.0123), has_diverged: true };
        let expected =
            "optimizer.sgd.lr: 1.2e-2   # where the loss falls most steeply; above 2.5e-1 the loss grows without bound";
        assert_eq!(advice(&found, "optimizer.sgd.lr", 1.0), expected);
        (found.suggested, found.has_diverged) = (None, false);
        let expected = "no rate is suggested, because the loss does not fall; up to 1 the loss stays bounded";
        assert_eq!(advice(&found, "optimizer.sgd.lr", 1.0), expected);
    }
}
