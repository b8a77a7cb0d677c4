//! The user's own program.

use std::fs;

use domain::Cause;
use domain::rank::Report;
use domain::run::AttemptEnd;
use domain::wire::{AgentCommand, AgentEvent, Entry, NodeAddress};

use crate::scene::{Scene, finding, is_alive, reports, until};

#[test]
fn a_program_finds_its_variables_and_its_folder_and_its_output_is_logged() {
    let scene = Scene::new("variables", "");
    let workdir = scene.folder.parent().unwrap().join("source");
    fs::create_dir_all(&workdir).unwrap();
    fs::write(workdir.join("input"), "from the folder").unwrap();
    let file = format!(
        "workdir: {}
envs: {{GREETING: hello}}
setup: |
  echo setting up in $(basename $PWD)
  echo made > made
run: |
  echo $GREETING $(cat input) $(cat made)
  echo rank $RANK $LOCAL_RANK of $WORLD_SIZE $LOCAL_WORLD_SIZE on $NODE_RANK $GROUP_RANK
  echo at $MASTER_ADDR $((MASTER_PORT > 0)) $PET_NNODES $PET_NPROC_PER_NODE $PET_NODE_RANK $PET_MASTER_ADDR $((PET_MASTER_PORT == MASTER_PORT))
  echo sky $SKYPILOT_NODE_RANK $SKYPILOT_NODE_IPS $SKYPILOT_NUM_NODES $SKYPILOT_NUM_GPUS_PER_NODE $SKYPILOT_TASK_ID
  echo gradus $GRADUS_RUN $GRADUS_ATTEMPT $(basename $GRADUS_CHECKPOINTS)
  echo kept > $GRADUS_CHECKPOINTS/kept
  echo to stderr >&2
",
        workdir.display()
    );
    assert_eq!(scene.run(&file), AttemptEnd::Succeeded);
    let expected = "setting up in workdir
hello from the folder made
rank 0 0 of 1 1 on 0 0
at 127.0.0.1 1 1 1 0 127.0.0.1 1
sky 0 127.0.0.1 1 0 variables-1
gradus variables-1 variables-1-a1 checkpoints
to stderr
";
    assert_eq!(scene.log(1), expected);
    assert!(scene.folder.join("checkpoints/kept").exists());
    assert!(!workdir.join("made").exists(), "the original is as it was");
}

#[test]
fn mounts_are_there_before_the_set_up_and_gone_with_their_attempt() {
    let scene = Scene::new("mounts", "");
    let around = scene.folder.ancestors().nth(3).unwrap().to_owned();
    fs::create_dir_all(around.join("data")).unwrap();
    fs::write(around.join("data/a.txt"), "first").unwrap();
    fs::write(around.join("netrc"), "machine x").unwrap();
    let file = |number: u32| {
        format!(
            "file_mounts: {{inside: {0}/data, ~/.netrc: {0}/netrc, {0}/place/data: {0}/data}}
setup: cat inside/a.txt; echo
run: |
  echo $(cat inside/a.txt) $(cat {0}/user/.netrc) $(cat {0}/place/data/a.txt)
  echo {number} > {0}/place/data/a.txt
  readlink {0}/place/data
",
            around.display()
        )
    };
    assert_eq!(scene.run(&file(1)), AttemptEnd::Succeeded);
    let log = scene.log(1);
    let mut lines = log.lines();
    assert_eq!(lines.next(), Some("first"));
    assert_eq!(lines.next(), Some("first machine x first"));
    let copy = lines.next().unwrap();
    assert!(copy.contains("attempts/mounts-1-a1/mounts/"), "{copy}");
    assert!(!around.join("place").exists() && !around.join("user").exists(), "gone with the attempt");
    assert!(!std::path::Path::new(copy).exists(), "the copy, too");
    assert_eq!(fs::read_to_string(around.join("data/a.txt")).unwrap(), "first", "the original is as it was");
    // Another attempt gets what is there by now; of one that fails nothing is left either.
    fs::write(around.join("data/a.txt"), "second").unwrap();
    scene.control.order(vec![scene.start(2, &(file(2) + "  exit 3\n"))]);
    assert_eq!(finding(scene.end(2)).1, Some(3));
    assert!(scene.log(2).contains("second machine x second"), "{}", scene.log(2));
    assert!(!around.join("place").exists());
    assert!(!scene.folder.join("attempts/mounts-1-a2/mounts").exists());
    // What is there already is not gradus's to replace.
    fs::create_dir_all(around.join("place/data")).unwrap();
    scene.control.order(vec![scene.start(3, &file(3))]);
    let (found, _) = finding(scene.end(3));
    assert!(found.cause == Cause::Job && found.message.contains("was not put there by gradus"), "{found:?}");
}

