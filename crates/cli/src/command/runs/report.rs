//! `gradus report`: `report.html` and TensorBoard files of a run or sweep.

use std::path::Path;

use serde_json::{Value, json};
use server::{Home, Series};

use crate::command::find::{RunOrSweep, find_any, open_named};
use crate::error::Error;
use crate::error::exit;
use crate::follow::report;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus report`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run or sweep: its name, a unique prefix of it, or `last`
    run: String,
}

/// Writes the report and prints its path.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let (state, series) = (open_named(&home, &args.run)?, Series::open(&home)?);
    let id = match find_any(state.world(), &args.run)? {
        RunOrSweep::Run(id) => id,
        RunOrSweep::Sweep(id) => {
            crate::sweep::write_report(&home, &state, &id)?;
            told(printer, json!({ "sweep": id }), &home.sweep(&id));
            return Ok(exit::DONE);
        }
    };
    report::write(&home, &state, &series, &id)?;
    told(printer, json!({ "run": id }), &home.run(&id));
    Ok(exit::DONE)
}

/// Prints the path of a folder's report.
fn told(printer: &mut Printer, mut value: Value, folder: &Path) {
    let report = folder.join("report.html");
    if !printer.is_json() {
        return printer.data(report.display().to_string());
    }
    let board = folder.join("tensorboard");
    value["report"] = json!(report);
    value["tensorboard"] = json!(board.is_dir().then_some(board));
    printer.json(&value);
}
