//! Due times of pipelines and sweeps: a server submits each once, under the name that follows from the due time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, params};
use serde_json::{Value, json};

use super::serve::Server;
use crate::home::{Home, text};

/// Waits for the next minute where less than half of this one remains.
///
/// A server that starts after another due time has passed runs only the latest of them, and not the first.
fn early_in_a_minute() {
    let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() % 60;
    if second >= 30 {
        std::thread::sleep(Duration::from_secs(60 - second));
    }
}

/// Adds a schedule as if that had been so many minutes ago; its name, and that of its first due time.
fn added_before(home: &Home, name: &str, job: &str, minutes: i64) -> (String, String) {
    early_in_a_minute();
    let file = home.job(&format!("{name}.yaml"), job);
    let added = home.gradus(&["schedules", "add", text(&file), "--json"]);
    assert_eq!(added.code, Some(0), "{}{}", added.out, added.err);
    let db = Connection::open(home.path().join("state.db")).unwrap();
    let earlier = "UPDATE events SET at = at - ?1 WHERE event LIKE '%\"schedule_added\"%'";
    db.execute(earlier, params![minutes * 60_000_000]).unwrap();
    // The rows are made again.
    db.execute("DELETE FROM row_head", []).unwrap();
    drop(db);
    let shown: Value = serde_json::from_str(&home.gradus(&["schedules", "show", name, "--json"]).out).unwrap();
    let (id, due) = (shown["schedule"].as_str().unwrap(), shown["next_due"].as_str().unwrap());
    let due = format!("{id}-{}{}{}t{}{}", &due[..4], &due[5..7], &due[8..10], &due[11..13], &due[14..16]);
    (id.to_owned(), due)
}

/// How many events of this kind name something.
fn count(home: &Home, kind: &str, name: &str) -> usize {
    let events = home.gradus(&["events", "--json"]).out;
    let is_one = |line: &&str| line.contains(&format!("\"{kind}\"")) && line.contains(&format!("\"{name}\""));
    events.lines().filter(is_one).count()
}

#[test]
fn each_due_time_has_a_pipeline_which_goes_on_from_the_one_before() {
    let home = Home::new();
    let job = "name: grow\nschedule: {cron: \"* * * * *\", catch_up: all, warm_start: true}\n---\nname: add\noutputs: [out]\nrun: |\n  cat last-outputs/out/n >> out/n || true\n  echo ${schedule.due} >> out/n\n---\nname: check\nfile_mounts: {in: \"${add.outputs}/out\"}\nrun: test -s in/n\n";
    let (id, first) = added_before(&home, "grow", job, 2);
    let server = Server::start_with(&home, &[]);
    let shown = || server.ask("GET", &format!("/v1/schedules/{id}"), &Value::Null).1;
    let is_done = || {
        let newest = shown()["newest"].as_array().cloned().unwrap_or_default();
        newest.iter().filter(|one| one["word"] == "done").count() >= 2
    };
    home.until("two pipelines", is_done);
    let shown = shown();
    assert_eq!((shown["work"].as_str(), &shown["runs"][0]), (Some("pipeline"), &json!(first)), "{shown}");
    let second = shown["runs"][1].as_str().unwrap();
    let pipeline = server.ask("GET", &format!("/v1/pipelines/{second}"), &Value::Null).1;
    assert_eq!(pipeline["runs"], json!([format!("{second}-task1"), format!("{second}-task2")]));
    let kept = |name: &str| {
        let file = home.path().join(format!("runs/{name}-task1/checkpoints/outputs/out/n"));
        std::fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect::<Vec<String>>()
    };
    let (one, two) = (kept(&first), kept(second));
    assert_eq!((one.len(), two.len(), &two[0]), (1, 2, &one[0]), "the second begins with what the first has kept");
    assert!(one[0].contains("T") && one[0] != two[1], "each names its own due time: {two:?}");
    let listed = home.gradus(&["schedules", "list"]).out;
    assert!(listed.contains("pipeline") && listed.contains(&id), "{listed}");
    let described = home.gradus(&["schedules", "show", &id]).out;
    assert!(described.contains(&format!("pipeline {second}: done")), "{described}");
}

#[test]
fn a_due_time_has_one_pipeline_also_where_the_server_was_killed_after_its_submission() {
    let home = Home::new();
    let job = "name: often\nschedule: {cron: \"* * * * *\"}\n---\nname: a\nrun: 'true'\n---\nname: b\nrun: 'true'\n";
    let (id, first) = added_before(&home, "often", job, 1);
    let db = Connection::open(home.path().join("state.db")).unwrap();
    let newest = "SELECT event, (SELECT max(seq) FROM events), at FROM events WHERE event LIKE '%\"schedule_added\"%'";
    let row =
        db.query_row(newest, [], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)));
    let (added, seq, at) = row.unwrap();
    let added: Value = serde_json::from_str(&added).unwrap();
    let submitted = json!({
        "event": "pipeline_submitted", "pipeline": first, "tasks": ["a", "b"], "request": added["request"],
        "file": added["file"],
    });
    let insert = "INSERT INTO events (seq, at, run, event) VALUES (?1, ?2, NULL, ?3)";
    db.execute(insert, params![seq + 1, at, submitted.to_string()]).unwrap();
    drop(db);
    let server = Server::start_with(&home, &[]);
    let newest = || {
        let shown = server.ask("GET", &format!("/v1/schedules/{id}"), &Value::Null).1;
        shown["newest"].as_array().and_then(|newest| newest.last()).cloned().unwrap_or_default()
    };
    home.until("the end of the pipeline", || newest()["word"] == "done");
    assert_eq!(newest()["name"], first.as_str());
    assert_eq!(count(&home, "pipeline_submitted", &first), 1);
    assert_eq!(count(&home, "schedule_fired", &first), 1);
}

