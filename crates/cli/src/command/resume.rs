//! `gradus resume`: go on with a run from its newest checkpoint.

use domain::run::{Outcome, RunState, StopBy};
use domain::{Event, RunId};
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
    if let Some(run) = state.world().runs.get(&id)
        && goes_on
    {
        refuse_spent(&state, &id, run)?;
    }
    if goes_on {
        home.untell(&id);
        state.append(vec![Event::ResumeRequested { run: id.clone() }])?;
    }
    drop(state);
    finish(settings, printer, &home, &id)
}

/// A run that has come to its budget or deadline would be stopped again at once.
fn refuse_spent(state: &State, id: &RunId, run: &plan::Run) -> Result<(), Error> {
    let facts = plan::Facts { now: server::clock::now(), ..plan::Facts::default() };
    let limit = match plan::reached(state.world(), &facts, &plan::Policy::default(), run) {
        Some(StopBy::Budget) => "`budget`",
        Some(StopBy::Deadline) => "`deadline`",
        Some(StopBy::User) | None => return Ok(()),
    };
    let message = format!("run `{id}` has come to its {limit} and cannot go on");
    Err(Error::Usage {
        message,
        hint: format!("raise {limit} in the job file and start it with `gradus run {}`", run.file),
    })
}
