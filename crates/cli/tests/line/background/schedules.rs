//! What a server starts by itself: jobs at due times, and the tasks of pipelines.

use rusqlite::{Connection, params};
use serde_json::{Value, json};

use super::serve::Server;
use crate::home::{Home, text};

const NIGHTLY: &str =
    "name: nightly\nrun: echo ${schedule.date}\nschedule: {cron: 0 3 * * *, timezone: Europe/Berlin}\n";

#[test]
fn schedules_are_added_paused_resumed_and_removed() {
    let home = Home::new();
    let file = home.job("nightly.yaml", NIGHTLY);
    let added = home.gradus(&["schedules", "add", text(&file), "--json"]);
    assert_eq!(added.code, Some(0), "{}{}", added.out, added.err);
    let shown: Value = serde_json::from_str(added.out.lines().last().unwrap()).unwrap();
    let id = shown["schedule"].as_str().unwrap();
    assert!(shown["next_due"].as_str().unwrap().contains("T03:00:00+0"), "{shown}");
    assert!(added.err.contains("no `gradus serve` is running"), "{}", added.err);

    let paused = home.gradus(&["schedules", "pause", "nightly"]);
    assert_eq!((paused.code, paused.out.trim()), (Some(0), format!("paused {id}").as_str()), "{}", paused.err);
    let listed = home.gradus(&["schedules", "list"]).out;
    assert!(listed.contains(id) && listed.contains("paused") && listed.contains("0 3 * * * Europe/Berlin"), "{listed}");
    assert_eq!(home.gradus(&["schedules", "resume", id]).code, Some(0));
    let shown = home.gradus(&["schedules", "show", id]).out;
    assert!(shown.contains("active") && shown.contains("catch_up: latest, overlap: skip"), "{shown}");
    assert_eq!(home.gradus(&["schedules", "rm", id]).code, Some(0));
    let gone = home.gradus(&["schedules", "show", id]);
    assert!(gone.code == Some(2) && gone.err.contains("no schedule is called"), "{}", gone.err);
    let events = home.gradus(&["events"]).out;
    assert!(events.contains("`0 3 * * *` in Europe/Berlin") && events.contains("removed"), "{events}");

    let plain = home.job("plain.yaml", "run: 'true'\n");
    let refused = home.gradus(&["schedules", "add", text(&plain)]);
    assert!(refused.code == Some(2) && refused.err.contains("has no `schedule:`"), "{}", refused.err);
    let once = home.gradus(&["run", text(&file)]);
    assert!(once.code == Some(0) && once.err.contains("this is one run, now"), "{}{}", once.out, once.err);
}

#[test]
fn schedules_are_kept_over_the_api() {
    let home = Home::new();
    let server = Server::start_with(&home, &[]);
    let body = json!({ "job": NIGHTLY, "folder": home.path() });
    let key = ["Idempotency-Key: once"];
    let (status, first) = server.try_ask("POST", "/v1/schedules", &key, &body.to_string()).unwrap();
    let (again, second) = server.try_ask("POST", "/v1/schedules", &key, &body.to_string()).unwrap();
    assert_eq!((status, again), (201, 200), "{first} {second}");
    assert_eq!(first["schedule"], second["schedule"]);
    let path = format!("/v1/schedules/{}", first["schedule"].as_str().unwrap());
    let word = || server.ask("GET", &path, &Value::Null).1["word"].clone();
    assert_eq!(word(), "active");
    assert_eq!(server.ask("POST", &format!("{path}/pause"), &Value::Null).0, 202);
    assert_eq!(word(), "paused");
    assert_eq!(server.ask("POST", &format!("{path}/resume"), &Value::Null).0, 202);
    assert_eq!(server.ask("GET", "/v1/schedules", &Value::Null).1["schedules"].as_array().unwrap().len(), 1);
    assert_eq!(server.ask("POST", &format!("{path}/remove"), &Value::Null).0, 202);
    assert_eq!(server.ask("GET", &path, &Value::Null).0, 404);
    let plain = json!({ "job": "run: 'true'\n", "folder": home.path() });
    let (status, refused) = server.ask("POST", "/v1/schedules", &plain);
    assert_eq!(status, 422, "{refused}");
}

/// Takes up to a minute: that is the shortest interval of cron.
#[test]
fn a_due_time_has_one_run_also_where_the_server_was_killed_after_its_submission() {
    let home = Home::new();
    let once = home.job("once.yaml", "name: once\nrun: 'true'\n");
    assert_eq!(home.gradus(&["run", text(&once)]).code, Some(0));
    let file = home.job("often.yaml", "name: often\nrun: 'true'\nschedule: {cron: \"* * * * *\"}\n");
    let added = home.gradus(&["schedules", "add", text(&file), "--json"]);
    let shown: Value = serde_json::from_str(added.out.lines().last().unwrap()).unwrap();
    let (id, due) = (shown["schedule"].as_str().unwrap(), shown["next_due"].as_str().unwrap());
    let run = format!("{id}-{}{}{}t{}{}", &due[..4], &due[5..7], &due[8..10], &due[11..13], &due[14..16]);
    submit_as(&home, &run);

    let server = Server::start_with(&home, &[]);
    let first = || server.ask("GET", &format!("/v1/schedules/{id}"), &Value::Null).1["runs"][0].clone();
    home.until("the run of the schedule", || first().is_string());
    assert_eq!(first(), run.as_str());
    let events = home.gradus(&["events", "--json"]).out;
    let is_submission = |line: &&str| line.contains("\"submitted\"") && line.contains(&format!("\"{run}\""));
    assert_eq!(events.lines().filter(is_submission).count(), 1, "{events}");
}