#[test]
fn a_due_time_has_a_sweep() {
    let home = Home::new();
    let job = "name: seeds\nenvs: {SEED: 1}\nrun: echo $SEED\nschedule: {cron: \"* * * * *\"}\nsweep: {method: grid, parameters: {envs.SEED: [1, 2]}}\n";
    let (id, first) = added_before(&home, "seeds", job, 1);
    let server = Server::start_with(&home, &[]);
    let newest = || {
        let shown = server.ask("GET", &format!("/v1/schedules/{id}"), &Value::Null).1;
        shown["newest"].as_array().and_then(|newest| newest.last()).cloned().unwrap_or_default()
    };
    home.until("the end of the sweep", || newest()["word"] == "done");
    assert_eq!(newest()["name"], first.as_str());
    let sweep = server.ask("GET", &format!("/v1/sweeps/{first}"), &Value::Null).1;
    assert_eq!((sweep["word"].as_str(), sweep["trials"].as_array().map(Vec::len)), (Some("done"), Some(2)), "{sweep}");
    assert_eq!(count(&home, "sweep_submitted", &first), 1);
}

/// Takes up to two minutes: that is how soon the run after the next one is due.
#[test]
fn a_run_that_goes_on_from_the_last_model_needs_its_classes() {
    let home = Home::new();
    // Forty digits of 8 × 8 pixels, of four classes from this one on.
    let table = |first: u32| {
        let pixels = |row: u32| (0..64).map(|column| ((row * 31 + column * 17) % 16).to_string()).collect::<Vec<_>>();
        let rows = (0..40).map(|row| format!("{},{}\n", pixels(row).join(","), first + row % 4)).collect::<String>();
        let whole = home.job("table.new", &rows);
        std::fs::rename(whole, home.path().with_file_name("table.csv")).unwrap();
    };
    table(0);
    let job = "name: warm\nschedule: {cron: \"* * * * *\", warm_start: true}\ntrain: {model: mlp, data: {path: table.csv}, epochs: 1, batch: 4, threads: 1}\n";
    let (id, first) = added_before(&home, "warm", job, 1);
    let server = Server::start_with(&home, &[]);
    let shown = || server.ask("GET", &format!("/v1/schedules/{id}"), &Value::Null).1;
    home.until("the first run", || shown()["newest"][0]["word"] == "trained");
    assert_eq!(shown()["runs"][0], first.as_str());
    table(1);
    let why = || shown()["last_skip"]["why"].clone();
    home.until("the refusal of other classes", || why()["reason"] == "refused");
    let message = why()["message"].to_string();
    for part in ["the data lacks `0`", "the model does not know `4`", "gradus schedules rm"] {
        assert!(message.contains(part), "{message}");
    }
    let described = home.gradus(&["schedules", "show", &id]).out;
    assert!(described.contains("the data lacks `0`") && described.contains("start over"), "{described}");
}

#[test]
fn schedules_of_pipelines_and_sweeps_are_refused_with_what_to_type() {
    let home = Home::new();
    let refused = |job: &str, parts: [&str; 2]| {
        let refused = home.gradus(&["schedules", "add", text(&home.job("refused.yaml", job))]);
        assert!(refused.code == Some(2) && parts.iter().all(|part| refused.err.contains(part)), "{}", refused.err);
    };
    let two = "run: 'true'\n---\nrun: 'true'\n";
    refused(two, ["has no `schedule:`", "a document of its own"]);
    let of_task = "run: 'true'\nschedule: {cron: 0 3 * * *}\n---\nrun: 'true'\n";
    refused(of_task, ["and not of one task", "a first document of its own"]);
    let warm = format!("schedule: {{cron: 0 3 * * *, warm_start: true}}\n---\n{two}");
    refused(&warm, ["none here has any", "leave the key out"]);
    let sweep = "envs: {SEED: 1}\nrun: echo $SEED\noutputs: [out]\nschedule: {cron: 0 3 * * *, warm_start: true}\nsweep: {method: grid, parameters: {envs.SEED: [1, 2]}}\n";
    refused(sweep, ["trials of a sweep differ", "leave `warm_start` and `new_data` out"]);
    let wrong = format!("schedule: {{cron: 0 3 * * *}}\n---\n{two}---\nrun: 'true'\nnum_node: 2\n");
    refused(&wrong, ["refused.yaml:8", "num_node"]);

    let nightly = home.job("nightly.yaml", &format!("name: nightly\nschedule: {{cron: 0 3 * * *}}\n---\n{two}"));
    let once = home.gradus(&["run", text(&nightly)]);
    assert!(once.code == Some(0) && once.err.contains("this is one pipeline, now"), "{}{}", once.out, once.err);
}
