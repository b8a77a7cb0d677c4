//! A program in a container, with a stand-in for podman: a script that runs what it is told to on this machine.

use std::fs;
use std::path::{Path, PathBuf};

use domain::Cause;
use domain::run::AttemptEnd;
use domain::wire::AgentCommand;
use rustix::process::Signal;

use crate::scene::{Scene, finding, is_alive, kill, until, write_program};

/// It keeps the number of each container's first process in a file beside itself, and writes down what it is asked.
const STAND_IN: &str = r#"#!/bin/bash
here=$(dirname "$0")
echo "$*" >> "$here/asked"
for last; do :; done
case $1 in
  image) exit 1 ;;
  pull) echo "pulling $2" ;;
  run)
    while [[ $1 != --entrypoint ]]; do [[ $1 = --name ]] && name=$2; shift; done
    shift 3
    setsid bash "$@" > /dev/null 2>&1 &
    echo $! > "$here/of-$name"
    ;;
  exec)
    cd "$3"; shift 3; variables=("PATH=$PATH")
    while [[ $1 = --env ]]; do
      if [[ $2 = *=* ]]; then variables+=("$2"); else variables+=("$2=${!2}"); fi
      shift 2
    done
    shift
    exec env -i "${variables[@]}" "$@"
    ;;
  kill) kill -"$3" "$(< "$here/of-$last")" ;;
  rm) kill -KILL "$(< "$here/of-$last")"; rm -f "$here/of-$last" ;;
  ps) [[ ! -e $here/of-${last#name=} ]] || echo "${last#name=}" ;;
esac
"#;

const JOB: &str = r#"resources: {image_id: "docker:a/b:1"}
envs: {GREETING: hello}
secrets: {TOKEN: s3cret}
setup: |
  echo setting up in $(basename $PWD)
  echo made > made
run: |
  echo $GREETING $(cat made) $GRADUS_RUN ${#TOKEN} $(basename $GRADUS_SOCKET)
  trap 'sleep 0.2 && echo saved > $GRADUS_CHECKPOINTS/state; exit 0' TERM
  echo up
  while :; do sleep 0.01; done
"#;

/// A scene whose agent finds the stand-in.
fn scene(name: &str, folder: &Path) -> Scene {
    let program = folder.join("podman");
    write_program(&program, STAND_IN);
    Scene::new(name, &format!("program:20000 PATH={}:$PATH", folder.display()))
}

fn is_up(scene: &Scene) {
    scene.control.order(vec![scene.start(1, JOB)]);
    scene.started();
    until("word of the program", || scene.log(1).contains("up\n").then_some(()));
}

/// The file of the only container, and its name.
fn started(folder: &Path, attempt: &str) -> (PathBuf, String) {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let containers: Vec<String> = names.filter(|name| name.starts_with("of-")).collect();
    let [file] = &containers[..] else { panic!("one container: {containers:?}") };
    let name = file.trim_start_matches("of-").to_owned();
    assert!(name.starts_with(&format!("gradus-{attempt}-")), "{name}");
    (folder.join(file), name)
}

#[test]
fn a_container_runs_both_scripts_and_its_program_saves_when_it_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let scene = scene("boxed", folder.path());
    is_up(&scene);
    let expected = "pulling docker.io/a/b:1\nsetting up in workdir\nhello made boxed-1 6 gradus.sock\nup\n";
    assert_eq!(scene.log(1), expected);
    let (container, name) = started(folder.path(), "boxed-1-a1");
    scene.control.order(vec![AgentCommand::Stop { attempt: scene.attempt(1), is_node_lost: false, within: None }]);
    assert_eq!(scene.end(1), AttemptEnd::Stopped { step: None });
    assert!(scene.folder.join("checkpoints/state").exists(), "it had the time to save");
    assert!(!container.exists(), "the container is gone with its attempt");
    let asked = fs::read_to_string(folder.path().join("asked")).unwrap();
    assert!(asked.contains(&format!("\nkill --signal TERM {name}\n")), "{asked}");
    assert!(asked.contains(" --env TOKEN ") && !asked.contains("s3cret") && !asked.contains("hello"), "{asked}");
}

#[test]
fn the_container_of_a_killed_agent_is_ended_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let scene = scene("orphan", folder.path());
    is_up(&scene);
    let (container, name) = started(folder.path(), "orphan-1-a1");
    let holder: i32 = fs::read_to_string(&container).unwrap().trim().parse().unwrap();
    assert!(is_alive(holder));
    kill(scene.agent(), Signal::KILL);
    scene.gone();
    assert!(!container.exists() && !is_alive(holder));
    let asked = fs::read_to_string(folder.path().join("asked")).unwrap();
    assert!(asked.contains(&format!("\nrm --force {name}\n")), "{asked}");
}

#[test]
fn a_machine_without_a_runtime_says_what_to_install() {
    let scene = Scene::new("bare", "program:2000 PATH=/nonexistent");
    let (found, code) = finding(scene.run(JOB));
    assert_eq!((found.cause, code), (Cause::Setup, None));
    assert!(found.message.contains("needs podman or docker") && found.hint.unwrap().contains("apt-get install podman"));
}
