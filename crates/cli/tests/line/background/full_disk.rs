//! A server that is started on a disk without any space: what is only read is answered, what would change something is refused,
//! and it continues by itself once there is space.

use std::io::{BufRead, BufReader, Lines};
use std::net::TcpListener;
use std::process::{ChildStderr, Command, Stdio};

use rustix::process::{Pid, Resource, getrlimit, prlimit};
use serde_json::{Value, json};

use super::remote::{succeeded, token_file};
use super::serve::Server;
use crate::home::{Home, gated};

/// `gradus serve` in a process that can write to no file, which is what a full disk is.
fn serving_without_space(home: &Home, address: &str) -> Command {
    let serve = home.command(&["serve", "--listen", address]);
    let mut command = Command::new("sh");
    // The signal that comes with the limit is ignored.
    command.args(["-c", "trap '' XFSZ; ulimit -S -f 0; exec \"$@\"", "sh"]);
    command.arg(serve.get_program()).args(serve.get_args());
    command.env_remove("GRADUS_HOME").env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

/// Reads what a command says until it has said this.
fn heard(lines: &mut Lines<BufReader<ChildStderr>>, expected: &str) {
    let mut all = String::new();
    for line in lines.map_while(Result::ok) {
        all += &line;
        all.push('\n');
        if line.contains(expected) {
            return;
        }
    }
    panic!("`{expected}` was not said: {all}");
}

fn submitted(server: &Server, home: &Home, job: &str) -> (u16, Value) {
    server.ask("POST", "/v1/runs", &json!({ "job": job, "folder": home.path() }))
}

#[test]
fn a_server_starts_on_a_full_disk_and_continues_once_there_is_space() {
    let (home, here) = (Home::new(), Home::new());
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let server = Server::start_with(&home, &["--listen", &address]);
    succeeded(here.gradus(&["login", &format!("http://{address}"), "--token-file", &token_file(&home)]));
    let (status, first) = submitted(&server, &home, &gated());
    assert_eq!(status, 201, "{first}");
    let run = first["run"].as_str().unwrap().to_owned();
    home.until("it runs", || home.state() == "running");
    // Killed: its agent continues.
    drop(server);

    let server = Server::of(serving_without_space(&home, &address), &home);
    let ready = || server.try_ask("GET", "/v1/ready", &[], "");
    let is_full = |answer: Option<(u16, Value)>| {
        let (status, body) = answer.unwrap_or_default();
        let message = body["error"]["message"].as_str().unwrap_or_default();
        status == 503 && message.starts_with("no disk space for the event log: ")
    };
    home.until("the server to say that its disk is full", || is_full(ready()));
    let (status, listed) = server.ask("GET", "/v1/runs", &Value::Null);
    assert_eq!((status, &listed["runs"][0]["run"]), (200, &json!(run)), "{listed}");
    let (status, shown) = server.ask("GET", &format!("/v1/runs/{run}"), &Value::Null);
    let waits_for = shown["refused"].as_array().map(Vec::len);
    assert_eq!((status, &shown["word"], waits_for), (200, &json!("running"), Some(1)), "{shown}");
    let (status, refused) = submitted(&server, &home, "name: p\nrun: echo hello\n");
    assert_eq!(status, 507, "{refused}");

    // Who follows the run sees it, and again once it is over.
    let mut follower = here.start(&["attach", &run]);
    let mut lines = BufReader::new(follower.stderr.take().unwrap()).lines();
    heard(&mut lines, "waiting: no disk space for the event log: ");
    let whole = getrlimit(Resource::Fsize);
    prlimit(Pid::from_raw(server.pid().cast_signed()), Resource::Fsize, whole).unwrap();
    home.until("the server to continue", || ready().is_some_and(|(status, _)| status == 200));
    heard(&mut lines, "there is disk space for the event log again");
    let (status, second) = submitted(&server, &home, "name: p\nrun: echo hello\n");
    assert_eq!(status, 201, "{second}");
    home.open_gate();
    lines.for_each(drop);
    assert_eq!(follower.wait().unwrap().code(), Some(0));
    // Its databases are not its own any more.
    let events = succeeded(home.gradus(&["events", &run]));
    assert_eq!(events.matches(" starts on ").count(), 1, "one attempt, from its start to its end: {events}");
    let operations = succeeded(home.gradus(&["events", "--operations"]));
    let count = |text: &str| operations.matches(text).count();
    assert_eq!((count("no disk space for the event log"), count("no longer refused")), (1, 1), "{operations}");
}
