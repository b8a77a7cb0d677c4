//! `gradus status`: the state of runs and sweeps.

mod one;

use domain::{Money, RunId, SweepId, Timestamp};
use serde_json::{Value, json};
use server::{Home, Series, State};

use crate::command::find::{RunOrSweep, find_any};
use crate::error::Error;
use crate::error::exit;
use crate::figures::time;
use crate::follow::liveness::{Liveness, meters};
use crate::printer::Printer;
use crate::remote::{self, Server};
use crate::settings::GlobalSettings;
use crate::sweep::table as table_of;
use crate::table;

/// Arguments of `gradus status`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run or sweep: its name, a unique prefix of it, or `last`
    run: Option<String>,

    /// List every run, not only open ones and the newest hundred
    #[arg(long)]
    all: bool,
}

/// Number of runs that are listed besides open ones.
const LISTED: usize = 100;

/// Lists runs, newest last, or shows the state of one.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    if let Some(server) = remote::chosen(settings)? {
        return match args.run {
            Some(name) => one::show(&(&one::of_server(&server, &server.find(&name)?)?).into(), None, printer),
            None => list_of_server(&server, args.all, printer),
        };
    }
    let home = Home::open(&settings.home)?;
    let (mut state, series) = (State::open_lean(&home)?, measurements(&home, printer));
    let series = series.as_ref();
    if let Some(name) = args.run {
        state.recall_named(&name)?;
        return match find_any(state.world(), &name)? {
            RunOrSweep::Run(id) => one::show(&one::of_home(&home, &state, series, &id)?, Some(state.key()), printer),
            RunOrSweep::Sweep(id) => sweep(&home, &state, printer, &id),
        };
    }
    let all = state.recall_newest(if args.all { usize::MAX } else { LISTED })?;
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
    let hidden = all.saturating_sub(state.world().runs.len() as u64);
    table_of_rows(&rows, hidden, printer);
    Ok(exit::DONE)
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

fn table_of_rows(rows: &[Vec<String>], hidden: u64, printer: &mut Printer) {
    if !printer.is_json() && rows.is_empty() {
        printer.say("no runs yet; start with `gradus run JOB`");
    } else if !printer.is_json() {
        let lines = table::lines(&["run", "state", "step", "attempts", "cost", "submitted"], rows);
        lines.into_iter().for_each(|line| printer.data(line));
    }
    if hidden > 0 {
        printer.say(format!("{hidden} older runs are not listed; list them with `gradus status --all`"));
    }
}

/// Lists the runs of a server. It lists trials as runs, and no sweeps.
fn list_of_server(server: &Server, all: bool, printer: &mut Printer) -> Result<u8, Error> {
    let (mut runs, total) = server.list(if all { usize::MAX } else { LISTED })?;
    runs.reverse();
    let listed = |run: &Value| {
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
    let rows: Vec<Vec<String>> = runs.iter().filter_map(listed).collect();
    table_of_rows(&rows, total.saturating_sub(runs.len() as u64), printer);
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
    let sweep = state.world().sweeps.get(id)?;
    if printer.is_json() {
        let mut value = table_of::json(home, state, id, sweep);
        value["trials"] = json!(sweep.trials.len());
        printer.json(&value);
        return None;
    }
    let spent = plan::sweep::spent(state.world(), sweep, &meters(home, state.world()));
    let (word, trials) = (sweep.state.word().to_owned(), format!("{} trials", sweep.trials.len()));
    Some(vec![id.to_string(), word, String::new(), trials, spent.to_string(), time(sweep.submitted)])
}

fn sweep(home: &Home, state: &State, printer: &mut Printer, id: &SweepId) -> Result<u8, Error> {
    let Some(sweep) = state.world().sweeps.get(id) else { return Err(server::Error::NoRun(id.to_string()).into()) };
    if printer.is_json() {
        printer.json(&table_of::json(home, state, id, sweep));
    } else {
        table_of::lines(home, state, id, sweep).iter().for_each(|line| printer.data(line));
    }
    Ok(exit::DONE)
}
