//! What `status`, `cost` and `events` say is true, also where no loop was left to write it down.

use crate::home::{Home, Said, gated, said, signal, text};

/// A running run of a program that never ends by itself, at a cent a second.
fn running(home: &Home) -> std::process::Child {
    let job = home.job("gated.yaml", &gated());
    let running = home.start(&["run", text(&job), "--json", "--yes", "--price", "36/h"]);
    home.until("a running run", || home.state() == "running");
    running
}

fn cost(home: &Home) -> Said {
    home.gradus(&["cost", "last", "--json"])
}

#[test]
fn after_all_processes_were_killed_the_run_is_interrupted_and_its_rent_has_ended() {
    let home = Home::new();
    let running = running(&home);
    // The loop first, so that it rents no other machine for the one that dies.
    signal(running.id(), "KILL");
    said(running.wait_with_output().unwrap());
    for pid in home.pids("") {
        signal(pid, "KILL");
    }
    // A process that dies loses its command line, by which it is found, before its files, and with them its lock.
    home.until("the agent's end", || home.pids(" agent ").is_empty() && home.state() == "interrupted");
    let status = home.gradus(&["status", "last"]).out;
    assert!(status.contains(": interrupted\nwhy      no process runs it, and its machine ended at 20"), "{status}");
    assert!(status.contains("resume it with `gradus resume gated-"), "{status}");
    let machine = status.lines().find(|line| line.starts_with("machine  ")).unwrap();
    assert!(machine.contains(": ended after "), "{machine}");
    // A cent a second: by the wall clock the second would be more than the first.
    let (first, second) = (cost(&home).last(), cost(&home).last());
    assert_eq!(first["cost_micro_usd"], second["cost_micro_usd"]);
}

#[test]
fn after_the_loop_was_killed_the_run_is_unattended() {
    let home = Home::new();
    let running = running(&home);
    signal(running.id(), "KILL");
    said(running.wait_with_output().unwrap());
    assert_eq!(home.state(), "unattended");
    let status = home.gradus(&["status", "last"]).out;
    assert!(
        status.contains(": unattended\nwhy      no process runs it; it saves a checkpoint and stops within 1m of"),
        "{status}"
    );
    assert!(status.lines().any(|line| line.starts_with("machine  ") && line.ends_with(": up, $36.00/h")), "{status}");
}

#[test]
fn events_have_a_time_a_run_and_a_sentence_each() {
    let home = Home::new();
    let job = home.job("short.yaml", "name: short\nrun: 'true'\n");
    assert_eq!(home.gradus(&["run", text(&job)]).code, Some(0));
    let count = home.gradus(&["events", "--json"]).out.lines().count();
    let events = home.gradus(&["events"]).out;
    let lines: Vec<&str> = events.lines().skip(1).collect();
    assert_eq!(lines.len(), count, "{events}");
    for line in &lines {
        let (cells, sentence) = line.split_at(line.match_indices("  ").nth(1).unwrap().0);
        let (time, run) = cells.split_once("  ").unwrap();
        assert!(time.starts_with("20") && time.ends_with('Z') && run.trim().starts_with("short-"), "{line}");
        assert!(sentence.trim().split(' ').count() >= 1 && !sentence.trim().is_empty(), "{line}");
    }
    let ends: Vec<&str> =
        lines.iter().filter_map(|line| line.rsplit_once("  ")).map(|(_, sentence)| sentence).collect();
    assert!(ends.contains(&"succeeded") && ends.contains(&"billed $0.00"), "{events}");
}

#[test]
fn the_operations_log_is_listed_and_shown_in_the_report() {
    let home = Home::new();
    let job = home.job("quick.yaml", "name: quick\nrun: 'true'\n");
    assert_eq!(home.gradus(&["run", text(&job)]).code, Some(0));
    let nothing = home.gradus(&["events", "--operations"]);
    assert_eq!((nothing.out.as_str(), nothing.err.trim()), ("", "nothing went wrong in operation"));
    let run = home.gradus(&["status", "last", "--json"]).last()["run"].as_str().unwrap().to_owned();
    let opened = server::Home::open(&home.path()).unwrap();
    let series = server::Series::open(&opened).unwrap();
    let notes =
        [(format!("{run}-i1"), "its provider refuses to end it", false), (run, "decided on what cannot be", true)];
    for (subject, text, is_mistake) in notes {
        let note = server::OperationNote { subject, text: text.into(), is_mistake };
        series.note(domain::Timestamp(1_700_000_000_000_000), &note).unwrap();
    }
    let listed = home.gradus(&["events", "--operations"]).out;
    assert!(listed.contains("-i1  its provider refuses to end it"), "{listed}");
    assert!(listed.contains("  fault of gradus: decided on what cannot be"), "{listed}");
    let last = home.gradus(&["events", "--operations", "--json"]).last();
    assert_eq!((&last["text"], &last["is_mistake"]), (&"decided on what cannot be".into(), &true.into()));
    let report = home.gradus(&["report", "last", "--json"]);
    assert_eq!(report.code, Some(0), "{}", report.err);
    let page =
        std::fs::read_dir(home.path().join("runs")).unwrap().flatten().next().unwrap().path().join("report.html");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("its provider refuses to end it") && page.contains("fault of gradus: "));
}
