//! `gradus stop`: save a run's state and stop it.

use domain::Event;
use domain::run::{RunState, StopBy};
use server::{Home, State};

use super::find;
use super::run::finish;
use crate::error::Error;
use crate::exit;
use crate::printer::Printer;
use crate::settings::Settings;
use crate::watch::Since;

/// Arguments of `gradus stop`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The run: its name, the start of it, or `last`
    run: String,
}

/// Asks for the stop, and stays until everything of the run is released and billed.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &Settings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let mut state = State::open(&home)?;
    let id = find(state.world(), &args.run)?;
    let since = Since::Event(state.world().last_seq);
    let Some(run) = state.world().runs.get(&id) else { return Err(server::Error::NoRun(args.run).into()) };
    if run.state.is_final() && run.bill.is_some() {
        printer.say(format!("run {id} is {} already", run.state.word()));
        return Ok(exit::DONE);
    }
    if !run.state.is_final() && !matches!(run.state, RunState::Stopping { .. }) {
        state.append(vec![Event::StopRequested { run: id.clone(), by: StopBy::User }])?;
    }
    drop(state);
    match finish(settings, printer, &home, &id, since)? {
        exit::RUN_STOPPED => Ok(exit::DONE),
        code => Ok(code),
    }
}
