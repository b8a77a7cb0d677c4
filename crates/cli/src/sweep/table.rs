//! The trials of a sweep as a table, and its result: for people and for scripts.

use domain::SweepId;
use domain::run::{Outcome, RunState, StopBy};
use domain::sweep::{Best, SweepEnd};
use plan::SweepState;
use plan::sweep::{Stand, TrialRow, rows};
use serde_json::{Map, Value, json};
use server::{Home, State};

use super::preview::said;
use crate::figures::counted;
use crate::follow::liveness::meters;
use crate::table::lines as table_lines;

/// A sweep for people: its state, then its trials, best first.
pub fn lines(home: &Home, state: &State, id: &SweepId, sweep: &plan::SweepRecord) -> Vec<String> {
    let world = state.world();
    let meters = meters(home, world);
    let rows = rows(world, sweep, &meters);
    let mut lines = vec![format!("sweep    {id}: {}", sweep.state.word())];
    if let Some(why) = why(home, id, sweep) {
        lines.push(format!("why      {why}"));
    }
    lines.push(format!("job      {}", sweep.file));
    let count = |state: Stand| rows.iter().filter(|row| row.state == state).count();
    let (open, failed) = (count(Stand::Open), count(Stand::Failed));
    lines.push(format!("trials   {}, {open} running, {failed} failed", rows.len()));
    lines.push(format!("cost     {}", plan::sweep::spent(world, sweep, &meters)));
    if !rows.is_empty() {
        lines.push(String::new());
        lines.extend(trials(sweep, &rows));
    }
    lines
}

/// The table of trials.
pub fn trials(sweep: &plan::SweepRecord, rows: &[TrialRow]) -> Vec<String> {
    let metric = sweep.search.metric;
    let mut head = vec!["trial", "state"];
    head.extend(metric.into_iter().flat_map(|metric| ["epochs", metric.name()]));
    head.extend(sweep.search.parameters.iter().map(|parameter| parameter.key.as_str()));
    head.extend(["cost", "run"]);
    let row = |row: &TrialRow| {
        let mut cells = vec![row.number.to_string(), row.word.to_owned()];
        if let Some(metric) = metric {
            cells.push(row.epochs.map_or(String::new(), |epochs| epochs.to_string()));
            cells.push(row.value.map_or(String::new(), |value| metric.say(value)));
        }
        cells.extend(row.values.iter().map(domain::sweep::Setting::say));
        cells.extend([row.cost.to_string(), row.run.to_string()]);
        cells
    };
    table_lines(&head, &rows.iter().map(row).collect::<Vec<_>>())
}

/// Everything about a sweep, for scripts.
pub fn json(home: &Home, state: &State, id: &SweepId, sweep: &plan::SweepRecord) -> Value {
    let world = state.world();
    let meters = meters(home, world);
    let rows = rows(world, sweep, &meters);
    let trials: Vec<Value> = rows.iter().map(trial_json).collect();
    json!({
        "sweep": id,
        "state": sweep.state,
        "word": sweep.state.word(),
        "metric": sweep.search.metric,
        "goal": sweep.search.goal,
        "trials": trials,
        "best": plan::sweep::best(world, sweep),
        "cost_micro_usd": plan::sweep::spent(world, sweep, &meters).micros(),
        "submitted": sweep.submitted,
    })
}

fn trial_json(row: &TrialRow) -> Value {
    let values: Map<String, Value> =
        row.values.iter().map(|setting| (setting.key.clone(), setting.value.clone())).collect();
    json!({
        "trial": row.number,
        "run": row.run,
        "word": row.word,
        "epochs": row.epochs,
        "value": row.value,
        "values": values,
        "cost_micro_usd": row.cost.micros(),
    })
}

