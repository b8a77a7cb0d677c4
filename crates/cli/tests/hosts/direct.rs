//! A node whose agent reaches the server over TLS: no socket is forwarded to it.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{Scene, expected};

/// The host of this test.
const HOST: u32 = 15;

/// A server, killed when it is dropped.
pub struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An address of this machine that hosts reach, with a free port.
pub fn reachable(scene: &Scene) -> String {
    let names = fs::read_to_string(scene.lab.join("etc_hosts")).unwrap();
    let line = names.lines().find(|line| line.ends_with(" server")).expect("this machine's address");
    let address = line.split_whitespace().next().unwrap();
    TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().to_string()
}

/// The command of a server that agents find at this address.
pub fn serving(scene: &Scene, address: &str) -> Command {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/line/background/tls");
    let [certificate, key] = ["certificate.pem", "key.pem"].map(|file| folder.join(file));
    let mut command = scene.command(&["serve", "--listen", address, "--agents-at", &format!("https://{address}")]);
    command.arg("--tls-cert").arg(certificate).arg("--tls-key").arg(key);
    command
}

/// A server that was started so, and listens.
pub fn served(scene: &Scene, mut command: Command, address: &str) -> Server {
    let server = Server(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let is_ready = || std::net::TcpStream::connect(address).is_ok();
    scene.wait("the server listens", 60, is_ready);
    server
}

#[test]
#[ignore = "needs hosts: `cargo xtask test` provides them"]
fn an_agent_reaches_the_server_over_tls_and_the_next_one_as_well() {
    let scene = Scene::with(&[HOST]);
    let (host, node) = (HOST.to_string(), format!("host-{HOST}"));
    let config = scene.lab.join("ssh_config");
    scene.ok(&["nodes", "add", &node, "--ssh-config", config.to_str().unwrap(), "--reach", "tls"]);
    let job = scene.job(&format!("ssh/{node}"), 300);
    // Without a server, there is no address for agents.
    let refused = scene.gradus(&["run", &job, "--json", "--yes"]);
    let said = format!("{}{}", String::from_utf8_lossy(&refused.stdout), String::from_utf8_lossy(&refused.stderr));
    assert!(!refused.status.success() && said.contains("--agents-at"), "{said}");

    let address = reachable(&scene);
    let server = served(&scene, serving(&scene, &address), &address);
    scene.ok(&["run", &job, "--detach", "--yes", "--new"]);
    scene.wait("a checkpoint has come here", 120, || scene.manifests() >= 1);
    let find = |name: &str| scene.lab(&["exec", &host, "find", "/root/.gradus", "-name", name]);
    assert_eq!((find("loop.sock"), find("join.token")), (String::new(), String::new()), "no tunnel, and no token");
    assert!(find("session.key").contains("/instances/"));
    drop(server);
    let _server = served(&scene, serving(&scene, &address), &address);
    scene.wait("the run has ended", 240, || scene.events().contains("trained its model"));
    let events = scene.events();
    assert_eq!(events.matches("trains from step").count(), 1, "its attempt went on: {events}");
    assert_eq!(scene.weights(), expected(300));
    scene.wait("its agent has left", 60, || scene.processes(HOST).is_empty());
}
