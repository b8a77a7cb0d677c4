//! `gradus cloud` for clouds that are stood in for by a few lines.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::home::{Home, said};

/// A stand-in for Lambda Cloud with two machines of a home and one of somebody else; what it was told to end.
fn lambda(owner: &str) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let ended = Arc::new(Mutex::new(Vec::new()));
    let (told, prefix) = (ended.clone(), cloud::rented::name_prefix(owner));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut asked, mut buffer) = (String::new(), [0; 4096]);
            // What is asked fits into a piece, and its body into the same or the next.
            while !asked.contains("\r\n\r\n") || asked.starts_with("POST") && !asked.ends_with('}') {
                match stream.read(&mut buffer) {
                    Ok(1..) => asked.push_str(&String::from_utf8_lossy(&buffer)),
                    _ => break,
                }
                asked = asked.trim_end_matches('\0').to_owned();
                buffer.fill(0);
            }
            let machine = |id: &str, name: &str| {
                json!({ "id": id, "name": name, "status": "active", "region": { "name": "us-east-1" },
                        "instance_type": { "name": "gpu_1x_a10" } })
            };
            let (status, data) = match asked.split(' ').take(2).collect::<Vec<_>>()[..] {
                _ if !asked.contains("Bearer secret") => (401, json!({ "code": "global/invalid-api-key" })),
                ["GET", "/api/v1/instances"] => {
                    let names = [format!("{prefix}1"), format!("{prefix}2"), "mine".to_owned()];
                    (200, names.iter().enumerate().map(|(id, name)| machine(&id.to_string(), name)).collect())
                }
                ["POST", "/api/v1/instance-operations/terminate"] => {
                    let body: Value = serde_json::from_str(asked.split("\r\n\r\n").nth(1).unwrap()).unwrap();
                    let id = body["instance_ids"][0].as_str().unwrap().to_owned();
                    told.lock().unwrap().push(id.clone());
                    match id.as_str() {
                        "0" => (503, json!({ "code": "global/unknown", "message": "not now" })),
                        _ => (200, json!({})),
                    }
                }
                ref other => panic!("{other:?}"),
            };
            let body = if status == 200 { json!({ "data": data }) } else { json!({ "error": data }) }.to_string();
            let head = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).unwrap();
        }
    });
    (address, ended)
}

#[test]
fn machines_of_lambda_that_no_run_has_are_found_and_ended() {
    let home = Home::new();
    home.gradus(&["status"]);
    let owner = std::fs::read_to_string(home.path().join("owner")).unwrap();
    let (address, ended) = lambda(owner.trim());
    let run = |arguments: &[&str], key: &str| {
        let mut command = home.command(arguments);
        command.env("GRADUS_LAMBDA_ENDPOINT", &address).env("LAMBDA_API_KEY", key);
        said(command.output().unwrap())
    };
    let said = run(&["cloud", "check", "lambda"], "secret");
    assert!(said.code == Some(0) && said.out.contains("3 in the account, 2 of this home"), "{}{}", said.out, said.err);
    let said = run(&["cloud", "check", "lambda"], "other");
    assert!(said.code == Some(3) && said.err.contains("set `LAMBDA_API_KEY` to a key"), "{}", said.err);
    let said = run(&["cloud", "check", "lambda", "--region", "us-east-1"], "secret");
    assert!(said.code == Some(2) && said.err.contains("asked in all regions at once"), "{}", said.err);
    let said = run(&["cloud", "policy", "lambda"], "secret");
    assert!(said.code == Some(2) && said.err.contains("Lambda has no policies"), "{}", said.err);
    let said = run(&["cloud", "audit", "lambda"], "secret");
    assert_eq!((said.code, said.out.matches("orphaned").count()), (Some(0), 2), "{}{}", said.out, said.err);
    assert!(said.err.contains("`gradus cloud audit lambda --end` ends"), "{}", said.err);
    assert_eq!(ended.lock().unwrap().len(), 0, "nothing was ended yet");
    let said = run(&["cloud", "audit", "lambda", "--end"], "secret");
    assert!(said.code == Some(3) && said.err.contains("could not end 0 in us-east-1"), "{}{}", said.out, said.err);
    assert_eq!((said.out.matches("ended").count(), ended.lock().unwrap().len()), (1, 2), "{}", said.out);
}
