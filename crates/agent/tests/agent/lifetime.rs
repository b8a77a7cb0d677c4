//! The agent's own life: rent, lease, re-adoption, release.

use std::fs;
use std::time::Instant;

use cloud::Sight;
use domain::Cause;
use domain::rank::Report;
use domain::run::AttemptEnd;
use domain::wire::{AgentCommand, AgentEvent, Entry};
use rustix::process::Signal;

use crate::scene::{Scene, finding, is_alive, kill, reports, until};
use crate::world::ThisMachine;

const TRAIN: &str =
    "envs: {GRADUS_TEST_RANK: forever}\ntrain: {model: mlp, data: {path: /data}, epochs: 1, batch: 8}\n";

#[test]
fn this_machine_keeps_every_promise_of_a_provider() {
    let scene = Scene::idle("conformance", "home", "");
    let world = ThisMachine::new(node::Folder::new(scene.local.folder(&scene.instance)));
    cloud::conformance::check(&scene.local, &scene.instance, &world);
}

#[test]
fn an_order_to_leave_ends_everything_and_the_rent() {
    let before = Instant::now();
    let scene = Scene::new("leaves", "");
    scene.control.order(vec![scene.start(1, TRAIN)]);
    scene.step(3);
    let folder = node::Folder::new(scene.local.folder(&scene.instance));
    let so_far = until("rent", || folder.usage().unwrap().map(|usage| usage.elapsed).filter(|rent| rent.0 > 0));
    scene.control.order(vec![AgentCommand::Leave]);
    let metered = scene.gone().elapsed;
    let longest = before.elapsed().as_secs_f64();
    assert!(metered >= so_far, "{metered:?} in all, of which {so_far:?} before it left");
    assert!(metered.as_secs_f64() <= longest, "{metered:?} of at most {longest} s");
    assert!(scene.agent_log().contains("left: Ordered"));
}

#[test]
fn a_loop_that_comes_back_hears_every_event_once_and_in_order() {
    let scene = Scene::new("adopted", "");
    scene.control.order(vec![scene.start(1, TRAIN)]);
    scene.step(20);
    scene.control.mute(true);
    let calls = scene.control.calls();
    until("a second of calls", || (scene.control.calls() > calls + 10).then_some(()));
    scene.control.mute(false);
    scene.step(200);
    scene.control.order(vec![AgentCommand::Stop { attempt: scene.attempt(1), is_node_lost: false, within: None }]);
    scene.end(1);
    // The loop of this test refuses gaps and events that change.
    let entries = scene.control.wait("end", |entries| entries.iter().any(is_end));
    let steps: Vec<u64> = reports(&entries)
        .iter()
        .filter_map(|report| match report {
            Report::Step(step) => Some(step.step),
            _ => None,
        })
        .collect();
    assert!(steps.iter().copied().eq(1..=steps.len() as u64), "{steps:?}");
    assert_eq!(entries.iter().filter(|entry| entry.event == AgentEvent::Started).count(), 1);
    assert_eq!(scene.control.repeated(), 0, "what was acknowledged is not said again");
}

fn is_end(entry: &Entry) -> bool {
    matches!(entry.event, AgentEvent::Ended { .. })
}

#[test]
fn a_lease_that_is_over_saves_the_state_and_ends_the_rent() {
    let scene = Scene::new("lease", "");
    scene.control.order(vec![scene.start(1, TRAIN)]);
    scene.step(3);
    // Only now, or a busy machine could end the lease before the third step.
    scene.control.lease(400);
    scene.control.mute(true);
    scene.gone();
    assert!(scene.agent_log().contains("left: LeaseOver"), "{}", scene.agent_log());
    let entries = scene.local.last_events(&scene.instance).unwrap();
    assert!(reports(&entries).iter().any(|report| matches!(report, Report::Stopped { .. })), "it saved first");
    let end = crate::scene::ended(&entries, &scene.attempt(1)).unwrap();
    let (found, code) = finding(end);
    assert_eq!((found.cause, code), (Cause::InstanceLost, None));
}

