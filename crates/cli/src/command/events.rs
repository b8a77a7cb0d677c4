//! `gradus events`: the log that everything else is made from.

use server::{Home, State};

use super::find;
use crate::error::Error;
use crate::exit;
use crate::narrator::{record_json, sentence};
use crate::printer::Printer;
use crate::settings::Settings;

/// Arguments of `gradus events`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// One run: its name, the start of it, or `last`
    run: Option<String>,
}

/// Prints the log, oldest first.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &Settings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let state = State::open(&home)?;
    let records = match args.run {
        Some(name) => state.records(&find(state.world(), &name)?, 0)?,
        None => state.records_after(0)?,
    };
    for record in records {
        let value = record_json(&record);
        if printer.is_json() {
            printer.json(&value);
            continue;
        }
        let kind = value["event"].as_str().unwrap_or_default().to_owned();
        printer.data(format!("{:>6}  {kind:<17} {}", record.seq, sentence(&record.event).unwrap_or_default()));
    }
    Ok(exit::DONE)
}
