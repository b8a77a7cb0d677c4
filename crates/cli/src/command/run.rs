//! `gradus run`: the whole line, from a job file to a model and a bill.

use domain::run::{Outcome, RunState, StopBy};
use domain::series::Point;
use domain::{Rate, RunId, Work};
use serde_json::{Value, json};
use server::report::Arithmetic;
use server::{Home, Series, State, submit};

use super::plan::{JobArgs, draft, known, lines};
use crate::attend::attend;
use crate::error::Error;
use crate::exit;
use crate::printer::Printer;
use crate::settings::Settings;
use crate::sweep::preview::Preview;
use crate::watch::{Since, Watch};

/// Arguments of `gradus run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    job: JobArgs,
    /// Spend what the plan says without asking
    #[arg(long, short)]
    yes: bool,
    /// Start anew even if an unfinished run of the same job is there
    #[arg(long)]
    new: bool,
    /// Note where each step's time goes, and write a trace for `chrome://tracing`
    #[arg(long)]
    profile: bool,
}

/// Plans, asks, submits and attends.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &Settings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let (mut job, plan) = draft(&args.job, settings, &home, printer)?;
    if args.profile {
        match &mut job.work {
            Work::Train(train) => train.profile = true,
            Work::Command(_) => {
                let message =
                    "`--profile` is for `train:`; the steps of a `run:` program are not ours to time".to_owned();
                return Err(Error::Usage { message, hint: "leave it out".to_owned() });
            }
        }
    }
    let file = std::fs::canonicalize(&args.job.file).map_err(Error::file("open", &args.job.file))?;
    let file = file.to_string_lossy().into_owned();
    if let Some(sweep) = &job.sweep {
        let known = known(settings, &home, &job, printer)?;
        let preview = Preview::of(&job, sweep, &plan, known, &args.job.file.to_string_lossy())?;
        let flags = (args.new, args.yes);
        return crate::sweep::run(settings, printer, &home, job, plan, &preview, &file, flags);
    }
    let mut state = State::open(&home)?;
    let unfinished = if args.new { None } else { submit::unfinished(&home, &state, &job, &plan, &file) };
    if let Some(run) = unfinished {
        printer.say(format!("going on with run {run}; `--new` starts another"));
        let since = Since::Event(state.world().last_seq);
        drop(state);
        return finish(settings, printer, &home, &run, since);
    }
    if !printer.is_json() {
        for line in lines(&job, &plan) {
            printer.say(line);
        }
    }
    confirm(printer, &plan, args.yes)?;
    let run = submit::submit(&mut state, job, plan, &file)?;
    drop(state);
    finish(settings, printer, &home, &run, Since::Start)
}

/// Asks before money is spent.
///
/// # Errors
/// [`Error::Code`] when the answer is no.
pub fn confirm(printer: &mut Printer, plan: &domain::Plan, yes: bool) -> Result<(), Error> {
    if plan.offer.rate != Rate::default() && !yes && !printer.confirm("proceed?") {
        let message = "nothing was spent: the plan was not confirmed".to_owned();
        return Err(Error::Code { message, hint: Some("confirm with `--yes`".to_owned()), code: exit::USAGE });
    }
    Ok(())
}

/// Attends a run and tells its result.
///
/// # Errors
/// [`Error`].
pub fn finish(settings: &Settings, printer: &mut Printer, home: &Home, run: &RunId, since: Since) -> Result<u8, Error> {
    let result = attend(settings, printer, home, run, since);
    let state = State::open(home)?;
    let Some(known) = state.world().runs.get(run) else { return result };
    if known.bill.is_some() {
        let arithmetic = arithmetic(home, &state, run)?;
        if printer.is_json() {
            printer.json(&last_line(home, &state, run, known, arithmetic.as_ref())?);
        } else {
            let is_profiled = matches!(&known.job.work, Work::Train(train) if train.profile);
            if let Some(arithmetic) = arithmetic.filter(|_| is_profiled) {
                printer.say(format!("note: {}", in_words(&arithmetic)));
            }
            result_lines(home, run, known).into_iter().for_each(|line| printer.data(line));
        }
        home.tell(&home.run(run))?;
    }
    result
}

/// The result of a run that is at its end, for scripts: what the last line of `gradus run --json` says.
///
/// # Errors
/// [`Error`] when its measurements cannot be read.
pub fn told(home: &Home, state: &State, id: &RunId, run: &plan::Run) -> Result<Value, Error> {
    last_line(home, state, id, run, arithmetic(home, state, id)?.as_ref())
}

/// How fast the run computed its network, where that is counted.
fn arithmetic(home: &Home, state: &State, run: &RunId) -> Result<Option<Arithmetic>, Error> {
    let points: Vec<Point> = Series::open(home)?.points(run, 0)?.into_iter().map(|(_, point)| point).collect();
    Ok(server::report::arithmetic(run, &state.records(run, 0)?, &points))
}

fn in_words(arithmetic: &Arithmetic) -> String {
    let rate = arithmetic.rate();
    match &arithmetic.utilisation {
        Some((share, gpu)) => {
            format!("the network's own arithmetic ran at {rate}, {:.1} % of the peak of {gpu} (MFU)", 100.0 * share)
        }
        None => format!("the network's own arithmetic ran at {rate}; no peak of this device is stated, so no MFU"),
    }
}

/// Writes the report, and turns the end of a run into an exit code.
///
/// # Errors
/// [`Error::Failed`] when it ended without result.
pub fn verdict(home: &Home, run: &RunId, watch: Watch) -> Result<u8, Error> {
    super::report::write(home, watch.state(), watch.series(), run)?;
    match &watch.run()?.state {
        RunState::Done { outcome: Outcome::Failed { finding } } => {
            Err(Error::Failed { run: run.clone(), finding: finding.clone() })
        }
        RunState::Done { .. } => Ok(exit::DONE),
        RunState::Stopped { .. } => Ok(exit::RUN_STOPPED),
        RunState::Queued | RunState::Renting { .. } | RunState::Staging { .. } | RunState::Running { .. } => {
            Ok(exit::NOT_FINISHED)
        }
        RunState::Recovering { .. } | RunState::Stopping { .. } => Ok(exit::NOT_FINISHED),
    }
}

/// The last line of `--json`: a promise to scripts.
fn last_line(
    home: &Home,
    state: &State,
    id: &RunId,
    run: &plan::Run,
    arithmetic: Option<&Arithmetic>,
) -> Result<Value, Error> {
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
        "events": state.world().last_seq,
        "folder": home.run(id),
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
    Ok(value)
}

/// The result for people.
fn result_lines(home: &Home, id: &RunId, run: &plan::Run) -> Vec<String> {
    let mut lines = vec![format!("run      {id}: {}", run.state.word())];
    if let RunState::Done { outcome: Outcome::Trained { model } } = &run.state {
        lines.push(format!(
            "{} {:.2} % on the test split, {:.2} % on validation",
            model.figures.accuracy_name(),
            100.0 * model.test_accuracy,
            100.0 * model.validation_accuracy
        ));
        for (name, value) in model.figures.lines() {
            lines.push(format!("         {name} {value}"));
        }
        lines.push(format!("model    {} (step {} of {})", model.model, model.step, model.steps));
    }
    let report = home.run(id).join("report.html");
    if report.exists() {
        lines.push(format!("report   {}", report.display()));
    }
    if let RunState::Stopped { by } = run.state {
        let more = match by {
            StopBy::User => "",
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
        lines.push(format!("bill     {} for {rented:.1} s on {machines} rent(s), {attempts} attempt(s)", bill.total));
    }
    lines
}