#[test]
fn an_agent_that_no_loop_ever_answers_leaves() {
    let scene = Scene::idle("unheard", "home", "first_answer:300");
    scene.control.mute(true);
    scene.local.launch(&scene.launch()).unwrap();
    scene.gone();
    assert!(scene.agent_log().contains("left: LeaseOver"));
}

#[test]
fn a_signalled_agent_ends_its_rank_and_says_so() {
    let scene = Scene::new("signalled", "");
    scene.control.order(vec![scene.start(1, TRAIN)]);
    scene.step(3);
    kill(scene.agent(), Signal::TERM);
    let (found, code) = finding(scene.end(1));
    assert_eq!((found.cause, code), (Cause::InstanceLost, None));
    scene.gone();
    assert!(scene.agent_log().contains("left: Signalled"));
}

#[test]
fn a_release_ends_an_agent_that_does_not_listen() {
    let scene = Scene::new("frozen", "");
    scene.control.order(vec![scene.start(1, TRAIN)]);
    scene.step(1);
    kill(scene.agent(), Signal::STOP);
    until("proof that it is gone", || {
        scene.local.release(&scene.instance).unwrap();
        matches!(scene.local.sight(&scene.instance).unwrap(), Sight::Gone(Some(_))).then_some(())
    });
}

#[test]
fn a_program_does_not_outlive_its_agent() {
    let scene = Scene::new("outlives", "");
    scene.control.order(vec![scene.start(1, "run: |\n  setsid sleep 3600 &\n  echo $!\n  sleep 3600\n")]);
    scene.started();
    let pid: i32 = until("word of the program", || scene.log(1).trim().parse().ok());
    assert_eq!(scene.local.list().unwrap(), std::slice::from_ref(&scene.instance));
    kill(scene.agent(), Signal::KILL);
    scene.gone();
    assert!(!is_alive(pid), "nothing of it runs when it is gone");
    assert!(scene.local.list().unwrap().is_empty());
}

#[test]
fn the_end_of_an_attempt_that_no_loop_heard_is_read_from_the_folder_of_a_killed_agent() {
    let scene = Scene::new("unheard-end", "");
    scene.control.order(vec![scene.start(1, "run: |\n  while [ ! -e $GRADUS_CHECKPOINTS/go ]; do sleep 0.01; done\n")]);
    scene.started();
    scene.control.mute(true);
    fs::write(scene.folder.join("checkpoints/go"), "").unwrap();
    let end = || crate::scene::ended(&scene.local.last_events(&scene.instance).unwrap(), &scene.attempt(1));
    until("word of the end", end);
    kill(scene.agent(), Signal::KILL);
    scene.gone();
    assert_eq!(end(), Some(AttemptEnd::Succeeded));
    let heard = scene.control.wait("words", |_| true);
    assert_eq!(crate::scene::ended(&heard, &scene.attempt(1)), None);
}

#[test]
fn a_second_agent_leaves_at_once_and_a_spent_folder_takes_none() {
    let scene = Scene::new("second", "");
    scene.agent();
    let second = || {
        let mut command = std::process::Command::new(scene.folder.join("../../../gradus"));
        command.args(["agent", "--folder"]).arg(scene.local.folder(&scene.instance));
        let output = command.stdin(std::process::Stdio::null()).output().unwrap();
        output.status.code().unwrap()
    };
    fs::create_dir_all(&scene.folder).unwrap();
    assert_eq!(second(), i32::from(agent::Departure::Attended.exit_code()));
    scene.control.order(vec![AgentCommand::Leave]);
    let usage = scene.gone();
    assert_eq!(second(), i32::from(agent::Departure::Spent.exit_code()));
    assert_eq!(scene.gone(), usage, "the bill is final");
}
