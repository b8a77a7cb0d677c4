//! Files of several documents: tasks that run one after the other, and go on where one has failed.

use std::fs;

use crate::home::{Home, said, signal, text};

#[test]
fn tasks_run_in_order_and_go_on_where_one_has_failed() {
    let home = Home::new();
    let mark = home.job("mark", "");
    fs::remove_file(&mark).unwrap();
    let file = home.job(
        "night.yaml",
        &format!(
            "name: night\n---\nname: prep\noutputs: [out]\nrun: echo made > out/data\n---\nname: fit\nfile_mounts: {{in: \"${{prep.outputs}}/out\"}}\nrun: grep made in/data && test -e {}\n",
            text(&mark)
        ),
    );
    let failed = home.gradus(&["run", text(&file)]);
    assert_eq!(failed.code, Some(100), "{}{}", failed.out, failed.err);
    assert!(failed.err.contains("pipeline night: 2 tasks"), "{}", failed.err);
    assert!(failed.err.contains("--from fit"), "{}", failed.err);

    fs::write(&mark, "").unwrap();
    let went_on = home.gradus(&["run", text(&file), "--from", "fit"]);
    assert_eq!(went_on.code, Some(0), "{}{}", went_on.out, went_on.err);
    let runs = home.gradus(&["events", "--json"]).out;
    assert_eq!((runs.matches("night.yaml#prep").count(), runs.matches("night.yaml#fit").count()), (1, 2), "{runs}");
}

#[test]
fn a_task_named_as_skypilot_allows_is_a_run_with_a_name_of_ours() {
    let home = Home::new();
    let file = home.job("two.yaml", "name: My_Task\nrun: 'true'\n---\nname: b\nrun: 'true'\n");
    let ran = home.gradus(&["run", text(&file)]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    let events = home.gradus(&["events", "--json"]).out;
    assert!(events.contains("\"my-task-") && !events.contains("\"My_Task-"), "{events}");
}

#[test]
fn what_cannot_run_is_refused_before_the_first_task_starts() {
    let home = Home::new();
    let file = home.job("two.yaml", "name: a\nrun: 'true'\n---\nname: b\nrun: 'true'\nnum_node: 2\n");
    let refused = home.gradus(&["run", text(&file)]);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.contains("two.yaml:6"), "{}", refused.err);
    let mounts = "file_mounts: {in: \"${a.outputs}/out\"}";
    let file = home.job("two.yaml", &format!("name: a\nrun: 'true'\n---\nname: b\nrun: 'true'\n{mounts}\n"));
    let refused = home.gradus(&["run", text(&file)]);
    assert!(refused.code == Some(2) && refused.err.contains("task `a` has no `outputs`"), "{}", refused.err);
    let file = home.job("two.yaml", "name: a\nrun: 'true'\n---\nname: b\nrun: 'true'\n");
    let early = home.gradus(&["run", text(&file), "--from", "b"]);
    assert!(early.code == Some(2) && early.err.contains("--from a"), "{}", early.err);
    assert!(!home.gradus(&["events", "--json"]).out.contains("two.yaml#"), "nothing was started");
}

#[test]
fn a_task_whose_pipeline_was_killed_is_resumed_with_the_budget_that_it_had() {
    let home = Home::new();
    let gate = "while [ ! -e $GRADUS_CHECKPOINTS/gate ]; do sleep 0.05; done";
    let prep = "name: prep\nrun: sleep 1\n";
    let file = home.job("paid.yaml", &format!("budget: {{max: $100}}\n---\n{prep}---\nname: fit\nrun: |\n  {gate}\n"));
    let arguments = ["run", text(&file), "--price", "36/h", "--yes"];
    let events = || home.gradus(&["events", "--json"]).out;
    let mut killed = home.start(&arguments);
    home.until("the second task", || home.state() == "running" && events().contains("paid.yaml#fit"));
    signal(killed.id(), "KILL");
    killed.wait().unwrap();

    let resumed = home.start(&[&arguments[..], &["--from", "fit"]].concat());
    home.open_gate();
    let resumed = said(resumed.wait_with_output().unwrap());
    assert_eq!(resumed.code, Some(0), "{}{}", resumed.out, resumed.err);
    assert!(resumed.err.contains("resuming run fit-"), "{}", resumed.err);
    assert_eq!(events().matches("paid.yaml#fit").count(), 1, "no second run is paid for");
}
