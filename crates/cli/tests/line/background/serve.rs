//! `gradus serve`: its API, and that runs go on while it is away.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::home::Home;

/// A server of a home, killed when the test ends.
pub struct Server {
    child: Child,
    socket: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(home: &Home) -> Server {
        Server::start_with(home, &[])
    }

    /// One with more options.
    pub fn start_with(home: &Home, options: &[&str]) -> Server {
        let mut command = home.command(&["serve"]);
        command.args(options);
        let server = Server::of(command, home);
        let is_ready = || server.try_ask("GET", "/v1/ready", &[], "").is_some_and(|(status, _)| status == 200);
        home.until("the server to be ready", is_ready);
        server
    }

    /// The server of a home that this command starts; it may never be ready.
    pub fn of(mut command: Command, home: &Home) -> Server {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Server { child, socket: home.path().join("api.sock") }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn try_ask(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Option<(u16, Value)> {
        let mut stream = UnixStream::connect(&self.socket).ok()?;
        let more: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: gradus\r\nConnection: close\r\nContent-Type: application/json\r\n{more}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(text.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let status = answer.split(' ').nth(1)?.parse().ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        Some((status, serde_json::from_str(body).unwrap_or(Value::String(body.to_owned()))))
    }

    /// The messages of a stream, each with its kind, its id and what it says, until it ends.
    pub fn follow(&self, path: &str, headers: &[&str]) -> impl Iterator<Item = (String, String, Value)> {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        let more: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let asked = format!("GET {path} HTTP/1.1\r\nHost: gradus\r\nConnection: close\r\n{more}\r\n");
        stream.write_all(asked.as_bytes()).unwrap();
        let (mut kind, mut id) = (String::new(), String::new());
        BufReader::new(stream).lines().filter_map(move |line| {
            let line = line.unwrap();
            match line.split_once(": ")? {
                ("event", text) => kind = text.to_owned(),
                ("id", text) => id = text.to_owned(),
                ("data", text) => return Some((kind.clone(), id.clone(), serde_json::from_str(text).unwrap())),
                _ => {}
            }
            None
        })
    }

    pub fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        self.try_ask(method, path, &[], &text).unwrap()
    }
}

fn program(home: &Home, run: &str) -> Value {
    json!({ "job": format!("name: p\nrun: |\n  {run}\n"), "folder": home.path(), "secrets": {} })
}

#[test]
fn a_job_is_submitted_followed_and_billed_over_the_api() {
    let home = Home::new();
    let server = Server::start(&home);
    let body = program(&home, "echo hello from a program");
    let key = ["Idempotency-Key: once"];
    let (status, first) = server.try_ask("POST", "/v1/runs", &key, &body.to_string()).unwrap();
    let (again, second) = server.try_ask("POST", "/v1/runs", &key, &body.to_string()).unwrap();
    assert_eq!((status, again), (201, 200), "{first} {second}");
    assert_eq!((&first["run"], &second["is_new"]), (&second["run"], &json!(false)));
    let other = program(&home, "echo another");
    let (status, refused) = server.try_ask("POST", "/v1/runs", &key, &other.to_string()).unwrap();
    assert_eq!(status, 409, "{refused}");
    // Another name or budget is another request, and what was acknowledged is not planned again.
    let mut renamed = body.clone();
    renamed["job"] = json!(body["job"].as_str().unwrap().replace("name: p", "name: q\nbudget: {max: $9}"));
    let (status, refused) = server.try_ask("POST", "/v1/runs", &key, &renamed.to_string()).unwrap();
    assert!(status == 409 && refused["error"]["message"].as_str().unwrap().contains("another request"), "{refused}");
    let run = first["run"].as_str().unwrap().to_owned();
    let show = || server.ask("GET", &format!("/v1/runs/{run}"), &Value::Null).1;
    home.until("the run is billed", || !show()["bill"].is_null());
    assert_eq!(show()["word"], "succeeded");
    let (_, listed) = server.ask("GET", "/v1/runs?limit=5", &Value::Null);
    assert_eq!((listed["runs"].as_array().unwrap().len(), &listed["has_more"]), (1, &json!(false)), "{listed}");
    let (_, events) = server.ask("GET", &format!("/v1/runs/{run}/events"), &Value::Null);
    let words: Vec<&str> =
        events["events"].as_array().unwrap().iter().filter_map(|record| record["event"]["event"].as_str()).collect();
    assert_eq!((words.first(), words.last()), (Some(&"submitted"), Some(&"billed")), "{events}");
    let (_, logs) = server.ask("GET", &format!("/v1/runs/{run}/logs"), &Value::Null);
    let file = logs["files"][0]["file"].as_str().unwrap();
    let (_, log) = server.ask("GET", &format!("/v1/runs/{run}/logs?file={file}"), &Value::Null);
    assert_eq!(log["text"], "hello from a program\n");
    let get = |path: &str| server.ask("GET", path, &Value::Null).1;
    assert_eq!(get("/v1/runs?state=succeeded")["runs"][0]["run"], run.as_str());
    let (status, refused) = server.ask("GET", "/v1/runs?state=runing", &Value::Null);
    assert!(status == 400 && refused["error"]["hint"].as_str().unwrap().contains("`running`"), "{refused}");
    let cost = get(&format!("/v1/runs/{run}/cost"));
    assert_eq!((&cost["final"], &cost["bill"]["total"]), (&json!(true), &json!("$0.00")), "{cost}");
    assert_eq!(get(&format!("/v1/runs/{run}/checkpoints")), json!({ "checkpoints": [] }));
    let files = get(&format!("/v1/runs/{run}/files"));
    assert_eq!((&files["files"][0]["file"], &files["files"][0]["bytes"]), (&json!(format!("logs/{file}")), &json!(21)));
    let rest = server.ask("GET", &format!("/v1/runs/{run}/files?file=logs/{file}&offset=6"), &Value::Null);
    assert_eq!(rest, (200, json!("from a program\n")));
    assert_eq!(server.ask("GET", &format!("/v1/runs/{run}/files?file=grant.json"), &Value::Null).0, 400);
    assert_eq!(get("/v1/nodes"), json!({ "nodes": [] }));
    let offers = get("/v1/offers?gpu=A100:8&limit=2");
    let counts: Vec<&Value> = offers["offers"].as_array().unwrap().iter().map(|offer| &offer["gpu_count"]).collect();
    assert_eq!((counts, &offers["has_more"]), (vec![&json!(8), &json!(8)], &json!(true)), "{offers}");
    let (_, described) = server.ask("GET", "/v1/openapi.json", &Value::Null);
    assert_eq!(described["openapi"], "3.1.0");
    let (_, metrics) = server.ask("GET", "/v1/metrics", &Value::Null);
    assert!(metrics.as_str().unwrap().contains("gradus_runs{state=\"succeeded\"} 1"), "{metrics}");
    assert!(metrics.as_str().unwrap().contains("\ngradus_disk_free_bytes "), "{metrics}");
}

#[test]
fn a_stream_goes_on_after_the_last_message_and_ends_with_the_run() {
    let home = Home::new();
    let server = Server::start(&home);
    let body = json!({ "job": crate::home::gated(), "folder": home.path() });
    let (status, submitted) = server.ask("POST", "/v1/runs", &body);
    assert_eq!(status, 201, "{submitted}");
    let run = submitted["run"].as_str().unwrap();
    let (logs, events) = (format!("/v1/runs/{run}/logs?follow"), format!("/v1/runs/{run}/events"));
    // A connection that is lost while the run goes on.
    let (kind, last, said) = server.follow(&logs, &[]).next().unwrap();
    assert_eq!((kind.as_str(), &said["text"]), ("log", &json!("attempt starts\n")), "{said}");
    let kinds = ["Accept: text/event-stream"];
    let first: Vec<_> = server.follow(&events, &kinds).take(2).collect();
    assert!(first.iter().all(|(kind, ..)| kind == "record"), "{first:?}");
    assert_eq!(first[0].2["event"]["event"], "submitted");
    home.open_gate();
    let rest: Vec<_> = server.follow(&logs, &[&format!("Last-Event-ID: {last}")]).collect();
    let said: Vec<(&str, &Value)> = rest.iter().map(|(kind, _, said)| (kind.as_str(), &said["text"])).collect();
    assert_eq!(said, [("log", &json!("went through\n")), ("end", &Value::Null)], "{rest:?}");
    let rest: Vec<_> = server.follow(&events, &[kinds[0], &format!("Last-Event-ID: {}", first[1].1)]).collect();
    assert!(rest[0].2["seq"].as_u64() > first[1].2["seq"].as_u64(), "{rest:?}");
    let (billed, end) = (&rest[rest.len() - 2].2["event"]["event"], &rest[rest.len() - 1]);
    assert_eq!((billed, end.0.as_str(), &end.2["state"]), (&json!("billed"), "end", &json!("succeeded")), "{rest:?}");
    for (path, header) in [(&logs, "Last-Event-ID: 7"), (&events, "Last-Event-ID: seven\r\nAccept: text/event-stream")]
    {
        let (status, answer) = server.try_ask("GET", path, &[header], "").unwrap();
        assert_eq!(status, 400, "{answer}");
    }
    let (status, _) = server.ask("GET", &format!("{events}?follow=perhaps"), &Value::Null);
    assert_eq!(status, 400);
}

#[test]
fn the_status_of_a_run_whose_server_was_killed_has_the_lease_of_a_server() {
    let home = Home::new();
    let server = Server::start(&home);
    let body = json!({ "job": crate::home::gated(), "folder": home.path() });
    let (status, submitted) = server.ask("POST", "/v1/runs", &body);
    assert_eq!(status, 201, "{submitted}");
    home.until("a running run", || home.state() == "running");
    drop(server);
    home.until("the end of the server", || home.state() == "unattended");
    let status = home.gradus(&["status", "last"]).out;
    assert!(status.contains("it saves a checkpoint and stops within 30m of its last contact"), "{status}");
    // A command that takes over and is killed may not have answered the agent.
    let lease = || std::fs::read_to_string(home.path().join("loop.lease")).unwrap();
    let granted = lease();
    let mut follower = home.start(&["attach", "last"]);
    home.until("the loop of a command", || lease() != granted);
    follower.kill().unwrap();
    follower.wait().unwrap();
    home.until("the end of that loop", || home.state() == "unattended");
    let status = home.gradus(&["status", "last"]).out;
    assert!(status.contains("it saves a checkpoint and stops within 30m of its last contact"), "{status}");
}

#[test]
fn a_run_that_a_command_submits_has_the_price_of_the_server() {
    let home = Home::new();
    let _server = Server::start_with(&home, &["--price", "0.36/h"]);
    let job = home.job("short.yaml", "name: short\nrun: 'true'\n");
    let check = |options: &[&str], expected: &str| {
        let run = home.gradus(&[&["run", crate::home::text(&job), "--new", "--yes"], options].concat());
        assert_eq!(run.code, Some(0), "{}{}", run.out, run.err);
        let status = home.gradus(&["status", "last"]).out;
        assert!(status.lines().any(|line| line.starts_with("machine  ") && line.ends_with(expected)), "{status}");
    };
    check(&[], ", $0.36/h");
    check(&["--price", "0.72/h"], ", $0.72/h");
    check(&["--price", "0/h"], ", $0.00/h");
}

#[test]
fn a_request_to_resume_that_is_sent_again_resumes_once() {
    let home = Home::new();
    let server = Server::start(&home);
    let job = "name: fails\nresources: {job_recovery: {max_restarts_on_errors: 0}}\nrun: exit 7\n";
    let (_, submitted) = server.ask("POST", "/v1/runs", &json!({ "job": job, "folder": home.path() }));
    let run = submitted["run"].as_str().unwrap().to_owned();
    let attempts = || {
        let (_, shown) = server.ask("GET", &format!("/v1/runs/{run}"), &Value::Null);
        (!shown["bill"].is_null()).then(|| shown["attempts"].as_array().unwrap().len())
    };
    let resume = |key: &str| {
        let headers = [format!("Idempotency-Key: {key}")];
        let path = format!("/v1/runs/{run}/resume");
        server.try_ask("POST", &path, &headers.each_ref().map(String::as_str), "{}").unwrap()
    };
    home.until("it has failed", || attempts() == Some(1));
    for (key, after) in [("first", 2), ("first", 2), ("second", 3), ("first", 3)] {
        let (status, answer) = resume(key);
        assert_eq!(status, 202, "{answer}");
        home.until("it has failed again", || attempts() == Some(after));
    }
    let removed = home.gradus(&["rm", &run, "--yes"]);
    assert_eq!(removed.code, Some(0), "{}", removed.err);
    let (status, answer) = resume("third");
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(status == 409 && message.contains("the files of run") && message.contains("were deleted"), "{answer}");
    assert_eq!(attempts(), Some(3));
}

#[test]
fn a_file_is_uploaded_in_parts_and_named_by_a_job() {
    let home = Home::new();
    let server = Server::start(&home);
    // Of `0123456789`.
    let sha256 = "84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882";
    let put =
        |query: &str, body: &str| server.try_ask("PUT", &format!("/v1/blobs/{sha256}?{query}"), &[], body).unwrap();
    let (status, first) = put("total=10&name=a.txt", "0123");
    assert_eq!((status, &first["bytes"], &first["is_whole"]), (200, &json!(4), &json!(false)), "{first}");
    let (status, whole) = put("offset=4&total=10&name=a.txt", "456789");
    assert_eq!((status, &whole["bytes"], &whole["is_whole"]), (201, &json!(10), &json!(true)), "{whole}");
    let path = whole["paths"][0].as_str().unwrap();
    assert_eq!(std::fs::read_to_string(path).unwrap(), "0123456789");
    let (_, listed) = server.ask("GET", "/v1/blobs", &Value::Null);
    assert_eq!(listed["blobs"][0]["paths"][0], path);
    // A job that names it keeps it from being deleted.
    let job = format!("name: reads\nrun: cat {path}; sleep 60\n");
    let (status, submitted) = server.ask("POST", "/v1/runs", &json!({ "job": job, "folder": home.path() }));
    assert_eq!(status, 201, "{submitted}");
    let delete = || server.ask("DELETE", &format!("/v1/blobs/{sha256}"), &Value::Null);
    let (status, refused) = delete();
    assert_eq!((status, refused["error"]["message"].as_str().unwrap().contains("uses it")), (409, true), "{refused}");
    // So does a schedule, until it is removed.
    let job = format!("name: yearly\nrun: cat {path}\nschedule: {{cron: 0 3 1 1 *}}\n");
    let (status, added) = server.ask("POST", "/v1/schedules", &json!({ "job": job, "folder": home.path() }));
    assert_eq!(status, 201, "{added}");
    let schedule = added["schedule"].as_str().unwrap();
    let run = submitted["run"].as_str().unwrap();
    assert_eq!(server.ask("POST", &format!("/v1/runs/{run}/stop"), &Value::Null).0, 202);
    let user = || delete().1["error"]["message"].as_str().unwrap_or_default().to_owned();
    home.until("the run to end", || user() == format!("`{schedule}` uses it"));
    assert_eq!(server.ask("POST", &format!("/v1/schedules/{schedule}/remove"), &Value::Null).0, 202);
    home.until("the schedule to be removed", || delete().0 == 200);
    assert_eq!(delete().0, 404);
    assert_eq!(put("offset=0", "0123").0, 422, "the hash is of something else");
    assert_eq!(server.ask("PUT", "/v1/blobs/..%2fx", &json!({})).0, 400);
}

#[test]
fn a_server_that_refuses_for_want_of_space_is_not_ready_and_says_why() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--quota", "1 KB"]);
    // Of no contents that are sent: they are refused before.
    let sha256 = "84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882";
    let (status, _) = server.try_ask("PUT", &format!("/v1/blobs/{sha256}?name=a.txt"), &[], &"0".repeat(2000)).unwrap();
    assert_eq!(status, 507);
    let (status, ready) = server.ask("GET", "/v1/ready", &Value::Null);
    let message = ready["error"]["message"].as_str().unwrap_or_default();
    assert_eq!((status, message.starts_with("no disk space for uploads: files of runs")), (503, true), "{ready}");
    assert!(ready["error"]["hint"].as_str().unwrap().contains("gradus gc"), "{ready}");
    assert_eq!(server.ask("GET", "/v1/runs", &Value::Null).0, 200, "reads are answered");
    let operations = home.gradus(&["events", "--operations"]);
    assert_eq!(operations.out.matches("no disk space for uploads").count(), 1, "{}", operations.out);
}

#[test]
fn what_the_api_cannot_do_is_said_with_a_status_and_a_hint() {
    let home = Home::new();
    let server = Server::start(&home);
    let check = |method: &str, path: &str, body: Value, status: u16, part: &str| {
        let (said, answer) = server.ask(method, path, &body);
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(said == status && message.contains(part), "{method} {path}: {said} {answer}");
    };
    check("GET", "/v1/runs/nobody", Value::Null, 404, "no run is called `nobody`");
    check("POST", "/v1/runs/nobody/stop", Value::Null, 404, "no run is called `nobody`");
    check("GET", "/v2/runs", Value::Null, 404, "there is nothing at `/v2/runs`");
    check("DELETE", "/v1/runs", Value::Null, 405, "`DELETE` is not possible");
    check("GET", "/v1/runs?limit=many", Value::Null, 400, "limit");
    check("GET", "/v1/runs?colour=red", Value::Null, 400, "colour");
    check("GET", "/v1/offers?gpu=A99999", Value::Null, 400, "no GPU `A99999` is known");
    check("GET", "/v1/offers?cloud=nimbus", Value::Null, 400, "no cloud `nimbus` is known");
    check("GET", "/v1/runs/%ff", Value::Null, 400, "UTF-8");
    check("POST", "/v1/runs/nobody/resume", json!({ "accept_data_change": 7 }), 422, "accept_data_change");
    check("POST", "/v1/runs", json!({}), 422, "job");
    check("POST", "/v1/runs", json!({ "job": "run: echo", "folder": "here" }), 422, "is not absolute");
    check("POST", "/v1/runs", json!({ "job": "rum: true", "folder": "/" }), 422, "unknown key");
    check("POST", "/v1/plans", json!({ "job": "run: echo\nresources: {cpus: 4096}", "folder": "/" }), 422, "cores");
    let misspelled = json!({ "job": "rum: echo\nrun: echo", "folder": "/" });
    let (_, refused) = server.ask("POST", "/v1/runs", &misspelled);
    let error = &refused["error"];
    assert!(error["hint"].is_string() && !error["message"].as_str().unwrap().contains("hint:"), "{refused}");
    // A second server for the same home.
    let said = home.gradus(&["serve"]);
    assert!(said.code == Some(3) && said.err.contains("another `gradus serve` runs"), "{}", said.err);
    let said = home.gradus(&["serve", "--listen", "0.0.0.0:1"]);
    assert!(said.code == Some(2) && said.err.contains("add `--tls-cert FILE --tls-key FILE`"), "{}", said.err);
}

#[test]
fn gc_beside_a_server_frees_what_ended_runs_took_and_keeps_data() {
    let home = Home::new();
    let _server = Server::start_with(&home, &["--quota", "1 TB"]);
    let job = home.job("quick.yaml", "name: quick\nrun: 'true'\n");
    let ran = home.gradus(&["run", job.to_str().unwrap(), "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let attempts = home.path().join("runs").join(ran.last()["run"].as_str().unwrap()).join("attempts");
    let cached = home.path().join("cache/data/address");
    std::fs::create_dir_all(&cached).unwrap();
    std::fs::write(cached.join("part"), vec![1; 1 << 20]).unwrap();
    assert!(attempts.exists());
    // Its bill may come an instant later.
    home.until("its files to be free", || home.gradus(&["gc", "--dry-run"]).out.contains("working folders"));
    let freed = home.gradus(&["gc", "--yes"]);
    assert_eq!(freed.code, Some(0), "{}", freed.err);
    assert!(freed.err.contains("downloaded data is kept") && freed.out.contains("working folders"), "{}", freed.out);
    assert!(!attempts.exists() && cached.join("part").exists());
}

#[test]
fn a_run_goes_on_while_the_server_is_away_and_a_run_of_the_command_line_is_taken_over() {
    let home = Home::new();
    let mut server = Server::start(&home);
    let body = program(&home, "for step in 1 2 3 4 5 6; do echo step $step; sleep 0.5; done");
    let (status, submitted) = server.ask("POST", "/v1/runs", &body);
    assert_eq!(status, 201, "{submitted}");
    let run = submitted["run"].as_str().unwrap().to_owned();
    let log = home.path().join(format!("runs/{run}/logs/{run}-a1-rank-0.log"));
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    home.until("it runs", || said().contains("step 2"));
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    home.until("it goes on alone", || said().contains("step 6"));
    drop(server);
    let server = Server::start(&home);
    let show = |run: &str| server.ask("GET", &format!("/v1/runs/{run}"), &Value::Null).1;
    home.until("the run is billed", || !show(&run)["bill"].is_null());
    assert_eq!((&show(&run)["word"], show(&run)["attempts"].as_array().unwrap().len()), (&json!("succeeded"), 1));
    drop(server);
    // A command runs the loop, and hands it over to the server without the run noticing.
    let job = home.job("job.yaml", "name: q\nrun: sleep 4\n");
    let mut command = home.command(&["run", job.to_str().unwrap(), "--yes"]);
    let mut follower = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    home.until("its program to run", || home.state() == "running");
    let server = Server::start(&home);
    assert!(follower.wait().unwrap().success());
    let (_, listed) = server.ask("GET", "/v1/runs?limit=1", &Value::Null);
    assert_eq!(
        (&listed["runs"][0]["state"], &listed["runs"][0]["attempts"]),
        (&json!("succeeded"), &json!(1)),
        "{listed}"
    );
}