/// Appends the submission of a run of this name, as a server leaves it that is killed right after that.
fn submit_as(home: &Home, run: &str) {
    let db = Connection::open(home.path().join("state.db")).unwrap();
    let submitted = "SELECT event, (SELECT max(seq) FROM events), (SELECT max(at) FROM events) FROM events
        WHERE event LIKE '%\"submitted\"%' ORDER BY seq LIMIT 1";
    let row =
        db.query_row(submitted, [], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)));
    let (event, seq, at) = row.unwrap();
    let mut event: Value = serde_json::from_str(&event).unwrap();
    event["run"] = json!(run);
    let insert = "INSERT INTO events (seq, at, run, event) VALUES (?1, ?2, ?3, ?4)";
    db.execute(insert, params![seq + 1, at, run, event.to_string()]).unwrap();
}

#[test]
fn a_server_runs_the_tasks_of_a_pipeline() {
    let home = Home::new();
    let server = Server::start_with(&home, &[]);
    let tasks = "name: prep\noutputs: [out]\nrun: echo made > out/data\n---\nname: fit\nfile_mounts: {in: \"${prep.outputs}/out\"}\nrun: grep made in/data\n";
    let body = json!({ "job": tasks, "folder": home.path(), "file": "night.yaml" });
    let (_, planned) = server.ask("POST", "/v1/plans", &body);
    assert_eq!(planned["tasks"].as_array().map(Vec::len), Some(2), "{planned}");
    let key = ["Idempotency-Key: once"];
    let (status, first) = server.try_ask("POST", "/v1/pipelines", &key, &body.to_string()).unwrap();
    let (again, second) = server.try_ask("POST", "/v1/pipelines", &key, &body.to_string()).unwrap();
    assert_eq!((status, again), (201, 200), "{first} {second}");
    let id = first["pipeline"].as_str().unwrap();
    let shown = || server.ask("GET", &format!("/v1/pipelines/{id}"), &Value::Null).1;
    home.until("the end of the pipeline", || shown()["state"]["state"] == "ended");
    assert_eq!((shown()["word"].as_str(), &shown()["runs"][1]), (Some("done"), &json!(format!("{id}-task2"))));
    let (status, refused) = server.ask("POST", "/v1/runs", &body);
    assert_eq!(status, 422, "{refused}");

    let file = home.job("fails.yaml", "name: a\nrun: exit 3\n---\nname: b\nrun: 'true'\n");
    let detached = home.gradus(&["run", text(&file), "--detach"]);
    assert!(detached.code == Some(0) && detached.out.contains("continues in the background"), "{}", detached.err);
    let failed = || {
        let (_, listed) = server.ask("GET", "/v1/pipelines", &Value::Null);
        listed["pipelines"][0]["state"]["how"]["task"] == "a"
    };
    home.until("the failure of its first task", failed);
    let (_, listed) = server.ask("GET", "/v1/pipelines", &Value::Null);
    assert_eq!(listed["pipelines"][0]["runs"].as_array().map(Vec::len), Some(1), "no later task was started");
    let done = format!("/v1/pipelines/{id}/resume");
    let (status, refused) = server.ask("POST", &done, &json!({}));
    assert!(status == 409 && refused.to_string().contains("has ended with its results"), "{status} {refused}");
}

#[test]
fn a_pipeline_is_resumed_from_the_task_that_failed() {
    let home = Home::new();
    let server = Server::start_with(&home, &[]);
    let ready = home.path().join("ready");
    let tasks = format!("name: a\nrun: test -e {}\n---\nname: b\nrun: 'true'\n", ready.display());
    let body = json!({ "job": tasks, "folder": home.path(), "file": "night.yaml" });
    let (status, first) = server.ask("POST", "/v1/pipelines", &body);
    assert_eq!(status, 201, "{first}");
    let id = first["pipeline"].as_str().unwrap();
    let path = format!("/v1/pipelines/{id}");
    let shown = || server.ask("GET", &path, &Value::Null).1;
    home.until("the failure of its first task", || shown()["word"] == "failed");
    std::fs::write(&ready, "").unwrap();
    let resume = || server.ask("POST", &format!("{path}/resume"), &json!({}));
    let (status, answer) = resume();
    assert_eq!((status, answer["pipeline"].as_str()), (202, Some(id)), "{answer}");
    home.until("its end", || shown()["word"] == "done");
    assert_eq!(shown()["runs"], json!([format!("{id}-task1"), format!("{id}-task2")]), "the same runs, and one more");
    assert_eq!(resume().0, 409, "it is complete");
}
