//! `gradus cloud` for Tencent Cloud, which is stood in for by a few lines.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::home::{Home, said};

/// What Tencent answers to an action; machines that are to be ended are written down.
fn answer(action: &str, region: &str, body: &Value, (owner, ended): (&str, &Mutex<Vec<Value>>)) -> Value {
    let machine = json!({ "InstanceId": "ins-1", "InstanceName": "gradus-1", "Placement": { "Zone": "ap-guangzhou-6" },
                          "InstanceType": "GN7.2XLARGE32", "InstanceState": "RUNNING",
                          "CreatedTime": "2025-11-24T10:26:40Z" });
    match action {
        "GetCallerIdentity" => json!({ "AccountId": "1", "Arn": "qcs::cam::uin/1:uin/2" }),
        "DescribeRegions" => json!({ "RegionSet": [{ "Region": "ap-guangzhou" }] }),
        "DescribeInstances" => {
            assert_eq!(region, "ap-guangzhou");
            let filter = json!({ "Name": "tag:gradus-owner", "Values": [owner] });
            let is_ours = body["Filters"][0] == filter;
            json!({ "TotalCount": u8::from(is_ours), "InstanceSet": if is_ours { vec![machine] } else { vec![] } })
        }
        "DescribeDisks" | "DescribeAddresses" => json!({ "TotalCount": 0 }),
        "TerminateInstances" => {
            ended.lock().unwrap().push(body["InstanceIds"].clone());
            json!({})
        }
        "RunInstances" => json!({ "Error": { "Code": "UnauthorizedOperation", "Message": "m" } }),
        _ => json!({ "Error": { "Code": "InvalidParameterValue", "Message": "m" } }),
    }
}

/// A stand-in for Tencent; what it was told to end.
fn tencent(owner: String) -> (String, Arc<Mutex<Vec<Value>>>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let ended = Arc::new(Mutex::new(Vec::new()));
    let told = ended.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut asked, mut buffer) = (String::new(), [0; 4096]);
            // Every body is a JSON object.
            while !asked.contains("\r\n\r\n") || !asked.ends_with('}') {
                match stream.read(&mut buffer) {
                    Ok(count @ 1..) => asked.push_str(&String::from_utf8_lossy(&buffer[..count])),
                    _ => break,
                }
            }
            let (head, body) = asked.split_once("\r\n\r\n").unwrap();
            let header = |name: &str| {
                let line = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                line.unwrap_or_default().trim()
            };
            let value = match header("authorization").starts_with("TC3-HMAC-SHA256 Credential=id/") {
                true => {
                    let body = serde_json::from_str(body).unwrap();
                    answer(header("x-tc-action"), header("x-tc-region"), &body, (&owner, &told))
                }
                false => json!({ "Error": { "Code": "AuthFailure.SecretIdNotFound", "Message": "m" } }),
            };
            let body = json!({ "Response": value }).to_string();
            let head = format!("HTTP/1.1 200 x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).unwrap();
        }
    });
    (address, ended)
}

#[test]
fn machines_of_tencent_that_no_run_has_are_found_and_ended() {
    let home = Home::new();
    home.gradus(&["status"]);
    let owner = std::fs::read_to_string(home.path().join("owner")).unwrap();
    let (address, ended) = tencent(owner.trim().to_owned());
    let run = |arguments: &[&str], id: &str| {
        let mut command = home.command(arguments);
        command.env("GRADUS_TENCENT_ENDPOINT", &address).env("TENCENTCLOUD_SECRET_ID", id);
        command.env("TENCENTCLOUD_SECRET_KEY", "secret").env_remove("TENCENTCLOUD_TOKEN");
        said(command.output().unwrap())
    };
    let said = run(&["cloud", "check", "tencent"], "id");
    assert!(said.code == Some(3) && said.out.contains("machines     1 of this home"), "{}{}", said.out, said.err);
    assert!(said.out.contains("missing: cvm:RunInstances\nnot tried    cbs:"), "{}", said.out);
    assert!(said.out.contains("\nnot tried    cvm:TerminateInstances\n"), "{}", said.out);
    assert!(said.err.contains("`gradus cloud policy tencent` prints a policy"), "{}", said.err);
    let said = run(&["cloud", "check", "tencent"], "other");
    assert!(said.code == Some(3) && said.err.contains("see docs/tencent.md"), "{}", said.err);
    let said = run(&["cloud", "check", "tencent"], "");
    assert!(said.code == Some(3) && said.err.contains("`TENCENTCLOUD_SECRET_ID` is not"), "{}", said.err);
    let said = run(&["cloud", "policy", "tencent"], "id");
    assert!(said.code == Some(0) && said.out.contains("cvm:RunInstances"), "{}", said.out);
    let said = run(&["cloud", "audit", "tencent"], "id");
    assert_eq!((said.code, said.out.matches("orphaned").count()), (Some(0), 1), "{}{}", said.out, said.err);
    assert_eq!(ended.lock().unwrap().len(), 0, "nothing was ended yet");
    let said = run(&["cloud", "audit", "tencent", "--end"], "id");
    assert_eq!((said.code, said.out.matches("ended").count()), (Some(0), 1), "{}{}", said.out, said.err);
    assert_eq!(*ended.lock().unwrap(), [json!(["ins-1"])]);
}
