//! A cloud whose machines are hosts of the lab (`cargo xtask lab cloud`): each can be reached, is told that it is taken back,
//! and ends itself once nobody attends it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::{Scene, expected, expected_of};

/// Hosts that take each other's place, and those of machines that are left alone.
const ELSEWHERE: &str = "21,22";
const ALONE: &str = "23,24,25";

/// Hosts of one run.
const TOGETHER: &str = "32,33";

/// Seconds without a sign of an agent after which a machine ends itself here, and in which the agent of `gradus run` gives up.
const SILENCE: u64 = 30;
const ABANDONED: u64 = 60;

/// Epochs of a run that is still training when it learns of a notice, which it asks for every 5 s.
const LONG: u32 = 6_000;

/// A running cloud, which ends when it is dropped.
struct Cloud {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    place: Value,
}

impl Cloud {
    fn start(scene: &Scene, words: &[&str]) -> Cloud {
        let mut command = Command::new(scene.lab.join("lab"));
        command.arg("cloud").args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (input, output) = (process.stdin.take(), BufReader::new(process.stdout.take().unwrap()));
        let mut cloud = Cloud { process, input, output, place: Value::Null };
        cloud.place = cloud.line();
        cloud
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("the cloud says `{line}`: {error}"))
    }

    fn ask(&mut self, line: &str) -> Value {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
        self.line()
    }

    /// The hosts that are rented now, by AWS's name of the machine.
    fn rented(&mut self) -> BTreeMap<String, u64> {
        let rented = self.ask("rented");
        rented.as_object().unwrap().iter().map(|(handle, host)| (handle.clone(), host.as_u64().unwrap())).collect()
    }

    /// Has a home rent from this cloud; its machines are reached as this file of `ssh` says, or as the cloud does.
    fn settle(&self, scene: &Scene, ssh_config: Option<&str>) {
        fs::create_dir_all(scene.path("home")).unwrap();
        let ssh_config = ssh_config.or(self.place["ssh_config"].as_str()).unwrap();
        let options = serde_json::json!({ "image": "ami-12c6146b", "ssh_from": "192.0.2.1", "ssh_config": ssh_config });
        fs::write(scene.path("home/aws.json"), options.to_string()).unwrap();
    }

    /// A command for which this is AWS.
    fn command(&self, scene: &Scene, arguments: &[&str]) -> Command {
        let mut command = scene.command(arguments);
        command.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.place["port"]));
        command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret");
        command
    }

    fn gradus(&self, scene: &Scene, arguments: &[&str]) -> String {
        let output = self.command(scene, arguments).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "gradus {arguments:?}: {out}{err}");
        out.into_owned()
    }

    /// A run in the foreground: its process is the loop.
    fn run(&self, scene: &Scene, epochs: u32) -> Child {
        let job = scene.job("aws/us-east-1, instance_type: g4dn.xlarge, use_spot: true", epochs);
        let mut command = self.command(scene, &["run", &job, "--json", "--yes", "--new"]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        // The end of its input is its end, and that of moto.
        self.input = None;
        let _ = self.process.wait();
    }
}

/// The records of a kind, of `gradus events --json`.
fn of<'a>(records: &'a [Value], kind: &str) -> Vec<&'a Value> {
    records.iter().filter(|record| record["event"] == kind).collect()
}

