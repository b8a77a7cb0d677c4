//! The trials of a sweep as a table, and its result: for people and for scripts.

use domain::run::{Outcome, RunState, StopBy};
use domain::sweep::{Best, SweepEnd};
use plan::SweepState;
use plan::sweep::{Stand, TrialRow};
use serde_json::{Map, Value, json};

use super::facts::SweepFacts;
use super::preview::said;
use crate::figures::counted;
use crate::table::lines as table_lines;

/// A sweep for people: its state, then its trials, best first.
pub fn lines(facts: &SweepFacts<'_>) -> Vec<String> {
    let (id, sweep, rows) = (facts.id, facts.record, facts.rows());
    let mut lines = vec![format!("sweep    {id}: {}", sweep.state.word())];
    if let Some(why) = why(facts) {
        lines.push(format!("why      {why}"));
    }
    lines.push(format!("job      {}", sweep.file));
    let count = |state: Stand| rows.iter().filter(|row| row.state == state).count();
    let (open, failed) = (count(Stand::Open), count(Stand::Failed));
    lines.push(format!("trials   {}, {open} running, {failed} failed", rows.len()));
    lines.push(format!("cost     {}", facts.spent()));
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
            cells.push(row.shown(metric));
        }
        cells.extend(row.values.iter().map(domain::sweep::Setting::say));
        cells.extend([row.cost.to_string(), row.run.to_string()]);
        cells
    };
    table_lines(&head, &rows.iter().map(row).collect::<Vec<_>>())
}

/// Everything about a sweep, for scripts.
pub fn json(facts: &SweepFacts<'_>) -> Value {
    let sweep = facts.record;
    let trials: Vec<Value> = facts.rows().iter().map(trial_json).collect();
    json!({
        "sweep": facts.id,
        "state": sweep.state,
        "word": sweep.state.word(),
        "metric": sweep.search.metric,
        "goal": sweep.search.goal,
        "trials": trials,
        "best": plan::sweep::best(facts.world, sweep),
        "cost_micro_usd": facts.spent().micros(),
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
        "cause": row.cause,
        "values": values,
        "cost_micro_usd": row.cost.micros(),
    })
}

/// The result for people.
pub fn result_lines(facts: &SweepFacts<'_>) -> Vec<String> {
    let SweepFacts { id, world, record: sweep, home, .. } = facts;
    let rows = facts.rows();
    let mut lines = trials(sweep, &rows);
    lines.push(String::new());
    lines.push(format!("sweep    {id}: {}", sweep.state.word()));
    if let (Some(best), Some(metric)) = (best(sweep), sweep.search.metric) {
        let run = world.runs.get(&best.run);
        let values = run.and_then(|run| run.trial.as_ref()).map(|trial| said(&trial.values)).unwrap_or_default();
        lines.push(format!("best     trial {}: {} {}, {values}", best.number, metric.name(), metric.say(best.value)));
        let model = home.map(|home| home.run(&best.run).join("export/model.safetensors"));
        if let Some(model) = model.filter(|model| model.exists()) {
            lines.push(format!("model    {}", model.display()));
        }
    }
    let report = home.map(|home| home.sweep(id).join("report.html"));
    if let Some(report) = report.filter(|report| report.exists()) {
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
pub fn last_line(facts: &SweepFacts<'_>) -> Value {
    let sweep = facts.record;
    let mut value = json(facts);
    let total = sweep.total.unwrap_or_default();
    value["event"] = json!("done");
    value["outcome"] = json!(sweep.state.word());
    value["seconds"] = json!(sweep.ended.map_or(0.0, |ended| ended.since(sweep.submitted).as_secs_f64()));
    value["bill_usd"] = json!(total.micros() as f64 / 1e6);
    value["bill_micro_usd"] = json!(total.micros());
    value["folder"] = json!(facts.home.map(|home| home.sweep(facts.id)));
    if let SweepState::Ended { how: SweepEnd::Failed { finding, .. } } = &sweep.state {
        value["finding"] = json!(finding);
    }
    let best = best(sweep).and_then(|best| facts.world.runs.get(&best.run));
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
fn why(facts: &SweepFacts<'_>) -> Option<String> {
    match &facts.record.state {
        SweepState::Running | SweepState::Stopping { .. } => {
            let is_unattended = facts.home.is_some_and(|home| !home.is_watched(&home.sweep(facts.id)));
            let resume = || format!("unattended: no process runs it; resume it with `gradus resume {}`", facts.id);
            is_unattended.then(resume)
        }
        SweepState::Ended { how: SweepEnd::Failed { finding, .. } } => Some(finding.message.clone()),
        SweepState::Ended { how: SweepEnd::Done { .. } | SweepEnd::Stopped { .. } } => None,
    }
}
