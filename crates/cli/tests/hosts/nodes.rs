//! Nodes themselves: the tutorial, the doctor, a server that is away, and secrets.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Scene;

/// The tests here have hosts 11 and 12 in turn, each as if nobody had used them before.
fn hosts() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let scene = Scene::with(&[]);
    for host in ["11", "12"] {
        scene.lab(&["start", host]);
        scene.lab(&["exec", host, "rm", "-rf", "/root/.gradus"]);
    }
    turn
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// The code blocks below a heading of a page, each with its language.
fn blocks(page: &str, heading: &str) -> Vec<(String, String)> {
    let section = page.split("\n## ").find(|section| section.starts_with(heading)).expect("the heading");
    let mut blocks = Vec::new();
    for (number, part) in section.split("```").enumerate() {
        if number % 2 == 1 {
            let (language, text) = part.split_once('\n').unwrap();
            blocks.push((language.to_owned(), text.to_owned()));
        }
    }
    blocks
}

/// What `gradus ssh NODE hostname` prints; all that follows the node is the command.
fn hostname(scene: &Scene, node: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradus"));
    command.arg("--home").arg(scene.path("home")).args(["ssh", node, "hostname"]).stdin(Stdio::null());
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

#[test]
#[ignore = "needs hosts: `cargo xtask test` provides them"]
fn the_tutorial_on_two_machines_does_what_it_says() {
    let _turn = hosts();
    let scene = Scene::with(&[]);
    let page = fs::read_to_string(root().join("docs/nodes.md")).unwrap();
    fs::copy(root().join("examples/digits.csv.gz"), scene.path("digits.csv.gz")).unwrap();
    let config = scene.lab.join("ssh_config");
    let several = scene.path("several.yaml");
    fs::write(&several, &blocks(&page, "Several nodes as one job")[0].1).unwrap();
    let (mut count, mut said) = (0, BTreeMap::new());
    for (language, text) in blocks(&page, "Two machines, from nothing to a model") {
        if language == "yaml" {
            fs::write(scene.path("digits.yaml"), text).unwrap();
            continue;
        }
        for line in text.lines().map(|line| line.split(" #").next().unwrap().trim()).filter(|line| !line.is_empty()) {
            // The addresses of the page are somebody's; the lab's hosts have others. A shell would wait for a person.
            let line = line.replace("me@10.0.0.7", "host-11").replace("me@10.0.0.8", "host-12");
            let line = line.replace("digits.yaml", scene.path("digits.yaml").to_str().unwrap());
            let mut words: Vec<&str> = line.split_whitespace().skip(1).collect();
            match words[..] {
                ["nodes", "add", ..] => words.extend(["--ssh-config", config.to_str().unwrap()]),
                ["run", ..] => words.push("--yes"),
                _ => {}
            }
            if words[0] == "run" {
                // The job on two nodes that the page has further down is not refused on these.
                scene.ok(&["plan", several.to_str().unwrap()]);
            }
            let out = match words[..] {
                ["ssh", node] => hostname(&scene, node),
                _ => scene.ok(&words),
            };
            said.insert(words[..words.len().min(2)].join(" "), out);
            count += 1;
        }
    }
    assert_eq!(count, 7, "the commands of the page were found: {said:?}");
    assert!(said["nodes list"].contains("west") && said["nodes list"].contains("east"), "{said:?}");
    assert_eq!(said["ssh west"].trim(), "host-11");
    let run = said.iter().find(|(words, _)| words.starts_with("run ")).unwrap().1;
    assert!(run.contains("trained") && run.contains("model"), "{run}");
    assert!(scene.weights().len() > 1000);
    let left = scene.lab(&["exec", "11", "ls", "-A", "/root/.gradus"]);
    assert_eq!(left, "", "`nodes rm` left something behind");
}

#[test]
#[ignore = "needs hosts: `cargo xtask test` provides them"]
fn a_file_of_pools_adds_what_can_be_reached_and_a_job_runs_in_the_pool() {
    let _turn = hosts();
    let scene = Scene::with(&[]);
    let config = scene.lab.join("ssh_config");
    let (pools, job) = (scene.path("pools.yaml"), scene.path("job.yaml"));
    let add = ["nodes", "add", "--pools", pools.to_str().unwrap(), "--ssh-config", config.to_str().unwrap()];
    fs::write(&pools, "lab:\n  hosts: [host-11, nobody, {ip: host-12, user: root}]\n").unwrap();
    let output = scene.gradus(&add);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("1 of the 3 machines"), "{said}");
    assert!(said.contains("cannot connect to `nobody`"), "{said}");
    let listed = scene.ok(&["nodes", "list"]);
    assert!(["host-11", "host-12", "lab"].iter().all(|word| listed.contains(word)), "{listed}");
    assert!(!listed.contains("nobody"), "{listed}");
    fs::write(&job, "name: where\nnum_nodes: 2\nresources: {infra: ssh/lab}\nrun: hostname\n").unwrap();
    scene.ok(&["run", job.to_str().unwrap(), "--json", "--yes"]);
    let logs = fs::read_dir(scene.run_folder().join("logs")).unwrap().map(|entry| entry.unwrap().path());
    let logs: String = logs.map(|path| fs::read_to_string(path).unwrap()).collect();
    assert!(logs.contains("host-11") && logs.contains("host-12"), "{logs}");
    for host in ["11", "12"] {
        scene.ok(&["nodes", "rm", &format!("host-{host}")]);
        assert_eq!(scene.lab(&["exec", host, "ls", "-A", "/root/.gradus"]), "");
    }
}

