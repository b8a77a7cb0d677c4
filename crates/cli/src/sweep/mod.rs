//! Sweeps on the command line: the preview, the messages while one runs, and its result.
//!
//! `preview`, `facts` → `told`, `table` → `narrator` → `attend`; `elsewhere` does the same with a server.

mod attend;
pub mod elsewhere;
pub mod facts;
pub mod narrator;
pub mod preview;
pub mod table;
mod told;

use std::time::Duration;

use domain::run::StopBy;
use domain::sweep::SweepEnd;
use domain::{Job, Plan, Sweep, SweepId};
use plan::RunOrSweep;
use plan::SweepState;
use serde_json::json;
use server::{Home, State, submit};

use crate::error::Error;
use crate::error::exit;
use crate::follow::{liveness::meters, report, result::confirm};
use crate::local::machine;
use crate::local::spending::{self, SpendingRequest};
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use attend::attend_sweep;
use facts::SweepFacts;
use preview::Preview;

/// Polling interval of who waits.
const LOOK: Duration = Duration::from_millis(100);

/// Confirms, submits and follows a sweep, or resumes the unfinished sweep of the same job.
///
/// # Errors
/// [`Error`].
#[expect(clippy::too_many_arguments, reason = "values of `gradus run`, each once")]
pub fn run(
    settings: &GlobalSettings,
    printer: &mut Printer,
    home: &Home,
    job: Job,
    plan: Plan,
    preview: &Preview,
    file: &str,
    (is_new, yes, is_detached): (bool, bool, bool),
) -> Result<u8, Error> {
    let mut state = State::open_lean(home)?;
    let unfinished = if is_new { None } else { submit::unfinished_sweep(home, &mut state, &job, &plan, file)? };
    if let Some(sweep) = unfinished {
        printer.say(format!("resuming sweep {sweep}; use `--new` to start another"));
        let since = state.world().last_seq;
        // One that has ended in the background has its result shown, or the same job would find it again and again.
        let has_ended = state.world().sweeps.get(&sweep).is_none_or(|known| known.state.is_final());
        drop(state);
        if is_detached && !has_ended {
            return Ok(detached(&sweep, printer));
        }
        return finish(settings, printer, home, &sweep, since);
    }
    if !printer.is_json() {
        preview::lines(&job, &plan, preview).iter().for_each(|line| printer.say(line));
    }
    machine::require_served(home, &plan.offer.provider)?;
    confirm(printer, &plan, yes)?;
    let admitted = spending::admit(&SpendingRequest::submitted(&job, &plan, settings.user.as_deref()), home)?;
    admitted.notes.iter().for_each(|note| printer.say(note));
    let since = state.world().last_seq;
    let sweep = submit::submit_sweep(&mut state, (job, plan, preview.known), file, settings.user.clone())?;
    drop((state, admitted));
    if is_detached {
        return Ok(detached(&sweep, printer));
    }
    finish(settings, printer, home, &sweep, since)
}

/// Prints that a sweep continues on its server, and how to follow it.
fn detached(sweep: &SweepId, printer: &mut Printer) -> u8 {
    match printer.is_json() {
        true => printer.json(&json!({ "event": "detached", "sweep": sweep, "pid": null })),
        false => {
            printer.data(format!("sweep    {sweep}: continues in the background"));
            printer.data(format!("follow   gradus attach {sweep}"));
            printer.data(format!("wait     gradus wait {sweep}"));
            printer.data(format!("stop     gradus stop {sweep}"));
        }
    }
    exit::DONE
}

/// Follows a sweep and prints its result.
///
/// # Errors
/// [`Error`].
pub fn finish(
    settings: &GlobalSettings,
    printer: &mut Printer,
    home: &Home,
    sweep: &SweepId,
    since: u64,
) -> Result<u8, Error> {
    attend_sweep(settings, printer, home, sweep, since)?;
    let mut state = State::open_lean(home)?;
    state.recall(&RunOrSweep::Sweep(sweep.clone()))?;
    write_report(home, &state, sweep)?;
    let facts = SweepFacts::of_home(home, state.world(), sweep)?;
    show(&facts, printer);
    home.mark_reported(&home.sweep(sweep))?;
    verdict(sweep, facts.record)
}

