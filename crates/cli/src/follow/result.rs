//! How a run ended: the lines for people, the JSON for scripts, the report and the exit code.

use std::path::PathBuf;

use domain::run::{Outcome, RunState, StopBy};
use domain::series::Point;
use domain::{Rate, RunId, Work};
use plan::RunOrSweep;
use serde_json::{Value, json};
use server::report::Arithmetic;
use server::{Home, Series, State};

use super::attend::attend;
use super::report;
use super::watch::{Since, Watch};
use super::written;
use crate::error::{Error, exit};
use crate::figures::counted;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Asks for confirmation before money is spent.
///
/// # Errors
/// [`Error::Code`] if the answer is no.
pub fn confirm(printer: &mut Printer, plan: &domain::Plan, yes: bool) -> Result<(), Error> {
    if plan.offer.rate != Rate::default() && !yes && !printer.confirm("proceed?") {
        let message = "not started: the plan was not confirmed".to_owned();
        return Err(Error::Code { message, hint: Some("pass `--yes` to confirm".to_owned()), code: exit::USAGE });
    }
    Ok(())
}

/// Follows a run and prints its result.
///
/// # Errors
/// [`Error`].
pub fn finish(
    settings: &GlobalSettings,
    printer: &mut Printer,
    home: &Home,
    run: &RunId,
    since: Since,
) -> Result<u8, Error> {
    let result = attend(settings, printer, home, run, since).and_then(|watch| verdict(home, run, watch));
    let mut state = State::open_lean(home)?;
    state.recall(&RunOrSweep::Run(run.clone()))?;
    let Some(known) = state.world().runs.get(run) else { return result };
    if known.bill.is_some() {
        let arithmetic = arithmetic(home, &state, run)?;
        let (folder, events) = (Some(home.run(run)), state.world().last_seq);
        print(printer, &EndedRun { id: run, run: known, arithmetic, folder, events });
        let program = matches!(known.job.work, Work::Command(_)) && !printer.is_json();
        if let Some(attempt) = known.attempts.last().filter(|_| program) {
            written::note(&home.run(run), attempt.as_str()).into_iter().for_each(|note| printer.say(note));
        }
        home.mark_reported(&home.run(run))?;
    }
    result
}

/// An ended run, with the sources of its result.
pub struct EndedRun<'a> {
    /// Its name.
    pub id: &'a RunId,
    /// The run.
    pub run: &'a plan::Run,
    /// Model FLOP/s, if they are counted.
    pub arithmetic: Option<Arithmetic>,
    /// Its folder, if it is on this machine.
    pub folder: Option<PathBuf>,
    /// Events in the log.
    pub events: u64,
}

/// Prints the result.
pub fn print(printer: &mut Printer, ended: &EndedRun<'_>) {
    if printer.is_json() {
        return printer.json(&last_line(ended));
    }
    let is_profiled = matches!(&ended.run.job.work, Work::Train(train) if train.profile);
    if let Some(arithmetic) = ended.arithmetic.as_ref().filter(|_| is_profiled) {
        printer.say(format!("note: {}", in_words(arithmetic)));
    }
    result_lines(ended).into_iter().for_each(|line| printer.data(line));
}

/// The result of a run that has ended, for scripts: the last line of `gradus run --json`.
///
/// # Errors
/// [`Error`] when its measurements cannot be read.
pub fn told(home: &Home, state: &State, id: &RunId, run: &plan::Run) -> Result<Value, Error> {
    let (folder, events) = (Some(home.run(id)), state.world().last_seq);
    Ok(last_line(&EndedRun { id, run, arithmetic: arithmetic(home, state, id)?, folder, events }))
}

/// Model FLOP/s of a run, if they are counted.
fn arithmetic(home: &Home, state: &State, run: &RunId) -> Result<Option<Arithmetic>, Error> {
    let points: Vec<Point> = Series::open(home)?.points(run, 0)?.into_iter().map(|(_, point)| point).collect();
    Ok(server::report::arithmetic(run, &state.records(run, 0)?, &points))
}

fn in_words(arithmetic: &Arithmetic) -> String {
    let rate = arithmetic.rate();
    match &arithmetic.utilisation {
        Some((share, gpu)) => {
            format!("model FLOP/s {rate}, {:.1} % of the peak of {gpu} (MFU)", 100.0 * share)
        }
        None => format!("model FLOP/s {rate}; no MFU, because the peak of this device is not known"),
    }
}

/// Writes the report, and returns the exit code for the end of a run.
///
/// # Errors
/// [`Error::Failed`] if the run failed.
pub fn verdict(home: &Home, run: &RunId, watch: Watch) -> Result<u8, Error> {
    if let Some((state, series)) = watch.home() {
        report::write(home, state, series, run)?;
    }
    exit_code(run, watch.run()?)
}

