//! A run that no process ran for a while: what its agent reports at once has happened before it was resumed.

use domain::run::{Outcome, RunState};
use domain::{AttemptId, Event, RunId, Timestamp};
use plan::world::AttemptState;
use plan::{Resumption, RunOrSweep, World};
use server::{Home, State};

use super::attend::attend;
use super::watch::Since;
use crate::error::Error;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// How soon an agent that is found again reports what happened meanwhile, in microseconds.
const AT_ONCE: i64 = 10_000_000;

/// Follows an unfinished run that no process ran. If it turns out to have failed meanwhile, such as on a full disk, it is
/// resumed, as requested. Returns from where to follow it on.
///
/// # Errors
/// [`Error`].
pub fn take_over(
    settings: &GlobalSettings,
    printer: &mut Printer,
    home: &Home,
    id: &RunId,
    since: Since,
) -> Result<Since, Error> {
    let world = State::open_lean(home)?.world().clone();
    let Some(run) = world.runs.get(id).filter(|run| !run.state.is_final()) else { return Ok(since) };
    let Some(attempt) = run.attempts.last().filter(|_| !home.is_watched(&home.run(id))) else { return Ok(since) };
    let began = server::clock::now();
    let watch = attend(settings, printer, home, id, since)?;
    let since = Since::Event(watch.world().last_seq);
    if !had_failed(watch.world(), id, attempt, began) {
        return Ok(since);
    }
    let mut state = State::open_lean(home)?;
    state.recall(&RunOrSweep::Run(id.clone()))?;
    let resume = Event::ResumeRequested {
        run: id.clone(),
        budget: None,
        deadline: None,
        epochs: None,
        accept_data_change: false,
        set: Vec::new(),
    };
    let resumption = plan::resume::run(state.world(), server::clock::now(), id, &resume);
    if resumption.map_err(server::Error::from)? == Resumption::Allowed {
        printer.say("this happened while no process ran the run: resuming it now");
        home.unmark_reported(&home.run(id));
        state.append(vec![resume])?;
    }
    Ok(since)
}

/// Whether a run failed by this attempt of before it was followed.
fn had_failed(world: &World, id: &RunId, attempt: &AttemptId, began: Timestamp) -> bool {
    let Some(run) = world.runs.get(id) else { return false };
    let has_failed = matches!(run.state, RunState::Done { outcome: Outcome::Failed { .. } });
    let is_last = run.attempts.last() == Some(attempt);
    let ended = world.attempts.get(attempt).and_then(|attempt| match attempt.state {
        AttemptState::Ended { at, .. } => Some(at),
        AttemptState::Intended | AttemptState::Ready { .. } => None,
    });
    has_failed && is_last && ended.is_some_and(|at| at.0 - began.0 < AT_ONCE)
}