/// Waits until a sweep has ended.
///
/// # Errors
/// [`Error::Code`] if it failed, or if no process runs it, so that it would never end.
pub fn wait(home: &Home, mut state: State, printer: &mut Printer, id: &SweepId) -> Result<u8, Error> {
    loop {
        state.refresh()?;
        let sweep = state.world().sweeps.get(id).ok_or_else(|| server::Error::NoRun(id.to_string()))?;
        if sweep.state.is_final() {
            return ended(&SweepFacts::of_home(home, state.world(), id)?, printer);
        }
        if !home.is_watched(&home.sweep(id)) {
            let message = format!("no process runs `{id}`, so it does not end by itself");
            let hint = Some(format!("resume it with `gradus resume {id}`"));
            return Err(Error::Code { message, hint, code: exit::NOT_FINISHED });
        }
        std::thread::sleep(LOOK);
    }
}

/// Prints that a sweep has ended, with its result for scripts, and returns its exit code.
fn ended(facts: &SweepFacts<'_>, printer: &mut Printer) -> Result<u8, Error> {
    match printer.is_json() {
        true => printer.json(&table::last_line(facts)),
        false => printer.data(format!("sweep    {}: {}", facts.id, facts.record.state.word())),
    }
    verdict(facts.id, facts.record)
}

/// Refuses to follow a sweep that has ended.
///
/// # Errors
/// [`Error::Code`].
pub fn refuse_ended(id: &SweepId, state: &SweepState) -> Result<(), Error> {
    if !state.is_final() {
        return Ok(());
    }
    let message = format!("sweep `{id}` has ended: {}", state.word());
    let hint = Some(format!("see its trials with `gradus status {id}`"));
    Err(Error::Code { message, hint, code: exit::USAGE })
}

/// Prints the result of a sweep.
fn show(facts: &SweepFacts<'_>, printer: &mut Printer) {
    if printer.is_json() {
        printer.json(&table::last_line(facts));
    } else {
        table::result_lines(facts).iter().for_each(|line| printer.data(line));
    }
}

/// The exit code of a sweep. One without another end than its budget or deadline succeeds when it reaches them.
fn verdict(id: &SweepId, sweep: &plan::SweepRecord) -> Result<u8, Error> {
    match &sweep.state {
        SweepState::Running | SweepState::Stopping { .. } => Ok(exit::NOT_FINISHED),
        SweepState::Ended { how: SweepEnd::Done { .. } } => Ok(exit::DONE),
        SweepState::Ended { how: SweepEnd::Stopped { by, best } } => {
            let is_end = ends_by_limit(&sweep.search) && *by != StopBy::User && best.is_some();
            Ok(if is_end { exit::DONE } else { exit::RUN_STOPPED })
        }
        SweepState::Ended { how: SweepEnd::Failed { finding, .. } } => {
            let message = format!("sweep `{id}` failed: {}", finding.message);
            let hint = finding.hint.clone().unwrap_or_else(|| format!("see the trials with `gradus status {id}`"));
            Err(Error::Code { message, hint: Some(hint), code: exit::RUN_FAILED })
        }
    }
}

/// Whether only its budget or its deadline ends a search.
fn ends_by_limit(search: &Sweep) -> bool {
    search.trials.is_none() && !search.method.is_counted()
}

/// Writes `report.html` into the sweep's folder.
///
/// # Errors
/// [`Error::File`] when it cannot be written.
pub fn write_report(home: &Home, state: &State, id: &SweepId) -> Result<(), Error> {
    let world = state.world();
    let Some(page) = server::report::sweep_html(world, id, &meters(home, world)) else { return Ok(()) };
    report::write_page(&home.sweep(id), &page)
}
