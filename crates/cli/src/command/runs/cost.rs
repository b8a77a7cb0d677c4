//! `gradus cost`: the cost of runs, to the micro-dollar.

use domain::RunId;
use serde_json::json;
use server::{Home, State};

use crate::command::find::{RunOrSweep, find_any};
use crate::error::Error;
use crate::error::exit;
use crate::follow::liveness::meters;
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use crate::table;

/// Arguments of `gradus cost`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run or sweep: its name, a unique prefix of it, or `last`
    run: Option<String>,
}

/// Prints each rented machine with its price and time, and the sum.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let state = State::open(&home)?;
    let world = state.world();
    let only = args.run.map(|name| find_any(world, &name)).transpose()?;
    let is_meant = |id: &RunId, run: &plan::Run| match &only {
        None => true,
        Some(RunOrSweep::Run(only)) => only == id,
        Some(RunOrSweep::Sweep(only)) => run.trial.as_ref().is_some_and(|trial| trial.sweep == *only),
    };
    let mut runs: Vec<_> = world.runs.iter().filter(|(id, run)| is_meant(id, run)).collect();
    runs.sort_by_key(|(_, run)| run.order);
    let mut rows = Vec::new();
    let mut total = domain::Money::default();
    let meters = meters(&home, world);
    for (id, run) in runs {
        let spent = plan::spent(world, run, &meters);
        total += spent;
        if printer.is_json() {
            printer.json(
                &json!({ "run": id, "final": run.bill.is_some(), "bill": run.bill, "cost_micro_usd": spent.micros() }),
            );
            continue;
        }
        for line in run.bill.iter().flat_map(|bill| &bill.lines) {
            let seconds = format!("{:.6} s", line.usage.elapsed.as_secs_f64());
            rows.push(vec![
                id.to_string(),
                line.instance.to_string(),
                line.rate.to_string(),
                seconds,
                line.amount.to_string(),
            ]);
        }
        if run.bill.is_none() {
            rows.push(vec![
                id.to_string(),
                "not final".to_owned(),
                run.rate().to_string(),
                String::new(),
                spent.to_string(),
            ]);
        }
    }
    if !printer.is_json() {
        rows.push(vec!["total".to_owned(), String::new(), String::new(), String::new(), total.to_string()]);
        table::lines(&["run", "machine", "price", "time", "cost"], &rows)
            .into_iter()
            .for_each(|line| printer.data(line));
    }
    Ok(exit::DONE)
}
