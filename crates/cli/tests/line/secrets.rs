//! Values of `envs` and `secrets`: sealed at rest, passed to the program, and shown nowhere unasked.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::home::{Home, text};

/// Values that must be found nowhere.
fn canaries(kind: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("canary-{kind}-{number:02}-\"q'ß")).collect()
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => found.extend(files(&entry.path())),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}

/// That none of the values stands in any file of the home.
#[track_caller]
fn check_files(home: &Home, values: &[String]) {
    for path in files(&home.path()) {
        let bytes = fs::read(&path).unwrap();
        for value in values {
            let found = bytes.windows(value.len()).any(|window| window == value.as_bytes());
            assert!(!found, "`{value}` is in {}", path.display());
        }
    }
}

#[test]
fn planted_values_are_in_no_byte_that_is_written_or_printed() {
    let home = Home::new();
    let (envs, secrets) = (canaries("env", 5), canaries("secret", 20));
    let quoted = |values: &[String], prefix: &str| {
        let pairs = values.iter().enumerate().map(|(number, value)| format!("{prefix}{number}: {value:?}"));
        pairs.collect::<Vec<_>>().join(", ")
    };
    // Fifteen in the job file, and the others by each way of the command line.
    let script = "for n in $(seq 0 19); do v=S$n; echo \"$n ${!v}\"; echo \"err ${!v}\" >&2; printf %s \"${!v}\" >> $GRADUS_CHECKPOINTS/all; done\n  cat $GRADUS_CHECKPOINTS/all | sha256sum > $GRADUS_CHECKPOINTS/sum; rm $GRADUS_CHECKPOINTS/all; exit 3";
    let job = format!(
        "name: leak\nenvs: {{{}}}\nsecrets: {{{}, S15: null}}\nrun: |\n  {script}\n",
        quoted(&envs, "E"),
        quoted(&secrets[..15], "S")
    );
    let job = home.job("leak.yaml", &job);
    let lines = format!("# two of them\nS16={}\n\nS17={}\n", secrets[16], secrets[17]);
    let file = home.job("secrets.env", &lines);
    let (s18, s19) = (format!("S18={}", secrets[18]), format!("S19={}", secrets[19]));
    let words =
        ["run", text(&job), "--secret", "S15", "--secret-file", text(&file), "--secret", &s18, "--secret", &s19];
    let output = home.command(&words).env("S15", &secrets[15]).output().unwrap();
    let ran = crate::home::said(output);
    assert_eq!(ran.code, Some(100), "{}", ran.err);
    let mut printed = vec![ran.out, ran.err];
    for words in [
        &["status", "last"][..],
        &["status", "last", "--json"],
        &["events"],
        &["events", "--json"],
        &["logs", "last"],
        &["logs", "last", "--json"],
        &["report", "last"],
        &["cost"],
        &["run", text(&job), "--json", "--secret", &s18],
    ] {
        let said = home.gradus(words);
        printed.extend([said.out, said.err]);
    }
    let mut planned = home.command(&["plan", text(&job), "--json", "--secret", "S15", "--secret", &s19]);
    let planned = crate::home::said(planned.env("S15", &secrets[15]).output().unwrap());
    assert_eq!(planned.code, Some(0), "{}", planned.err);
    printed.extend([planned.out, planned.err]);
    for value in envs.iter().chain(&secrets) {
        let escaped = serde_json::to_string(value).unwrap();
        for text in &printed {
            assert!(!text.contains(value.as_str()) && !text.contains(escaped.trim_matches('"')), "`{value}`: {text}");
        }
    }
    check_files(&home, &[envs.clone(), secrets.clone()].concat());
    let run = fs::read_dir(home.path().join("runs")).unwrap().next().unwrap().unwrap().path();
    let sum = fs::read_to_string(run.join("checkpoints/sum")).unwrap();
    let expected = sha256(&secrets.concat());
    assert_eq!(sum.split_whitespace().next(), Some(&*expected), "the program was given all of them");
    let log = home.gradus(&["logs", "last"]).out;
    assert!(log.contains("19 ***") && log.contains("err ***"), "{log}");
    let shown = home.gradus(&["status", "last", "--json", "--show-values"]).last();
    assert_eq!(shown["body"]["job"]["envs"]["E0"], *envs[0], "values of `envs` are shown when asked for");
    assert_eq!(shown["body"]["job"]["secrets"]["S0"], "(hidden)", "those of secrets never");
    assert!(fs::read_to_string(run.join("report.html")).unwrap().contains("(hidden)"));
}

/// SHA-256 by the system's own program.
fn sha256(text: &str) -> String {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let mut child = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().split_whitespace().next().unwrap().to_owned()
}

#[test]
fn a_log_with_plain_values_is_sealed_when_it_is_opened() {
    let home = Home::new();
    let job = home.job("plain.yaml", "name: plain\nenvs: {TOKEN: placeholder, EMPTY: \"\"}\nrun: echo $TOKEN\n");
    assert_eq!(home.gradus(&["run", text(&job)]).code, Some(0));
    let value = canaries("old", 1);
    let db = rusqlite::Connection::open(home.path().join("state.db")).unwrap();
    // As the version before wrote it.
    let event: String = db.query_row("SELECT event FROM events WHERE seq = 1", [], |row| row.get(0)).unwrap();
    let mut event: serde_json::Value = serde_json::from_str(&event).unwrap();
    event["job"]["envs"]["TOKEN"] = value[0].as_str().into();
    db.execute("UPDATE events SET event = ?1 WHERE seq = 1", [event.to_string()]).unwrap();
    db.execute_batch("CREATE TABLE runs (id TEXT PRIMARY KEY, body TEXT NOT NULL); DROP TABLE row_head;").unwrap();
    db.execute("INSERT INTO runs VALUES ('plain', ?1)", [&value[0]]).unwrap();
    db.execute_batch("PRAGMA user_version = 0; PRAGMA journal_mode = delete;").unwrap();
    drop(db);
    fs::set_permissions(home.path().join("state.db"), fs::Permissions::from_mode(0o644)).unwrap();
    let shown = home.gradus(&["status", "last", "--json", "--show-values"]).last();
    assert_eq!(shown["body"]["job"]["envs"]["TOKEN"], *value[0]);
    assert_eq!(shown["body"]["job"]["envs"]["EMPTY"], "");
    check_files(&home, &value);
    for name in ["state.db", "secret.key"] {
        let mode = fs::metadata(home.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn a_secret_without_a_value_and_a_lost_key_are_refused() {
    let home = Home::new();
    let job = home.job("job.yaml", "name: job\nsecrets: {TOKEN: null}\nrun: test \"$TOKEN\" = abcd\n");
    let said = home.gradus(&["run", text(&job)]);
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("secret `TOKEN` has no value") && said.err.contains("--secret TOKEN"), "{}", said.err);
    let said = home.gradus(&["run", text(&job), "--secret", "GRADUS_TEST_UNSET"]);
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("has no variable `GRADUS_TEST_UNSET`"), "{}", said.err);
    assert_eq!(home.gradus(&["plan", text(&job)]).code, Some(0), "a plan needs no values");
    assert_eq!(home.gradus(&["run", text(&job), "--secret", "TOKEN=abcd"]).code, Some(0));
    fs::remove_file(home.path().join("secret.key")).unwrap();
    let said = home.gradus(&["status"]);
    assert_eq!(said.code, Some(3), "{}", said.err);
    assert!(said.err.contains("secret.key") && said.err.contains("hint: "), "{}", said.err);
}
