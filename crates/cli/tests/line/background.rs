//! Runs without a terminal: started in the background, waited for, followed.

mod remote;
mod serve;

use crate::home::{Home, gated, said, signal, text};

#[test]
fn a_detached_run_continues_and_can_be_waited_for() {
    let home = Home::new();
    let job = home.job("gated.yaml", &gated());
    let detached = home.gradus(&["run", text(&job), "--detach"]);
    assert_eq!(detached.code, Some(0), "{}", detached.err);
    assert!(detached.out.contains(": continues in the background\nfollow   gradus attach gated-"), "{}", detached.out);
    home.until("a running run", || home.state() == "running");
    let (waiting, attached) = (home.start(&["wait", "last"]), home.start(&["attach", "last"]));
    home.open_gate();
    let waited = said(waiting.wait_with_output().unwrap());
    assert_eq!(waited.code, Some(0), "{}", waited.err);
    assert!(waited.out.ends_with(": succeeded\n"), "{}", waited.out);
    let attached = said(attached.wait_with_output().unwrap());
    assert_eq!(attached.code, Some(0), "{}", attached.err);
    assert!(attached.out.contains(": succeeded\n"), "{}", attached.out);
    let late = home.gradus(&["attach", "last"]);
    assert_eq!(late.code, Some(2), "{}", late.err);
    assert!(late.err.contains("has ended: succeeded"), "{}", late.err);
    assert_eq!(home.gradus(&["wait", "last"]).code, Some(0));
}

#[test]
fn a_run_that_no_process_runs_is_not_waited_for() {
    let home = Home::new();
    let job = home.job("gated.yaml", &gated());
    let running = home.start(&["run", text(&job)]);
    home.until("a running run", || home.state() == "running");
    signal(running.id(), "KILL");
    said(running.wait_with_output().unwrap());
    let waited = home.gradus(&["wait", "last"]);
    assert_eq!(waited.code, Some(101), "{}", waited.err);
    assert!(
        waited.err.contains("so it does not end by itself\n  hint: resume it with `gradus resume gated-"),
        "{}",
        waited.err
    );
}

#[test]
fn a_detached_run_that_fails_at_once_says_so_when_it_is_waited_for() {
    let home = Home::new();
    let job =
        home.job("fails.yaml", "name: fails\nresources: {job_recovery: {max_restarts_on_errors: 0}}\nrun: exit 7\n");
    let detached = home.gradus(&["run", text(&job), "-d", "--json"]);
    assert_eq!(detached.code, Some(0), "{}", detached.err);
    assert_eq!(detached.last()["event"], "detached");
    // It has ended, or is about to.
    home.until("its end", || home.state() == "failed");
    assert_eq!(home.gradus(&["wait", "last"]).code, Some(100));
}
