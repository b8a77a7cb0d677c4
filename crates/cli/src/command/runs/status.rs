//! `gradus status`: the state of runs and sweeps.

use domain::rank::Report;
use domain::run::{AttemptEnd, InstanceState, RunState};
use domain::{RunId, SweepId, Timestamp};
use serde_json::json;
use server::{Home, Loading, Series, State};

use crate::command::find::{RunOrSweep, find_any};
use crate::error::Error;
use crate::error::exit;
use crate::follow::meters;
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use crate::sweep::table as table_of;
use crate::table;

/// Arguments of `gradus status`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run or sweep: its name, a unique prefix of it, or `last`
    run: Option<String>,
}

/// Lists runs, newest last, or shows the state of one.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let (state, series) = (State::open(&home)?, Series::open(&home)?);
    if let Some(name) = args.run {
        return match find_any(state.world(), &name)? {
            RunOrSweep::Run(id) => one(&home, &state, &series, printer, &id),
            RunOrSweep::Sweep(id) => sweep(&home, &state, printer, &id),
        };
    }
    let mut runs: Vec<(&RunId, &plan::Run)> = state.world().runs.iter().collect();
    runs.sort_by_key(|(_, run)| run.order);
    let mut rows = Vec::new();
    let mut told = Vec::new();
    for (id, run) in runs {
        // A sweep stands before its trials; one that has none yet, at the end.
        if let Some(trial) = &run.trial
            && !told.contains(&&trial.sweep)
        {
            told.push(&trial.sweep);
            rows.extend(sweep_row(&state, printer, &trial.sweep));
        }
        let cost = plan::spent(state.world(), run, &meters(state.world()));
        let step = step(&series, id)?;
        if printer.is_json() {
            let (micros, submitted) = (cost.micros(), run.submitted);
            printer.json(&json!({ "run": id, "state": run.state, "word": run.state.word(), "step": step, "attempts": run.attempts.len(), "cost_micro_usd": micros, "submitted": submitted }));
        } else {
            let step = step.map_or(String::new(), |step| step.to_string());
            rows.push(vec![
                id.to_string(),
                run.state.word().to_owned(),
                step,
                run.attempts.len().to_string(),
                cost.to_string(),
                time(run.submitted),
            ]);
        }
    }
    for id in state.world().sweeps.keys().filter(|id| !told.contains(id)) {
        rows.extend(sweep_row(&state, printer, id));
    }
    if !printer.is_json() && rows.is_empty() {
        printer.say("no runs yet; start with `gradus run JOB`");
    } else if !printer.is_json() {
        let lines = table::lines(&["run", "state", "step", "attempts", "cost", "submitted"], &rows);
        lines.into_iter().for_each(|line| printer.data(line));
    }
    Ok(exit::DONE)
}

/// The row of a sweep; with `--json` it is printed at once.
fn sweep_row(state: &State, printer: &mut Printer, id: &SweepId) -> Option<Vec<String>> {
    let sweep = state.world().sweeps.get(id)?;
    if printer.is_json() {
        let mut value = table_of::json(state, id, sweep);
        value["trials"] = json!(sweep.trials.len());
        printer.json(&value);
        return None;
    }
    let spent = plan::sweep::spent(state.world(), sweep, &meters(state.world()));
    let (word, trials) = (sweep.state.word().to_owned(), format!("{} trials", sweep.trials.len()));
    Some(vec![id.to_string(), word, String::new(), trials, spent.to_string(), time(sweep.submitted)])
}

fn sweep(home: &Home, state: &State, printer: &mut Printer, id: &SweepId) -> Result<u8, Error> {
    let Some(sweep) = state.world().sweeps.get(id) else { return Err(server::Error::NoRun(id.to_string()).into()) };
    if printer.is_json() {
        printer.json(&table_of::json(state, id, sweep));
    } else {
        table_of::lines(home, state, id, sweep).iter().for_each(|line| printer.data(line));
    }
    Ok(exit::DONE)
}

