//! `gradus events`: the event log.

use server::{Home, State};

use crate::command::find::find;
use crate::error::Error;
use crate::error::exit;
use crate::figures::time;
use crate::follow::history::{sentence, subject};
use crate::follow::narrator::record_json;
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use crate::table;

/// Arguments of `gradus events`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run: its name, a unique prefix of it, or `last` [default: all]
    run: Option<String>,
}

/// Prints the log, oldest first: time, run or sweep, and what happened.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let state = State::open(&home)?;
    let records = match args.run {
        Some(name) => state.records(&find(state.world(), &name)?, 0)?,
        None => state.records_after(0)?,
    };
    let mut rows = Vec::new();
    for record in records {
        if printer.is_json() {
            let mut value = record_json(&record);
            if printer.shows_values() {
                state.key().unseal_envs(&mut value);
            }
            printer.json(&value);
            continue;
        }
        rows.push(vec![time(record.at), subject(state.world(), &record.event), sentence(&record.event)]);
    }
    if !printer.is_json() && !rows.is_empty() {
        table::lines(&["time", "run", "event"], &rows).into_iter().for_each(|line| printer.data(line));
    } else if !printer.is_json() {
        printer.say("no events yet; start with `gradus run JOB`");
    }
    Ok(exit::DONE)
}
