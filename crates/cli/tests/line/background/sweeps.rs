//! Sweeps of a server: over its API, and from the command line of another machine.

use serde_json::{Value, json};

use super::budgets::with_budgets;
use super::remote::{logged_in, succeeded};
use super::serve::Server;
use crate::home::{Home, said, text};

/// Three trials of a program.
const PROGRAM: &str =
    "name: search\nenvs: {N: 0}\nrun: echo trial $N\nsweep: {table: [{envs.N: 1}, {envs.N: 2}, {envs.N: 3}]}\n";

/// Two trials that end when they are stopped.
fn endless(budget: &str) -> String {
    format!("name: long\nenvs: {{N: 0}}\n{budget}run: sleep 600\nsweep: {{table: [{{envs.N: 1}}, {{envs.N: 2}}]}}\n")
}

fn numbers(shown: &Value) -> Vec<u64> {
    shown["trials"].as_array().unwrap().iter().map(|trial| trial["trial"].as_u64().unwrap()).collect()
}

#[test]
fn a_sweep_is_submitted_shown_by_pages_and_reported_over_the_api() {
    let home = Home::new();
    let server = Server::start_with(&home, &[]);
    let get = |path: &str| server.ask("GET", path, &Value::Null).1;
    let (key, body) = (["Idempotency-Key: once"], json!({ "job": PROGRAM, "folder": home.path() }));
    let submit = |path: &str, body: &Value| server.try_ask("POST", path, &key, &body.to_string()).unwrap();
    let ((status, first), (again, second)) = (submit("/v1/sweeps", &body), submit("/v1/sweeps", &body));
    assert_eq!((status, again), (201, 200), "{first} {second}");
    assert_eq!((&first["sweep"], &second["is_new"]), (&second["sweep"], &json!(false)));
    // The key means this sweep, whatever else is asked for with it.
    let other = json!({ "job": "run: echo\n", "folder": home.path() });
    for path in ["/v1/sweeps", "/v1/runs"] {
        let (status, refused) = submit(path, &other);
        assert!(status == 409 && refused.to_string().contains("another request"), "{path} {refused}");
    }
    let sweep = first["sweep"].as_str().unwrap().to_owned();
    let show = |query: &str| get(&format!("/v1/sweeps/{sweep}{query}"));
    home.until("the sweep has ended", || show("")["word"] == "done");
    let page = show("?limit=2");
    assert_eq!((numbers(&page), &page["has_more"], &page["trial_count"]), (vec![1, 2], &json!(true), &json!(3)));
    assert_eq!(page["trials"][1]["values"]["envs.N"].to_string().trim_matches('"'), "2", "{page}");
    let page = show("?after=2");
    assert_eq!((numbers(&page), &page["has_more"]), (vec![3], &json!(false)));
    // What rests on all trials is computed once, with the first page.
    let has_cost = ["", "?after=2"].map(|query| show(query)["cost_micro_usd"].is_i64());
    assert_eq!(has_cost, [true, false]);
    let listed = get("/v1/sweeps?name=sea");
    assert_eq!((&listed["sweeps"][0]["sweep"], &listed["sweeps"][0]["trials"]), (&json!(sweep), &json!(3)), "{listed}");
    assert_eq!(get(&format!("/v1/sweeps?before={sweep}")), json!({ "sweeps": [], "has_more": false }));
    assert_eq!(get("/v1/runs?trials=false")["runs"], json!([]));
    assert_eq!(get("/v1/runs")["runs"][0]["sweep"], json!(sweep));
    let events = show("/events");
    let words: Vec<&str> =
        events["events"].as_array().unwrap().iter().filter_map(|record| record["event"]["event"].as_str()).collect();
    assert_eq!((words.first(), words.last()), (Some(&"sweep_submitted"), Some(&"sweep_ended")), "{events}");
    assert_eq!(words.iter().filter(|word| **word == "billed").count(), 3, "{words:?}");
    let last = server.follow(&format!("/v1/sweeps/{sweep}/events?follow"), &[]).last().unwrap();
    assert_eq!((last.0.as_str(), &last.2), ("end", &json!({ "sweep": sweep, "state": "done" })));
    let report = show("/report");
    assert!(report.as_str().unwrap().contains(&sweep), "{report}");
}

