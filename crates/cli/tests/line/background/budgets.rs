//! What may be spent in a month holds for whatever asks: commands and the API, runs, sweeps and what is resumed.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use super::remote::Served;
use super::serve::Server;
use crate::home::{Home, said, text};

pub fn with_budgets(text: &str) -> Home {
    let home = Home::new();
    fs::create_dir_all(home.path()).unwrap();
    fs::write(home.path().join("budgets.json"), text).unwrap();
    home
}

/// What `gradus cost` says of the month: allowed, spent and reserved, in micro-dollars.
fn month(home: &Home) -> [i64; 3] {
    let said = home.gradus(&["cost", "--by", "project", "--json"]);
    let lines = said.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let found = lines.into_iter().find(|line| line.get("budget").is_some()).unwrap_or_else(|| panic!("{}", said.out));
    ["allowed_micro_usd", "spent_micro_usd", "reserved_micro_usd"].map(|key| found[key].as_i64().unwrap())
}

const RACERS: usize = 8;
const EACH: usize = 125;

#[test]
fn a_thousand_racing_submits_never_exceed_a_month_s_budget() {
    let home = with_budgets(r#"{"month": "$10"}"#);
    let server = Server::start_with(&home, &["--price", "0.36/h"]);
    let body = json!({ "job": "name: p\nbudget: {max: $0.25}\nrun: sleep 600\n", "folder": home.path() });
    let job = home.job("job.yaml", "name: q\nbudget: {max: $0.25}\nrun: sleep 600\n");
    let (admitted, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..RACERS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let (status, answer) = server.ask("POST", "/v1/runs", &body);
                    let message = answer["error"]["message"].as_str().unwrap_or_default();
                    match status {
                        201 => admitted.fetch_add(1, Ordering::SeqCst),
                        409 if message.contains("and the run may spend $0.25") => {
                            refused.fetch_add(1, Ordering::SeqCst)
                        }
                        _ => panic!("{status} {answer}"),
                    };
                }
            });
        }
        // Commands race with the API.
        scope.spawn(|| {
            for _ in 0..5 {
                let said =
                    home.gradus(&["run", job.to_str().unwrap(), "--new", "--detach", "--yes", "--price", "0.36/h"]);
                match said.code {
                    Some(0) => admitted.fetch_add(1, Ordering::SeqCst),
                    _ => refused.fetch_add(1, Ordering::SeqCst),
                };
            }
        });
    });
    let (admitted, refused) = (admitted.into_inner(), refused.into_inner());
    println!("{admitted} admitted and {refused} refused in {:?}", begun.elapsed());
    assert_eq!((admitted, admitted + refused), (40, RACERS * EACH + 5), "40 of $0.25 fit into $10");
    let [allowed, spent, reserved] = month(&home);
    assert_eq!((allowed, spent + reserved), (10_000_000, 10_000_000), "{spent} spent, {reserved} reserved");
}

