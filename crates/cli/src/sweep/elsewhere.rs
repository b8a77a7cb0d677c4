//! Sweeps of a server, with the same output as those of a home.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use domain::{Job, Plan, Record, SweepId};
use plan::World;
use serde_json::Value;

use super::facts::SweepFacts;
use super::preview::{self, Preview};
use super::{detached, ended, refuse_ended, show, table, told, verdict};
use crate::error::{Error, exit};
use crate::follow::attend::on_signals;
use crate::follow::result::confirm;
use crate::printer::Printer;
use crate::remote::{self, Server};

/// Interval at which Ctrl-C is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// Confirms, submits and follows a sweep that a server has planned. `body` is what it was asked to plan, `planned` its answer.
///
/// # Errors
/// [`Error`].
pub fn run(
    server: &Server,
    printer: &mut Printer,
    (mut job, body): (Job, &Value),
    mut planned: Value,
    (yes, is_detached): (bool, bool),
) -> Result<u8, Error> {
    let plan: Plan = server.typed(planned["plan"].take())?;
    let known = server.typed(planned["sweep"]["known"].take())?;
    // Rows of a table are those that the server has read.
    let search: domain::Sweep = server.typed(planned["sweep"]["search"].take())?;
    let preview = Preview::of(&job, &search, &plan, known, body["file"].as_str().unwrap_or_default())?;
    job.sweep = Some(search);
    if !printer.is_json() {
        preview::lines(&job, &plan, &preview).iter().for_each(|line| printer.say(line));
    }
    confirm(printer, &plan, yes)?;
    // A request whose answer was lost is repeated, and submits one sweep.
    let key = remote::idempotency_key();
    let submit = || server.post("/v1/sweeps", Some(body), Some(&key));
    let submitted = submit().or_else(|error| if error.code() == exit::WORLD { submit() } else { Err(error) })?;
    let sweep: SweepId = server.typed(submitted["sweep"].clone())?;
    if is_detached {
        return Ok(detached(&sweep, printer));
    }
    finish(server, printer, &sweep, 0)
}

/// Follows a sweep of a server to its end, and prints its result. Only events after `since` are told.
///
/// # Errors
/// [`Error::Code`] when it failed, when the server is away for long, or after Ctrl-C.
pub fn finish(server: &Server, printer: &mut Printer, id: &SweepId, since: u64) -> Result<u8, Error> {
    let (sender, inbox) = channel();
    let interrupted = Arc::new(AtomicBool::new(false));
    let (interrupts, _interrupts) = channel();
    on_signals(interrupts, interrupted.clone())?;
    let (path, client) = (format!("/v1/sweeps/{id}/events?follow=true"), server.clone());
    let reading = std::thread::spawn(move || {
        client.follow(&path, None, &mut |message| match serde_json::from_value::<Record>(message.data) {
            Ok(record) => sender.send(record).is_ok(),
            // An event of a later version.
            Err(_) => true,
        })
    });
    if !told_to_end((id, since), &inbox, &interrupted, printer)? {
        let message = format!("stopped following sweep `{id}`; it continues at `{}`", server.url());
        let hint = Some(format!("see `gradus status {id}`, or stop it with `gradus stop {id}`"));
        return Err(Error::Code { message, hint, code: exit::INTERRUPTED });
    }
    reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let known = server.sweep(id)?;
    let facts = SweepFacts::of_server(&known)?;
    show(&facts, printer);
    verdict(id, facts.record)
}

/// Prints events as they come, until no more will; false after Ctrl-C. They are those since the submission, because what is
/// said of one rests on those before.
fn told_to_end(
    (id, since): (&SweepId, u64),
    inbox: &Receiver<Record>,
    interrupted: &AtomicBool,
    printer: &mut Printer,
) -> Result<bool, Error> {
    let mut world = World::default();
    loop {
        if interrupted.load(Ordering::SeqCst) {
            return Ok(false);
        }
        let record = match inbox.recv_timeout(LOOK) {
            Ok(record) => record,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(true),
        };
        if record.seq <= world.last_seq {
            continue;
        }
        // Events in between are of other runs.
        world.last_seq = record.seq - 1;
        world.apply(&record).map_err(server::Error::from)?;
        if record.seq > since && told::concerns(&world, id, &record.event) {
            told::tell(printer, &world, id, &record);
        }
    }
}

/// Follows a sweep that has not ended.
///
/// # Errors
/// As [`finish`]; [`Error::Code`] for a sweep that has ended.
pub fn attach(server: &Server, printer: &mut Printer, id: &SweepId) -> Result<u8, Error> {
    let known = server.sweep(id)?;
    refuse_ended(id, &known.record()?.state)?;
    finish(server, printer, id, known.world.last_seq)
}

/// Waits for the end of a sweep.
///
/// # Errors
/// As [`finish`].
pub fn wait(server: &Server, printer: &mut Printer, id: &SweepId) -> Result<u8, Error> {
    let after = server.sweep(id)?.world.last_seq;
    server.follow(&format!("/v1/sweeps/{id}/events?follow=true&after={after}"), None, &mut |_| true)?;
    let known = server.sweep(id)?;
    ended(&SweepFacts::of_server(&known)?, printer)
}

/// Stops a sweep with all of its trials, and follows it to its end.
///
/// # Errors
/// As [`finish`].
pub fn stop(server: &Server, printer: &mut Printer, id: &SweepId) -> Result<u8, Error> {
    let known = server.sweep(id)?;
    let facts = SweepFacts::of_server(&known)?;
    if facts.record.state.is_final() {
        if printer.is_json() {
            printer.json(&table::last_line(&facts));
        }
        printer.say(format!("sweep {id} is already {}", facts.record.state.word()));
        return Ok(exit::DONE);
    }
    server.post(&format!("/v1/sweeps/{id}/stop"), None, None)?;
    match finish(server, printer, id, known.world.last_seq)? {
        exit::RUN_STOPPED => Ok(exit::DONE),
        code => Ok(code),
    }
}