#[test]
fn a_set_up_that_changes_only_the_machine_is_left_out_by_a_recovery() {
    let scene = Scene::new("setups", "");
    let around = scene.folder.ancestors().nth(3).unwrap().to_owned();
    let installed = around.join("installed");
    let file =
        |then: &str, run: &str| format!("setup: |\n  echo x >> {}\n  {then}\nrun: |\n  {run}\n", installed.display());
    let count = || fs::read_to_string(&installed).unwrap().lines().count();
    // Killed, as a machine that runs out of something kills: the next attempt finds what was installed.
    assert_eq!(finding(scene.run(&file("true", "kill -KILL $$"))).0.cause, Cause::Killed);
    scene.control.order(vec![scene.start(2, &file("true", "exit 3"))]);
    // Whatever it has failed for, its run is tried again with the set-up.
    let (found, code) = finding(scene.end(2));
    assert_eq!((found.cause, code), (Cause::Setup, None));
    assert!(found.message.starts_with("`setup` was left out, and `run` ended with code 3"), "{found:?}");
    assert_eq!(count(), 1);
    let is_said = |report: &Report| matches!(report, Report::Note { text } if text.contains("`setup` is left out"));
    assert_eq!(reports(&scene.control.wait("reports", |_| true)).iter().filter(|report| is_said(report)).count(), 1);
    // A program that has failed by itself may lack something.
    scene.control.order(vec![scene.start(3, &file("true", "'true'"))]);
    assert_eq!(scene.end(3), AttemptEnd::Succeeded);
    assert_eq!(count(), 2);
    // What is made in the working folder is gone with the attempt, and so is what was started.
    for (number, then) in [(4, "touch made"), (5, "touch made"), (6, "sleep 3600 &"), (7, "sleep 3600 &")] {
        scene.control.order(vec![scene.start(number, &file(then, "'true'"))]);
        assert_eq!(scene.end(number), AttemptEnd::Succeeded);
        assert_eq!(count() as u64, number - 1);
    }
    // Another program may change the machine.
    for (number, file) in [(8, file("true", "'true'")), (9, "run: 'true'".to_owned()), (10, file("true", "'true'"))] {
        scene.control.order(vec![scene.start(number, &file)]);
        assert_eq!(scene.end(number), AttemptEnd::Succeeded);
    }
    assert_eq!(count(), 8);
    scene.control.order(vec![scene.start(11, &file("true", "'true'"))]);
    assert_eq!(scene.end(11), AttemptEnd::Succeeded);
    assert_eq!(count(), 8, "it has been left out");
    // Who has stopped a run may change the machine before it is resumed.
    scene.control.order(vec![scene.start(12, &file("true", "touch begun; sleep 600"))]);
    let begun = scene.folder.join("attempts").join(scene.attempt(12).as_str()).join("workdir/begun");
    until("start of the program", || begun.exists().then_some(()));
    scene.control.order(vec![AgentCommand::Stop { attempt: scene.attempt(12), is_node_lost: false, within: None }]);
    assert_eq!(scene.end(12), AttemptEnd::Stopped { step: None });
    assert_eq!(count(), 8);
    scene.control.order(vec![scene.start(13, &file("true", "'true'"))]);
    assert_eq!(scene.end(13), AttemptEnd::Succeeded);
    assert_eq!(count(), 9);
}

#[test]
fn a_job_cannot_take_its_processes_out_of_their_instance() {
    let scene = Scene::new("tags", "");
    let file = "envs: {GRADUS_OWNER: x, GRADUS_INSTANCE: x, GRADUS_ATTEMPT: x, GRADUS_RUN: x}
setup: echo $GRADUS_OWNER $GRADUS_INSTANCE $GRADUS_ATTEMPT $GRADUS_RUN
run: echo $GRADUS_OWNER $GRADUS_INSTANCE $GRADUS_ATTEMPT $GRADUS_RUN
";
    assert_eq!(scene.run(file), AttemptEnd::Succeeded);
    let tags = format!("test-tags-{} {} tags-1-a1 tags-1\n", std::process::id(), scene.instance);
    assert_eq!(scene.log(1), tags.repeat(2));
}

