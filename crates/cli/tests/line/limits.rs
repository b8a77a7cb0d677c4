//! Budget and deadline stop a run, and say so.

use crate::home::{Home, counting, text};

#[test]
fn a_budget_is_never_exceeded() {
    let home = Home::new();
    // 36 dollars an hour are a cent a second, and five seconds are kept back for saving: about two seconds of work.
    let job = home.job("count.yaml", &format!("{}budget: {{max: $0.07}}\n", counting(600)));
    let said = home.gradus(&["run", text(&job), "--json", "--yes", "--price", "36/h"]);
    assert_eq!(said.code, Some(103), "{}", said.err);
    let done = said.last();
    assert_eq!(done["outcome"], "stopped");
    let micros = done["bill_micro_usd"].as_u64().unwrap();
    assert!((1..=70_000).contains(&micros), "{micros}");
    assert!(said.out.contains("\"by\":\"budget\""));
    let refused = home.gradus(&["resume", "last"]);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.contains("--budget"), "{}", refused.err);
    let more = home.gradus(&["resume", "last", "--budget", "$0.14", "--json"]);
    assert_eq!(more.code, Some(103), "{}", more.err);
    let spent = more.last()["bill_micro_usd"].as_u64().unwrap();
    assert!((micros + 1..=140_000).contains(&spent), "{spent}");
}

#[test]
fn a_deadline_stops_a_run() {
    let home = Home::new();
    let job = home.job("count.yaml", &format!("{}deadline: 2s\n", counting(600)));
    let said = home.gradus(&["run", text(&job), "--json"]);
    assert_eq!(said.code, Some(103), "{}", said.err);
    assert!(said.out.contains("\"by\":\"deadline\""));
}
