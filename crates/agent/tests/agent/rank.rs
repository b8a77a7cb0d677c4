//! Our own trainer, played by this program.

use std::fs;
use std::time::Duration;

use domain::rank::Report;
use domain::run::AttemptEnd;
use domain::threads::Threads;
use domain::wire::{AgentCommand, AgentEvent};
use domain::{Cause, Fence};
use rustix::process::Signal;

use crate::scene::{Scene, finding, is_alive, reports, session, until};

/// A job whose rank shows this behaviour.
fn job(behaviour: &str) -> String {
    format!(
        "envs: {{GRADUS_TEST_RANK: '{behaviour}'}}\ntrain: {{model: mlp, data: {{path: /data}}, epochs: 1, batch: 8}}\n"
    )
}

fn rank_pid(scene: &Scene) -> i32 {
    let hello = |report: &Report| match report {
        Report::Hello { pid, .. } => Some(*pid as i32),
        _ => None,
    };
    let entries = scene.control.wait("hello", |entries| reports(entries).iter().any(|report| hello(report).is_some()));
    reports(&entries).iter().find_map(hello).unwrap()
}

#[test]
fn a_rank_s_reports_come_in_order_and_end_with_the_model() {
    let scene = Scene::new("trains", "");
    let AttemptEnd::Trained { model } = scene.run(&job("20")) else { panic!("it trains") };
    assert_eq!(model.steps, 20);
    let entries = scene.control.wait("end", |entries| !entries.is_empty());
    assert_eq!(entries[0].event, AgentEvent::Started);
    let words: Vec<String> = reports(&entries)
        .iter()
        .map(|report| match report {
            Report::Hello { .. } => "hello".into(),
            Report::Ready(_) => "ready".into(),
            Report::Step(step) => step.step.to_string(),
            Report::Exported(_) => "exported".into(),
            Report::Trained => "trained".into(),
            other => panic!("{other:?}"),
        })
        .collect();
    let steps = (1..=20).map(|step: u32| step.to_string());
    let expected = ["hello", "ready"].into_iter().map(String::from).chain(steps);
    let expected: Vec<String> = expected.chain(["exported", "trained"].map(String::from)).collect();
    assert_eq!(words, expected);
    assert!(scene.log(1).contains("rank of trains-1-a1 with 1 threads"), "{}", scene.log(1));
    let cores = std::thread::available_parallelism().unwrap().get() as u32;
    for (name, value) in (Threads { per_rank: 1, ranks: 1, cores }).environment() {
        assert!(name == "OMP_NUM_THREADS" || scene.log(1).contains(&format!("{name}={value}\n")), "{}", scene.log(1));
    }
    assert_eq!(fs::read_to_string(scene.folder.join("checkpoints/fence")).unwrap().trim(), "1");
}

#[test]
fn a_job_cannot_take_its_rank_out_of_its_instance() {
    let scene = Scene::new("marks", "");
    let envs = "GRADUS_TEST_RANK: forever, GRADUS_OWNER: x, GRADUS_INSTANCE: x, GRADUS_ATTEMPT: x";
    let file = format!("envs: {{{envs}}}\ntrain: {{model: mlp, data: {{path: /data}}, epochs: 1, batch: 8}}\n");
    scene.control.order(vec![scene.start(1, &file)]);
    let environment = fs::read(format!("/proc/{}/environ", rank_pid(&scene))).unwrap();
    let environment = String::from_utf8(environment).unwrap();
    let instance = format!("GRADUS_INSTANCE={}", scene.instance);
    let owner = format!("GRADUS_OWNER=test-marks-{}", std::process::id());
    for tag in [instance.as_str(), owner.as_str(), "GRADUS_ATTEMPT=marks-1-a1"] {
        let name = tag.split_once('=').unwrap().0;
        let found: Vec<&str> = environment.split('\0').filter(|entry| entry.starts_with(name)).collect();
        assert_eq!(found, [tag]);
    }
}

#[test]
fn a_rank_that_something_else_stops_is_no_error_of_its_program() {
    let scene = Scene::new("stopped-by-a-stranger", "");
    scene.control.order(vec![scene.start(1, &job("retired"))]);
    let (found, code) = finding(scene.end(1));
    assert_eq!((found.cause, code), (Cause::Killed, None), "{found:?}");
}

#[test]
fn loop_agent_and_rank_have_sessions_of_their_own() {
    let scene = Scene::new("sessions", "");
    scene.control.order(vec![scene.start(1, &job("forever"))]);
    let (rank, agent) = (rank_pid(&scene), scene.agent());
    let own = session(std::process::id() as i32);
    assert_eq!((session(agent), session(rank)), (agent, rank), "each leads its session");
    assert!(own != agent && own != rank);
}

#[test]
fn an_order_to_stop_saves_first() {
    let scene = Scene::new("stops", "");
    scene.control.order(vec![scene.start(1, &job("forever"))]);
    scene.step(3);
    scene.control.order(vec![AgentCommand::Stop { attempt: scene.attempt(1), is_node_lost: false, within: None }]);
    let AttemptEnd::Stopped { step: Some(step) } = scene.end(1) else { panic!("it stops") };
    let entries = scene.control.wait("end", |entries| !entries.is_empty());
    let is_for_the_loop = |report: &Report| !matches!(report, Report::Pausing { .. });
    assert!(reports(&entries).iter().all(is_for_the_loop), "earlier ones would not know it");
    let saved =
        reports(&entries).into_iter().any(|report| matches!(report, Report::Checkpointed(found) if found.step == step));
    assert!(saved);
    assert!(scene.log(1).contains("asked to stop within Some(60000000)"), "{}", scene.log(1));
}

