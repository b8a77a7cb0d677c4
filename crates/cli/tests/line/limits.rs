//! Budget and deadline stop a run, and say so. The programs never end by themselves, so that nothing here depends on how
//! fast this machine is; when a limit is reached is a pure decision, tested in `crates/plan/tests/limits.rs`.

use domain::Money;
use serde_json::Value;

use crate::home::{Home, Said, gated, said, text};

/// Micro-dollars of a run's final bill, which is the sum of its lines.
fn billed(home: &Home, said: &Said) -> i64 {
    let done = said.last();
    assert_eq!(done["outcome"], "stopped");
    let bill = &home.gradus(&["cost", "last", "--json"]).last()["bill"];
    let money = |amount: &Value| amount.as_str().unwrap().parse::<Money>().unwrap();
    let sum: Money = bill["lines"].as_array().unwrap().iter().map(|line| money(&line["amount"])).sum();
    assert_eq!(sum, money(&bill["total"]));
    assert_eq!(sum.micros(), done["bill_micro_usd"].as_i64().unwrap());
    sum.micros()
}

/// Who asked the run to stop, each time.
fn stopped_by(said: &Said) -> Vec<Value> {
    let events = said.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["event"] == "stop_requested").map(|event| event["by"].clone()).collect()
}

#[test]
fn a_spent_budget_stops_a_run_and_more_of_it_resumes_it() {
    let home = Home::new();
    // 36 dollars an hour are a cent a second.
    let job = home.job("gated.yaml", &format!("{}budget: {{max: $0.07}}\n", gated()));
    let said = home.gradus(&["run", text(&job), "--json", "--yes", "--price", "36/h"]);
    assert_eq!(said.code, Some(103), "{}", said.err);
    assert_eq!(stopped_by(&said), ["budget"]);
    let spent = billed(&home, &said);
    let status = home.gradus(&["status", "last"]).out;
    assert!(
        status.contains("\nwhy      its budget of $0.07 is spent; resume it with `gradus resume gated-"),
        "{status}"
    );
    let refused = home.gradus(&["resume", "last"]);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.contains("--budget"), "{}", refused.err);
    let more = format!("${:.2}", spent as f64 / 1e6 + 0.07);
    let resumed = home.gradus(&["resume", "last", "--budget", &more, "--json"]);
    assert_eq!(resumed.code, Some(103), "{}", resumed.err);
    assert_eq!(stopped_by(&resumed), ["budget"]);
    assert!(billed(&home, &resumed) > spent);
}

#[test]
fn a_deadline_stops_a_run() {
    let home = Home::new();
    let job = home.job("gated.yaml", &format!("{}deadline: 2s\n", gated()));
    let said = home.gradus(&["run", text(&job), "--json"]);
    assert_eq!(said.code, Some(103), "{}", said.err);
    assert_eq!(stopped_by(&said), ["deadline"]);
}

#[test]
fn limits_on_silence_are_shown_before_a_run_and_while_it_runs() {
    let home = Home::new();
    let job = home.job("gated.yaml", &format!("{}hang_after: {{step: 1h}}\n", gated()));
    let hang = "\nhang     step 1h (stated in the job)\n";
    let planned = home.gradus(&["plan", text(&job)]);
    assert!(planned.out.contains(hang), "{}{}", planned.out, planned.err);
    let running = home.start(&["run", text(&job), "--yes"]);
    home.until("a running run", || home.state() == "running");
    let status = home.gradus(&["status", "last"]).out;
    assert!(status.contains(hang), "{status}");
    let shown = home.gradus(&["status", "last", "--json"]).last();
    assert_eq!(shown["hang_after"][0]["after"], "1h");
    home.open_gate();
    assert_eq!(said(running.wait_with_output().unwrap()).code, Some(0));
}
