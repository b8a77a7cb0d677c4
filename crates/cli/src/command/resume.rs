//! `gradus resume`: go on with a run from its newest checkpoint.

use domain::Event;
use domain::run::{Outcome, RunState};
use server::{Home, State};

use super::find;
use super::run::finish;
use crate::error::Error;
use crate::printer::Printer;
use crate::settings::Settings;

/// Arguments of `gradus resume`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The run: its name, the start of it, or `last`
    run: String,
}

/// Goes on with a run, or follows it where another process already does.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &Settings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let mut state = State::open(&home)?;
    let id = find(state.world(), &args.run)?;
    let goes_on = state.world().runs.get(&id).is_some_and(|run| match &run.state {
        RunState::Stopped { .. } | RunState::Done { outcome: Outcome::Failed { .. } } => true,
        RunState::Done { .. } | RunState::Queued | RunState::Renting { .. } | RunState::Staging { .. } => false,
        RunState::Running { .. } | RunState::Recovering { .. } | RunState::Stopping { .. } => false,
    });
    if goes_on {
        home.untell(&id);
        state.append(vec![Event::ResumeRequested { run: id.clone() }])?;
    }
    drop(state);
    finish(settings, printer, &home, &id)
}
