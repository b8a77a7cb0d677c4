//! `gradus cloud` for Alibaba Cloud, which is stood in for by a few lines.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::home::{Home, said};

/// What Alibaba answers to a request; machines that are to be deleted are written down.
fn answer(asked: &str, owner: &str, deleted: &Mutex<Vec<String>>) -> (u16, Value) {
    let header = |name: &str| {
        let line = asked.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_default().trim().to_owned()
    };
    let query = asked.split(' ').nth(1).unwrap().trim_start_matches("/?");
    let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    assert!(header("authorization").starts_with("ACS3-HMAC-SHA256 Credential="), "{asked}");
    if !header("authorization").contains("Credential=id,") {
        return (
            404,
            json!({ "Code": "InvalidAccessKeyId.NotFound", "Message": "Specified access key is not found." }),
        );
    }
    let machine = json!({ "InstanceId": "i-1", "InstanceName": "gradus-1", "ZoneId": "cn-hangzhou-g", "Status": "Running",
                          "InstanceType": "ecs.gn6i-c4g1.xlarge", "CreationTime": "2025-11-24T10:26Z" });
    match header("x-acs-action").as_str() {
        "GetCallerIdentity" => (200, json!({ "AccountId": "1", "Arn": "acs:ram::1:user/u" })),
        "DescribeRegions" => (200, json!({ "Regions": { "Region": [{ "RegionId": "cn-hangzhou" }] } })),
        "DescribeInstances" => {
            let is_ours = value("Tag.1.Value").is_some_and(|tag| tag == owner);
            (200, json!({ "Instances": { "Instance": if is_ours { vec![machine] } else { vec![] } } }))
        }
        "DescribeDisks" | "DescribeSnapshots" | "DescribeEipAddresses" => (200, json!({ "TotalCount": 0 })),
        "DeleteInstance" if value("DryRun").is_none() => {
            deleted.lock().unwrap().push(value("InstanceId").unwrap().to_owned());
            (200, json!({ "RequestId": "r" }))
        }
        "RunInstances" => (403, json!({ "Code": "Forbidden.RAM", "Message": "User not authorized." })),
        _ => (400, json!({ "Code": "DryRunOperation", "Message": "m" })),
    }
}

/// A stand-in for Alibaba; what it was told to delete.
fn alibaba(owner: String) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let deleted = Arc::new(Mutex::new(Vec::new()));
    let told = deleted.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut asked, mut buffer) = (String::new(), [0; 4096]);
            while !asked.contains("\r\n\r\n") {
                match stream.read(&mut buffer) {
                    Ok(count @ 1..) => asked.push_str(&String::from_utf8_lossy(&buffer[..count])),
                    _ => break,
                }
            }
            let (status, value) = answer(&asked, &owner, &told);
            let body = value.to_string();
            let head = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).unwrap();
        }
    });
    (address, deleted)
}

#[test]
fn machines_of_alibaba_that_no_run_has_are_found_and_ended() {
    let home = Home::new();
    home.gradus(&["status"]);
    let owner = std::fs::read_to_string(home.path().join("owner")).unwrap();
    let letters = |text: &str| text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-._~".contains(letter));
    // As it stands in an address.
    let encoded = |byte: u8| match letters(&char::from(byte).to_string()) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    let (address, deleted) = alibaba(owner.trim().bytes().map(encoded).collect());
    let run = |arguments: &[&str], id: &str| {
        let mut command = home.command(arguments);
        command.env("GRADUS_ALIBABA_ENDPOINT", &address).env("ALIBABA_CLOUD_ACCESS_KEY_ID", id);
        command.env("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "secret").env_remove("ALIBABA_CLOUD_SECURITY_TOKEN");
        said(command.output().unwrap())
    };
    let said = run(&["cloud", "check", "alibaba"], "id");
    assert!(said.code == Some(3) && said.out.contains("machines     1 of this home"), "{}{}", said.out, said.err);
    assert!(said.out.contains("missing: ecs:RunInstances\n"), "{}", said.out);
    assert!(said.err.contains("`gradus cloud policy alibaba` prints a policy"), "{}", said.err);
    let said = run(&["cloud", "check", "alibaba"], "other");
    assert!(said.code == Some(3) && said.err.contains("see docs/alibaba.md"), "{}", said.err);
    let said = run(&["cloud", "check", "alibaba"], "");
    assert!(said.code == Some(3) && said.err.contains("`ALIBABA_CLOUD_ACCESS_KEY_ID` is not"), "{}", said.err);
    let said = run(&["cloud", "policy", "alibaba"], "id");
    assert!(said.code == Some(0) && said.out.contains("ecs:RunInstances"), "{}", said.out);
    let said = run(&["cloud", "audit", "alibaba"], "id");
    assert_eq!((said.code, said.out.matches("orphaned").count()), (Some(0), 1), "{}{}", said.out, said.err);
    assert_eq!(deleted.lock().unwrap().len(), 0, "nothing was ended yet");
    let said = run(&["cloud", "audit", "alibaba", "--end"], "id");
    assert_eq!((said.code, said.out.matches("ended").count()), (Some(0), 1), "{}{}", said.out, said.err);
    assert_eq!(*deleted.lock().unwrap(), ["i-1"]);
}
