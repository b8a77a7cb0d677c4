//! What reaches the API without good will: bodies that are huge, cut off, slow or no text, and requests that a program draws.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::remote::{Served, token_file};
use super::serve::Server;
use crate::home::Home;

/// The status of an answer to these bytes, if one comes before the connection ends.
fn send(home: &Home, bytes: &[u8], is_ended: bool) -> Option<u16> {
    let mut stream = UnixStream::connect(home.path().join("api.sock")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // A server that has read enough closes.
    let _ = stream.write_all(bytes);
    if is_ended {
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        answer.extend_from_slice(&buffer[..count]);
        if String::from_utf8_lossy(&answer).contains("\r\n\r\n") {
            break;
        }
    }
    String::from_utf8_lossy(&answer).split(' ').nth(1)?.parse().ok()
}

/// A request to submit with this length and body.
fn submit(length: usize, body: &[u8]) -> Vec<u8> {
    let head = "POST /v1/runs HTTP/1.1\r\nHost: gradus\r\nContent-Type: application/json\r\nConnection: close\r\n";
    [format!("{head}Content-Length: {length}\r\n\r\n").as_bytes(), body].concat()
}

#[test]
fn hostile_requests_are_refused_and_the_server_goes_on() {
    let home = Home::new();
    let server = Server::start_with(&home, &[]);
    let whole = |body: &[u8]| submit(body.len(), body);
    let job = |job: &str, folder: &str| whole(json!({ "job": job, "folder": folder }).to_string().as_bytes());
    let nested = format!("{{\"job\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let bomb = (0..30).fold("a0: &a0 [x]\n".to_owned(), |text, n| {
        text + &format!("a{}: &a{} [{}]\n", n + 1, n + 1, vec![format!("*a{n}"); 9].join(","))
    });
    let cases: &[(&str, Vec<u8>, bool, &[u16])] = &[
        ("a body of 2 MiB", whole(&vec![b'x'; 2 << 20]), false, &[413]),
        ("a length of 8 EiB", submit(1 << 62, b"{"), false, &[413]),
        ("a body that is cut off", submit(100_000, b"{\"job\":"), true, &[400]),
        ("no JSON", whole(b"\xff\xfe\x00"), false, &[400]),
        ("100,000 brackets", whole(nested.as_bytes()), false, &[400, 422]),
        (
            "another type",
            b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}".to_vec(),
            false,
            &[415],
        ),
        ("aliases that expand to 9^30", job(&bomb, "/"), false, &[422]),
        ("a job with a NUL", job("name: a\0b\nrun: echo\n", "/"), false, &[422]),
        ("a name of a parent folder", job("name: ../../x\nrun: echo\n", "/"), false, &[422]),
        ("a folder that is relative", job("run: echo\n", "../.."), false, &[422]),
        (
            "a path with dots",
            b"GET /v1/runs/..%2f..%2fetc%2fpasswd/logs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_vec(),
            false,
            &[404],
        ),
        (
            "a path with a NUL",
            b"GET /v1/runs/%00 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_vec(),
            false,
            &[404],
        ),
        (
            "1 MiB of headers",
            [b"GET /v1/health HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; 1 << 20], b"\r\n\r\n".to_vec()].concat(),
            false,
            &[431],
        ),
        ("no HTTP", b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n".to_vec(), false, &[400]),
    ];
    for (what, bytes, is_ended, expected) in cases {
        let status = send(&home, bytes, *is_ended);
        println!("| {what} | {} |", status.map_or("closed".to_owned(), |status| status.to_string()));
        assert!(status.is_none_or(|status| expected.contains(&status)), "{what}: {status:?}, not {expected:?}");
        assert!(status.is_some() || matches!(*what, "a body that is cut off"), "{what}: no answer");
    }
    let (_, listed) = server.ask("GET", "/v1/runs", &Value::Null);
    assert_eq!(listed["runs"], json!([]), "none of them became a run");
}

#[test]
fn slow_requests_keep_nobody_waiting() {
    let home = Home::new();
    let server = Server::start_with(&home, &[]);
    let begin = |_| {
        let mut stream = UnixStream::connect(home.path().join("api.sock")).unwrap();
        stream.write_all(&submit(1000, b"{\"job\":")).unwrap();
        stream
    };
    let slow: Vec<UnixStream> = (0..300).map(begin).collect();
    let begun = Instant::now();
    let body = json!({ "job": "name: p\nrun: echo\n", "folder": "/" });
    assert_eq!(server.ask("POST", "/v1/plans", &body).0, 200);
    assert_eq!(server.ask("GET", "/v1/ready", &Value::Null).0, 200);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    drop(slow);
}

#[test]
#[ignore = "needs schemathesis: `cargo xtask test --long` provides it"]
fn schemathesis_finds_no_failure() {
    let home = Home::new();
    let served = Served::start(&home, &[]);
    let address = &served.url;
    let token = std::fs::read_to_string(token_file(&home)).unwrap();
    let mut command = Command::new("python3");
    command.args(["-m", "schemathesis.cli", "run", &format!("{address}/v1/openapi.json"), "--no-color"]);
    // What a job file and the name of a GPU may hold is no matter of a schema; and 20,000 requests are enough.
    command.args(["--exclude-checks", "positive_data_acceptance", "--max-examples", "100", "--seed", "1"]);
    command.args(["--header", &format!("Authorization: Bearer {}", token.trim()), "--warnings", "off"]);
    let output = command.current_dir(home.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{}", said.lines().rev().take(30).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n"));
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(send(&home, b"GET /v1/ready HTTP/1.1\r\nHost: x\r\n\r\n", false), Some(200));
}
