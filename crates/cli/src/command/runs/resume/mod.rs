//! `gradus resume`: resume a run from its newest checkpoint, a sweep or a pipeline.

pub mod args;
pub mod preflight;

use domain::{Event, RunId, SweepId, Work};
use plan::World;
use server::{Home, State};

use super::run::pipeline;
use crate::command::find::{NamedWork, find_named, open_named};
use crate::error::Error;
use crate::follow::elsewhere;
use crate::follow::left_behind::take_over;
use crate::follow::result::finish;
use crate::follow::watch::Since;
use crate::local::spending::{self, SpendingRequest};
use crate::printer::Printer;
use crate::remote::{self, Server};
use crate::settings::GlobalSettings;
pub use args::Args;
use args::{is_allowed, request};
use preflight::{refuse_removed, require_resumable, require_resumable_sweep};

/// Resumes a run, or follows it if another process already runs it.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    if let Some(server) = remote::chosen(settings)? {
        return of_server(&args, &server, printer);
    }
    let home = Home::open(&settings.home)?;
    let mut state = open_named(&home, &args.run)?;
    let id = match find_named(state.world(), &args.run)? {
        NamedWork::Run(id) => id,
        NamedWork::Sweep(id) => return sweep(state, &args, settings, printer, &home, &id),
        NamedWork::Pipeline(id) => return pipeline::resume::resume(state, &args, settings, printer, &home, &id),
    };
    refuse_removed(&home, &id)?;
    let since = Since::Event(state.world().last_seq);
    let resume = args.event(state.world(), &id)?;
    let resumption = plan::resume::run(state.world(), server::clock::now(), &id, &resume);
    if is_allowed(resumption.map_err(server::Error::from)?, &args, "run", id.as_str())? {
        require_resumable(&home, state.world(), &id)?;
        let asked = state.world().runs.get(&id).map(|run| SpendingRequest::resumed(&id, run, args.budget));
        let admitted = asked.map(|asked| spending::admit(&asked, &home)).transpose()?.unwrap_or_default();
        admitted.notes.iter().for_each(|note| printer.say(note));
        home.unmark_reported(&home.run(&id));
        state.append(vec![resume])?;
        drop((state, admitted));
        return finish(settings, printer, &home, &id, since);
    }
    if let Some(run) = state.world().runs.get(&id).filter(|run| run.state.is_final() && run.bill.is_some()) {
        printer.say(nothing_done(&id, run));
    }
    drop(state);
    let since = take_over(settings, printer, &home, &id, since)?;
    finish(settings, printer, &home, &id, since)
}

/// What is said where a run has its result and nothing was asked to change.
fn nothing_done(id: &RunId, run: &plan::Run) -> String {
    let more = match run.job.work {
        Work::Train(_) => format!("to train on: `gradus resume {id} --set epochs=N`"),
        Work::Command(_) => "`gradus run JOB.yaml --new` runs the program again".to_owned(),
    };
    format!("run {id} is already {}, and nothing was done; {more}", run.state.word())
}

/// The same for a run of a server.
fn of_server(args: &Args, server: &Server, printer: &mut Printer) -> Result<u8, Error> {
    let id = match server.find_named(&args.run)? {
        NamedWork::Run(id) => id,
        NamedWork::Sweep(id) => return sweep_of_server(args, server, printer, &id),
        NamedWork::Pipeline(id) => return pipeline::resume::of_server(args, server, printer, &id),
    };
    let known = server.run(&id, 0)?;
    let since = Since::Event(known.world.last_seq);
    let resumption = plan::resume::run(&known.world, server::clock::now(), &id, &args.event(&known.world, &id)?);
    if is_allowed(resumption.map_err(server::Error::from)?, args, "run", id.as_str())? {
        request(server, &format!("/v1/runs/{id}/resume"), &args.body())?;
    }
    elsewhere::finish(server, printer, &id, since)
}

/// The event that resumes a sweep; none where there is nothing to resume, and it can be followed.
fn resumed_sweep(args: &Args, world: &World, id: &SweepId) -> Result<Option<Event>, Error> {
    if !args.set.is_empty() {
        let message = "`--set` changes one run; the trials of a sweep have the values that it searches".to_owned();
        return Err(Error::Usage { message, hint: "leave `--set` out, or change the job file".to_owned() });
    }
    let (budget, deadline, accept_data_change) = (args.budget, args.deadline, args.accept_data_change);
    let resume = Event::SweepResumeRequested { sweep: id.clone(), budget, deadline, accept_data_change };
    let resumption = plan::resume::sweep(world, server::clock::now(), id, &resume);
    let is_allowed = is_allowed(resumption.map_err(server::Error::from)?, args, "sweep", id.as_str())?;
    Ok(is_allowed.then_some(resume))
}

/// Resumes a sweep of a server.
fn sweep_of_server(args: &Args, server: &Server, printer: &mut Printer, id: &SweepId) -> Result<u8, Error> {
    let known = server.sweep(id)?;
    if resumed_sweep(args, &known.world, id)?.is_some() {
        let body = serde_json::json!({
            "budget": args.budget.map(|budget| budget.to_string()),
            "deadline": args.deadline.map(|deadline| deadline.to_string()),
            "accept_data_change": args.accept_data_change,
        });
        request(server, &format!("/v1/sweeps/{id}/resume"), &body)?;
    }
    crate::sweep::elsewhere::finish(server, printer, id, known.world.last_seq)
}

/// Resumes a sweep.
fn sweep(
    mut state: State,
    args: &Args,
    settings: &GlobalSettings,
    printer: &mut Printer,
    home: &Home,
    id: &SweepId,
) -> Result<u8, Error> {
    let since = state.world().last_seq;
    if let Some(resume) = resumed_sweep(args, state.world(), id)? {
        require_resumable_sweep(home, state.world(), id)?;
        let asked = state.world().sweeps.get(id).map(|sweep| SpendingRequest::resumed_sweep(sweep, args.budget));
        let admitted = asked.map(|asked| spending::admit(&asked, home)).transpose()?.unwrap_or_default();
        admitted.notes.iter().for_each(|note| printer.say(note));
        home.unmark_reported(&home.sweep(id));
        state.append(vec![resume])?;
    }
    drop(state);
    crate::sweep::finish(settings, printer, home, id, since)
}
