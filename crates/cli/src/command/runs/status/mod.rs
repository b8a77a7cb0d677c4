//! `gradus status`: the state of runs, sweeps and pipelines.

mod one;
mod silent;

use std::collections::BTreeSet;

use domain::{Money, RunId, SweepId, Timestamp};
use serde_json::{Value, json};
use server::{Home, Series, State};

use crate::command::find::{NamedWork, find_named};
use crate::command::runs::run::pipeline::output::PipelineFacts;
use crate::command::runs::run::pipeline::{follow as follow_pipeline, output, remote as remote_pipeline};
use crate::error::Error;
use crate::error::exit;
use crate::figures::time;
use crate::follow::liveness::{Liveness, meters};
use crate::printer::Printer;
use crate::remote::{self, Server};
use crate::settings::GlobalSettings;
use crate::sweep::facts::SweepFacts;
use crate::sweep::table as table_of;
use crate::table;

/// Arguments of `gradus status`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run, sweep or pipeline: its name, a unique prefix of it, or `last`
    run: Option<String>,

    /// List every run, not only open ones and the newest hundred
    #[arg(long)]
    all: bool,
}

/// Number of runs that are listed besides open ones, and of a server's sweeps, the newest of each.
const LISTED: usize = 100;

/// Runs that are counted at most, to say how many are not listed: a longer history takes no longer.
const COUNTED: u64 = 10_000;

/// Number of a server's sweeps that are listed with `--all`: as many as one answer has.
const MOST_SWEEPS: usize = 1_000;

/// Lists runs, newest last, or shows the state of one.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    if let Some(server) = remote::chosen(settings)? {
        return match args.run {
            Some(name) => match server.find_named(&name)? {
                NamedWork::Run(id) => one::show(&(&one::of_server(&server, &id)?).into(), None, printer),
                NamedWork::Sweep(id) => sweep(&SweepFacts::of_server(&server.sweep(&id)?)?, printer),
                NamedWork::Pipeline(id) => pipeline(&remote_pipeline::facts(&server, &id)?, printer),
            },
            None => list_of_server(&server, args.all, printer),
        };
    }
    let home = Home::open(&settings.home)?;
    let (mut state, series) = (State::open_lean(&home)?, measurements(&home, printer));
    let series = series.as_ref();
    if let Some(name) = args.run {
        state.recall_named(&name)?;
        return match find_named(state.world(), &name)? {
            NamedWork::Run(id) => one::show(&one::of_home(&home, &state, series, &id)?, Some(state.key()), printer),
            NamedWork::Sweep(id) => sweep(&SweepFacts::of_home(&home, state.world(), &id)?, printer),
            NamedWork::Pipeline(id) => pipeline(&follow_pipeline::facts(&mut state, &home, &id)?, printer),
        };
    }
    state.recall_newest(if args.all { usize::MAX } else { LISTED })?;
    let mut runs: Vec<(&RunId, &plan::Run)> = state.world().runs.iter().collect();
    runs.sort_by_key(|(_, run)| run.order);
    let (mut rows, mut told) = (Vec::new(), Vec::new());
    let meters = meters(&home, state.world());
    for (id, run) in runs {
        // A sweep stands before its trials; one that has none yet, at the end.
        if let Some(trial) = &run.trial
            && !told.contains(&&trial.sweep)
        {
            told.push(&trial.sweep);
            rows.extend(sweep_row(&home, &state, printer, &trial.sweep));
        }
        let listed = Listed {
            id: id.as_str(),
            word: Liveness::of(&home, state.world(), id, run).word(&run.state),
            state: json!(run.state),
            step: one::step(&home, state.world(), series, id, run),
            attempts: run.attempts.len() as u64,
            cost: plan::spent(state.world(), run, &meters),
            submitted: run.submitted,
        };
        rows.extend(run_row(&listed, printer));
    }
    for id in state.world().sweeps.keys().filter(|id| !told.contains(id)) {
        rows.extend(sweep_row(&home, &state, printer, id));
    }
    let counted = state.count_runs(COUNTED)?;
    let hidden = counted.saturating_sub(state.world().runs.len() as u64);
    table_of_rows(&rows, not_listed(hidden, counted < COUNTED), printer);
    Ok(exit::DONE)
}

/// What is said of runs that are not listed, so many or more.
fn not_listed(hidden: u64, is_exact: bool) -> Option<String> {
    let count = if is_exact { hidden.to_string() } else { format!("at least {hidden}") };
    (hidden > 0).then(|| format!("{count} older runs are not listed; list them with `gradus status --all`"))
}

/// A run in the list.
struct Listed<'a> {
    id: &'a str,
    word: &'a str,
    state: Value,
    step: Option<u64>,
    attempts: u64,
    cost: Money,
    submitted: Timestamp,
}

/// The row of a run; with `--json` it is printed at once.
fn run_row(listed: &Listed<'_>, printer: &mut Printer) -> Option<Vec<String>> {
    let Listed { id, word, state, step, attempts, cost, submitted } = listed;
    if printer.is_json() {
        let micros = cost.micros();
        printer.json(&json!({ "run": id, "state": state, "word": word, "step": step, "attempts": attempts, "cost_micro_usd": micros, "submitted": submitted }));
        return None;
    }
    let step = step.map_or(String::new(), |step| step.to_string());
    let cells = [(*id).to_owned(), (*word).to_owned(), step, attempts.to_string(), cost.to_string(), time(*submitted)];
    Some(cells.to_vec())
}

