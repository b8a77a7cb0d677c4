//! A program in a container of the machine's own podman. The image is made of programs of this machine, so no registry is
//! asked; storage, locks and settings are this test's, so no other container or image is touched.

mod machine;

use std::fs;

use domain::Cause;
use domain::run::AttemptEnd;
use domain::wire::AgentCommand;
use rustix::process::Signal;

use crate::scene::{Scene, finding, kill, until};
use machine::{EMPTY, Podman};

/// A program that saves when it is told to stop.
const SAVES: &str = "resources: {image_id: \"docker:localhost/gradus-test:1\"}
run: |
  trap 'sleep 0.5; echo saved > $GRADUS_CHECKPOINTS/state; exit 0' TERM
  echo up
  while :; do sleep 0.05; done
";

/// A scene whose agent finds this podman's storage.
fn scene(name: &str, podman: &Podman, patience: &str) -> Scene {
    Scene::new(name, &format!("{patience} PATH='{}':$PATH", podman.programs().display()))
}

fn is_up(scene: &Scene, job: &str) {
    scene.control.order(vec![scene.start(1, job)]);
    scene.started();
    until("word of the program", || scene.log(1).contains("up\n").then_some(()));
}

fn stop(scene: &Scene) -> AttemptEnd {
    scene.control.order(vec![AgentCommand::Stop { attempt: scene.attempt(1), is_node_lost: false, within: None }]);
    scene.end(1)
}

#[test]
#[ignore = "needs podman: `cargo xtask test --long` runs it"]
fn a_program_finds_in_a_container_what_it_finds_on_the_machine() {
    let Some(podman) = Podman::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("work")).unwrap();
    fs::write(folder.path().join("work/code"), "code\n").unwrap();
    fs::write(folder.path().join("given"), "given\n").unwrap();
    let scene = scene("found", &podman, "program:20000");
    let here = folder.path().display();
    let job = format!(
        r#"workdir: {here}/work
resources: {{image_id: "docker:localhost/gradus-test:1"}}
file_mounts: {{~/given: {here}/given}}
envs: {{GREETING: "hello  you", PATH: "/bin:/more"}}
secrets: {{TOKEN: s3cret-value}}
setup: |
  echo installed > /installed
  echo "setup in ${{PWD##*/}}"
run: |
  echo "$GREETING $(cat code ~/given /installed)" $(id -u) $PATH $TOKEN ${{#TOKEN}}
  [[ -S $GRADUS_SOCKET ]] && echo "$HOME $GRADUS_SOCKET $GRADUS_RUN"
  echo state > $GRADUS_CHECKPOINTS/state
  echo "to stderr" >&2
  exit 3
"#
    );
    let (found, code) = finding(scene.run(&job));
    let log = scene.log(1);
    assert_eq!((found.cause, code), (Cause::ExitCode, Some(3)), "{}\n{log}", found.message);
    let expected = "hello  you code\ngiven\ninstalled 0 /bin:/more *** 12\n/root /run/gradus.sock found-1\n";
    for part in ["setup in workdir\n", expected, "to stderr\n"] {
        assert!(log.contains(part), "{log}");
    }
    assert!(!log.contains("s3cret") && log.lines().all(|line| line.len() != 64), "no number of a container: {log}");
    assert_eq!(fs::read_to_string(scene.folder.join("checkpoints/state")).unwrap(), "state\n");
    assert_eq!(podman.containers(), "");
}

#[test]
#[ignore = "needs podman: `cargo xtask test --long` runs it"]
fn a_program_in_a_container_saves_when_it_is_stopped() {
    let Some(podman) = Podman::new() else { return };
    let scene = scene("saves", &podman, "program:20000");
    is_up(&scene, SAVES);
    let running = podman.containers();
    assert!(running.starts_with("gradus-saves-1-a1-"), "{running}");
    assert_eq!(stop(&scene), AttemptEnd::Stopped { step: None });
    assert_eq!(fs::read_to_string(scene.folder.join("checkpoints/state")).unwrap(), "saved\n");
    assert_eq!(podman.containers(), "");
}

#[test]
#[ignore = "needs podman: `cargo xtask test --long` runs it"]
fn a_program_in_a_container_that_does_not_stop_is_killed_at_its_deadline() {
    let Some(podman) = Podman::new() else { return };
    let scene = scene("deaf", &podman, "program:1500");
    is_up(&scene, &SAVES.replace("'sleep 0.5; echo saved > $GRADUS_CHECKPOINTS/state; exit 0'", "''"));
    let (found, _) = finding(stop(&scene));
    assert!(found.message.contains("did not save its state in time"), "{}", found.message);
    assert_eq!(podman.containers(), "");
}

#[test]
#[ignore = "needs podman: `cargo xtask test --long` runs it"]
fn the_container_of_a_killed_agent_is_ended() {
    let Some(podman) = Podman::new() else { return };
    let scene = scene("orphan", &podman, "program:20000");
    is_up(&scene, SAVES);
    assert!(podman.containers().starts_with("gradus-orphan-1-a1-"));
    kill(scene.agent(), Signal::KILL);
    scene.gone();
    assert_eq!(podman.containers(), "");
}

#[test]
#[ignore = "needs podman: `cargo xtask test --long` runs it"]
fn a_container_that_somebody_else_stops_is_no_failure_of_its_program() {
    let Some(podman) = Podman::new() else { return };
    let scene = scene("others", &podman, "program:20000");
    is_up(&scene, &SAVES.replace("exit 0", "exit 143"));
    podman.ask(&["stop", "--all", "--time", "2"]).unwrap();
    let (found, code) = finding(scene.end(1));
    assert_eq!((found.cause, code), (Cause::Killed, None), "{}", found.message);
    assert!(found.message.contains("by somebody else"), "{}", found.message);
    assert_eq!(podman.containers(), "");
}

#[test]
#[ignore = "needs podman: `cargo xtask test --long` runs it"]
fn memory_that_runs_out_in_a_container_is_told() {
    let Some(podman) = Podman::new() else { return };
    if !podman.limits_memory() {
        eprintln!("podman sets no limit of memory here: that it is reached was not tried");
        return;
    }
    let scene = scene("small", &podman, "program:20000");
    let job = "resources: {image_id: \"docker:localhost/gradus-test:1\", memory: 64MB, cpus: 1, enforce: true}
run: dd if=/dev/zero of=/dev/null bs=512M count=1
";
    let (found, code) = finding(scene.run(job));
    assert_eq!((found.cause, code), (Cause::OutOfMemory, None), "{}\n{}", found.message, scene.log(1));
    assert!(found.hint.unwrap().contains("write a larger `memory`"));
    assert_eq!(podman.containers(), "");
}

#[test]
#[ignore = "needs podman: `cargo xtask test --long` runs it"]
fn an_image_that_is_missing_or_cannot_run_is_a_failed_set_up() {
    let Some(podman) = Podman::new() else { return };
    podman.import(&podman.empty_image(), EMPTY);
    for (name, image, expected) in [
        ("absent", "localhost/gradus-absent:1", "podman build --tag localhost/gradus-absent:1"),
        ("empty", EMPTY, "choose an image that has `bash`"),
    ] {
        let scene = scene(name, &podman, "program:20000");
        let job = format!("resources: {{image_id: \"docker:{image}\"}}\nrun: 'true'\n");
        let (found, code) = finding(scene.run(&job));
        let hint = found.hint.unwrap_or_default();
        assert_eq!((found.cause, code), (Cause::Setup, None), "{}", found.message);
        assert!(hint.contains(expected), "{}: {hint}", found.message);
        assert_eq!(podman.containers(), "");
    }
}
