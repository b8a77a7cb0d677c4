//! What is killed is made good, and nothing is done twice.

use crate::home::{Home, counting, gated, said, signal, text};

#[test]
fn a_killed_loop_adopts_its_agent_again() {
    let home = Home::new();
    let job = home.job("gated.yaml", &gated());
    let running = home.start(&["run", text(&job), "--json"]);
    home.until("a running run", || home.state() == "running");
    signal(running.id(), "KILL");
    said(running.wait_with_output().unwrap());
    let again = home.start(&["run", text(&job), "--json"]);
    home.until("another loop", || home.is_loop(again.id()));
    home.open_gate();
    let again = said(again.wait_with_output().unwrap());
    assert_eq!(again.code, Some(0), "{}", again.err);
    assert_eq!(again.last()["attempts"], 1);
    assert_eq!(again.last()["instances"], 1);
    assert_eq!(home.gradus(&["logs", "last"]).out, "attempt starts\nwent through\n");
}

#[test]
fn a_killed_agent_takes_its_ranks_along_and_another_is_rented() {
    let home = Home::new();
    let job = home.job("count.yaml", &counting(20));
    let running = home.start(&["run", text(&job), "--json"]);
    home.until("a count", || home.counted() >= 3);
    for agent in home.pids(" agent ") {
        signal(agent, "KILL");
    }
    let ended = said(running.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!((&ended.last()["attempts"], &ended.last()["instances"]), (&2.into(), &2.into()));
    let logs = home.gradus(&["logs", "last"]).out;
    assert!(logs.ends_with("counted to 20\n") && !logs.contains("starts at 0\nattempt starts at 0"), "{logs}");
    assert_eq!(home.gradus(&["cost", "--json"]).last()["bill"]["lines"].as_array().unwrap().len(), 2);
}

#[test]
fn a_program_is_tried_again_as_often_as_the_job_says() {
    let home = Home::new();
    let text_ = "name: retry\nresources: {job_recovery: {max_restarts_on_errors: 2}}\nrun: |\n  echo x >> $GRADUS_CHECKPOINTS/tries\n  [ $(wc -l < $GRADUS_CHECKPOINTS/tries) -ge 3 ]\n";
    let job = home.job("retry.yaml", text_);
    let said = home.gradus(&["run", text(&job), "--json"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(said.last()["attempts"], 3);
}

#[test]
fn two_runs_on_one_home_both_come_to_their_end() {
    let home = Home::new();
    let (one, two) = (home.job("one.yaml", &gated()), home.job("two.yaml", "name: two\nrun: sleep 0.1\n"));
    let first = home.start(&["run", text(&one), "--json"]);
    home.until("the first run", || home.state() == "running");
    let second = home.start(&["run", text(&two), "--json"]);
    home.open_gate();
    let (first, second) = (said(first.wait_with_output().unwrap()), said(second.wait_with_output().unwrap()));
    assert_eq!((first.code, second.code), (Some(0), Some(0)), "{} {}", first.err, second.err);
    assert_eq!(second.last()["outcome"], "succeeded");
}

#[test]
fn work_that_was_done_while_no_loop_listened_is_not_done_again() {
    let home = Home::new();
    let job = home.job("gated.yaml", &gated());
    let running = home.start(&["run", text(&job), "--json"]);
    home.until("a running run", || home.state() == "running");
    signal(running.id(), "KILL");
    said(running.wait_with_output().unwrap());
    home.open_gate();
    let spool = || {
        let instances = std::fs::read_dir(home.path().join("instances")).unwrap();
        instances.flatten().any(|entry| {
            std::fs::read_to_string(entry.path().join("spool.jsonl")).unwrap_or_default().contains("succeeded")
        })
    };
    home.until("the program's end, told to nobody", spool);
    for agent in home.pids(" agent ") {
        signal(agent, "KILL");
    }
    let again = home.gradus(&["run", text(&job), "--json"]);
    assert_eq!(again.code, Some(0), "{}", again.err);
    assert_eq!((&again.last()["attempts"], &again.last()["instances"]), (&1.into(), &1.into()));
    assert_eq!(home.gradus(&["logs", "last"]).out, "attempt starts\nwent through\n");
}

#[test]
fn a_failure_that_nobody_heard_of_does_not_end_the_first_resume() {
    let home = Home::new();
    // Fails as on a full disk, which is mended before the run is resumed.
    let text_ = "name: full\nrun: |\n  cd $GRADUS_CHECKPOINTS\n  [ -e mended ] && exit 0\n  touch begun\n  while [ ! -e gate ]; do sleep 0.05; done\n  touch failed\n  exit 7\n";
    let job = home.job("full.yaml", text_);
    let running = home.start(&["run", text(&job), "--json"]);
    let run = || home.gradus(&["status", "--json"]).last()["run"].as_str().unwrap().to_owned();
    home.until("a running run", || home.state() == "running");
    let folder = home.path().join("runs").join(run()).join("checkpoints");
    home.until("its program", || folder.join("begun").exists());
    signal(running.id(), "KILL");
    said(running.wait_with_output().unwrap());
    home.open_gate();
    home.until("its failure", || folder.join("failed").exists());
    std::fs::write(folder.join("mended"), "").unwrap();
    let resumed = home.gradus(&["resume", "last"]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.err);
    assert!(resumed.err.contains("this happened while no process ran the run: resuming it now"), "{}", resumed.err);
    assert!(resumed.out.contains(": succeeded"), "{}", resumed.out);
}
