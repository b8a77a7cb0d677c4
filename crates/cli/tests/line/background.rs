//! Runs without a terminal: started in the background, waited for, followed.

mod budgets;
mod due;
mod full_disk;
mod hostile;
mod joining;
mod loud;
mod pipelines;
mod remote;
mod schedules;
mod serve;
mod sweeps;
mod versions;

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
    home.until("its signal handlers", || heeds_interrupts(attached.id()));
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

/// Whether a process has installed a handler of SIGINT, by the kernel's own list.
fn heeds_interrupts(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
    u64::from_str_radix(caught.trim(), 16).unwrap_or(0) & 0b10 != 0
}

#[test]
fn who_stops_following_is_told_how_to_follow_again() {
    let home = Home::new();
    let job = home.job("gated.yaml", &gated());
    assert_eq!(home.gradus(&["run", text(&job), "--detach"]).code, Some(0));
    home.until("a running run", || home.state() == "running");
    let attached = home.start(&["attach", "last"]);
    home.until("its signal handlers", || heeds_interrupts(attached.id()));
    signal(attached.id(), "INT");
    let attached = said(attached.wait_with_output().unwrap());
    assert_eq!(attached.code, Some(130), "{}", attached.err);
    let expected = "it keeps running in another process\n  hint: follow it again with `gradus attach ";
    assert!(attached.err.contains(expected), "{}", attached.err);
    home.open_gate();
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