#[test]
fn gc_beside_a_server_keeps_files_of_trials_until_their_sweep_has_ended() {
    let home = Home::new();
    let server = Server::start_with(&home, &[]);
    let job = "name: search\nenvs: {N: 0}\nrun: '[ $N = 1 ] || sleep 600'\n\
               sweep: {table: [{envs.N: 1}, {envs.N: 2}], parallel: 1}\n";
    let (status, submitted) = server.ask("POST", "/v1/sweeps", &json!({ "job": job, "folder": home.path() }));
    assert_eq!(status, 201, "{submitted}");
    let sweep = submitted["sweep"].as_str().unwrap().to_owned();
    let trials = || server.ask("GET", &format!("/v1/sweeps/{sweep}"), &Value::Null).1["trials"].clone();
    home.until("the second trial runs", || trials()[1]["word"] == "running");
    let cost = format!("/v1/runs/{}/cost", trials()[0]["run"].as_str().unwrap());
    home.until("the first one is billed", || server.ask("GET", &cost, &Value::Null).1["final"] == true);
    let listed = || home.gradus(&["gc", "--dry-run"]);
    assert!(!listed().out.contains("working folders"), "{}", listed().out);
    assert_eq!(server.ask("POST", &format!("/v1/sweeps/{sweep}/stop"), &Value::Null).0, 202);
    home.until("files of its trials to be free", || listed().out.contains("working folders"));
}

#[test]
fn what_is_no_sweep_is_refused_with_the_next_thing_to_do() {
    let home = Home::new();
    let server = Server::start_with(&home, &[]);
    let check = |method: &str, path: &str, job: &str, status: u16, part: &str| {
        let body = if job.is_empty() { Value::Null } else { json!({ "job": job, "folder": home.path() }) };
        let (was, answer) = server.ask(method, path, &body);
        assert!(was == status && answer.to_string().contains(part), "{method} {path}: {was} {answer}");
    };
    check("POST", "/v1/runs", PROGRAM, 422, "send it to `/v1/sweeps`");
    check("POST", "/v1/sweeps", "run: echo\n", 422, "send a single run to `/v1/runs`");
    let pipeline = "name: a\nrun: 'true'\n---\nname: b\nrun: 'true'\n";
    for path in ["/v1/runs", "/v1/sweeps"] {
        check("POST", path, pipeline, 422, "send it to `/v1/pipelines`");
    }
    check("POST", "/v1/plans", pipeline, 200, "\"tasks\"");
    let halving = "run: echo\nsweep: {trials: 2, method: {asha: {}}, parameters: {envs.N: [1, 2]}}\n";
    check("POST", "/v1/sweeps", halving, 422, "successive halving counts epochs");
    check("POST", "/v1/plans", PROGRAM, 200, "\"known\"");
    for (method, path) in [("GET", ""), ("GET", "/events"), ("GET", "/report"), ("POST", "/stop")] {
        check(method, &format!("/v1/sweeps/nobody{path}"), "", 404, "no sweep is called `nobody`");
    }
    let (status, answer) = server.ask("POST", "/v1/sweeps/nobody/resume", &json!({}));
    assert!(status == 404 && answer.to_string().contains("no sweep is called `nobody`"), "{answer}");
    check("GET", "/v1/sweeps?before=nobody", "", 404, "no sweep is called `nobody`");
    check("GET", "/v1/sweeps?state=done", "", 400, "state");
}

