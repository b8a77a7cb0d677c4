//! `gradus attach`: follow a run that another process keeps, or take it over where none does.

use server::Home;

use crate::command::find::{find, open_named};
use crate::error::{Error, exit};
use crate::follow::result::finish;
use crate::follow::watch::Since;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus attach`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run: its name, a unique prefix of it, or `last`
    run: String,
}

/// Follows a run to its end, and prints its result.
///
/// # Errors
/// [`Error`]; [`Error::Code`] for a run that has ended.
pub fn run(args: &Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let state = open_named(&home, &args.run)?;
    let world = state.world();
    let id = find(world, &args.run)?;
    if let Some(run) = world.runs.get(&id).filter(|run| run.state.is_final() && run.bill.is_some()) {
        let message = format!("run `{id}` has ended: {}", run.state.word());
        let hint = Some(format!("see `gradus status {id}`, or resume it with `gradus resume {id}`"));
        return Err(Error::Code { message, hint, code: exit::USAGE });
    }
    let since = Since::Event(world.last_seq);
    drop(state);
    finish(settings, printer, &home, &id, since)
}