#[test]
fn what_is_resumed_asks_again_and_a_request_that_is_repeated_does_not() {
    let home = with_budgets(r#"{"month": "$1"}"#);
    let server = Server::start_with(&home, &["--price", "0.36/h"]);
    let post = |path: &str, body: &Value| server.ask("POST", path, body);
    let submit = |name: &str, budget: &str| {
        let job = format!("name: {name}\n{budget}run: sleep 600\n");
        post("/v1/runs", &json!({ "job": job, "folder": home.path() }))
    };
    let (status, answer) = submit("first", "");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(
        status == 422 && message.contains("this home may spend $1.00 this month, and this run has no budget"),
        "{answer}"
    );
    let key = ["Idempotency-Key: once"];
    let body =
        json!({ "job": "name: first\nbudget: {max: $0.75}\nrun: sleep 600\n", "folder": home.path() }).to_string();
    let once = || server.try_ask("POST", "/v1/runs", &key, &body).unwrap();
    let (status, first) = once();
    assert_eq!((status, once().0), (201, 200), "it is not paid twice: {first}");
    let first = first["run"].as_str().unwrap().to_owned();
    assert_eq!(submit("second", "budget: {max: $0.5}\n").0, 409);
    let state = |run: &str| server.ask("GET", &format!("/v1/runs/{run}"), &Value::Null).1;
    home.until("it runs", || state(&first)["word"] == "running");
    post(&format!("/v1/runs/{first}/stop"), &Value::Null);
    home.until("it is billed", || !state(&first)["bill"].is_null());
    // What it did not spend is free for others, and no longer its own.
    let (status, second) = submit("second", "budget: {max: $0.5}\n");
    assert_eq!(status, 201, "{second}");
    let second = second["run"].as_str().unwrap();
    for body in [json!({}), json!({ "budget": "$0.9" })] {
        let (status, answer) = post(&format!("/v1/runs/{first}/resume"), &body);
        assert!(status == 409 && answer["error"]["message"].as_str().unwrap().contains("may spend"), "{answer}");
    }
    let said = home.gradus(&["resume", &first, "--budget", "$0.9"]);
    assert!(said.code == Some(3) && said.err.contains("has $0.4") && said.err.contains("may spend"), "{}", said.err);
    assert_eq!(post(&format!("/v1/runs/{first}/resume"), &json!({ "budget": "$0.3" })).0, 202);
    let [allowed, spent, reserved] = month(&home);
    assert!(spent + reserved <= allowed && reserved > 600_000, "{spent} spent, {reserved} reserved");
    for run in [&first, second] {
        post(&format!("/v1/runs/{run}/stop"), &Value::Null);
    }
}

#[test]
fn a_sweep_needs_a_budget_that_fits() {
    let home = with_budgets(r#"{"projects": {"vision": "$1"}}"#);
    let pixels = |row: u32| (0..64).map(|column| ((row * 31 + column * 17) % 16).to_string()).collect::<Vec<_>>();
    let table: String = (0..40).map(|row| format!("{},{}\n", pixels(row).join(","), row % 4)).collect();
    home.job("table.csv", &table);
    let sweep = |budget: &str| {
        let text = format!(
            "name: s\nproject: vision\n{budget}train: {{model: mlp, data: {{path: table.csv}}, epochs: 1, batch: 4}}\n\
             sweep: {{method: grid, metric: accuracy, parameters: {{batch: [4, 8]}}}}\n"
        );
        let job = home.job("sweep.yaml", &text);
        home.gradus(&["run", job.to_str().unwrap(), "--yes", "--price", "0.36/h"])
    };
    let said = sweep("");
    assert!(
        said.code == Some(2)
            && said.err.contains("project `vision` may spend $1.00 this month, and this sweep has no budget"),
        "{}",
        said.err
    );
    let said = sweep("budget: {max: $2}\n");
    assert!(said.code == Some(3) && said.err.contains("and the sweep may spend $2.00"), "{}", said.err);
    let said = sweep("budget: {max: $0.5}\n");
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
}

#[test]
fn whoever_has_a_token_spends_what_its_name_may_spend() {
    let (there, here) = (with_budgets(r#"{"users": {"ann": "$1"}}"#), Home::new());
    let token = |name: &str| {
        let created = there.gradus(&["token", "create", name]);
        assert_eq!(created.code, Some(0), "{}", created.err);
        created.out.trim().to_owned()
    };
    let (ann, ben) = (token("ann"), token("ben"));
    let served = Served::start(&there, &["--price", "0.36/h"]);
    let job = there.job("job.yaml", "name: p\nbudget: {max: $0.75}\nrun: sleep 600\n");
    let run = |token: &str| {
        let arguments = ["run", text(&job), "--new", "--detach", "--yes", "--server", served.url.as_str()];
        said(here.command(&arguments).env("GRADUS_TOKEN", token).output().unwrap())
    };
    let first = run(&ann);
    assert_eq!(first.code, Some(0), "{}", first.err);
    let second = run(&ann);
    assert!(second.code == Some(3) && second.err.contains("user `ann` has $0.25 left of $1.00"), "{}", second.err);
    let other = run(&ben);
    assert_eq!(other.code, Some(0), "{}", other.err);
    let costs = there.gradus(&["cost", "--by", "user", "--json"]).out;
    assert!(costs.contains("\"ann\""), "{costs}");
}
