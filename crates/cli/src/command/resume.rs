//! `gradus resume`: go on with a run from its newest checkpoint.

use domain::run::{Outcome, RunState, StopBy};
use domain::sweep::SweepEnd;
use domain::{Duration, Event, Money, Record, RunId, SweepId, Timestamp};
use plan::{Action, SweepState, World};
use server::{Home, State};

use super::run::finish;
use super::{Meant, find_any};
use crate::error::Error;
use crate::printer::Printer;
use crate::settings::Settings;
use crate::watch::Since;

/// Arguments of `gradus resume`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The run or sweep: its name, the start of it, or `last`
    run: String,
    /// A new budget for the whole run, what it has cost so far included, such as `$20`
    #[arg(long, value_name = "AMOUNT")]
    budget: Option<Money>,
    /// A new deadline, counted from the run's submission, such as `12h`
    #[arg(long, value_name = "DURATION")]
    deadline: Option<Duration>,
}

/// Goes on with a run, or follows it where another process already does.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &Settings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let mut state = State::open(&home)?;
    let id = match find_any(state.world(), &args.run)? {
        Meant::Run(id) => id,
        Meant::Sweep(id) => return sweep(state, &args, settings, printer, &home, &id),
    };
    let since = Since::Event(state.world().last_seq);
    let goes_on = state.world().runs.get(&id).is_some_and(|run| match &run.state {
        RunState::Stopped { .. } | RunState::Done { outcome: Outcome::Failed { .. } } => true,
        RunState::Done { .. } | RunState::Queued | RunState::Renting { .. } | RunState::Staging { .. } => false,
        RunState::Running { .. } | RunState::Recovering { .. } | RunState::Stopping { .. } => false,
    });
    if goes_on {
        refuse_trial(&state, &id)?;
        let resume =
            Event::ResumeRequested { run: id.clone(), budget: args.budget, deadline: args.deadline, epochs: None };
        refuse_spent(&state, &id, &resume)?;
        home.untell(&home.run(&id));
        state.append(vec![resume])?;
    } else if args.budget.is_some() || args.deadline.is_some() {
        let message = format!("run `{id}` is not stopped, and its limits cannot be changed now");
        return Err(Error::Usage { message, hint: format!("stop it first with `gradus stop {id}`") });
    }
    drop(state);
    finish(settings, printer, &home, &id, since)
}

/// A trial has no limits of its own: it goes on with its search, within the limits of that.
fn refuse_trial(state: &State, id: &RunId) -> Result<(), Error> {
    let world = state.world();
    let Some(trial) = world.runs.get(id).and_then(|run| run.trial.as_ref()) else { return Ok(()) };
    let message =
        format!("run `{id}` is a trial of the search `{}`, whose budget and deadline hold for all", trial.sweep);
    Err(Error::Usage { message, hint: format!("go on with all of it: `gradus resume {}`", trial.sweep) })
}

/// Refuses to go on with a run that would be stopped again at once.
fn refuse_spent(state: &State, id: &RunId, resume: &Event) -> Result<(), Error> {
    let (world, now) = after(state, resume)?;
    let facts = plan::Facts { now, ..plan::Facts::default() };
    let run = world.runs.get(id);
    refuse(run.and_then(|run| plan::reached(&world, &facts, &plan::Policy::default(), run)), "run", id.as_str())
}

/// The world as it will be after an event that is not written yet, and when.
fn after(state: &State, event: &Event) -> Result<(World, Timestamp), Error> {
    let now = server::clock::now();
    let mut world = state.world().clone();
    let record = Record { seq: world.last_seq + 1, at: now, event: event.clone() };
    world.apply(&record).map_err(server::Error::from)?;
    Ok((world, now))
}

/// What stops a run or a sweep again at once, told.
fn refuse(stop: Option<StopBy>, kind: &str, id: &str) -> Result<(), Error> {
    let (limit, flag) = match stop {
        Some(StopBy::Budget) => ("budget", "--budget AMOUNT"),
        Some(StopBy::Deadline) => ("deadline", "--deadline DURATION"),
        Some(StopBy::User) | None => return Ok(()),
    };
    let message = format!("{kind} `{id}` has come to its {limit} and would be stopped again at once");
    Err(Error::Usage { message, hint: format!("give it more with `gradus resume {id} {flag}`") })
}

/// The same for a sweep.
fn sweep(
    mut state: State,
    args: &Args,
    settings: &Settings,
    printer: &mut Printer,
    home: &Home,
    id: &SweepId,
) -> Result<u8, Error> {
    let since = state.world().last_seq;
    let known = state.world().sweeps.get(id).map(|sweep| &sweep.state);
    let goes_on = match known {
        Some(SweepState::Ended { how: SweepEnd::Stopped { .. } | SweepEnd::Failed { .. } }) => true,
        Some(SweepState::Ended { how: SweepEnd::Done { .. } }) => false,
        Some(SweepState::Running | SweepState::Stopping { .. }) | None => false,
    };
    if goes_on {
        let resume = Event::SweepResumeRequested { sweep: id.clone(), budget: args.budget, deadline: args.deadline };
        refuse_spent_sweep(&state, id, &resume)?;
        home.untell(&home.sweep(id));
        state.append(vec![resume])?;
    } else if args.budget.is_some() || args.deadline.is_some() {
        let message = format!("sweep `{id}` is not stopped, and its limits cannot be changed now");
        return Err(Error::Usage { message, hint: format!("stop it first with `gradus stop {id}`") });
    }
    drop(state);
    crate::sweep::finish(settings, printer, home, id, since)
}

/// Refuses to go on with a sweep that would be stopped again at once.
fn refuse_spent_sweep(state: &State, id: &SweepId, resume: &Event) -> Result<(), Error> {
    let (world, now) = after(state, resume)?;
    let Some(sweep) = world.sweeps.get(id) else { return Ok(()) };
    let facts = plan::Facts { now, attended_sweeps: [id.clone()].into(), ..plan::Facts::default() };
    let actions = plan::sweep::actions(&world, &facts, &plan::Policy::default(), id, sweep);
    let stop = actions.iter().find_map(|action| match action {
        Action::StopSweep { by, .. } => Some(*by),
        _ => None,
    });
    refuse(stop, "sweep", id.as_str())
}
