//! `gradus resume`: resume a run from its newest checkpoint.

use domain::run::{Outcome, RunState, StopBy};
use domain::sweep::SweepEnd;
use domain::{Duration, Event, Money, Record, RunId, SweepId, Timestamp};
use plan::{Action, SweepState, World};
use server::{Home, State};

use crate::command::find::{Meant, find_any};
use crate::error::Error;
use crate::follow::result::finish;
use crate::follow::watch::Since;
use crate::printer::Printer;
use crate::settings::Settings;

/// Arguments of `gradus resume`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run or sweep: its name, a unique prefix of it, or `last`
    run: String,
    /// New budget for the whole run, including what it has cost so far, such as `$20`
    #[arg(long, value_name = "AMOUNT")]
    budget: Option<Money>,
    /// New deadline, counted from the run's submission, such as `12h`
    #[arg(long, value_name = "DURATION")]
    deadline: Option<Duration>,
    /// Resume although the data has changed since the checkpoint: samples that the run knows stay in their split, new
    /// ones are assigned to one, and text keeps its vocabulary
    #[arg(long)]
    accept_data_change: bool,
}

impl Args {
    /// Whether it says more than to go on.
    fn changes_something(&self) -> bool {
        self.budget.is_some() || self.deadline.is_some() || self.accept_data_change
    }
}

/// Resumes a run, or follows it if another process already runs it.
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
        let resume = Event::ResumeRequested {
            run: id.clone(),
            budget: args.budget,
            deadline: args.deadline,
            epochs: None,
            accept_data_change: args.accept_data_change,
        };
        refuse_spent(&state, &id, &resume)?;
        home.unmark_reported(&home.run(&id));
        state.append(vec![resume])?;
    } else if args.changes_something() {
        let message = format!("run `{id}` is still running, so neither its limits nor its data can be changed");
        return Err(Error::Usage { message, hint: format!("stop it first with `gradus stop {id}`") });
    }
    drop(state);
    finish(settings, printer, &home, &id, since)
}

/// A trial has no limits of its own: it is resumed with its sweep, within the limits of that.
fn refuse_trial(state: &State, id: &RunId) -> Result<(), Error> {
    let world = state.world();
    let Some(trial) = world.runs.get(id).and_then(|run| run.trial.as_ref()) else { return Ok(()) };
    let message =
        format!("run `{id}` is a trial of sweep `{}`, whose budget and deadline apply to all trials", trial.sweep);
    Err(Error::Usage { message, hint: format!("resume the sweep: `gradus resume {}`", trial.sweep) })
}

/// Refuses to resume a run that would be stopped again at once.
fn refuse_spent(state: &State, id: &RunId, resume: &Event) -> Result<(), Error> {
    let (world, now) = after(state, resume)?;
    let facts = plan::Facts { now, ..plan::Facts::default() };
    let run = world.runs.get(id);
    refuse(run.and_then(|run| plan::reached(&world, &facts, &plan::Policy::default(), run)), "run", id.as_str())
}

/// The state after an event that is not written yet, and its time.
fn after(state: &State, event: &Event) -> Result<(World, Timestamp), Error> {
    let now = server::clock::now();
    let mut world = state.world().clone();
    let record = Record { seq: world.last_seq + 1, at: now, event: event.clone() };
    world.apply(&record).map_err(server::Error::from)?;
    Ok((world, now))
}

/// The error for a limit that would stop a run or sweep again at once.
fn refuse(stop: Option<StopBy>, kind: &str, id: &str) -> Result<(), Error> {
    let (limit, flag) = match stop {
        Some(StopBy::Budget) => ("budget", "--budget AMOUNT"),
        Some(StopBy::Deadline) => ("deadline", "--deadline DURATION"),
        Some(StopBy::User) | None => return Ok(()),
    };
    let message = format!("{kind} `{id}` has reached its {limit} and would be stopped again at once");
    Err(Error::Usage { message, hint: format!("raise the {limit} with `gradus resume {id} {flag}`") })
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
        let (budget, deadline, accept_data_change) = (args.budget, args.deadline, args.accept_data_change);
        let resume = Event::SweepResumeRequested { sweep: id.clone(), budget, deadline, accept_data_change };
        refuse_spent_sweep(&state, id, &resume)?;
        home.unmark_reported(&home.sweep(id));
        state.append(vec![resume])?;
    } else if args.changes_something() {
        let message = format!("sweep `{id}` is still running, so neither its limits nor its data can be changed");
        return Err(Error::Usage { message, hint: format!("stop it first with `gradus stop {id}`") });
    }
    drop(state);
    crate::sweep::finish(settings, printer, home, id, since)
}

/// Refuses to resume a sweep that would be stopped again at once.
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