fn table_of_rows(rows: &[Vec<String>], not_listed: Option<String>, printer: &mut Printer) {
    if !printer.is_json() && rows.is_empty() {
        printer.say("no runs yet; start with `gradus run JOB`");
    } else if !printer.is_json() {
        let lines = table::lines(&["run", "state", "step", "attempts", "cost", "submitted"], rows);
        lines.into_iter().for_each(|line| printer.data(line));
    }
    if let Some(more) = not_listed {
        printer.say(more);
    }
}

/// Lists the runs and sweeps of a server.
fn list_of_server(server: &Server, all: bool, printer: &mut Printer) -> Result<u8, Error> {
    let (mut runs, total) = server.list(if all { usize::MAX } else { LISTED })?;
    runs.reverse();
    let listed = |run: &Value, printer: &mut Printer| {
        let details = &run["details"];
        let listed = Listed {
            id: run["run"].as_str()?,
            word: run["state"].as_str()?,
            state: details["state"].clone(),
            step: details["step"].as_u64(),
            attempts: run["attempts"].as_u64()?,
            cost: Money::from_micros(run["cost_micro_usd"].as_i64()?),
            submitted: Timestamp(run["submitted"].as_i64()?),
        };
        run_row(&listed, printer)
    };
    let sweeps = server.sweeps(if all { MOST_SWEEPS } else { LISTED }, None)?.unwrap_or_default();
    let listed_trials: BTreeSet<&str> = runs.iter().filter_map(|run| run["sweep"].as_str()).collect();
    let is_recent = |sweep: &Value| {
        let is_listed = sweep["sweep"].as_str().is_some_and(|id| listed_trials.contains(id));
        is_listed || sweep["trials"] == 0
    };
    // The trials of the others are older than these runs. One that has no trial yet stands at the end.
    let (mut sweeps, mut older): (Vec<Value>, Vec<Value>) = sweeps.into_iter().partition(is_recent);
    sweeps.sort_by(|one, other| one["sweep"].as_str().cmp(&other["sweep"].as_str()));
    older.sort_by_key(|sweep| sweep["submitted"].as_i64());
    let mut rows: Vec<Vec<String>> = older.iter().filter_map(|sweep| listed_sweep(sweep, printer)).collect();
    for run in &runs {
        if let Some(at) = sweeps.iter().position(|sweep| !run["sweep"].is_null() && sweep["sweep"] == run["sweep"]) {
            rows.extend(listed_sweep(&sweeps.remove(at), printer));
        }
        rows.extend(listed(run, printer));
    }
    rows.extend(sweeps.iter().filter_map(|sweep| listed_sweep(sweep, printer)));
    table_of_rows(&rows, not_listed(total.saturating_sub(runs.len() as u64), true), printer);
    Ok(exit::DONE)
}

/// The measurements of a home; `None` if they are damaged, which is reported and does not hide the state.
fn measurements(home: &Home, printer: &mut Printer) -> Option<Series> {
    let opened = Series::open(home).and_then(|series| series.newest(&RunId::new("-"), 1).map(|_| series));
    opened
        .inspect_err(|error| {
            let hint = "`gradus home rebuild` starts new ones";
            printer.say(format!("note: steps and losses are not shown: {error}; {hint}"));
        })
        .ok()
}

/// The row of a sweep; with `--json` it is printed at once.
fn sweep_row(home: &Home, state: &State, printer: &mut Printer, id: &SweepId) -> Option<Vec<String>> {
    let facts = SweepFacts::of_home(home, state.world(), id).ok()?;
    let mut value = table_of::json(&facts);
    value["trials"] = json!(facts.record.trials.len());
    listed_sweep(&value, printer)
}

/// The row of a sweep as `--json` has it, which is printed at once there.
fn listed_sweep(value: &Value, printer: &mut Printer) -> Option<Vec<String>> {
    if printer.is_json() {
        printer.json(value);
        return None;
    }
    let (id, word) = (value["sweep"].as_str()?.to_owned(), value["word"].as_str()?.to_owned());
    let cost = Money::from_micros(value["cost_micro_usd"].as_i64()?);
    let trials = format!("{} trials", value["trials"]);
    Some(vec![id, word, String::new(), trials, cost.to_string(), time(Timestamp(value["submitted"].as_i64()?))])
}

fn pipeline(facts: &PipelineFacts, printer: &mut Printer) -> Result<u8, Error> {
    output::show(facts, printer);
    Ok(exit::DONE)
}

fn sweep(facts: &SweepFacts<'_>, printer: &mut Printer) -> Result<u8, Error> {
    if printer.is_json() {
        printer.json(&table_of::json(facts));
    } else {
        table_of::lines(facts).iter().for_each(|line| printer.data(line));
    }
    Ok(exit::DONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_are_not_listed_are_counted_up_to_a_limit() {
        let list = "older runs are not listed; list them with `gradus status --all`";
        assert_eq!(not_listed(0, true), None);
        assert_eq!(not_listed(0, false), None, "all are listed");
        assert_eq!(not_listed(12, true), Some(format!("12 {list}")));
        assert_eq!(not_listed(9_900, false), Some(format!("at least 9900 {list}")));
    }
}
