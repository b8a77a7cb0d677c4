//! `gradus wait`: return when a run has ended, with its exit code.

use std::time::Duration;

use domain::RunId;
use server::Home;

use crate::command::find::{NamedWork, find_named, open_named};
use crate::command::runs::run::pipeline::{follow as follow_pipeline, remote as remote_pipeline};
use crate::error::{Error, exit};
use crate::follow::elsewhere;
use crate::follow::liveness::Liveness;
use crate::follow::result::{exit_code, told};
use crate::printer::Printer;
use crate::remote::{self, Server};
use crate::settings::GlobalSettings;

/// Polling interval.
const LOOK: Duration = Duration::from_millis(100);

/// Arguments of `gradus wait`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run, sweep or pipeline: its name, a unique prefix of it, or `last`
    run: String,
}

/// Waits until a run has ended and its bill is final.
///
/// # Errors
/// [`Error::Failed`] if it failed, [`Error::Code`] if no process runs it, so that it would never end.
pub fn run(args: &Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    if let Some(server) = remote::chosen(settings)? {
        return match server.find_named(&args.run)? {
            NamedWork::Run(id) => of_server(&server, &id, printer),
            NamedWork::Sweep(id) => crate::sweep::elsewhere::wait(&server, printer, &id),
            NamedWork::Pipeline(id) => remote_pipeline::wait(&server, &id, printer),
        };
    }
    let home = Home::open(&settings.home)?;
    let mut state = open_named(&home, &args.run)?;
    let id = match find_named(state.world(), &args.run)? {
        NamedWork::Run(id) => id,
        NamedWork::Sweep(id) => return crate::sweep::wait(&home, state, printer, &id),
        NamedWork::Pipeline(id) => return follow_pipeline::wait(state, printer, &home, &id),
    };
    loop {
        state.refresh()?;
        let Some(run) = state.world().runs.get(&id) else { return Err(server::Error::NoRun(id.to_string()).into()) };
        if run.state.is_final() && run.bill.is_some() {
            if printer.is_json() {
                printer.json(&told(&home, &state, &id, run)?);
            } else {
                printer.data(format!("run      {id}: {}", run.state.word()));
            }
            return exit_code(&id, run);
        }
        // A run that has just ended is read as ended on the next poll.
        if !run.state.is_final() && Liveness::of(&home, state.world(), &id, run) != Liveness::Logged {
            let message = format!("no process runs `{id}`, so it does not end by itself");
            let hint = Some(format!("resume it with `gradus resume {id}`"));
            return Err(Error::Code { message, hint, code: exit::NOT_FINISHED });
        }
        std::thread::sleep(LOOK);
    }
}

/// Waits for a run of a server, which always runs it.
fn of_server(server: &Server, id: &RunId, printer: &mut Printer) -> Result<u8, Error> {
    let after = server.run(id, 0)?.world.last_seq;
    server.follow(&format!("/v1/runs/{id}/events?follow=true&after={after}"), None, &mut |_| true)?;
    let known = server.run(id, 0)?;
    if printer.is_json() {
        elsewhere::show(server, printer, &known)?;
    } else {
        printer.data(format!("run      {id}: {}", known.run()?.state.word()));
    }
    exit_code(id, known.run()?)
}
