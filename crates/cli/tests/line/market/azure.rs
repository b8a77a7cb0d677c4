//! `gradus cloud` for Azure, which is stood in for by a few lines.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::home::{Home, said};

/// What Azure answers to a request; requests to delete are written down.
fn answer(asked: &str, owner: &str, deleted: &Mutex<Vec<String>>) -> (u16, Value) {
    let mut words = asked.split(' ');
    let (method, url) = (words.next().unwrap(), words.next().unwrap());
    if method == "POST" && url == "/t/oauth2/v2.0/token" {
        return match asked.contains("client_secret=secret") {
            true => (200, json!({ "token_type": "Bearer", "expires_in": 3599, "access_token": "token" })),
            false => (401, json!({ "error": "invalid_client" })),
        };
    }
    assert!(asked.contains("Bearer token"), "{asked}");
    let (path, _) = url.split_once('?').unwrap();
    let path = path.strip_prefix("/subscriptions/s/resourceGroups/gradus/providers/").unwrap();
    let machine = |name: &str, owner: &str| {
        let properties = json!({ "provisioningState": "Succeeded", "timeCreated": "2025-11-24T10:26:40.1+00:00",
                                 "hardwareProfile": { "vmSize": "Standard_NC4as_T4_v3" } });
        json!({ "name": name, "location": "eastus", "tags": { "gradus-owner": owner }, "properties": properties })
    };
    let parts: Vec<&str> = path.split('/').collect();
    match (method, &parts[..]) {
        ("GET", ["Microsoft.Compute", "virtualMachines"]) => {
            (200, json!({ "value": [machine("gradus-1", owner), machine("gradus-2", "somebody")] }))
        }
        ("GET", ["Microsoft.Network", "publicIPAddresses"]) => (200, json!({ "value": [] })),
        ("GET", ["Microsoft.Authorization", "permissions"]) => {
            (200, json!({ "value": [{ "actions": ["*/read", "Microsoft.Network/*"], "notActions": [] }] }))
        }
        ("DELETE", ["Microsoft.Compute", "virtualMachines", name]) => {
            deleted.lock().unwrap().push((*name).to_owned());
            (202, Value::Null)
        }
        other => panic!("{other:?}"),
    }
}

/// A stand-in for Azure; what it was told to delete.
fn azure(owner: String) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let deleted = Arc::new(Mutex::new(Vec::new()));
    let told = deleted.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut asked, mut buffer) = (String::new(), [0; 4096]);
            // The form of a token ends with what the token is for.
            while !asked.contains("\r\n\r\n") || asked.starts_with("POST") && !asked.ends_with(".default") {
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
fn machines_of_azure_that_no_run_has_are_found_and_ended() {
    let home = Home::new();
    home.gradus(&["status"]);
    let owner = std::fs::read_to_string(home.path().join("owner")).unwrap();
    let (address, deleted) = azure(owner.trim().to_owned());
    let run = |arguments: &[&str], secret: &str| {
        let mut command = home.command(arguments);
        command.env("GRADUS_AZURE_ENDPOINT", &address).env("AZURE_TENANT_ID", "t").env("AZURE_CLIENT_ID", "i");
        command.env("AZURE_CLIENT_SECRET", secret).env("AZURE_SUBSCRIPTION_ID", "s");
        command.env_remove("AZURE_AUTHORITY_HOST");
        said(command.output().unwrap())
    };
    let said = run(&["cloud", "check", "azure"], "secret");
    assert!(said.code == Some(3) && said.out.contains("machines     1 of this home"), "{}{}", said.out, said.err);
    assert!(said.out.contains("missing: Microsoft.Compute/disks/delete, "), "{}", said.out);
    assert!(said.err.contains("`gradus cloud policy azure` prints a role"), "{}", said.err);
    let said = run(&["cloud", "check", "azure"], "other");
    assert!(said.code == Some(3) && said.err.contains("(HTTP status 401); set `AZURE_TENANT_ID`"), "{}", said.err);
    let said = run(&["cloud", "policy", "azure"], "secret");
    assert!(said.code == Some(0) && said.out.contains("Microsoft.Compute/virtualMachines/write"), "{}", said.out);
    let said = run(&["cloud", "audit", "azure"], "secret");
    assert_eq!((said.code, said.out.matches("orphaned").count()), (Some(0), 1), "{}{}", said.out, said.err);
    assert_eq!(deleted.lock().unwrap().len(), 0, "nothing was ended yet");
    let said = run(&["cloud", "audit", "azure", "--end"], "secret");
    assert_eq!((said.code, said.out.matches("ended").count()), (Some(0), 1), "{}{}", said.out, said.err);
    assert_eq!(*deleted.lock().unwrap(), ["gradus-1"]);
}