fn one(home: &Home, state: &State, series: &Series, printer: &mut Printer, id: &RunId) -> Result<u8, Error> {
    let world = state.world();
    let Some(run) = world.runs.get(id) else { return Err(server::Error::NoRun(id.to_string()).into()) };
    let attempts: Vec<_> = run.attempts.iter().filter_map(|id| world.attempts.get_key_value(id)).collect();
    let instances: Vec<_> = run.instances.iter().filter_map(|id| world.instances.get_key_value(id)).collect();
    if printer.is_json() {
        let attempts = attempts.iter().map(|(id, attempt)| json!({ "attempt": id, "body": attempt }));
        let instances = instances.iter().map(|(id, instance)| json!({ "instance": id, "body": instance }));
        let (attempts, instances) = (attempts.collect::<Vec<_>>(), instances.collect::<Vec<_>>());
        let mut value = json!({ "run": id, "body": run, "attempts": attempts, "instances": instances });
        if printer.shows_values() {
            state.key().unseal_envs(&mut value);
        }
        printer.json(&value);
        return Ok(exit::DONE);
    }
    printer.data(format!("run      {id}: {}", run.state.word()));
    if let Some(why) = why(home, state, id, run) {
        printer.data(format!("why      {why}"));
    }
    printer.data(format!("job      {}", run.file));
    printer.data(format!("since    {}", time(run.submitted)));
    if let (Some(step), Some(ready)) = (step(series, id)?, &run.ready) {
        printer.data(format!("step     {step} of {}", ready.steps));
    }
    if let Some(loading) = loading(series, id)? {
        printer.data(format!("data     {loading}"));
    }
    for (id, instance) in instances {
        let used = match &instance.state {
            InstanceState::Released { usage } => format!("released after {:.1} s", usage.elapsed.as_secs_f64()),
            InstanceState::Intended | InstanceState::Launching => "launching".to_owned(),
            InstanceState::Up => "up".to_owned(),
            InstanceState::Releasing => "releasing".to_owned(),
        };
        printer.data(format!("machine  {id}: {used}, {}", instance.offer.rate));
    }
    for (id, attempt) in attempts {
        let text = match &attempt.state {
            plan::AttemptState::Intended => "starting".to_owned(),
            plan::AttemptState::Ready { step: Some(step) } => format!("training from step {step}"),
            plan::AttemptState::Ready { step: None } => "running".to_owned(),
            plan::AttemptState::Ended { end: AttemptEnd::Trained { .. }, .. } => "trained".to_owned(),
            plan::AttemptState::Ended { end: AttemptEnd::Succeeded, .. } => "succeeded".to_owned(),
            plan::AttemptState::Ended { end: AttemptEnd::Stopped { .. }, .. } => "stopped".to_owned(),
            plan::AttemptState::Ended { end: AttemptEnd::Failed { finding, .. }, .. } => {
                format!("failed: {}", finding.message)
            }
        };
        printer.data(format!("attempt  {id}: {}", text));
    }
    printer.data(format!("cost     {}", plan::spent(world, run, &meters(state.world()))));
    Ok(exit::DONE)
}

/// Why a run makes no progress, if it makes none.
fn why(home: &Home, state: &State, id: &RunId, run: &plan::Run) -> Option<String> {
    let attended = home.is_watched(&home.run(id))
        || run.trial.as_ref().is_some_and(|trial| home.is_watched(&home.sweep(&trial.sweep)));
    match &run.state {
        RunState::Queued if attended => {
            let other = state.world().live_instances().find(|(_, instance)| instance.run != *id);
            other.map(|(_, instance)| format!("waiting for run {}, which uses this machine", instance.run))
        }
        RunState::Recovering { finding, .. } if attended => Some(finding.message.clone()),
        RunState::Queued | RunState::Recovering { .. } => {
            Some(format!("unattended: no process runs it; resume it with `gradus resume {id}`"))
        }
        RunState::Renting { .. } | RunState::Staging { .. } | RunState::Running { .. } | RunState::Stopping { .. }
            if !attended =>
        {
            Some(format!(
                "unattended: it saves a checkpoint and stops within {}; resume it with `gradus resume {id}`",
                server::control::LEASE
            ))
        }
        RunState::Renting { .. } | RunState::Staging { .. } | RunState::Running { .. } | RunState::Stopping { .. } => {
            None
        }
        RunState::Done { outcome: domain::run::Outcome::Failed { finding } } => Some(finding.message.clone()),
        RunState::Stopped { .. } | RunState::Done { .. } => None,
    }
}

/// Data loading over the newest steps.
fn loading(series: &Series, run: &RunId) -> Result<Option<Loading>, Error> {
    let newest = series.newest(run, 200)?;
    let steps = newest.iter().filter_map(|(_, point)| match &point.report {
        Report::Step(step) => Some(step),
        _ => None,
    });
    Ok(Loading::of(steps))
}

/// The newest step that was reported.
fn step(series: &Series, run: &RunId) -> Result<Option<u64>, Error> {
    let newest = series.newest(run, 8)?;
    let steps = newest.iter().rev().filter_map(|(_, point)| match &point.report {
        Report::Step(step) => Some(step.step),
        Report::Exported(exported) => Some(exported.steps),
        Report::Ready(ready) => Some(ready.step),
        Report::Evaluated(evaluated) => Some(evaluated.step),
        Report::Checkpointed(checkpointed) => Some(checkpointed.step),
        Report::Stopped { step } => Some(*step),
        Report::Hello { .. } | Report::Preparing { .. } | Report::Note { .. } | Report::Trained | Report::Failed(_) => {
            None
        }
    });
    Ok(steps.max())
}

fn time(at: Timestamp) -> String {
    match jiff::Timestamp::from_microsecond(at.0) {
        Ok(time) => format!("{time:.0}"),
        Err(_) => "unknown".to_owned(),
    }
}
