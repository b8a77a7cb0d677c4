//! `gradus events`: the event log.

use server::{Home, State};

use crate::command::find::find;
use crate::error::Error;
use crate::error::exit;
use crate::follow::narrator::{record_json, sentence};
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus events`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run: its name, a unique prefix of it, or `last` [default: all]
    run: Option<String>,
}

/// Prints the log, oldest first.
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
    for record in records {
        let mut value = record_json(&record);
        if printer.shows_values() {
            state.key().unseal_envs(&mut value);
        }
        if printer.is_json() {
            printer.json(&value);
            continue;
        }
        let kind = value["event"].as_str().unwrap_or_default().to_owned();
        printer.data(format!("{:>6}  {kind:<17} {}", record.seq, sentence(&record.event).unwrap_or_default()));
    }
    Ok(exit::DONE)
}
