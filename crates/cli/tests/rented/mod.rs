//! A machine of AWS, rented, used and given back: moto is AWS, and a host of the lab is the machine that it has rented.

use std::fs;
use std::process::Command;

use super::{Scene, expected};

#[path = "../../../store/tests/moto/s3.rs"]
mod s3;

/// The host that stands for every machine.
const HOST: u32 = 10;

/// A configuration of `ssh` by which every machine of AWS is this host.
fn stand_in(scene: &Scene) -> String {
    let mut named = Command::new("ssh");
    named.arg("-G").arg("-F").arg(scene.lab.join("ssh_config")).arg(format!("host-{HOST}"));
    let said = named.output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let wanted = ["hostname", "user", "identityfile", "userknownhostsfile"];
    let lines = said.lines().filter(|line| wanted.iter().any(|word| line.starts_with(&format!("{word} "))));
    let lines: String = lines.map(|line| format!("  {line}\n")).collect();
    let path = scene.path("ssh_stand_in");
    fs::write(&path, format!("Host i-*\n{lines}  HostKeyAlias host-{HOST}\n  IdentityAgent none\n")).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
#[ignore = "needs hosts and moto: `cargo xtask test` provides them"]
fn a_machine_of_aws_is_rented_trains_and_is_given_back() {
    let scene = Scene::with(&[]);
    scene.lab(&["start", &HOST.to_string()]);
    let moto = s3::Moto::start();
    fs::create_dir_all(scene.path("home")).unwrap();
    let options = serde_json::json!({
        "image": "ami-12c6146b", "ssh_from": "192.0.2.1", "ssh_config": stand_in(&scene),
    });
    fs::write(scene.path("home/aws.json"), options.to_string()).unwrap();
    let gradus = |arguments: &[&str]| {
        let mut command = scene.command(arguments);
        command.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", moto.port));
        command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret");
        let output = command.output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "gradus {arguments:?}: {out}{err}\n{}", scene.events());
        out.into_owned()
    };
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
