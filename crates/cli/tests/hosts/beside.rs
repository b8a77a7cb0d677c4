//! Commands that use a node while a server has a tunnel to it.

use std::process::Stdio;

use super::nodes::{serve, steps};
use super::{EPOCHS, Scene, expected};

/// The host of the run that other commands must not cut off, and the one that is removed and added.
const LISTED: u32 = 29;
const READDED: u32 = 30;

/// A home with this host as its node, on which nobody was before.
fn scene_on(host: u32) -> Scene {
    let scene = Scene::with(&[]);
    scene.lab(&["start", &host.to_string()]);
    scene.lab(&["exec", &host.to_string(), "rm", "-rf", "/root/.gradus"]);
    let config = scene.lab.join("ssh_config");
    scene.ok(&["nodes", "add", &format!("host-{host}"), "--ssh-config", config.to_str().unwrap()]);
    scene
}

/// Runs a line of a shell in the folder of this home on a host.
fn in_home(scene: &Scene, host: u32, line: &str) -> String {
    let line = format!("cd /root/.gradus/homes/* && {line}");
    scene.lab(&["exec", &host.to_string(), "sh", "-c", &line]).trim().to_owned()
}

#[test]
#[ignore = "needs hosts: `cargo xtask test` provides them"]
fn other_commands_and_other_tunnels_do_not_cut_a_run_off() {
    let scene = scene_on(LISTED);
    let node = format!("host-{LISTED}");
    let _server = serve(&scene);
    scene.wait("the server answers", 20, || scene.path("home/api.sock").exists());
    scene.ok(&["run", &scene.job(&format!("ssh/{node}"), EPOCHS), "--detach", "--yes"]);
    scene.wait("a checkpoint has come here", 120, || scene.manifests() >= 1);
    let socket = || in_home(&scene, LISTED, "readlink loop.sock");
    let before = socket();
    assert!(before.starts_with("loop.sock."), "{before}");

    let listed = scene.ok(&["nodes", "list"]);
    assert!(listed.contains("runs "), "{listed}");
    let refused = scene.gradus(&["nodes", "rm", &node]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("is in use by"), "{said}");
    assert_eq!(socket(), before, "neither of them opens a tunnel");

    // As a command of an earlier version has done it: the name is another's, whose process has ended.
    in_home(&scene, LISTED, "rm loop.sock && touch loop.sock");
    scene.wait("the server has taken the name back", 60, || socket() == before);
    in_home(&scene, LISTED, "rm loop.sock loop.sock.*");
    let is_open = || in_home(&scene, LISTED, "test -S loop.sock && echo open") == "open";
    scene.wait("the server has opened another tunnel", 60, is_open);
    assert_ne!(socket(), before);

    scene.wait("the run has ended", 300, || scene.events().contains("trained its model"));
    let events = scene.events();
    assert_eq!(events.matches("trains from step").count(), 1, "one attempt, from its start to its end: {events}");
    let all = steps(&scene);
    assert_eq!(all, (1..=*all.last().unwrap()).collect::<Vec<u64>>(), "each step once, and none left out");
    assert_eq!(scene.weights(), expected(EPOCHS));
    scene.wait("its agent has left", 60, || scene.processes(LISTED).is_empty());
    scene.ok(&["nodes", "rm", &node]);
    assert_eq!(scene.lab(&["exec", &LISTED.to_string(), "ls", "-A", "/root/.gradus"]), "");
}

#[test]
#[ignore = "needs hosts: `cargo xtask test` provides them"]
fn a_node_that_was_removed_and_added_again_is_used_at_once() {
    let scene = scene_on(READDED);
    let (host, node, config) = (READDED.to_string(), format!("host-{READDED}"), scene.lab.join("ssh_config"));
    let add = ["nodes", "add", &node, "--ssh-config", config.to_str().unwrap()];
    let _server = serve(&scene);
    scene.wait("the server answers", 20, || scene.path("home/api.sock").exists());
    let job = scene.job(&format!("ssh/{node}"), 2);
    let run = || {
        scene.ok(&["run", &job, "--detach", "--yes", "--new"]);
        scene.wait("the run has ended", 120, || scene.status()["word"] == "trained");
        let status = scene.status();
        assert_eq!(status["instances"].as_array().map(Vec::len), Some(1), "rented once: {status}");
        assert!(scene.events().contains("trained its model"), "{}", scene.events());
        assert_eq!(scene.weights(), expected(2));
        scene.wait("its agent has left", 60, || scene.processes(READDED).is_empty());
    };
    // The server has a tunnel to it by then.
    run();
    scene.ok(&["nodes", "rm", &node]);
    assert_eq!(scene.lab(&["exec", &host, "ls", "-A", "/root/.gradus"]), "");
    scene.ok(&add);
    run();

    // One that is added by a command that was killed is not rented, and can be removed.
    scene.ok(&["nodes", "rm", &node]);
    scene.lab(&["exec", &host, "umount", "/root/.cache/gradus"]);
    let mut added = scene.command(&add).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let find = |name: &str| scene.lab(&["exec", &host, "find", "/root/.gradus", "-name", name]);
    scene.wait("a large file is being copied", 120, || find("00009").contains(".parts/"));
    added.kill().unwrap();
    added.wait().unwrap();
    scene.wait("nothing is written there any more", 60, || scene.processes(READDED).is_empty());
    let listed = scene.ok(&["nodes", "list"]);
    assert!(listed.contains("not prepared"), "{listed}");
    let refused = scene.gradus(&["run", &job, "--yes", "--new"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains(&format!("node `{node}` is not prepared")), "{said}");
    scene.ok(&["nodes", "rm", &node]);
    assert_eq!(scene.lab(&["exec", &host, "ls", "-A", "/root/.gradus"]), "");
    // It shares this machine's libtorch again.
    scene.lab(&["kill", &host]);
    scene.lab(&["start", &host]);
}
