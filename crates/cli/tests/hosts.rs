//! Jobs on machines that are reached over SSH: real hosts in network namespaces, each with its own processes, home folder
//! and sshd. `cargo xtask test` starts them and provides the trainer.

#[path = "hosts/beside.rs"]
mod beside;
#[path = "hosts/direct.rs"]
mod direct;
#[path = "hosts/disasters.rs"]
mod disasters;
#[path = "hosts/elastic.rs"]
mod elastic;
#[path = "hosts/nodes.rs"]
mod nodes;
mod rented;
#[path = "hosts/times.rs"]
mod times;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// This host has no libtorch; the others share that of this machine.
const BARE: u32 = 1;

/// A home with nodes of the lab; each test has hosts of its own.
struct Scene {
    folder: tempfile::TempDir,
    lab: PathBuf,
}

impl Scene {
    #[expect(clippy::disallowed_methods, reason = "the lab is found by a variable")]
    fn with(hosts: &[u32]) -> Scene {
        let lab = std::env::var_os("GRADUS_LAB_HOSTS").expect("`cargo xtask test` sets it");
        let scene = Scene { folder: tempfile::tempdir().unwrap(), lab: lab.into() };
        for host in hosts {
            scene.lab(&["start", &host.to_string()]);
            if *host == BARE {
                scene.lab(&["exec", &host.to_string(), "umount", "/root/.cache/gradus"]);
            }
            let config = scene.lab.join("ssh_config");
            scene.ok(&["nodes", "add", &format!("host-{host}"), "--ssh-config", config.to_str().unwrap()]);
        }
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn lab(&self, arguments: &[&str]) -> String {
        let output = Command::new(self.lab.join("lab")).args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradus"));
        command.args(arguments).arg("--home").arg(self.path("home")).stdin(Stdio::null()).env("NO_COLOR", "1");
        command
    }

    fn gradus(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.gradus(arguments);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "gradus {arguments:?}: {out}{err}");
        out.into_owned()
    }

    /// A job file with this place to run, and so many epochs on a table of its own.
    fn job(&self, infra: &str, epochs: u32) -> String {
        self.job_on(infra, 1, 1, epochs)
    }

    /// The same with so many processes on each of so many nodes.
    fn job_on(&self, infra: &str, nodes: u32, processes: u32, epochs: u32) -> String {
        let table = self.path("table.csv");
        if !table.exists() {
            let row = |row: u32| (0..64).map(|column| ((row * 31 + column * 17) % 16).to_string()).collect::<Vec<_>>();
            let rows = (0..400).map(|number| format!("{},{}\n", row(number).join(","), number % 4));
            fs::write(&table, rows.collect::<String>()).unwrap();
        }
        let job = self.path("job.yaml");
        let text = format!(
            "name: job\nresources: {{infra: {infra}}}\nnum_nodes: {nodes}\ntrain:\n  model: mlp\n  data: {{path: table.csv}}\n  epochs: {epochs}\n  \
             batch: 8\n  seed: 3\n  threads: 1\n  processes: {processes}\n  checkpoint: {{every: 1s}}\n"
        );
        fs::write(&job, text).unwrap();
        job.to_string_lossy().into_owned()
    }