#[test]
fn a_program_s_code_ends_its_attempt_and_the_machine_stays_for_the_next() {
    let scene = Scene::new("codes", "");
    let (found, code) = finding(scene.run("run: echo so far; exit 3"));
    assert_eq!((found.cause, code), (Cause::ExitCode, Some(3)));
    assert!(found.message.contains("so far") && found.hint.unwrap().contains("codes-1-a1-rank-0.log"));

    scene.control.order(vec![scene.start(2, "{setup: 'echo no; exit 4', run: 'echo never'}")]);
    let (found, code) = finding(scene.end(2));
    assert_eq!((found.cause, code), (Cause::Setup, None), "the plan weighs the code of `run` alone");
    assert!(found.message.contains("code 4"), "{found:?}");
    assert_eq!(scene.log(2), "no\n");

    // As in SkyPilot's scripts, a failing line does not end the script.
    scene.control.order(vec![scene.start(3, "run: |\n  false\n  echo on\n")]);
    assert_eq!(scene.end(3), AttemptEnd::Succeeded);

    scene.control.order(vec![scene.start(4, "run: kill -SEGV $$")]);
    let (found, code) = finding(scene.end(4));
    assert_eq!((found.cause, code), (Cause::ExitCode, Some(139)), "a fault of its own is as its code in a shell");
    assert!(found.message.contains("SIGSEGV"), "{found:?}");

    scene.control.order(vec![scene.start(5, "run: kill -KILL $$")]);
    let (found, code) = finding(scene.end(5));
    assert!(found.cause == Cause::Killed && code.is_none() && found.message.contains("SIGKILL"), "{found:?}");
}

#[test]
fn a_stopped_program_may_save_though_its_shell_is_gone() {
    let scene = Scene::new("stopped", "");
    let file = r#"run: |
  bash -c 'trap "sleep 0.3; echo saved > $GRADUS_CHECKPOINTS/state; exit 0" TERM; echo up; while :; do sleep 0.01; done'
"#;
    scene.control.order(vec![scene.start(1, file)]);
    scene.started();
    until("word of the program", || scene.log(1).contains("up").then_some(()));
    scene.control.order(vec![AgentCommand::Stop { attempt: scene.attempt(1), is_node_lost: false, within: None }]);
    assert_eq!(scene.end(1), AttemptEnd::Stopped { step: None });
    assert!(scene.folder.join("checkpoints/state").exists(), "it had the time to save");
}

#[test]
fn what_the_handler_of_a_stopped_program_starts_is_left_alone_until_the_time_is_over() {
    let scene = Scene::new("handler", "program:6000");
    // One process of it is in a session of its own, and each counts the signals that it gets.
    let file = r#"run: |
  cat > save.sh <<'END'
  bash -c 'sleep 0.4 && echo saved' >> $GRADUS_CHECKPOINTS/$1
  echo handled >> $GRADUS_CHECKPOINTS/$1
  END
  cat > work.sh <<'END'
  trap 'bash save.sh $1; [[ $1 = outside ]] || exit 0' TERM
  echo up
  while :; do sleep 0.01; done
  END
  setsid bash work.sh outside &
  exec bash work.sh inside
"#;
    scene.control.order(vec![scene.start(1, file)]);
    scene.started();
    until("word of both", || (scene.log(1).matches("up").count() == 2).then_some(()));
    scene.control.order(vec![AgentCommand::Stop { attempt: scene.attempt(1), is_node_lost: false, within: None }]);
    // The one that does not end is killed once the time is over, and nothing of it remains.
    assert_eq!(scene.end(1), AttemptEnd::Stopped { step: None });
    for name in ["inside", "outside"] {
        let text = fs::read_to_string(scene.folder.join("checkpoints").join(name)).unwrap();
        assert_eq!(text, "saved\nhandled\n", "{name}");
    }
    assert!(!node::processes::any(&[("GRADUS_ATTEMPT", scene.attempt(1).as_str())]).unwrap());
}

