//! Pipelines of a server by their names: stopped, resumed and waited for, with the server, without it, and with a remote one.

use serde_json::{Value, json};

use super::remote::{Served, logged_in, succeeded};
use super::serve::Server;
use crate::home::{Home, Said, said, text};

/// The first task waits for [`Home::open_gate`], the second reads what it has written.
const NIGHT: &str = "name: a\noutputs: [out]\nrun: |\n  echo made > out/data\n  while [ ! -e $GRADUS_CHECKPOINTS/gate ]; do sleep 0.05; done\n---\nname: b\nfile_mounts: {in: \"${a.outputs}/out\"}\nrun: grep made in/data\n";

/// Leaves a pipeline to the server, and returns its name once the first task runs.
fn detached(here: &Home, there: &Home) -> String {
    let file = there.job("night.yaml", &format!("name: night\n---\n{NIGHT}"));
    let said = here.gradus(&["run", text(&file), "--detach", "--json", "--yes"]);
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    let id = said.last()["pipeline"].as_str().unwrap().to_owned();
    until_running(here, &id);
    id
}

fn until_running(home: &Home, id: &str) {
    let state = || home.gradus(&["status", id, "--json"]).last()["run_states"][0].clone();
    home.until("the first task", || state() == "running");
}

fn refused(said: &Said, code: i32, part: &str) {
    assert!(said.code == Some(code) && said.err.contains(part), "{:?} {}{}", said.code, said.out, said.err);
}

#[test]
fn a_pipeline_is_stopped_and_resumed_by_its_name() {
    let home = Home::new();
    let _server = Server::start_with(&home, &[]);
    let id = detached(&home, &home);
    let shown = succeeded(home.gradus(&["status", "night-"]));
    assert!(
        shown.contains(&format!("pipeline {id}: running\n")) && shown.contains("task     b: not started"),
        "{shown}"
    );
    assert!(!shown.contains("no process"), "{shown}");
    refused(&home.gradus(&["logs", &id]), 2, &format!("such as `{id}-task1`"));
    refused(&home.gradus(&["attach", &id]), 2, "is a pipeline; this command takes a single run");
    refused(&home.gradus(&["resume", &id, "--budget", "$5"]), 2, "is still running");
    refused(&home.gradus(&["stop", "nobody"]), 102, "no run, sweep or pipeline is called `nobody`");

    let stopped = succeeded(home.gradus(&["stop", "night-"]));
    assert!(stopped.ends_with(&format!("pipeline {id}: stopped\nresume   gradus resume {id}\n")), "{stopped}");
    let again = home.gradus(&["stop", &id]);
    assert!(again.code == Some(0) && again.err.contains("is already stopped"), "{}", again.err);
    assert_eq!(home.gradus(&["wait", &id]).code, Some(103));

    let resumed = home.start(&["resume", "last"]);
    until_running(&home, &id);
    home.open_gate();
    let resumed = said(resumed.wait_with_output().unwrap());
    assert!(resumed.code == Some(0) && resumed.out.ends_with(&format!("pipeline {id}: done\n")), "{}", resumed.err);
    assert!(resumed.err.contains(&format!("task     2 of 2: run {id}-task2")), "{}", resumed.err);
    assert_eq!(home.gradus(&["wait", &id, "--json"]).last()["word"], "done");
    let done = home.gradus(&["resume", &id]);
    assert!(done.code == Some(0) && done.err.contains("is already done, and nothing was done"), "{}", done.err);
    refused(&home.gradus(&["resume", &id, "--budget", "$5"]), 2, "has ended with its results");

    let other = detached(&home, &home);
    refused(&home.gradus(&["stop", "night-"]), 2, "`night-` is ambiguous");
    assert!(succeeded(home.gradus(&["stop", "last"])).contains(&format!("pipeline {other}: stopped\n")));
}

