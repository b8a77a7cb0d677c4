//! `gradus attach`: follow a run in the background, or take over one whose process is gone.

use domain::RunId;
use server::Home;

use crate::command::find::{find, open_named};
use crate::error::{Error, exit};
use crate::follow::elsewhere;
use crate::follow::result::finish;
use crate::follow::watch::Since;
use crate::printer::Printer;
use crate::remote;
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
    if let Some(server) = remote::chosen(settings)? {
        let id = server.find(&args.run)?;
        let known = server.run(&id, 0)?;
        refuse_ended(&id, known.run()?)?;
        return elsewhere::finish(&server, printer, &id, Since::Event(known.world.last_seq));
    }
    let home = Home::open(&settings.home)?;
    let state = open_named(&home, &args.run)?;
    let world = state.world();
    let id = find(world, &args.run)?;
    if let Some(run) = world.runs.get(&id) {
        refuse_ended(&id, run)?;
    }
    let since = Since::Event(world.last_seq);
    drop(state);
    finish(settings, printer, &home, &id, since)
}

/// Refuses to follow a run that has ended.
fn refuse_ended(id: &RunId, run: &plan::Run) -> Result<(), Error> {
    if !run.state.is_final() || run.bill.is_none() {
        return Ok(());
    }
    let message = format!("run `{id}` has ended: {}", run.state.word());
    let hint = Some(format!("see `gradus status {id}`, or resume it with `gradus resume {id}`"));
    Err(Error::Code { message, hint, code: exit::USAGE })
}
