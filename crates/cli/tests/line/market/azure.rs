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
    let disk = |name: &str, owner: &str| {
        let properties = json!({ "provisioningState": "Succeeded", "timeCreated": "2025-11-24T10:26:40.1+00:00",
                                 "diskState": "Unattached", "diskSizeGB": 256,
                                 "LastOwnershipUpdateTime": "2025-11-24T11:26:40.1+00:00" });
        json!({ "name": name, "location": "eastus", "tags": { "gradus-owner": owner }, "properties": properties,
                "sku": { "name": "StandardSSD_LRS" } })
    };
    let parts: Vec<&str> = path.split('/').collect();
    match (method, &parts[..]) {
        ("GET", ["Microsoft.Compute", "virtualMachines"]) => {
            (200, json!({ "value": [machine("gradus-1", owner), machine("gradus-2", "somebody")] }))
        }
        ("GET", ["Microsoft.Compute", "disks"]) => (200, json!({ "value": [disk("disk-1", owner)] })),
        ("GET", ["Microsoft.Network", "publicIPAddresses" | "networkInterfaces"])
        | ("GET", ["Microsoft.Compute", "snapshots" | "images"]) => (200, json!({ "value": [] })),
        ("GET", ["Microsoft.Authorization", "permissions"]) => {
            (200, json!({ "value": [{ "actions": ["*/read", "Microsoft.Network/*"], "notActions": [] }] }))
        }
        ("DELETE", ["Microsoft.Compute", "virtualMachines" | "disks", name]) => {
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
    assert_eq!((said.code, said.out.matches("orphaned").count()), (Some(0), 2), "{}{}", said.out, said.err);
    let disk = said.out.lines().find(|line| line.contains("disk-1")).unwrap();
    let words: Vec<&str> = disk.split_whitespace().collect();
    assert_eq!(words[..6], ["eastus", "disk", "disk-1", "StandardSSD_LRS", "256", "GiB"], "{disk}");
    // The catalog has no price of it, and the sum says so.
    assert_eq!(words[words.len() - 3..], ["unknown", "-", "orphaned"], "{disk}");
    assert!(said.out.contains("\ntogether $") && said.out.contains("/h, and 1 of unknown price\n"), "{}", said.out);
    assert!(
        said.err.contains("`gradus cloud audit azure --end` ends what is orphaned, after a grace of 10m"),
        "{}",
        said.err
    );
    assert_eq!(deleted.lock().unwrap().len(), 0, "nothing was ended yet");
    let said = run(&["cloud", "audit", "azure", "--json"], "secret");
    let lines: Vec<Value> = said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let disk = &lines.iter().find(|line| line["resource"].is_object()).unwrap()["resource"];
    assert_eq!(
        (&disk["kind"], &disk["verdict"], &disk["price"]),
        (&"disk".into(), &"orphaned".into(), &"unknown".into())
    );
    let said = run(&["cloud", "audit", "azure", "--end"], "secret");
    assert_eq!((said.code, said.out.matches("ended").count()), (Some(0), 2), "{}{}", said.out, said.err);
    assert_eq!(*deleted.lock().unwrap(), ["gradus-1", "disk-1"]);
}