/// The exit code of a run as it stands.
///
/// # Errors
/// [`Error::Failed`] when it failed.
pub fn exit_code(id: &RunId, run: &plan::Run) -> Result<u8, Error> {
    match &run.state {
        RunState::Done { outcome: Outcome::Failed { finding } } => {
            Err(Error::Failed { run: id.clone(), finding: finding.clone() })
        }
        RunState::Done { .. } => Ok(exit::DONE),
        RunState::Stopped { .. } => Ok(exit::RUN_STOPPED),
        RunState::Queued | RunState::Renting { .. } | RunState::Staging { .. } | RunState::Running { .. } => {
            Ok(exit::NOT_FINISHED)
        }
        RunState::Recovering { .. } | RunState::Stopping { .. } => Ok(exit::NOT_FINISHED),
    }
}

/// The last line of `--json`: a stable interface for scripts.
pub fn last_line(ended: &EndedRun<'_>) -> Value {
    let EndedRun { id, run, arithmetic, folder, events } = ended;
    let arithmetic = arithmetic.as_ref();
    let total = run.bill.as_ref().map(|bill| bill.total).unwrap_or_default();
    let seconds = run.ended.map_or(0.0, |ended| ended.since(run.submitted).as_secs_f64());
    let rented: f64 = run.bill.iter().flat_map(|bill| &bill.lines).map(|line| line.usage.elapsed.as_secs_f64()).sum();
    let mut value = json!({
        "event": "done",
        "run": id,
        "outcome": run.state.word(),
        "seconds": seconds,
        "rented_seconds": rented,
        "bill_usd": total.micros() as f64 / 1e6,
        "bill_micro_usd": total.micros(),
        "attempts": run.attempts.len(),
        "instances": run.instances.len(),
        "events": events,
        "folder": folder,
    });
    match &run.state {
        RunState::Done { outcome: Outcome::Trained { model } } => {
            value["test_accuracy"] = json!(model.test_accuracy);
            value["validation_accuracy"] = json!(model.validation_accuracy);
            value["steps"] = json!(model.steps);
            value["figures"] = json!(model.figures);
            value["flops_per_s"] = json!(arithmetic.map(|one| one.flops));
            value["mfu"] = json!(arithmetic.and_then(|one| one.utilisation.as_ref()).map(|(share, _)| share));
            value["model"] = json!(model.model);
            value["model_sha256"] = json!(model.model_sha256);
        }
        RunState::Done { outcome: Outcome::Failed { finding } } => value["finding"] = json!(finding),
        RunState::Done { outcome: Outcome::Succeeded } | RunState::Stopped { .. } | RunState::Queued => {}
        RunState::Renting { .. } | RunState::Staging { .. } | RunState::Running { .. } => {}
        RunState::Recovering { .. } | RunState::Stopping { .. } => {}
    }
    value
}

/// The result for people.
fn result_lines(ended: &EndedRun<'_>) -> Vec<String> {
    let EndedRun { id, run, folder, .. } = ended;
    let mut lines = vec![format!("run      {id}: {}", run.state.word())];
    if let RunState::Done { outcome: Outcome::Trained { model } } = &run.state {
        let name = model.figures.accuracy_name();
        let text = |value| crate::figures::accuracy(name, value);
        let (test, validation) = (text(model.test_accuracy), text(model.validation_accuracy));
        lines.push(format!("{name} {test} on the test split, {validation} on validation"));
        for (name, value) in model.figures.lines() {
            lines.push(format!("         {name} {value}"));
        }
        lines.push(format!("model    {} (step {} of {})", model.model, model.step, model.steps));
    }
    let report = folder.as_ref().map(|folder| folder.join("report.html"));
    if let Some(report) = report.filter(|report| report.exists()) {
        lines.push(format!("report   {}", report.display()));
    }
    if let RunState::Stopped { by } = run.state {
        let more = match by {
            StopBy::User | StopBy::Idle => "",
            StopBy::Budget => " --budget AMOUNT",
            StopBy::Deadline => " --deadline DURATION",
        };
        lines.push(format!("resume   gradus resume {id}{more}"));
    }
    if let domain::Work::Command(_) = run.job.work {
        lines.push(format!("logs     gradus logs {id}"));
    }
    if let Some(bill) = &run.bill {
        let rented: f64 =
            bill.lines.iter().map(|line| line.usage.elapsed.as_secs_f64()).fold(0.0, |sum, seconds| sum + seconds);
        let machines = bill.lines.len();
        let attempts = run.attempts.len();
        lines.push(format!(
            "bill     {} for {rented:.1} s on {}, {}",
            bill.total,
            counted(machines as u64, "machine"),
            counted(attempts as u64, "attempt")
        ));
    }
    lines
}