#[test]
fn a_sweep_over_the_api_needs_a_budget_that_fits_also_when_it_is_resumed() {
    let home = with_budgets(r#"{"month": "$1"}"#);
    let server = Server::start_with(&home, &["--price", "0.36/h"]);
    let submit =
        |budget: &str| server.ask("POST", "/v1/sweeps", &json!({ "job": endless(budget), "folder": home.path() }));
    let check = |(status, answer): (u16, Value), expected: u16, part: &str| {
        assert!(status == expected && answer.to_string().contains(part), "{status} {answer}");
    };
    check(submit(""), 422, "and this sweep has no budget");
    check(submit("budget: {max: $2}\n"), 409, "and the sweep may spend $2.00");
    let (status, first) = submit("budget: {max: $0.5}\n");
    assert_eq!(status, 201, "{first}");
    check(submit("budget: {max: $0.75}\n"), 409, "and the sweep may spend $0.75");
    let path = format!("/v1/sweeps/{}", first["sweep"].as_str().unwrap());
    let word = || server.ask("GET", &path, &Value::Null).1;
    home.until("a trial runs", || word()["trials"][0]["word"] == "running");
    check(server.ask("POST", &format!("{path}/resume"), &json!({})), 409, "is still running");
    let stop = || server.ask("POST", &format!("{path}/stop"), &Value::Null);
    check(stop(), 202, "sweep");
    home.until("it is stopped", || word()["word"] == "stopped");
    check(stop(), 202, "sweep");
    check(server.ask("POST", &format!("{path}/resume"), &json!({ "budget": "$2" })), 409, "may spend");
    check(server.ask("POST", &format!("{path}/resume"), &json!({ "budget": "two" })), 400, "`budget`");
    // What the server cannot rent from is refused, and not waited for.
    let served = home.path().join("server.providers");
    let providers = std::fs::read(&served).unwrap();
    std::fs::write(&served, "aws\n").unwrap();
    check(server.ask("POST", &format!("{path}/resume"), &json!({})), 409, "cannot rent from");
    std::fs::write(&served, providers).unwrap();
    let told = home.path().join(format!("sweeps/{}/told", first["sweep"].as_str().unwrap()));
    std::fs::create_dir_all(told.parent().unwrap()).unwrap();
    std::fs::write(&told, "").unwrap();
    // Sent again, it resumes once.
    let resume = || server.try_ask("POST", &format!("{path}/resume"), &["Idempotency-Key: again"], "{}").unwrap();
    check(resume(), 202, "sweep");
    check(resume(), 202, "sweep");
    let events = server.ask("GET", &format!("{path}/events"), &Value::Null).1.to_string();
    assert_eq!(events.matches("\"sweep_resume_requested\"").count(), 1, "{events}");
    assert!(!told.exists(), "its next end is not reported yet");
    check(stop(), 202, "sweep");
    home.until("it is stopped again", || word()["word"] == "stopped");
}

#[test]
fn commands_show_the_same_sweeps_of_a_server_as_of_its_home() {
    let (there, _served, here) = logged_in();
    let job = there.job("search.yaml", PROGRAM);
    let run = here.gradus(&["run", text(&job), "--yes"]);
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(run.err.contains("trial 1 of 3: envs.N 1") && run.err.contains("trial 3: succeeded"), "{}", run.err);
    assert!(run.out.contains(": done\n") && run.out.contains("bill     $0.00 for 3 trials"), "{}", run.out);
    let last = here.gradus(&["run", text(&job), "--yes", "--json"]).last();
    assert_eq!((&last["event"], &last["outcome"]), (&"done".into(), &"done".into()), "{last}");
    assert!(here.path().join("sweeps").read_dir().unwrap().next().is_none(), "nothing runs here");
    let sweep = last["sweep"].as_str().unwrap();
    let commands: [(&[&str], i32); 16] = [
        (&["status"], 0),
        (&["status", "--json"], 0),
        (&["status", "last"], 0),
        (&["status", sweep, "--json"], 0),
        (&["status", "search-"], 2),
        (&["cost", "last"], 0),
        (&["cost", sweep, "--json"], 0),
        (&["logs", "last"], 0),
        (&["logs", sweep], 2),
        (&["stop", "last"], 0),
        (&["stop", sweep, "--json"], 0),
        (&["wait", "last"], 0),
        (&["attach", sweep], 2),
        (&["resume", sweep, "--budget", "$5"], 2),
        (&["resume", sweep, "--set", "epochs=2"], 2),
        // Programs leave no model.
        (&["models", "export", "last", "--to", "copy"], 101),
    ];
    for (command, code) in commands {
        let (mine, its) = (here.gradus(command), there.gradus(command));
        assert_eq!(mine.code, Some(code), "{command:?} {}", mine.err);
        let folder = format!("\"folder\":{}", json!(there.path().join("sweeps").join(sweep)));
        assert_eq!((mine.code, mine.out), (its.code, its.out.replace(&folder, "\"folder\":null")), "{command:?}");
        if code != 0 {
            assert_eq!(mine.err, its.err, "{command:?}");
        }
    }
    let refused = here.gradus(&["resume", sweep, "--budget", "$5"]).err;
    assert!(refused.contains("hint: submit the job again") && !refused.contains("--set"), "{refused}");
    let pipeline = there.job("two.yaml", "name: a\nrun: 'true'\n---\nname: b\nrun: 'true'\n");
    let out = succeeded(here.gradus(&["run", text(&pipeline)]));
    assert!(out.contains("pipeline two-") && out.contains(": done"), "{out}");
}

#[test]
fn a_sweep_of_a_server_is_detached_stopped_and_resumed_from_elsewhere() {
    let (there, _served, here) = logged_in();
    let job = there.job("long.yaml", &endless(""));
    let out = succeeded(here.gradus(&["run", text(&job), "--yes", "--detach"]));
    assert!(out.contains(": continues in the background\nfollow   gradus attach long-"), "{out}");
    let runs = |trial: &str| {
        let listed = here.gradus(&["status"]).out;
        listed.lines().any(|line| line.contains(trial) && line.contains("running"))
    };
    there.until("the first trial", || runs("-t1"));
    let attached = here.start(&["attach", "last"]);
    let out = succeeded(here.gradus(&["stop", "last"]));
    assert!(out.contains(": stopped\n") && out.contains("resume   gradus resume long-"), "{out}");
    let attached = said(attached.wait_with_output().unwrap());
    // It may have come too late.
    assert!(attached.code == Some(103) || attached.err.contains("has ended: stopped"), "{}", attached.err);
    assert_eq!(here.gradus(&["wait", "last"]).code, Some(103));
    let resumed = here.start(&["resume", "last"]);
    there.until("the first trial again", || runs("-t1"));
    succeeded(there.gradus(&["stop", "last"]));
    let resumed = said(resumed.wait_with_output().unwrap());
    assert!(resumed.code == Some(103) && resumed.err.contains("resuming"), "{}{}", resumed.out, resumed.err);
    // Where a server runs for the home, it continues what is detached there.
    let out = succeeded(there.gradus(&["run", text(&job), "--yes", "--new", "--detach"]));
    assert!(out.contains(": continues in the background\n"), "{out}");
    there.until("a trial of the other", || runs("-t1"));
    succeeded(there.gradus(&["stop", "last"]));
    assert_eq!(there.gradus(&["wait", "last"]).code, Some(103));
}

#[test]
fn what_has_ended_in_the_background_is_reported_and_not_detached_again() {
    let home = Home::new();
    let _server = Server::start_with(&home, &[]);
    for (name, text_of_job, word) in [("search.yaml", PROGRAM, "done"), ("one.yaml", "run: echo one\n", "succeeded")] {
        let job = home.job(name, text_of_job);
        let run = || succeeded(home.gradus(&["run", text(&job), "--yes", "--detach"]));
        let first = run();
        assert!(first.contains("continues in the background"), "{first}");
        succeeded(home.gradus(&["wait", "last"]));
        let second = run();
        assert!(second.contains(&format!(": {word}\n")) && !second.contains("in the background"), "{second}");
    }
}

#[test]
fn trials_of_a_program_are_compared_by_what_it_reports() {
    let home = Home::new();
    let file = home.job(
        "lr.yaml",
        "name: lr\nenvs: {LR: 0}\nrun: |\n  echo step 1 accuracy 0.125\n  echo step 2 accuracy $LR\nprogress: {regex: 'step (?<step>\\d+) accuracy (?<accuracy>\\S+)'}\nsweep: {method: grid, metric: accuracy, parameters: {envs.LR: [0.25, 0.75, 0.5]}}\n",
    );
    let run = home.gradus(&["run", text(&file), "--json"]);
    assert_eq!(run.code, Some(0), "{}{}", run.out, run.err);
    let done = run.last();
    assert_eq!((&done["best"]["number"], &done["best"]["value"]), (&json!(2), &json!(0.75)), "{done}");
    let events = home.gradus(&["events"]).out;
    assert!(events.contains("measured 0.75") && !events.contains("measured 0.125"), "{events}");

    // More lies between than is read at once.
    let file = home.job(
        "nan.yaml",
        "name: nan\nenvs: {LAST: 0}\nrun: |\n  echo step 1 loss 0.125\n  seq 800000\n  echo step 2 loss $LAST\nprogress: {regex: 'step (?<step>\\d+) loss (?<loss>\\S+)'}\nsweep: {method: grid, metric: loss, parameters: {envs.LAST: ['0.5', 'nan', '0.25']}}\n",
    );
    let run = home.gradus(&["run", text(&file)]);
    assert_eq!(run.code, Some(0), "{}{}", run.out, run.err);
    // Best first, and last the one that ended with NaN, however low its loss was before.
    let rows = run.out.lines().filter(|line| line.contains("succeeded") || line.contains("failed"));
    let cells: Vec<_> = rows.map(|row| row.split_whitespace().take(4).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(cells, ["3 succeeded 0.2500 0.25", "1 succeeded 0.5000 0.5", "2 failed not finite"], "{}", run.out);
    assert!(run.out.contains("best     trial 3: loss 0.2500"), "{}", run.out);

    let silent = home.job(
        "silent.yaml",
        "envs: {LR: 0}\nrun: echo\nsweep: {method: grid, metric: f1, parameters: {envs.LR: [1]}}\n",
    );
    let run = home.gradus(&["run", text(&silent)]);
    assert!(run.code != Some(0) && run.err.contains("no trial has reported `f1`"), "{}", run.err);
}