#[test]
#[ignore = "needs hosts: `cargo xtask test` provides them"]
fn the_doctor_looks_at_nodes_and_at_the_network_between_them() {
    let _turn = hosts();
    let scene = Scene::with(&[11, 12]);
    let output = scene.gradus(&["doctor", "host-11", "host-12", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    // The hosts share the kernel and its log with this machine, whatever that holds.
    assert!(matches!(output.status.code(), Some(0 | 104 | 105)), "{output:?}");
    for (index, name) in ["host-11", "host-12"].into_iter().enumerate() {
        let machine = &report["machines"][index];
        assert_eq!(machine["node"], name);
        let found = |check: &str| {
            let all = machine["findings"].as_array().unwrap();
            all.iter().filter(|one| one["check"] == check).cloned().collect::<Vec<Value>>()
        };
        assert!(machine["facts"]["disk"]["figures"]["write"].as_u64().unwrap() > 0, "{machine}");
        assert_eq!(machine["facts"]["names"]["host"], name);
        assert_eq!(found("clock")[0]["severity"], "pass", "one machine, one clock: {machine}");
        assert_eq!(found("network").len(), 2, "to it and from it: {machine}");
        assert_eq!(found("ssh").len() + found("programs").len(), 0, "{machine}");
    }
    let network = report["network"].as_array().unwrap();
    let checks: Vec<&str> = network.iter().filter_map(|one| one["check"].as_str()).collect();
    assert_eq!(checks, ["network", "network", "all-reduce"], "{report}");
    for link in network {
        assert!(link["severity"] != "critical" && link["symptom"].as_str().unwrap().contains("/s"), "{link}");
    }
    let symptom = network[2]["symptom"].as_str().unwrap();
    assert!(symptom.starts_with("host-11, host-12: ") && symptom.contains("over Gloo"), "{symptom}");
    for host in ["11", "12"] {
        let is_left = || scene.lab(&["exec", host, "ps", "-eo", "args"]).contains("all-reduce");
        scene.wait("its rank has ended", 5, || !is_left());
    }
    let shown = scene.ok(&["nodes", "show", "host-11"]);
    assert!(shown.contains("random reads/s") && shown.contains("glibc") && shown.contains("/s to it"), "{shown}");

    // A node that is off.
    scene.lab(&["kill", "12"]);
    let output = scene.gradus(&["doctor", "host-12", "--quick"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(105), "{said}");
    for part in ["CRITICAL  ssh", "cannot connect to `host-12`", "cause", "remedy"] {
        assert!(said.contains(part), "{said}");
    }
    scene.lab(&["start", "12"]);
}

/// A server of the scene's home, killed when it is dropped.
pub struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn serve(scene: &Scene) -> Server {
    let mut command = scene.command(&["serve"]);
    Server(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

/// The steps that the measurements of a run tell of, in the order in which they were taken.
pub fn steps(scene: &Scene) -> Vec<u64> {
    let db = rusqlite::Connection::open(scene.path("home/series.db")).unwrap();
    let mut statement = db.prepare("SELECT report FROM points ORDER BY instance, seq").unwrap();
    let rows = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let step = |text: String| {
        let report: Value = serde_json::from_str(&text).unwrap();
        (report["report"] == "step").then(|| report["step"].as_u64()).flatten()
    };
    rows.filter_map(|row| step(row.unwrap())).collect()
}

/// For how many minutes the server is away: longer than the 45 s after which a node is given up that does not answer.
#[expect(clippy::disallowed_methods, reason = "`cargo xtask test --long` asks for ten minutes")]
fn minutes_away() -> u32 {
    let seconds = std::env::var("GRADUS_SERVER_AWAY").ok().and_then(|text| text.parse::<u32>().ok());
    (seconds.unwrap_or(60) / 60).max(1)
}

#[test]
#[ignore = "needs hosts: `cargo xtask test` provides them"]
fn a_server_that_is_away_for_long_costs_no_step_and_leaves_no_gap() {
    let _turn = hosts();
    let scene = Scene::with(&[11, 12]);
    let server = serve(&scene);
    scene.wait("the server answers", 20, || scene.path("home/api.sock").exists());
    let minutes = minutes_away();
    let epochs = 700 * minutes;
    scene.ok(&["run", &scene.job_on("ssh", 2, 1, epochs), "--detach", "--yes"]);
    scene.wait("a checkpoint has come here", 120, || scene.manifests() >= 1);
    drop(server);
    let (away, before) = (Instant::now(), steps(&scene).len());
    std::thread::sleep(Duration::from_secs(60) * minutes);
    assert_eq!(steps(&scene).len(), before, "nobody listens");
    let _server = serve(&scene);
    // 35 steps per epoch, of which a busy machine makes 40 per second.
    let patience = u64::from(epochs) * 35 / 40;
    scene.wait("the run has ended", patience, || scene.events().contains("trained its model"));
    assert!(away.elapsed() > Duration::from_secs(60) * minutes);
    // The end overtakes measurements. Those that its agent had not sent are read before the bill.
    scene.wait("the run is billed", 120, || scene.events().contains("billed "));
    let events = scene.events();
    assert_eq!(events.matches("trains from step").count(), 1, "one attempt, from its start to its end: {events}");
    let all = steps(&scene);
    let gaps: Vec<&[u64]> = all.windows(2).filter(|pair| pair[1] != pair[0] + 1).take(5).collect();
    let (first, last) = (all[0], all[all.len() - 1]);
    assert!(first == 1 && gaps.is_empty(), "each step once, and none left out: {first} to {last}, except at {gaps:?}");
    assert_eq!(last, u64::from(epochs) * 35, "to the last one");
    // Two processes on one machine give the same bits as one on each of two.
    assert_eq!(scene.weights(), super::expected_of(2, epochs));
    scene.nothing_runs_on(&[11, 12]);
}

#[test]
#[ignore = "needs hosts: `cargo xtask test` provides them"]
fn mounts_travel_to_a_node_and_again_only_what_has_changed() {
    let _turn = hosts();
    let scene = Scene::with(&[11]);
    scene.lab(&["exec", "11", "rm", "-rf", "/srv/demo", "/root/.demo"]);
    fs::create_dir_all(scene.path("data/sub")).unwrap();
    fs::write(scene.path("data/big.bin"), vec![7; 20 << 20]).unwrap();
    fs::write(scene.path("data/sub/a.txt"), "first").unwrap();
    fs::write(scene.path("key"), "secret").unwrap();
    fs::set_permissions(scene.path("key"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let job = scene.path("job.yaml");
    let text = "name: mounts\nresources: {infra: ssh/host-11}\n\
                file_mounts: {lib: data, ~/.demo/key: key, /srv/demo/data: data}\nsetup: cat lib/sub/a.txt\nrun: |\n  \
                echo \" $(cat /srv/demo/data/sub/a.txt) $(cat ~/.demo/key) $(stat -Lc %a ~/.demo/key) $(stat -c %s lib/big.bin)\"\n  \
                echo changed > /srv/demo/data/sub/a.txt\n";
    fs::write(&job, text).unwrap();
    let run = || scene.gradus(&["run", job.to_str().unwrap(), "--json", "--yes", "--new"]);
    let copy = |name: &str| {
        scene.lab(&[
            "exec",
            "11",
            "find",
            "/root/.gradus/homes",
            "-path",
            "*cache/inputs*",
            "-name",
            name,
            "-printf",
            "%i ",
        ])
    };
    let output = run();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(scene.ok(&["logs", "last"]).trim(), format!("first first secret 600 {}", 20 << 20));
    let before = (copy("big.bin"), copy("a.txt"));
    assert_eq!(before.0.split_whitespace().count(), 1, "one copy for both mounts: {before:?}");
    fs::write(scene.path("data/sub/a.txt"), "later").unwrap();
    assert!(run().status.success());
    assert!(scene.ok(&["logs", "last"]).starts_with("later later secret 600"));
    assert_eq!(copy("big.bin"), before.0, "it has not travelled again");
    assert_ne!(copy("a.txt"), before.1);
    let left = |path: &str| scene.lab(&["exec", "11", "find", path, "-maxdepth", "1"]);
    assert_eq!((left("/srv/demo"), left("/root/.demo")), (String::new(), String::new()));
    let copies = scene.lab(&["exec", "11", "find", "/root/.gradus/homes", "-path", "*attempts*", "-name", "big.bin"]);
    assert_eq!(copies, "", "the attempts' copies are gone");
    // What somebody has there is not touched.
    scene.lab(&["exec", "11", "sh", "-c", "mkdir -p /srv/demo/data; echo mine > /srv/demo/data/own"]);
    let output = run();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && said.contains("was not put there by gradus"), "{output:?}");
    assert_eq!(scene.lab(&["exec", "11", "cat", "/srv/demo/data/own"]), "mine\n");
    // What is gone here by now is said as it is, and no link that leads elsewhere is followed for the node.
    scene.lab(&["exec", "11", "rm", "-rf", "/srv/demo"]);
    std::os::unix::fs::symlink("/etc/hostname", scene.path("data/out")).unwrap();
    let output = run();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("leads out of the folder"), "{output:?}");
    scene.ok(&["nodes", "rm", "host-11"]);
    assert_eq!(scene.lab(&["exec", "11", "ls", "-A", "/root/.gradus"]), "");
}

#[test]
#[ignore = "needs hosts: `cargo xtask test` provides them"]
fn a_bootstrap_that_is_cut_off_is_continued_and_leaves_nothing() {
    let _turn = hosts();
    let scene = Scene::with(&[]);
    // Without libtorch there is something to copy for a while.
    scene.lab(&["exec", "11", "umount", "/root/.cache/gradus"]);
    let config = scene.lab.join("ssh_config");
    let add = ["nodes", "add", "host-11", "--ssh-config", config.to_str().unwrap()];
    let find = |name: &str| scene.lab(&["exec", "11", "find", "/root/.gradus", "-name", name]);
    let mut first = scene.command(&add).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // Ten chunks of one file are there.
    scene.wait("a large file is being copied", 120, || find("00009").contains(".parts/"));
    scene.lab(&["exec", "11", "pkill", "-9", "-f", "sshd: root"]);
    assert!(!first.wait().unwrap().success(), "its connection was cut");
    assert_eq!(find("build-version"), "", "nothing looks ready");
    let listed = scene.ok(&["nodes", "list"]);
    assert!(listed.contains("host-11") && listed.contains("not prepared"), "{listed}");
    let second = scene.gradus(&add);
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(second.status.success(), "{said}");
    // `copied REST of programs and libraries, compressed to SENT; HELD of WHOLE were there already`
    assert!(said.contains("copied ") && said.contains(" were there already"), "the whole was sent again: {said}");
    assert_eq!((find("*.partial-*"), find("*.parts")), (String::new(), String::new()), "what it was made of is gone");
    // Once all is there, nothing is sent.
    let third = scene.gradus(&add);
    let said = String::from_utf8_lossy(&third.stderr).into_owned();
    assert!(third.status.success() && !said.contains("copied "), "{said}");
    // Of `gradus` itself, too, a part is not taken for the whole: a program that is cut short cannot say what it lacks.
    scene.lab(&["exec", "11", "sh", "-c", "truncate -s 700000 /root/.gradus/bin/*/gradus"]);
    let fourth = scene.gradus(&add);
    assert!(fourth.status.success(), "{fourth:?}");
    scene.ok(&["run", &scene.job("ssh/host-11", 2), "--json", "--yes"]);
    assert_eq!(scene.weights(), super::expected(2));
    scene.ok(&["nodes", "rm", "host-11"]);
    assert_eq!(scene.lab(&["exec", "11", "ls", "-A", "/root/.gradus"]), "");
    // The others share this machine's libtorch again.
    scene.lab(&["kill", "11"]);
    scene.lab(&["start", "11"]);
}

#[test]
#[ignore = "needs hosts: `cargo xtask test` provides them"]
fn a_node_fetches_programs_from_another_of_its_pool_or_gets_them_from_here() {
    let _turn = hosts();
    let scene = Scene::with(&[]);
    let config = scene.lab.join("ssh_config");
    for host in ["11", "12"] {
        scene.lab(&["exec", host, "umount", "/root/.cache/gradus"]);
    }
    let add = |name: &str| {
        let output = scene.gradus(&["nodes", "add", name, "--pool", "lab", "--ssh-config", config.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        said
    };
    let said = add("host-11");
    assert!(said.contains("copied ") && !said.contains("fetch"), "no other node has it: {said}");
    let said = add("host-12");
    assert!(said.contains("fetched ") && said.contains("from `host-11`"), "{said}");
    assert!(!said.contains("copied ") && !said.contains("cannot fetch"), "all came from the other node: {said}");
    let serves = || scene.lab(&["exec", "11", "ps", "-eo", "args"]).contains("node-serve");
    scene.wait("it serves nobody any more", 10, || !serves());
    scene.ok(&["run", &scene.job("ssh/host-12", 2), "--json", "--yes"]);
    assert_eq!(scene.weights(), super::expected(2));

    // What the other node sends is wrong.
    scene.ok(&["nodes", "rm", "host-12"]);
    let spoil = "for blob in /root/.gradus/blobs/*; do printf x | dd of=$blob conv=notrunc; done";
    scene.lab(&["exec", "11", "sh", "-c", spoil]);
    let said = add("host-12");
    let expected = "cannot fetch everything from `host-11`: what came is not what was sent";
    assert!(said.contains(expected) && said.contains("copied "), "{said}");

    // It is off.
    scene.ok(&["nodes", "rm", "host-12"]);
    scene.lab(&["kill", "11"]);
    let said = add("host-12");
    assert!(said.contains("cannot fetch everything from `host-11`: ") && said.contains("copied "), "{said}");
    // A loop that prepares the node writes it down.
    scene.lab(&["exec", "12", "sh", "-c", "rm -rf /root/.gradus/*"]);
    scene.ok(&["run", &scene.job("ssh/host-12", 2), "--json", "--yes", "--new"]);
    let events = scene.events();
    assert_eq!(events.matches("node `host-11` could not send all programs").count(), 1, "{events}");
    scene.lab(&["start", "11"]);
    for host in ["11", "12"] {
        scene.ok(&["nodes", "rm", &format!("host-{host}")]);
        assert_eq!(scene.lab(&["exec", host, "ls", "-A", "/root/.gradus"]), "");
    }
    // It shares this machine's libtorch again, as the other does since its start.
    scene.lab(&["kill", "12"]);
    scene.lab(&["start", "12"]);
}

#[test]
#[ignore = "needs hosts: `cargo xtask test` provides them"]
fn programs_run_as_a_user_of_their_own_where_there_is_one() {
    let _turn = hosts();
    let scene = Scene::with(&[11]);
    // The host shares the list of users with this machine, so it gets a longer one of its own.
    let user = "cp /etc/passwd /run/passwd; echo 'gradus-job:x:64321:64321::/run/gradus-job:/bin/bash' >> /run/passwd; \
                mkdir -p /run/gradus-job; chown 64321:64321 /run/gradus-job; mount -n --bind /run/passwd /etc/passwd; \
                echo theirs > /root/theirs";
    scene.lab(&["exec", "11", "sh", "-c", user]);
    fs::write(scene.path("key"), "from here").unwrap();
    let job = scene.path("job.yaml");
    let text = "name: user\nresources: {infra: ssh/host-11}\nenvs: {name: of the job, GRADUS_ATTEMPT: other}\n\
                secrets: {TOKEN: planted-7f3a9c1e}\nfile_mounts: {~/.demo/key: key}\nsetup: touch made\nrun: |\n  \
                echo \"$(id -un) $(stat -c %U made) $HOME $name $(cat ~/.demo/key) ${#TOKEN}\"\n  \
                cat /root/theirs || ls -A /root\n  \
                touch ~/.demo/own && rm ~/.demo/own && echo \"for $GRADUS_ATTEMPT\"\n  \
                echo \"null of $(stat -c %U /dev/null)\"\n  \
                echo kept > $GRADUS_CHECKPOINTS/kept.txt\n";
    fs::write(&job, text).unwrap();
    scene.ok(&["run", job.to_str().unwrap(), "--json", "--yes"]);
    let logs = scene.ok(&["logs", "last"]);
    assert!(logs.contains("gradus-job gradus-job /run/gradus-job of the job from here 16\n"), "{logs}");
    assert!(
        logs.contains(&format!("for {}-a1\n", scene.name())),
        "folders above mounts are its own, and so is the tag: {logs}"
    );
    assert!(logs.contains("null of ") && !logs.contains("null of gradus-job"), "{logs}");
    assert!(logs.contains("\n.gradus\n") && !logs.contains("theirs\n"), "root's home is closed to it: {logs}");
    assert_eq!(fs::read_to_string(scene.run_folder().join("checkpoints/kept.txt")).unwrap(), "kept\n");
    scene.nothing_runs_on(&[11]);
    scene.lab(&["exec", "11", "sh", "-c", "umount -n /etc/passwd; rm -rf /root/theirs"]);
    scene.ok(&["nodes", "rm", "host-11"]);
    assert_eq!(scene.lab(&["exec", "11", "ls", "-A", "/root/.gradus"]), "");
}

/// Every file of the scene's home.
fn files(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&entry.path(), found),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
}

#[test]
#[ignore = "needs hosts: `cargo xtask test` provides them"]
fn planted_secrets_are_in_no_file_of_a_node_whether_it_trains_or_runs_a_program() {
    let _turn = hosts();
    let scene = Scene::with(&[11]);
    let values: Vec<String> = (0..20).map(|number| format!("planted-{number:02}-7f3a9c1e")).collect();
    let names: String = values.iter().enumerate().map(|(number, value)| format!("  S{number}: {value}\n")).collect();
    let train = fs::read_to_string(scene.job("ssh/host-11", 3)).unwrap() + "secrets:\n" + &names;
    let program = "name: program\nresources: {infra: ssh/host-11}\nrun: |\n  for n in $(seq 0 19); do v=S$n; echo \"${!v}\"; done\n  \
                   sleep 1\n  ps -eo args\n  exit 7\nsecrets:\n"
        .to_owned()
        + &names;
    let grep =
        |folder: &str| scene.lab(&["exec", "11", "grep", "-rlF", "--binary-files=text", "-e", "-7f3a9c1e", folder]);
    // What is looked for would be found.
    scene.lab(&["exec", "11", "sh", "-c", &format!("echo {} > /tmp/control", values[0])]);
    assert_eq!(grep("/tmp").trim(), "/tmp/control");
    scene.lab(&["exec", "11", "rm", "/tmp/control"]);
    for (name, text) in [("train", train), ("program", program)] {
        let job = scene.path(&format!("{name}.yaml"));
        fs::write(&job, text).unwrap();
        let output = scene.gradus(&["run", job.to_str().unwrap(), "--json", "--yes", "--new"]);
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.success(), name == "train", "{said}");
        let logs = scene.ok(&["logs", "last"]);
        assert!(name == "train" || logs.contains("***"), "the program has printed them: {logs}");
        for value in &values {
            assert!(!said.contains(value) && !logs.contains(value), "{value}");
        }
        for folder in ["/root", "/tmp", "/var", "/run"] {
            assert_eq!(grep(folder), "", "on the node after `{name}`, in {folder}");
        }
    }
    let mut all = Vec::new();
    files(&scene.path("home"), &mut all);
    for path in all {
        let bytes = fs::read(&path).unwrap();
        assert!(!bytes.windows(9).any(|window| window == b"-7f3a9c1e"), "in {}", path.display());
    }
}
