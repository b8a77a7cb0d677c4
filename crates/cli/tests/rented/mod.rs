//! A machine of AWS, rented, used and given back: moto is AWS, and a host of the lab is the machine that it has rented.

use std::fs;
use std::process::{Command, Stdio};

use super::direct::{Server, reachable, served, serving};
use super::{EPOCHS, Scene, expected};

mod cloud;
#[path = "../../../store/tests/moto/s3.rs"]
mod s3;

/// The hosts that stand for every machine of a test.
const HOST: u32 = 10;
const SHARED: u32 = 16;
const DIRECT: u32 = 17;
const CUT_OFF: u32 = 31;

/// A configuration of `ssh` by which every machine of AWS is this host.
fn stand_in(scene: &Scene, host: u32) -> String {
    let mut named = Command::new("ssh");
    named.arg("-G").arg("-F").arg(scene.lab.join("ssh_config")).arg(format!("host-{host}"));
    let said = named.output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let wanted = ["hostname", "user", "identityfile", "userknownhostsfile"];
    let lines = said.lines().filter(|line| wanted.iter().any(|word| line.starts_with(&format!("{word} "))));
    let lines: String = lines.map(|line| format!("  {line}\n")).collect();
    let path = scene.path("ssh_stand_in");
    fs::write(&path, format!("Host i-*\n{lines}  HostKeyAlias host-{host}\n  IdentityAgent none\n")).unwrap();
    path.to_str().unwrap().to_owned()
}

/// AWS, with this host as its machine.
struct Account {
    scene: Scene,
    moto: s3::Moto,
}

impl Account {
    fn with(host: u32) -> Account {
        Account::reached(host, "tunnel")
    }

    /// The same, where agents reach their server so.
    fn reached(host: u32, reach: &str) -> Account {
        let scene = Scene::with(&[]);
        scene.lab(&["start", &host.to_string()]);
        let moto = s3::Moto::start();
        fs::create_dir_all(scene.path("home")).unwrap();
        let options = serde_json::json!({
            "image": "ami-12c6146b", "ssh_from": "192.0.2.1", "ssh_config": stand_in(&scene, host), "reach": reach,
        });
        fs::write(scene.path("home/aws.json"), options.to_string()).unwrap();
        Account { scene, moto }
    }

    /// The same command, for which moto is AWS.
    fn at_moto(&self, mut command: Command) -> Command {
        command.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.moto.port));
        command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret");
        command
    }

    fn gradus(&self, arguments: &[&str]) -> String {
        let output = self.at_moto(self.scene.command(arguments)).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "gradus {arguments:?}: {out}{err}\n{}", self.scene.events());
        out.into_owned()
    }

    /// A server that agents find at this address.
    fn serve(&self, address: &str) -> Server {
        served(&self.scene, self.at_moto(serving(&self.scene, address)), address)
    }
}

#[test]
#[ignore = "needs hosts and moto: `cargo xtask test` provides them"]
fn a_machine_of_aws_is_rented_trains_and_is_given_back() {
    let account = Account::with(HOST);
    let (scene, gradus) = (&account.scene, |arguments: &[&str]| account.gradus(arguments));
    let job = scene.job("aws/us-east-1, instance_type: g4dn.xlarge, use_spot: true", 4);
    let ran = gradus(&["run", &job, "--json", "--yes"]);
    let result: serde_json::Value = serde_json::from_str(ran.lines().last().unwrap()).unwrap();
    let events = scene.events();
    assert!(events.contains("renting us-east-1/g4dn.xlarge/spot"), "{events}");
    assert_eq!(scene.weights(), expected(4), "the bits of a run here");
    // A minute is paid at least, at the price of the catalog.
    let cost = gradus(&["cost", "last", "--json"]);
    let text = format!("{result}\n{cost}\n{events}");
    assert!(!cost.contains("\"total\":0,") && cost.contains("us-east-1/g4dn.xlarge/spot"), "{text}");
    assert_eq!(gradus(&["cloud", "audit", "aws", "--json"]), "", "nothing is left");
    let checked = gradus(&["cloud", "check", "aws", "--json"]);
    assert!(checked.contains("\"missing\":[]"), "{checked}");
}

