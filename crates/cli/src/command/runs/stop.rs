//! `gradus stop`: save a checkpoint of a run and stop it.

use domain::run::{RunState, StopBy};
use domain::{Event, SweepId};
use plan::SweepState;
use server::{Home, State};

use crate::command::find::{NamedWork, find_named, open_named};
use crate::command::runs::run::pipeline::{follow as follow_pipeline, remote as remote_pipeline};
use crate::error::Error;
use crate::error::exit;
use crate::follow::elsewhere;
use crate::follow::result::{finish, told};
use crate::follow::watch::Since;
use crate::printer::Printer;
use crate::remote::{self, Server};
use crate::settings::GlobalSettings;
use crate::sweep::elsewhere as elsewhere_sweep;
use crate::sweep::facts::SweepFacts;
use crate::sweep::table::last_line;

/// Arguments of `gradus stop`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run, sweep or pipeline: its name, a unique prefix of it, or `last`
    pub run: String,
}

/// Requests the stop, and waits until all machines are released and billed.
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
        NamedWork::Sweep(id) => return sweep(state, settings, printer, &home, &id),
        NamedWork::Pipeline(id) => return follow_pipeline::stop(state, settings, printer, &home, &id),
    };
    let since = Since::Event(state.world().last_seq);
    let Some(run) = state.world().runs.get(&id) else { return Err(server::Error::NoRun(args.run).into()) };
    if run.state.is_final() && run.bill.is_some() {
        if printer.is_json() {
            printer.json(&told(&home, &state, &id, run)?);
        }
        printer.say(format!("run {id} is already {}", run.state.word()));
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

/// Stops a run, sweep or pipeline of a server.
fn of_server(args: &Args, server: &Server, printer: &mut Printer) -> Result<u8, Error> {
    let id = match server.find_named(&args.run)? {
        NamedWork::Run(id) => id,
        NamedWork::Sweep(id) => return elsewhere_sweep::stop(server, printer, &id),
        NamedWork::Pipeline(id) => return remote_pipeline::stop(server, &id, printer),
    };
    let known = server.run(&id, 0)?;
    let run = known.run()?;
    if run.state.is_final() && run.bill.is_some() {
        if printer.is_json() {
            elsewhere::show(server, printer, &known)?;
        }
        printer.say(format!("run {id} is already {}", run.state.word()));
        return Ok(exit::DONE);
    }
    server.post(&format!("/v1/runs/{id}/stop"), None, None)?;
    match elsewhere::finish(server, printer, &id, Since::Event(known.world.last_seq))? {
        exit::RUN_STOPPED => Ok(exit::DONE),
        code => Ok(code),
    }
}

/// Stops a sweep: all of its trials are saved and stopped.
fn sweep(
    mut state: State,
    settings: &GlobalSettings,
    printer: &mut Printer,
    home: &Home,
    id: &SweepId,
) -> Result<u8, Error> {
    let since = state.world().last_seq;
    let facts = SweepFacts::of_home(home, state.world(), id)?;
    if facts.record.state.is_final() {
        if printer.is_json() {
            printer.json(&last_line(&facts));
        }
        printer.say(format!("sweep {id} is already {}", facts.record.state.word()));
        return Ok(exit::DONE);
    }
    let is_running = facts.record.state == SweepState::Running;
    drop(facts);
    if is_running {
        state.append(vec![Event::SweepStopRequested { sweep: id.clone(), by: StopBy::User }])?;
    }
    drop(state);
    match crate::sweep::finish(settings, printer, home, id, since)? {
        exit::RUN_STOPPED => Ok(exit::DONE),
        code => Ok(code),
    }
}
