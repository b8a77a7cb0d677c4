//! Whether a run ended as if nothing had happened.

use std::collections::BTreeMap;

use serde_json::Value;

use super::processes::Sightings;

/// Everything that was seen of one run.
#[derive(Debug)]
pub struct Run {
    /// Output of the loop's processes, deduplicated per process.
    pub heard: Vec<Value>,
    /// The event log as it stands at the end.
    pub log: Vec<Value>,
    /// From start to end.
    pub seconds: f64,
    /// Each kill that was done: where, and of whom.
    pub kills: Vec<(String, &'static str)>,
    /// Steps computed over all attempts.
    pub computed: u64,
    /// When agents were seen.
    pub sightings: Sightings,
    /// Processes that still ran after the run had reported that it was done.
    pub leftover: usize,
}

impl Run {
    fn done(&self) -> Option<&Value> {
        self.heard.iter().rev().find(|value| value["event"] == "done")
    }

    /// Optimiser steps of the run.
    pub fn steps(&self) -> u64 {
        self.done().and_then(|done| done["steps"].as_u64()).unwrap_or(0)
    }

    /// The billed cost, in micro-dollars.
    pub fn spent(&self) -> u64 {
        self.done().and_then(|done| done["bill_micro_usd"].as_u64()).unwrap_or(0)
    }

    /// SHA-256 of the model.
    pub fn model(&self) -> &str {
        self.done().and_then(|done| done["model_sha256"].as_str()).unwrap_or("none")
    }
}

/// Prefix of a problem where the model differs from the undisturbed one.
pub const OTHER_MODEL: &str = "the model is";

/// Prefix of a problem where a manifest references missing data.
pub const NOT_VERIFIED: &str = "a checkpoint did not verify";

/// Everything that is wrong with a run; nothing when it is as it should be.
pub fn judge(run: &Run, truth: Option<&Run>, interval: u64) -> Vec<String> {
    let mut problems = Vec::new();
    let outcome = run.done().map_or("none", |done| done["outcome"].as_str().unwrap_or("none"));
    if outcome != "trained" {
        problems.push(format!("outcome {outcome}: {}", run.done().map_or(&Value::Null, |done| &done["finding"])));
    }
    if let Some(truth) = truth {
        if run.model() != truth.model() {
            problems.push(format!("{OTHER_MODEL} {}, not {}", run.model(), truth.model()));
        }
        let most = truth.steps() + run.kills.len() as u64 * (interval + 1);
        if run.computed > most {
            problems.push(format!("{} steps computed, at most {most} expected", run.computed));
        }
    }
    problems.extend(records(run));
    problems
}

/// Everything that is wrong with a run that trains until so many micro-dollars are spent.
pub fn judge_spending(run: &Run, budget: u64) -> Vec<String> {
    let mut problems = records(run);
    let done = run.done().unwrap_or(&Value::Null);
    if done["outcome"] != "stopped" {
        problems.push(format!("outcome {}: {}", done["outcome"], done["finding"]));
    }
    if !run.log.iter().any(|value| value["event"] == "stop_requested" && value["by"] == "budget") {
        problems.push("it was not stopped by its budget".to_owned());
    }
    if run.spent() == 0 || run.spent() > budget {
        problems.push(format!("it is billed {} of a budget of {budget} micro-dollars", run.spent()));
    }
    problems
}

/// The problems of log, checkpoints, bill and processes, whatever the outcome of the run.
fn records(run: &Run) -> Vec<String> {
    let mut problems = Vec::new();
    if run.leftover > 0 {
        problems.push(format!("{} processes were left", run.leftover));
    }
    problems.extend(log(run));
    problems.extend(checkpoints(run));
    problems.extend(bill(run));
    problems
}

/// The log has no gap, and every event that was reported before a kill is still in it, unchanged.
fn log(run: &Run) -> Vec<String> {
    let mut problems = Vec::new();
    let gap = run.log.iter().zip(1u64..).find(|(value, seq)| value["seq"].as_u64() != Some(*seq));
    if let Some((value, seq)) = gap {
        problems.push(format!("event {seq} is missing; {} follows", value["seq"]));
    }
    let by_seq: BTreeMap<u64, &Value> =
        run.log.iter().filter_map(|value| Some((value["seq"].as_u64()?, value))).collect();
    for value in &run.heard {
        let Some(seq) = value["seq"].as_u64() else { continue };
        if by_seq.get(&seq) != Some(&value) {
            problems.push(format!("event {seq} was acknowledged and is lost or changed"));
        }
    }
    problems
}

/// A manifest stands only where its data does, so no checkpoint is ever passed over after a kill.
fn checkpoints(run: &Run) -> Option<String> {
    let over = |value: &Value| Some(value["ready"]["passed_over"].as_array()?.first()?.to_string());
    run.log.iter().find_map(over).map(|why| format!("{NOT_VERIFIED}: {why}"))
}

/// The rent agrees with the harness' own clock within a second an instance, and the sum is exact.
fn bill(run: &Run) -> Vec<String> {
    let mut problems = Vec::new();
    let bills: Vec<&Value> = run.log.iter().filter(|value| value["event"] == "billed").collect();
    let [billed] = bills.as_slice() else {
        return vec![format!("{} bills", bills.len())];
    };
    let lines = billed["bill"]["lines"].as_array().cloned().unwrap_or_default();
    let mut total = 0;
    for line in &lines {
        let instance = line["instance"].as_str().unwrap_or_default();
        let micros = line["usage"]["elapsed"].as_u64().unwrap_or(0);
        // 3.6 dollars an hour are exactly one micro-dollar a millisecond, rounded up.
        let amount = micros.div_ceil(1_000);
        total += amount;
        let told = money(&line["amount"]);
        if told != Some(amount) {
            problems.push(format!("{instance} is billed {told:?} micro-dollars, not {amount}"));
        }
        let seen = run.sightings.0.get(instance).map_or(0.0, |(first, last)| last - first);
        if (seen - micros as f64 / 1e6).abs() > 1.0 {
            problems
                .push(format!("{instance} is billed for {:.3} s and was seen for {seen:.3} s", micros as f64 / 1e6));
        }
    }
    if money(&billed["bill"]["total"]) != Some(total) {
        problems.push(format!("the bill's total is {}, not {total} micro-dollars", billed["bill"]["total"]));
    }
    for instance in run.sightings.0.keys() {
        if !lines.iter().any(|line| line["instance"] == instance.as_str()) {
            problems.push(format!("{instance} ran and is on no bill"));
        }
    }
    problems
}

/// `$0.001234` in micro-dollars.
fn money(value: &Value) -> Option<u64> {
    let (whole, fraction) = value.as_str()?.strip_prefix('$')?.split_once('.')?;
    Some(whole.parse::<u64>().ok()? * 1_000_000 + format!("{fraction:0<6}").parse::<u64>().ok()?)
}