/// The result for people.
pub fn result_lines(home: &Home, state: &State, id: &SweepId, sweep: &plan::SweepRecord) -> Vec<String> {
    let world = state.world();
    let rows = rows(world, sweep, &meters(home, world));
    let mut lines = trials(sweep, &rows);
    lines.push(String::new());
    lines.push(format!("sweep    {id}: {}", sweep.state.word()));
    if let (Some(best), Some(metric)) = (best(sweep), sweep.search.metric) {
        let run = world.runs.get(&best.run);
        let values = run.and_then(|run| run.trial.as_ref()).map(|trial| said(&trial.values)).unwrap_or_default();
        lines.push(format!("best     trial {}: {} {}, {values}", best.number, metric.name(), metric.say(best.value)));
        let model = home.run(&best.run).join("export/model.safetensors");
        if model.exists() {
            lines.push(format!("model    {}", model.display()));
        }
    }
    let report = home.sweep(id).join("report.html");
    if report.exists() {
        lines.push(format!("report   {}", report.display()));
    }
    if let SweepState::Ended { how: SweepEnd::Stopped { by, .. } } = &sweep.state {
        let more = match by {
            StopBy::User | StopBy::Idle => "",
            StopBy::Budget => " --budget AMOUNT",
            StopBy::Deadline => " --deadline DURATION",
        };
        lines.push(format!("resume   gradus resume {id}{more}"));
    }
    let rents: usize = world.trials(sweep).filter_map(|(_, run)| run.bill.as_ref()).map(|bill| bill.lines.len()).sum();
    let total = sweep.total.unwrap_or_default();
    lines.push(format!(
        "bill     {total} for {} on {}",
        counted(rows.len() as u64, "trial"),
        counted(rents as u64, "machine")
    ));
    lines
}

/// The last line of `--json`: a stable interface for scripts.
pub fn last_line(home: &Home, state: &State, id: &SweepId, sweep: &plan::SweepRecord) -> Value {
    let mut value = json(home, state, id, sweep);
    let total = sweep.total.unwrap_or_default();
    value["event"] = json!("done");
    value["outcome"] = json!(sweep.state.word());
    value["seconds"] = json!(sweep.ended.map_or(0.0, |ended| ended.since(sweep.submitted).as_secs_f64()));
    value["bill_usd"] = json!(total.micros() as f64 / 1e6);
    value["bill_micro_usd"] = json!(total.micros());
    value["folder"] = json!(home.sweep(id));
    if let SweepState::Ended { how: SweepEnd::Failed { finding, .. } } = &sweep.state {
        value["finding"] = json!(finding);
    }
    let best = best(sweep).and_then(|best| state.world().runs.get(&best.run));
    if let Some(RunState::Done { outcome: Outcome::Trained { model } }) = best.map(|run| &run.state) {
        value["test_accuracy"] = json!(model.test_accuracy);
        value["model"] = json!(model.model);
        value["model_sha256"] = json!(model.model_sha256);
    }
    value
}

fn best(sweep: &plan::SweepRecord) -> Option<&Best> {
    match &sweep.state {
        SweepState::Running | SweepState::Stopping { .. } => None,
        SweepState::Ended { how } => match how {
            SweepEnd::Done { best } | SweepEnd::Stopped { best, .. } | SweepEnd::Failed { best, .. } => best.as_ref(),
        },
    }
}

/// Why a sweep makes no progress, if it makes none.
fn why(home: &Home, id: &SweepId, sweep: &plan::SweepRecord) -> Option<String> {
    match &sweep.state {
        SweepState::Running | SweepState::Stopping { .. } if home.is_watched(&home.sweep(id)) => None,
        SweepState::Running | SweepState::Stopping { .. } => {
            Some(format!("unattended: no process runs it; resume it with `gradus resume {id}`"))
        }
        SweepState::Ended { how: SweepEnd::Failed { finding, .. } } => Some(finding.message.clone()),
        SweepState::Ended { how: SweepEnd::Done { .. } | SweepEnd::Stopped { .. } } => None,
    }
}