#[test]
fn a_program_that_does_not_stop_is_killed() {
    let scene = Scene::new("stubborn", "program:200");
    scene.control.order(vec![scene.start(1, "run: |\n  trap '' TERM\n  echo up\n  while :; do sleep 0.01; done\n")]);
    scene.started();
    until("word of the program", || scene.log(1).contains("up").then_some(()));
    scene.control.order(vec![AgentCommand::Stop { attempt: scene.attempt(1), is_node_lost: false, within: None }]);
    assert_eq!(finding(scene.end(1)).0.cause, Cause::Killed);
}

#[test]
fn what_a_program_leaves_behind_is_ended_with_it() {
    let scene = Scene::new("leftovers", "");
    let end = scene.run(
        "run: |
  sleep 3600 & echo $!
  setsid sleep 3600 & echo $!
  (setsid bash -c 'trap \"\" TERM; echo $BASHPID; sleep 3600 & wait; sleep 3600' &)
  sleep 0.1
",
    );
    assert_eq!(end, AttemptEnd::Succeeded);
    let pids: Vec<i32> = scene.log(1).lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(pids.len(), 3);
    for pid in pids {
        assert!(!is_alive(pid), "process {pid} is ended");
    }
}

#[test]
fn ranks_on_several_machines_start_when_all_are_prepared_and_end_when_one_is_lost() {
    let scene = Scene::new("member", "");
    let file = "setup: touch made\nrun: |\n  ls\n  cat $GRADUS_HOSTFILE\n  echo $TF_CONFIG\n  \
                echo \"$NODE_RANK of $PET_NNODES at $MASTER_ADDR:$MASTER_PORT\"\n  sleep 60\n";
    scene.control.order(vec![scene.prepare(1, file)]);
    let is_prepared = |entry: &Entry| matches!(entry.event, AgentEvent::Prepared { .. });
    let entries = scene.control.wait("readiness", |entries| entries.iter().any(is_prepared));
    assert!(!entries.iter().any(|entry| entry.event == AgentEvent::Started), "the others may not be ready");
    // A loop whose log was restored asks again, and gets the report again.
    scene.control.wait("readiness again", |entries| entries.iter().filter(|entry| is_prepared(entry)).count() > 1);
    let node = |number: u32| NodeAddress { host: format!("10.0.0.{number}"), port: 7 };
    scene.control.order(vec![AgentCommand::Go { attempt: scene.attempt(1), nodes: vec![node(1), node(2)] }]);
    let log = scene.folder.join("logs").join(format!("{}-rank-1.log", scene.attempt(1)));
    let read = || fs::read_to_string(&log).ok().filter(|log| log.ends_with("7\n"));
    let said = until("output", read);
    let lines: Vec<&str> = said.lines().collect();
    let ["made", "10.0.0.1 slots=1", "10.0.0.2 slots=1", cluster, "1 of 2 at 10.0.0.1:7"] = lines[..] else {
        panic!("{said}");
    };
    let cluster: serde_json::Value = serde_json::from_str(cluster).unwrap();
    assert_eq!(cluster["cluster"]["worker"], serde_json::json!(["10.0.0.1:7", "10.0.0.2:7"]));
    assert_eq!(cluster["task"], serde_json::json!({ "type": "worker", "index": 1 }));
    scene.control.order(vec![AgentCommand::Stop { attempt: scene.attempt(1), is_node_lost: true, within: None }]);
    assert_eq!(finding(scene.end(1)).0.cause, Cause::RankLost);
}

/// What the others have missed is not one more that has lost another.
#[test]
fn a_process_that_stood_still_while_another_machine_failed_is_named() {
    let scene = Scene::new("still", "node_lost:300");
    let file = "run: |\n  trap '' TERM\n  sleep 60 &\n  kill -STOP $!\n  sleep 0.2\n  echo still\n  wait\n";
    scene.control.order(vec![scene.prepare(1, file)]);
    let is_prepared = |entry: &Entry| matches!(entry.event, AgentEvent::Prepared { .. });
    scene.control.wait("readiness", |entries| entries.iter().any(is_prepared));
    let nodes = [1, 2].map(|number| NodeAddress { host: format!("10.0.0.{number}"), port: 7 });
    scene.control.order(vec![AgentCommand::Go { attempt: scene.attempt(1), nodes: nodes.to_vec() }]);
    let log = scene.folder.join("logs").join(format!("{}-rank-1.log", scene.attempt(1)));
    until("output", || fs::read_to_string(&log).ok().filter(|log| log.ends_with("still\n")));
    scene.control.order(vec![AgentCommand::Stop { attempt: scene.attempt(1), is_node_lost: true, within: None }]);
    let (found, code) = finding(scene.end(1));
    assert_eq!((found.cause, code), (Cause::Killed, None), "{found:?}");
    assert!(found.message.contains("was stopped by a signal"), "{found:?}");
    let stacks = scene.folder.join("logs").join(format!("{}-node-1-stacks.txt", scene.attempt(1)));
    // They are written one process after the other.
    until("stacks", || fs::read_to_string(&stacks).ok().filter(|text| text.contains("T (stopped)")));
}

