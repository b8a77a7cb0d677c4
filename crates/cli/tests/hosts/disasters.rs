//! The server's own machine: its disk is full, and its databases are put back from a copy while nodes train.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{EPOCHS, Scene, expected};

/// The host of a server whose disk is full, and those of one that is put back.
const OF_FULL: u32 = 18;
const KNOWN: u32 = 19;
const FORGOTTEN: u32 = 20;

/// A server of the scene's home, killed when it is dropped.
struct Server(Child);

impl Server {
    fn start(scene: &Scene) -> Server {
        let mut command = scene.command(&["serve"]);
        let server = Server(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let is_ready = || std::os::unix::net::UnixStream::connect(scene.path("home/api.sock")).is_ok();
        scene.wait("the server answers", 60, is_ready);
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A file system of its own, which goes when this is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(folder: PathBuf) -> SmallDisk {
        fs::create_dir_all(&folder).unwrap();
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", "size=192m", "tmpfs"]).arg(&folder).status().unwrap();
        assert!(mounted.success(), "tests of hosts run as root");
        SmallDisk(folder)
    }

    /// Takes all of its space, until [`SmallDisk::empty`].
    fn fill(&self) {
        let mut file = File::options().create(true).append(true).open(self.0.join("filler")).unwrap();
        for block in [1 << 20, 4096] {
            while file.write_all(&vec![0; block]).is_ok() {}
        }
    }

    fn empty(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
#[ignore = "needs hosts: `cargo xtask test` provides them"]
fn a_server_with_a_full_disk_loses_no_run() {
    let scene = Scene::with(&[]);
    let disk = SmallDisk::mount(scene.path("home"));
    scene.lab(&["start", &OF_FULL.to_string()]);
    let (node, config) = (format!("host-{OF_FULL}"), scene.lab.join("ssh_config"));
    scene.ok(&["nodes", "add", &node, "--ssh-config", config.to_str().unwrap()]);
    let mut server = Server::start(&scene);
    scene.ok(&["run", &scene.job(&format!("ssh/{node}"), EPOCHS), "--detach", "--yes", "--new"]);
    scene.wait("a checkpoint has come here", 120, || scene.manifests() >= 1);
    disk.fill();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        // Something else on the machine takes what is deleted, as it does.
        disk.fill();
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(!scene.processes(OF_FULL).is_empty(), "the node trains on");
    disk.empty();
    assert!(server.0.try_wait().unwrap().is_none(), "the server waits for space, and continues by itself");
    scene.wait("the run has ended", 300, || scene.events().contains("trained its model"));
    let events = scene.events();
    assert_eq!(events.matches("trains from step").count(), 1, "one attempt, from its start to its end: {events}");
    assert_eq!(scene.weights(), expected(EPOCHS));
    scene.wait("its agent has left", 60, || scene.processes(OF_FULL).is_empty());
    drop(server);
}

/// The databases of a home.
const DATABASES: [&str; 2] = ["state.db", "series.db"];

/// Copies the databases of a home that no process has open, with what is not in the main files yet.
fn copied(home: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for name in DATABASES {
        for file in [name.to_owned(), format!("{name}-wal")] {
            if home.join(&file).exists() {
                fs::copy(home.join(&file), to.join(&file)).unwrap();
            }
        }
    }
}

/// Puts them back.
fn put_back(home: &Path, from: &Path) {
    for name in DATABASES {
        for end in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(home.join(format!("{name}{end}")));
        }
    }
    copied(from, home);
}

#[test]
#[ignore = "needs hosts: `cargo xtask test` provides them"]
fn a_server_that_is_put_back_from_a_copy_doubles_nothing_and_ends_nothing() {
    let scene = Scene::with(&[KNOWN, FORGOTTEN]);
    let (home, copy) = (scene.path("home"), scene.path("copy"));
    let trains = |host: u32| scene.processes(host).iter().any(|line| line.contains("gradus-rank"));
    let server = Server::start(&scene);
    let epochs = 2 * EPOCHS;
    scene.ok(&["run", &scene.job(&format!("ssh/host-{KNOWN}"), epochs), "--detach", "--yes", "--new"]);
    scene.wait("a checkpoint has come here", 120, || scene.manifests() >= 1);
    let known = scene.run_folder();
    drop(server);
    copied(&home, &copy);
    // What comes after the copy: a run that it does not know, and more of the one that it knows.
    let server = Server::start(&scene);
    scene.ok(&["run", &scene.job(&format!("ssh/host-{FORGOTTEN}"), 100_000), "--detach", "--yes", "--new"]);
    scene.wait("the other trains", 120, || trains(FORGOTTEN));
    let forgotten = scene.name();
    drop(server);
    put_back(&home, &copy);
    let server = Server::start(&scene);
    scene.wait("the run that it knows has ended", 300, || scene.events().contains("trained its model"));
    let events = scene.events();
    assert_eq!(events.matches("trains from step").count(), 1, "the same attempt was found again: {events}");
    assert_eq!(
        events.matches(&format!("renting host-{KNOWN} ")).count(),
        1,
        "and no second machine was rented: {events}"
    );
    assert_eq!(fs::read(known.join("export/model.safetensors")).unwrap(), expected(epochs));
    assert!(trains(FORGOTTEN), "what the copy does not know is left alone for a while");
    let listed = scene.ok(&["status", "--all", "--json"]);
    assert!(!listed.contains(&forgotten), "{listed}");
    drop(server);
    // It would train on for half an hour.
    scene.lab(&["kill", &FORGOTTEN.to_string()]);
    scene.lab(&["start", &FORGOTTEN.to_string()]);
}
