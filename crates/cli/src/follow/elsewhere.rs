//! Follows a run of a server, with the same output as for one of a home.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::sync::{Arc, PoisonError};

use domain::{RunId, Work};

use super::attend::on_signals;
use super::narrator::Narrator;
use super::news::{ServerNews, read_streams};
use super::progress::ready_of;
use super::result::{EndedRun, exit_code, print};
use super::watch::{Since, Watch};
use crate::error::{Error, exit};
use crate::printer::Printer;
use crate::remote::{KnownRun, Server};

/// Follows a run of a server to its end, and prints its result.
///
/// # Errors
/// [`Error::Failed`] when the run failed, [`Error::Code`] when the server is away for long, or after Ctrl-C.
pub fn finish(server: &Server, printer: &mut Printer, id: &RunId, since: Since) -> Result<u8, Error> {
    let known = server.run(id, 1)?;
    let shows_output = !printer.is_json() && !printer.is_quiet() && matches!(known.run()?.job.work, Work::Command(_));
    let (sender, inbox) = channel();
    let ended = Arc::new(AtomicBool::new(false));
    let after = match since {
        Since::Start => (0, 0),
        Since::Event(seq) => (seq, known.newest.iter().map(|(number, _)| *number).max().unwrap_or(0)),
    };
    let failure = read_streams(server, id, after, shows_output, sender, ended.clone())?;
    let (interrupts, interrupted) = channel();
    on_signals(interrupts, ended.clone())?;
    let ready = known.newest.iter().rev().find_map(|(_, report)| ready_of(report)).cloned();
    let watch = Watch::of_server(id, since, ServerNews { world: known.world, ready, inbox });
    Narrator::of_server(watch).tell(printer, &ended)?;
    if interrupted.try_recv().is_ok() {
        let message = format!("stopped following run `{id}`; it continues at `{}`", server.url());
        let hint = Some(format!("see `gradus status {id}`, or stop it with `gradus stop {id}`"));
        return Err(Error::Code { message, hint, code: exit::INTERRUPTED });
    }
    if let Some(error) = failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(error);
    }
    let known = server.run(id, 0)?;
    show(server, printer, &known)?;
    exit_code(id, known.run()?)
}

/// Prints the result of a run that has ended.
///
/// # Errors
/// [`Error::Code`] if the server cannot be reached.
pub fn show(server: &Server, printer: &mut Printer, known: &KnownRun) -> Result<(), Error> {
    let (id, run) = (&known.id, known.run()?);
    let records = server.records(Some(id))?;
    let arithmetic = server::report::arithmetic(id, &records, &server.points(id)?);
    print(printer, &EndedRun { id, run, arithmetic, folder: None, events: known.world.last_seq });
    Ok(())
}