#[test]
#[ignore = "needs hosts and moto: `cargo xtask test` provides them"]
fn a_run_whose_machine_has_notice_goes_on_on_another_and_nothing_is_left() {
    let scene = Scene::with(&[]);
    let mut cloud = Cloud::start(&scene, &[ELSEWHERE]);
    cloud.settle(&scene, None);
    let mut run = cloud.run(&scene, LONG);
    scene.wait("checkpoints have come here", 240, || scene.manifests() >= 2);
    let (_, host) = cloud.rented().pop_first().expect("a machine is rented");
    assert_eq!(cloud.ask(&format!("notice {host} 60")), true);
    scene.wait("the run has ended", 900, || run.try_wait().unwrap().is_some());
    let text = cloud.gradus(&scene, &["events", "--json"]);
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(of(&records, "reclaim_noticed").len(), 1, "its metadata service has said so: {text}");
    assert!(of(&records, "attempt_ready").len() >= 2, "it went on elsewhere: {text}");
    assert_eq!(scene.weights(), expected(LONG), "the bits of a run that nothing happened to");

    scene.wait("nothing is rented", 120, || cloud.rented().is_empty());
    assert_eq!(cloud.gradus(&scene, &["cloud", "audit", "aws", "--json"]), "", "nothing is left");
    let meter = cloud.ask("meter");
    let rents = meter.as_array().unwrap();
    let names: BTreeSet<&str> = rents.iter().filter_map(|rent| rent["tag"].as_str()).collect();
    assert!(rents.len() >= 2 && names.len() == rents.len(), "each was asked for once: {meter}");
    // What is billed is what the cloud has metered, to its second, and a minute at least, as AWS does.
    for rent in rents {
        let (began, ended) = (rent["began"].as_f64().unwrap(), rent["ended"].as_f64().unwrap());
        let released = of(&records, "released").into_iter().find(|record| record["instance"] == rent["tag"]);
        let released = released.unwrap_or_else(|| panic!("{rent} was not released: {text}"));
        let billed = released["usage"]["elapsed"].as_f64().unwrap() / 1e6;
        assert!((billed - (ended - began).max(60.0)).abs() < 3.0, "{billed} s are billed of {rent}");
    }
}

/// One gets the trainer from here, and the other one from it.
#[test]
#[ignore = "needs hosts and moto: `cargo xtask test` provides them"]
fn machines_of_one_run_get_programs_from_each_other_and_train() {
    let scene = Scene::with(&[]);
    let mut cloud = Cloud::start(&scene, &[TOGETHER]);
    cloud.settle(&scene, None);
    let job = scene.job_on("aws/us-east-1, instance_type: g4dn.xlarge, use_spot: true", 2, 1, 4);
    cloud.gradus(&scene, &["run", &job, "--json", "--yes", "--new"]);
    let text = cloud.gradus(&scene, &["events", "--json"]);
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(of(&records, "peer_copy_failed").is_empty(), "the other one could send everything: {text}");
    assert_eq!(scene.weights(), expected_of(2, 4), "the bits of a run here");
    scene.wait("nothing is rented", 120, || cloud.rented().is_empty());
    assert_eq!(cloud.gradus(&scene, &["cloud", "audit", "aws", "--json"]), "", "nothing is left");
}

/// A loop that never comes back: with its agent, with an agent that is killed, and before there is any.
#[test]
#[ignore = "needs hosts and moto: `cargo xtask test` provides them"]
fn a_machine_that_nobody_attends_is_off_within_its_bound() {
    let scenes = [(); 3].map(|()| Scene::with(&[]));
    let mut cloud = Cloud::start(&scenes[0], &[ALONE, "--silence", &SILENCE.to_string()]);
    let unreachable = scenes[0].path("unreachable");
    fs::write(&unreachable, "Host *\n  ProxyCommand false\n").unwrap();
    let mut known = BTreeSet::new();
    for (at, scene) in scenes.iter().enumerate() {
        let is_never_reached = at == 2;
        cloud.settle(scene, is_never_reached.then_some(unreachable.to_str().unwrap()));
        let mut server = cloud.run(scene, 1_000_000);
        let mut new = None;
        scene.wait("a machine is rented", 120, || {
            new = cloud.rented().into_iter().find(|(handle, _)| !known.contains(handle));
            new.is_some()
        });
        let (handle, host) = new.expect("it was waited for");
        if !is_never_reached {
            scene.wait("it trains", 240, || scene.manifests() >= 1);
        }
        server.kill().unwrap();
        server.wait().unwrap();
        if at == 1 {
            scene.lab(&["exec", &host.to_string(), "pkill", "-9", "-f", r"\.gradus/"]);
        }
        known.insert(handle);
    }
    let begun = Instant::now();
    // The slowest is the one whose agent saves first and then leaves; an agent asks and writes a few times a second.
    let bound = Duration::from_secs(ABANDONED + SILENCE + 60);
    while !cloud.rented().is_empty() {
        assert!(begun.elapsed() < bound, "after {bound:?} these are on: {:?}", cloud.rented());
        std::thread::sleep(Duration::from_millis(500));
    }
    let meter = cloud.ask("meter");
    let rents = meter.as_array().unwrap();
    assert!(rents.len() >= 3 && rents.iter().all(|rent| rent["ended"].is_f64()), "no meter runs: {meter}");
}