#[test]
fn a_pipeline_whose_server_is_gone_is_stopped_and_continues_without_one() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--price", "0.36/h"]);
    let id = detached(&home, &home);
    drop(server);
    refused(&home.gradus(&["wait", &id]), 101, "no process runs the tasks");
    let shown = succeeded(home.gradus(&["status", &id]));
    assert!(shown.contains("start `gradus serve`, or continue with"), "{shown}");
    let stopped = succeeded(home.gradus(&["stop", &id]));
    assert!(stopped.contains(&format!("pipeline {id}: stopped\n")), "{stopped}");

    let resumed = home.start(&["resume", &id]);
    until_running(&home, &id);
    home.open_gate();
    let resumed = said(resumed.wait_with_output().unwrap());
    assert!(resumed.code == Some(0) && resumed.out.ends_with(&format!("pipeline {id}: done\n")), "{}", resumed.err);
    let events = home.gradus(&["events", "--json"]).out;
    let count = |word: &str| events.lines().filter(|line| line.contains(&format!("\"event\":\"{word}\""))).count();
    assert_eq!((count("pipeline_advanced"), count("submitted"), count("pipeline_ended")), (2, 2, 2), "{events}");
    let is_priced = |line: &str| !line.contains("\"event\":\"submitted\"") || line.contains("\"rate\":\"$0.36/h\"");
    assert!(events.lines().all(is_priced), "later tasks have the price of the server: {events}");
}

#[test]
fn a_task_that_cannot_be_planned_any_more_ends_its_pipeline_without_a_server() {
    let home = Home::new();
    let server = Server::start_with(&home, &[]);
    let data = home.job("data.txt", "made");
    let tasks = format!(
        "name: night\n---\nname: a\nrun: |\n  while [ ! -e $GRADUS_CHECKPOINTS/gate ]; do sleep 0.05; done\n---\nname: b\nfile_mounts: {{in: {}}}\nrun: cat in\n",
        data.display()
    );
    let file = home.job("night.yaml", &tasks);
    let id = home.gradus(&["run", text(&file), "--detach", "--json"]).last()["pipeline"].as_str().unwrap().to_owned();
    until_running(&home, &id);
    drop(server);
    std::fs::remove_file(&data).unwrap();
    let resumed = home.start(&["resume", &id]);
    home.open_gate();
    let resumed = said(resumed.wait_with_output().unwrap());
    refused(&resumed, 100, "task `b` failed:");
    let shown = succeeded(home.gradus(&["status", &id]));
    assert!(
        shown.contains(": failed\nwhy      task `b` failed:") && shown.contains("task     a: succeeded"),
        "{shown}"
    );
    // Once the cause is gone, it continues with that task.
    std::fs::write(&data, "made").unwrap();
    assert!(succeeded(home.gradus(&["resume", &id])).contains(&format!("pipeline {id}: done\n")));
}

#[test]
fn a_pipeline_of_a_remote_server_is_stopped_and_resumed_over_its_restart() {
    let (there, served, here) = logged_in();
    let id = detached(&here, &there);
    let stopped = succeeded(here.gradus(&["stop", "night-"]));
    assert_eq!(stopped, format!("pipeline {id}: stopped\nresume   gradus resume {id}\n"));
    let commands: [(&[&str], i32); 8] = [
        (&["status", "last"], 0),
        (&["status", "night-", "--json"], 0),
        (&["stop", &id], 0),
        (&["stop", &id, "--json"], 0),
        (&["wait", "last"], 103),
        (&["logs", &id], 2),
        (&["attach", &id], 2),
        (&["stop", "nobody"], 102),
    ];
    for (command, code) in commands {
        let (mine, its) = (here.gradus(command), there.gradus(command));
        assert_eq!(mine.code, Some(code), "{command:?} {}", mine.err);
        assert_eq!((mine.code, mine.out, mine.err), (its.code, its.out, its.err), "{command:?}");
    }
    let resumed = here.start(&["resume", &id]);
    until_running(&here, &id);
    // A server that is restarted is waited for.
    let address = served.url.strip_prefix("http://").unwrap().to_owned();
    drop(served);
    let _served = Served::start_at(&address, &there, &[]);
    there.open_gate();
    let resumed = said(resumed.wait_with_output().unwrap());
    assert!(
        resumed.code == Some(0) && resumed.out == format!("pipeline {id}: done\n"),
        "{}{}",
        resumed.out,
        resumed.err
    );
    let shown: Value = here.gradus(&["status", &id, "--json"]).last();
    assert_eq!((&shown["word"], &shown["run_states"]), (&json!("done"), &json!(["succeeded", "succeeded"])));
    refused(&here.gradus(&["resume", &id, "--budget", "$5"]), 2, "has ended with its results");
}