/// A job whose program uses gradus as `behaviour` specifies, with a worker that SIGTERM would end.
fn own(behaviour: &str) -> String {
    let program = std::env::current_exe().unwrap();
    format!(
        "{{budget: {{max: $2}}, deadline: 1h, run: 'GRADUS_TEST_PROGRAM={behaviour} {} --exact program_process --ignored \
         --test-threads=1 --nocapture --quiet; echo after it'}}",
        program.display()
    )
}

#[test]
fn a_program_that_uses_gradus_reports_its_steps_and_is_told_to_stop() {
    let scene = Scene::new("own", "");
    scene.control.order(vec![scene.start(1, &own("forever"))]);
    scene.step(12);
    scene.control.order(vec![AgentCommand::Stop { attempt: scene.attempt(1), is_node_lost: false, within: None }]);
    let AttemptEnd::Stopped { step: Some(saved) } = scene.end(1) else { panic!("it saved before it ended") };
    assert!(saved >= 12, "it saved the step at which it was told, {saved}");
    let log = scene.log(1);
    assert!(log.contains("from step 0, with 2.000000 dollars in 3600 s") && !log.contains("after it"), "{log}");

    let read = own(&(saved + 3).to_string())
        .replace("{budget", r"{progress: {regex: 'from step (?<step>\d+), with (?<loss>\S+)'}, budget");
    scene.control.order(vec![scene.start(2, &read)]);
    assert_eq!(scene.end(2), AttemptEnd::Succeeded);
    let is_read = |report: &Report| matches!(report, Report::Step(step) if step.loss != 1.0);
    assert!(!reports(&scene.control.wait("reports", |_| true)).iter().any(is_read), "it reports itself");
    assert!(scene.log(2).contains(&format!("from step {saved},")), "{}", scene.log(2));
}

#[test]
fn what_a_program_reports_has_no_secret_in_it() {
    let scene = Scene::new("quotes", "");
    let job = own("quotes").replace("; echo after it", "").replace("{budget", "{secrets: {TOKEN: hunter2}, budget");
    let (found, code) = finding(scene.run(&job));
    assert_eq!((found.cause, code), (Cause::ExitCode, Some(1)));
    let entries = scene.control.wait("reports", |_| true);
    let said = serde_json::to_string(&reports(&entries)).unwrap();
    assert!(said.contains("401 with ***") && !said.contains("hunter2"), "{said}");
}

#[test]
fn a_program_that_fails_when_it_is_told_to_stop_has_failed() {
    let scene = Scene::new("failing", "");
    scene.control.order(vec![scene.start(1, &own("fails"))]);
    scene.step(12);
    scene.control.order(vec![AgentCommand::Stop { attempt: scene.attempt(1), is_node_lost: false, within: None }]);
    let (found, code) = finding(scene.end(1));
    assert_eq!((found.cause, code, found.hint.as_deref()), (Cause::ExitCode, Some(1), Some("leave it out")));
    let begins = "the program failed after it was asked to stop, and its last checkpoint is of step ";
    assert!(
        found.message.starts_with(begins) && found.message.ends_with(": TypeError: `f` is a function"),
        "{found:?}"
    );
}

/// A script that saves as Hugging Face's trainer does, and shows its loss.
const UNTOUCHED: &str = r#"progress: {regex: 'step (?<step>\d+) loss (?<loss>\S+)'}
outputs: [out]
run: |
  echo "resume from <${GRADUS_RESUME##*/}>"
  echo "step 10 loss 0.5"; sleep 0.7; echo "step 20 loss 0.25"
  mkdir -p out/checkpoint-20 out/checkpoint-30
  printf '\66\0\0\0\0\0\0\0{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}12345678' > out/checkpoint-20/model.safetensors
  echo '{"global_step": 20, "log_history": [{"step": 20, "eval_loss": 0.125}]}' > out/checkpoint-20/trainer_state.json
  echo torn > out/checkpoint-30/model.safetensors