#[test]
#[ignore = "needs hosts and moto: `cargo xtask test` provides them"]
fn trials_of_a_sweep_take_over_one_machine_and_share_its_bill() {
    let account = Account::with(SHARED);
    let scene = &account.scene;
    let job = scene.job("aws/us-east-1, instance_type: g4dn.xlarge, use_spot: true", 4);
    let trials = "sweep: {method: grid, parallel: 1, parameters: {batch: [8, 16]}}\n";
    fs::write(&job, fs::read_to_string(&job).unwrap() + trials).unwrap();
    account.gradus(&["run", &job, "--json", "--yes"]);
    let text = account.gradus(&["events", "--json"]);
    let records: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| -> Vec<&serde_json::Value> { records.iter().filter(|it| it["event"] == kind).collect() };
    let counts = ["rent_intended", "launched", "machine_taken", "released"].map(|kind| of(kind).len());
    assert_eq!(counts, [1, 1, 1, 2], "one machine, for two trials: {text}");
    let mut runs: Vec<String> = fs::read_dir(scene.path("home/runs"))
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    runs.sort();
    let [first, _] = &runs[..] else { panic!("{runs:?}") };
    let weights = fs::read(scene.path("home/runs").join(first).join("export/model.safetensors")).unwrap();
    assert_eq!(weights, expected(4), "the bits of a run here");
    let found = scene.lab(&["exec", &SHARED.to_string(), "find", "/root/.gradus", "-name", first]);
    assert_eq!(found, "", "the files of the trial before are deleted");
    let taken = of("machine_taken")[0];
    let status = account.gradus(&["status", taken["run"].as_str().unwrap()]);
    assert!(status.contains(&format!(", rented as {}", taken["machine"].as_str().unwrap())), "{status}");
    // Both trials have used the machine, and what they pay is what one machine costs: a minute at least, once.
    let dollars = |value: &serde_json::Value| -> f64 {
        value.as_str().expect("a price").trim_start_matches('$').trim_end_matches("/h").parse().unwrap()
    };
    let seconds = |record: &serde_json::Value| record["usage"]["elapsed"].as_f64().expect("a time") / 1e6;
    let used: Vec<f64> = of("released").into_iter().map(seconds).collect();
    assert!(used.iter().all(|seconds| *seconds > 0.0), "{used:?}");
    let rate = dollars(&of("rent_intended")[0]["offer"]["rate"]) / 3600.0;
    let paid: f64 = of("billed").into_iter().map(|record| dollars(&record["bill"]["total"])).sum();
    let whole = used.iter().sum::<f64>().max(60.0) * rate;
    assert!((whole - 1e-5..whole + 2.0 * rate).contains(&paid), "${paid} paid, ${whole} for the machine: {text}");
    assert_eq!(account.gradus(&["cloud", "audit", "aws", "--json"]), "", "nothing is left");
}

/// As on a node: the socket at which its agent calls is checked, and restored.
#[test]
#[ignore = "needs hosts and moto: `cargo xtask test` provides them"]
fn something_on_a_machine_of_aws_does_not_cut_its_agent_off() {
    let account = Account::with(CUT_OFF);
    let scene = &account.scene;
    let in_home = |line: &str| {
        let line = format!("cd /root/.gradus/homes/* && {line}");
        scene.lab(&["exec", &CUT_OFF.to_string(), "sh", "-c", &line]).trim().to_owned()
    };
    let job = scene.job("aws/us-east-1, instance_type: g4dn.xlarge, use_spot: true", EPOCHS);
    let mut command = account.at_moto(scene.command(&["run", &job, "--json", "--yes"]));
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    scene.wait("a checkpoint has come here", 240, || scene.manifests() >= 1);
    let before = in_home("readlink loop.sock");
    assert!(before.starts_with("loop.sock."), "{before}");
    in_home("rm loop.sock && touch loop.sock");
    scene.wait("the loop has taken the name back", 60, || in_home("readlink loop.sock") == before);
    in_home("rm loop.sock loop.sock.*");
    let is_open = || in_home("test -S loop.sock && echo open") == "open";
    scene.wait("the loop has opened another tunnel", 60, is_open);
    assert_ne!(in_home("readlink loop.sock"), before);
    scene.wait("the run has ended", 600, || run.try_wait().unwrap().is_some());
    let events = scene.events();
    assert_eq!(events.matches("trains from step").count(), 1, "one attempt, from its start to its end: {events}");
    assert_eq!(scene.weights(), expected(EPOCHS));
}

/// Once its agent has joined, nothing of a machine that calls over TLS needs SSH: it trains on while nobody can enter it, under
/// the next server too.
#[test]
#[ignore = "needs hosts and moto: `cargo xtask test` provides them"]
fn a_machine_of_aws_that_calls_over_tls_needs_ssh_only_for_its_start() {
    let account = Account::reached(DIRECT, "tls");
    let (scene, host) = (&account.scene, DIRECT.to_string());
    let job = scene.job("aws/us-east-1, instance_type: g4dn.xlarge, use_spot: true", 300);
    // Without a server, there is no address for agents: nothing is rented.
    let refused = account.at_moto(scene.command(&["run", &job, "--json", "--yes"])).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&refused.stdout), String::from_utf8_lossy(&refused.stderr));
    assert!(!refused.status.success() && said.contains("--agents-at"), "{said}");
    assert_eq!(account.gradus(&["cloud", "audit", "aws", "--json"]), "", "nothing was rented");

    let address = reachable(scene);
    let server = account.serve(&address);
    account.gradus(&["run", &job, "--detach", "--yes", "--new"]);
    scene.wait("a checkpoint has come here", 180, || scene.manifests() >= 1);
    let find = |name: &str| scene.lab(&["exec", &host, "find", "/root/.gradus", "-name", name]);
    assert_eq!((find("loop.sock"), find("join.token")), (String::new(), String::new()), "no tunnel, and no token");
    assert!(find("session.key").contains("/instances/"));
    fs::write(scene.path("ssh_stand_in"), "Host i-*\n  ProxyCommand false\n").unwrap();
    drop(server);
    // Whoever cannot hear its agent leaves its machine alone.
    let attached = account.at_moto(scene.command(&["attach", &scene.name()])).output().unwrap();
    let said = String::from_utf8_lossy(&attached.stderr);
    assert!(!attached.status.success() && said.contains("start `gradus serve` with `--agents-at` as before"), "{said}");
    let _server = account.serve(&address);
    scene.wait("the run has ended", 240, || scene.events().contains("trained its model"));
    let events = scene.events();
    assert_eq!(events.matches("trains from step").count(), 1, "its attempt went on: {events}");
    assert_eq!(scene.weights(), expected(300));
    let log = scene.path("home/instances").join(format!("{}-i1", scene.name())).join("reach.log");
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("was started to join"), "the next server has not tried to enter it: {log}");
    scene.wait("it is given back", 60, || account.gradus(&["cloud", "audit", "aws", "--json"]).is_empty());
}