    fn start(&self, job: &str) -> Child {
        let mut command = self.command(&["run", job, "--json", "--yes", "--new"]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// What `gradus status RUN --json` says of the newest run.
    fn status(&self) -> Value {
        let output = self.gradus(&["status", "last", "--json"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().next().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default()
    }

    fn run_folder(&self) -> PathBuf {
        let mut runs: Vec<PathBuf> =
            fs::read_dir(self.path("home/runs")).unwrap().map(|entry| entry.unwrap().path()).collect();
        runs.sort_by_key(|path| fs::metadata(path).unwrap().created().unwrap());
        runs.pop().expect("a run")
    }

    fn name(&self) -> String {
        self.run_folder().file_name().unwrap().to_string_lossy().into_owned()
    }

    fn manifests(&self) -> usize {
        let Ok(entries) = fs::read_dir(self.path("home/runs")) else { return 0 };
        let checkpoints = entries.flatten().map(|run| run.path().join("checkpoints"));
        let names = checkpoints.filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
        names.filter(|entry| entry.file_name().to_string_lossy().starts_with("manifest-")).count()
    }

    fn weights(&self) -> Vec<u8> {
        fs::read(self.run_folder().join("export/model.safetensors")).unwrap()
    }

    fn wait(&self, what: &str, within: u64, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(within), "{what}: not within {within} s; {}", self.events());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn events(&self) -> String {
        let text = |arguments: &[&str]| String::from_utf8_lossy(&self.gradus(arguments).stdout).into_owned();
        format!("{}\n{}", text(&["events", "last"]), text(&["events", "--operations"]))
    }

    /// Processes of gradus on a host.
    fn processes(&self, host: u32) -> Vec<String> {
        let listed = self.lab(&["exec", &host.to_string(), "ps", "-eo", "args"]);
        listed.lines().filter(|line| line.contains(".gradus/")).map(str::to_owned).collect()
    }

    /// Waits until nothing of gradus runs there. What the loop asked a host last may end a moment after the loop.
    fn nothing_runs_on(&self, hosts: &[u32]) {
        self.wait("no process is left", 60, || hosts.iter().all(|host| self.processes(*host).is_empty()));
    }
}

/// Epochs of a run that is disturbed on the way: it must not be over before, however long this process has to wait.
const EPOCHS: u32 = 1_500;

fn expected(epochs: u32) -> Vec<u8> {
    expected_of(1, epochs)
}

/// What so many processes on this machine come to.
fn expected_of(processes: u32, epochs: u32) -> Vec<u8> {
    let scene = Scene::with(&[]);
    scene.ok(&["run", &scene.job_on("local", 1, processes, epochs), "--json", "--yes"]);
    scene.weights()
}

#[test]
#[ignore = "needs hosts: `cargo xtask test` provides them"]
fn a_run_on_a_host_gives_the_bits_of_a_run_here_and_leaves_nothing_running() {
    let scene = Scene::with(&[1]);
    let job = scene.job("ssh/host-1", 4);
    scene.ok(&["run", &job, "--json", "--yes"]);
    assert_eq!(scene.weights(), expected(4));
    let listed = scene.ok(&["models", "--json"]);
    assert!(listed.contains(scene.run_folder().to_str().unwrap()), "the model is found here: {listed}");
    scene.nothing_runs_on(&[1]);
    // A program, with a folder of its own and files that it keeps.
    fs::create_dir_all(scene.path("work/sub")).unwrap();
    fs::write(scene.path("work/sub/input.txt"), "from here").unwrap();
    let program = scene.path("program.yaml");
    let text = "name: program\nresources: {infra: ssh}\nworkdir: work\nenvs: {WHO: me}\nrun: |\n  hostname\n  echo \"$WHO reads $(cat sub/input.txt)\"\n  cp sub/input.txt $GRADUS_CHECKPOINTS/kept.txt\n";
    fs::write(&program, text).unwrap();
    scene.ok(&["run", program.to_str().unwrap(), "--json", "--yes"]);
    let logs = scene.ok(&["logs", "last"]);
    assert!(logs.contains("host-1") && logs.contains("me reads from here"), "{logs}");
    assert_eq!(fs::read_to_string(scene.run_folder().join("checkpoints/kept.txt")).unwrap(), "from here");
    let run = scene.run_folder().file_name().unwrap().to_string_lossy().into_owned();
    let find =
        |name: &str| scene.lab(&["exec", "1", "find", "/root/.gradus", "-path", &format!("*/{run}*"), "-name", name]);
    assert_eq!(find("input.txt"), "", "a working folder was left behind");
    assert!(find("kept.txt").contains("checkpoints/kept.txt"));
    // A program that fails says so with its code.
    fs::write(&program, "name: program\nresources: {infra: ssh}\nrun: echo wrong; exit 3\n").unwrap();
    let failed = scene.gradus(&["run", program.to_str().unwrap(), "--json", "--yes"]);
    assert!(
        !failed.status.success() && String::from_utf8_lossy(&failed.stdout).contains("`run` ended with code 3"),
        "{failed:?}"
    );
    let log = format!("read `{}", scene.run_folder().join("logs").display());
    assert!(String::from_utf8_lossy(&failed.stderr).contains(&log), "the log is found here: {failed:?}");
    scene.ok(&["nodes", "rm", "host-1"]);
    assert_eq!(find("*"), "", "something was left behind");
}

#[test]
#[ignore = "needs hosts: `cargo xtask test` provides them"]
fn a_run_goes_on_on_another_host_when_its_own_loses_power() {
    let scene = Scene::with(&[2, 3]);
    let mut run = scene.start(&scene.job("ssh", EPOCHS));
    scene.wait("checkpoints have come here", 60, || scene.manifests() >= 2);
    scene.lab(&["kill", "2"]);
    scene.wait("it is trained on the other", 240, || scene.events().contains("trained its model"));
    assert!(run.try_wait().unwrap().is_none(), "what the lost host costs is not known yet");
    scene.lab(&["start", "2"]);
    scene.wait("the run has ended", 60, || run.try_wait().unwrap().is_some());
    let events = scene.events();
    assert!(events.contains("cannot be reached"), "{events}");
    let count = |what: &str| events.matches(what).count();
    assert_eq!((count("trains from step 0 "), count("resumed at step")), (1, 1), "from a checkpoint: {events}");
    assert_eq!(scene.weights(), expected(EPOCHS));
    scene.nothing_runs_on(&[2, 3]);
}

#[test]
#[ignore = "needs hosts: `cargo xtask test` provides them"]
fn each_host_runs_one_job_at_a_time_and_all_of_them_together() {
    let scene = Scene::with(&[1, 4]);
    let program = scene.path("program.yaml");
    fs::write(&program, "name: program\nresources: {infra: ssh}\nrun: date +%s.%N; hostname; sleep 8; date +%s.%N\n")
        .unwrap();
    let mut runs: Vec<Child> = (0..3).map(|_| scene.start(program.to_str().unwrap())).collect();
    scene.wait("they have ended", 90, || runs.iter_mut().all(|run| run.try_wait().unwrap().is_some()));
    let mut spans = Vec::new();
    for run in fs::read_dir(scene.path("home/runs")).unwrap().flatten() {
        let log = fs::read_dir(run.path().join("logs")).unwrap().next().unwrap().unwrap().path();
        let log = fs::read_to_string(log).unwrap();
        let [begun, host, ended] = log.lines().collect::<Vec<_>>()[..] else { panic!("{log}") };
        let second = |text: &str| text.parse::<f64>().unwrap();
        spans.push((host.to_owned(), second(begun), second(ended)));
    }
    spans.sort_by(|one, other| one.1.total_cmp(&other.1));
    assert_ne!(spans[0].0, spans[1].0, "{spans:?}");
    assert!(spans[1].1 < spans[0].2, "the first two ran together: {spans:?}");
    let before = spans[..2].iter().find(|span| span.0 == spans[2].0).unwrap();
    assert!(before.2 <= spans[2].1, "the third waited: {spans:?}");
}

#[test]
#[ignore = "needs hosts: `cargo xtask test` provides them"]
fn a_loop_that_was_killed_finds_its_agent_on_the_host_again() {
    let scene = Scene::with(&[4]);
    let mut run = scene.start(&scene.job("ssh/host-4", 300));
    scene.wait("a checkpoint has come here", 60, || scene.manifests() >= 1);
    run.kill().unwrap();
    run.wait().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let name = scene.status()["run"].as_str().map(str::to_owned).unwrap_or_else(|| "last".to_owned());
    scene.ok(&["attach", &name, "--json"]);
    let events = scene.events();
    assert_eq!(events.matches("trains from step").count(), 1, "its attempt went on: {events}");
    assert_eq!(scene.weights(), expected(300));
    scene.nothing_runs_on(&[4]);
}

#[test]
#[ignore = "needs hosts: `cargo xtask test` provides them"]
fn nodes_that_cannot_be_used_are_refused_with_what_to_type() {
    let scene = Scene::with(&[]);
    let refused = |arguments: &[&str], expected: &str| {
        let output = scene.gradus(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(expected) && text.contains("hint:"), "{arguments:?}: {text}");
    };
    let config = scene.lab.join("ssh_config");
    let config = config.to_str().unwrap();
    refused(&["run", &scene.job("ssh", 1), "--yes"], "no node was added yet");
    refused(&["nodes", "add", "nobody", "--ssh-config", config], "cannot connect to `nobody`");
    refused(&["nodes", "add", "me@nobody", "--ssh-config", config], "`gradus nodes add nobody --address me@nobody`");
    refused(&["nodes", "add", "a/b", "--ssh-config", config], "cannot be the name of a node");
    refused(&["nodes", "rm", "nobody"], "there is no node `nobody`");
    refused(&["ssh", "nobody"], "there is no node `nobody`");
    scene.ok(&["nodes", "add", "spare", "--address", "host-3", "--ssh-config", config]);
    refused(&["run", &scene.job("ssh/other", 1), "--yes"], "there is no node `other`; there are spare");
    scene.ok(&["nodes", "drain", "spare"]);
    refused(&["run", &scene.job("ssh/spare", 1), "--yes"], "node `spare` is drained");
    assert!(Path::new(&scene.path("home/nodes.json")).exists());
}

#[test]
#[ignore = "needs hosts: `cargo xtask test` provides them"]
fn two_nodes_train_one_model_with_the_bits_of_as_many_processes_here() {
    let scene = Scene::with(&[5, 6]);
    scene.ok(&["run", &scene.job_on("ssh", 2, 2, 6), "--json", "--yes"]);
    assert_eq!(scene.weights(), expected_of(4, 6));
    let mut logs: Vec<String> = fs::read_dir(scene.run_folder().join("logs")).unwrap().map(name).collect();
    logs.sort();
    let ranks: Vec<&str> = logs.iter().map(|log| &log[log.len() - "rank-0.log".len()..]).collect();
    assert_eq!(ranks, ["rank-0.log", "rank-1.log", "rank-2.log", "rank-3.log"], "the logs of all ranks are here");
    scene.nothing_runs_on(&[5, 6]);
    // A program finds its place in its environment, and the others' addresses.
    let program = scene.path("program.yaml");
    let text = "name: program\nnum_nodes: 2\nresources: {infra: ssh}\nsetup: echo ready > made\nrun: |\n  \
                echo \"$NODE_RANK of $PET_NNODES at $MASTER_ADDR, $(echo \"$SKYPILOT_NODE_IPS\" | wc -l) nodes, $(cat made)\"\n";
    fs::write(&program, text).unwrap();
    scene.ok(&["run", program.to_str().unwrap(), "--json", "--yes"]);
    let said = |rank: u32| {
        let logs = fs::read_dir(scene.run_folder().join("logs")).unwrap().map(|entry| entry.unwrap().path());
        let mut own = logs.filter(|path| path.to_string_lossy().ends_with(&format!("rank-{rank}.log")));
        fs::read_to_string(own.next().unwrap()).unwrap()
    };
    let (first, second) = (said(0), said(1));
    assert!(first.starts_with("0 of 2 at 10.") && first.ends_with("2 nodes, ready\n"), "{first}");
    assert_eq!(second, first.replacen("0 of 2", "1 of 2", 1), "both name node rank 0's address");
    // What fails on one node ends the run with its name and code.
    let failing =
        "name: program\nnum_nodes: 2\nresources: {infra: ssh}\nrun: test $NODE_RANK = 0 && sleep 60 || exit 3\n";
    fs::write(&program, failing).unwrap();
    let failed = scene.gradus(&["run", program.to_str().unwrap(), "--json", "--yes"]);
    let told = String::from_utf8_lossy(&failed.stdout);
    assert!(!failed.status.success() && told.contains("node 1: `run` ended with code 3"), "{failed:?}");
}

#[test]
#[ignore = "needs hosts: `cargo xtask test` provides them"]
fn a_node_that_loses_power_is_replaced_and_the_other_one_stays() {
    let scene = Scene::with(&[7, 8, 9]);
    let more = scene.gradus(&["run", &scene.job_on("ssh", 4, 1, 1), "--json", "--yes"]);
    let said = String::from_utf8_lossy(&more.stderr);
    assert!(said.contains("asks for more than the 3 nodes"), "{more:?}");
    let mut run = scene.start(&scene.job_on("ssh", 2, 1, EPOCHS));
    scene.wait("checkpoints have come here", 60, || scene.manifests() >= 2);
    // The machine of node rank 1 was rented second.
    let places = |number: u32| {
        let place = scene.path("home/instances").join(format!("{}-i{number}", scene.name())).join("host");
        fs::read_to_string(place).unwrap_or_default().trim().to_owned()
    };
    let (stays, lost) = (places(1), places(2));
    // A command goes to both, in the folder of the run.
    let mut exec = scene.command(&[]);
    let output = exec.args(["exec", "last", "hostname; basename $PWD"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    let of = |node: u32, text: &str| format!("node {node} | {text}");
    let run_name = scene.name();
    let both = [of(0, &stays), of(0, &run_name), of(1, &lost), of(1, &run_name)];
    assert_eq!(lines, both, "{output:?}");
    let number: &str = lost.strip_prefix("host-").unwrap();
    scene.lab(&["kill", number]);
    scene.wait("it is trained", 900, || scene.events().contains("trained its model"));
    scene.lab(&["start", number]);
    scene.wait("the run has ended", 60, || run.try_wait().unwrap().is_some());
    let events = scene.events();
    assert!(events.contains("node 1: instance"), "the lost node is named: {events}");
    let count = |what: &str| events.matches(what).count();
    assert_eq!((count("trains from step 0 "), count("resumed at step")), (1, 1), "from a checkpoint: {events}");
    assert_eq!(count("renting any"), 3, "only one machine was replaced: {events}");
    assert!(![&stays, &lost].contains(&&places(3)), "on the third host");
    assert_eq!(scene.weights(), expected_of(2, EPOCHS));
}

fn name(entry: std::io::Result<fs::DirEntry>) -> String {
    entry.unwrap().file_name().to_string_lossy().into_owned()
}