"#;

#[test]
fn a_program_that_knows_nothing_of_gradus_shows_progress_and_resumes() {
    let scene = Scene::new("untouched", "");
    assert_eq!(scene.run(UNTOUCHED), AttemptEnd::Succeeded);
    let found: Vec<String> = reports(&scene.control.wait("reports", |_| true)).iter().filter_map(said).collect();
    let expected = ["ready 0", "step 10 0.5", "step 20 0.25", "metrics 20 {\"eval_loss\": 0.125}", "saved 20"];
    assert_eq!(found, expected);
    assert!(scene.log(1).contains("resume from <>"));

    scene.control.order(vec![scene.start(2, &UNTOUCHED.replace("step 10", "step 25").replace("step 20", "step 40"))]);
    assert_eq!(scene.end(2), AttemptEnd::Succeeded);
    assert!(scene.log(2).contains("resume from <checkpoint-20>"), "{}", scene.log(2));
    let found: Vec<String> =
        reports(&scene.control.wait("reports", |_| true)).iter().filter_map(said).skip(expected.len()).collect();
    assert!(found[0].contains("checkpoint-30` is not used: `trainer_state.json` is missing"), "{found:?}");
    assert!(found[1].contains("is the checkpoint of step 20 by Hugging Face's trainer"), "{found:?}");
    assert_eq!(found[2..5], ["ready 20", "step 25 0.5", "step 40 0.25"]);
}

#[test]
fn of_a_program_beside_node_rank_0_the_steps_alone_are_reported() {
    let scene = Scene::new("beside", "");
    scene.control.order(vec![scene.prepare(1, UNTOUCHED)]);
    let is_prepared = |entry: &Entry| matches!(entry.event, AgentEvent::Prepared { .. });
    scene.control.wait("readiness", |entries| entries.iter().any(is_prepared));
    let node = |number: u32| NodeAddress { host: format!("10.0.0.{number}"), port: 7 };
    scene.control.order(vec![AgentCommand::Go { attempt: scene.attempt(1), nodes: vec![node(1), node(2)] }]);
    assert_eq!(scene.end(1), AttemptEnd::Succeeded);
    let entries = scene.control.wait("reports", |_| true);
    let found: Vec<String> = reports(&entries).iter().filter_map(said).collect();
    assert_eq!(found, ["step 10 0.5", "step 20 0.25"]);
    let is_of_another =
        |entry: &Entry| !matches!(entry.event, AgentEvent::Reported { rank: 0, report: Report::Step(_) });
    assert!(entries.iter().all(is_of_another), "they are not taken for those of rank 0");
}

fn said(report: &Report) -> Option<String> {
    Some(match report {
        Report::Ready(ready) => format!("ready {}", ready.step),
        Report::Step(step) => format!("step {} {}", step.step, step.loss),
        Report::Metrics(metrics) => format!("metrics {} {:?}", metrics.step, metrics.values),
        Report::Checkpointed(saved) => format!("saved {}", saved.step),
        Report::Note { text } => text.clone(),
        _ => return None,
    })
}

#[test]
fn a_program_that_makes_no_more_calls_hangs() {
    let scene = Scene::new("quiet", "");
    let (found, code) = finding(scene.run(&own("hang")));
    assert!(found.cause == Cause::Hang && code.is_none(), "{found:?}");
    assert!(found.message.contains("the program has made no call to gradus for "), "{found:?}");
    assert!(found.hint.as_ref().unwrap().contains("-stacks.txt"), "{found:?}");
}

#[test]
fn a_stop_that_overtakes_the_start_is_answered() {
    let scene = Scene::new("overtaken", "");
    scene.control.order(vec![AgentCommand::Stop { attempt: scene.attempt(1), is_node_lost: false, within: None }]);
    assert_eq!(scene.end(1), AttemptEnd::Stopped { step: None });
    scene.control.order(vec![scene.start(1, "run: echo never"), scene.start(2, "run: echo once")]);
    assert_eq!(scene.end(2), AttemptEnd::Succeeded);
    assert!(!scene.folder.join("attempts").join(scene.attempt(1).as_str()).exists());
}