#[test]
fn a_rank_that_does_not_stop_is_killed() {
    let scene = Scene::new("deaf", "save:200");
    scene.control.order(vec![scene.start(1, &job("deaf"))]);
    scene.step(3);
    scene.control.order(vec![AgentCommand::Stop { attempt: scene.attempt(1), is_node_lost: false, within: None }]);
    assert_eq!(finding(scene.end(1)).0.cause, Cause::Killed);
}

#[test]
fn every_other_end_is_told_apart() {
    let scene = Scene::new("ends", "step:2000");
    let mut number = 0;
    let mut end = |behaviour: &str| {
        number += 1;
        scene.control.order(vec![scene.start(number, &job(behaviour))]);
        finding(scene.end(number))
    };
    let (found, code) = end("mute");
    assert_eq!((found.cause, code), (Cause::Internal, None));
    assert!(found.message.contains("code 3") && found.message.contains("cannot go on"), "{found:?}");
    let (found, _) = end("hang");
    let stacks = scene.folder.join("logs").join(format!("{}-stacks.txt", scene.attempt(2)));
    assert!(found.cause == Cause::Hang && found.hint.as_ref().unwrap().contains(stacks.to_str().unwrap()), "{found:?}");
    let text = fs::read_to_string(&stacks).unwrap();
    assert!(text.contains("== process") && text.contains("\nthread "), "{text}");
    let (found, _) = end("abort");
    assert!(found.cause == Cause::Killed && found.message.contains("SIGABRT"), "{found:?}");
    fs::write(scene.libtorch.join("build-version"), "2.9.1+cpu").unwrap();
    let (found, _) = end("20");
    assert!(found.cause == Cause::Library && found.message.contains("2.9.1"), "{found:?}");
}

/// While the data's origin is down, a rank waits for bytes and reports no step; requests are retried, and it continues.
#[test]
fn a_rank_that_waits_for_remote_data_does_not_hang() {
    let scene = Scene::new("outage", "step:2000");
    let address = crate::origin::serve(Duration::from_secs(5));
    let remote = format!("{{path: '{address}', cache: {{budget: 10 MB}}}}");
    let end = scene.run(&job("fetch").replace("{path: /data}", &remote));
    assert!(matches!(&end, AttemptEnd::Trained { model } if model.steps == 6), "{end:?}");
}

#[test]
fn a_killed_rank_is_noticed_and_the_next_attempt_starts_on_the_same_machine() {
    let scene = Scene::new("killed", "");
    scene.control.order(vec![scene.start(1, &job("forever"))]);
    crate::scene::kill(rank_pid(&scene), Signal::KILL);
    let (found, _) = finding(scene.end(1));
    assert!(found.cause == Cause::Killed && found.message.contains("SIGKILL"), "{found:?}");
    scene.control.order(vec![scene.start(2, &job("3"))]);
    assert!(matches!(scene.end(2), AttemptEnd::Trained { .. }));
}

#[test]
fn a_newer_attempt_takes_over_and_an_older_one_is_refused() {
    let scene = Scene::new("fenced", "");
    scene.control.order(vec![scene.start(2, &job("forever"))]);
    scene.step(1);
    scene.control.order(vec![scene.start(3, &job("3"))]);
    assert_eq!(finding(scene.end(2)).0.cause, Cause::Fenced);
    assert!(matches!(scene.end(3), AttemptEnd::Trained { .. }));
    scene.control.order(vec![scene.start(1, &job("3"))]);
    assert_eq!(finding(scene.end(1)).0.cause, Cause::Fenced);
    checkpoint::claim(&scene.folder.join("checkpoints"), Fence(3)).unwrap();
}

/// The behaviour with two ranks.
fn by_two(behaviour: &str) -> String {
    job(behaviour).replace("batch: 8", "batch: 8, processes: 2")
}

#[test]
fn several_ranks_are_started_and_the_first_one_speaks() {
    let scene = Scene::new("two", "");
    let AttemptEnd::Trained { model } = scene.run(&by_two("20")) else { panic!("it trains") };
    assert_eq!(model.steps, 20);
    let entries = scene.control.wait("end", |entries| !entries.is_empty());
    let steps = reports(&entries).iter().filter(|report| matches!(report, Report::Step(_))).count();
    assert_eq!(steps, 20, "what the second says is not told");
    let name = format!("{}-rank-1.log", scene.attempt(1));
    let log = fs::read_to_string(scene.folder.join("logs").join(name)).unwrap();
    assert!(log.contains("rank 1 of 2 meets at") && scene.log(1).contains("rank 0 of 2 meets at"), "{log}");
}

#[test]
fn the_rank_that_others_miss_is_told() {
    let scene = Scene::new("missed", "");
    scene.control.order(vec![scene.start(1, &by_two("the second fails"))]);
    let (found, _) = finding(scene.end(1));
    assert_eq!((found.cause, found.message.as_str()), (Cause::Data, "a picture is no picture"));
}

#[test]
fn a_home_may_lie_deeper_than_a_socket_s_path_is_long() {
    let scene = Scene::below("deep", &"a-long-name-of-a-folder/".repeat(8), "");
    assert!(matches!(scene.run(&job("3")), AttemptEnd::Trained { .. }));
}

#[test]
fn a_killed_agent_takes_its_rank_along() {
    // One that would end at the end of file, and one that only the kernel ends.
    for behaviour in ["forever", "deaf"] {
        let scene = Scene::new("orphan", "");
        scene.control.order(vec![scene.start(1, &job(behaviour))]);
        let rank = rank_pid(&scene);
        crate::scene::kill(scene.agent(), Signal::KILL);
        until("end of the rank", || (!is_alive(rank)).then_some(()));
        scene.gone();
    }
}
