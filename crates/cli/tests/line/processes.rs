//! Loop, agent and rank are processes with sessions of their own, and every table but the log can be rebuilt.

use std::fs;

use crate::home::{Home, Said, counting, gated, said, signal, text};

/// The session that a process belongs to: the sixth field of its `stat`, the fourth after the name. None of one that has ended.
fn session(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(3)?.parse().ok()
}

#[test]
fn loop_agent_and_rank_have_sessions_of_their_own() {
    let home = Home::new();
    let job = home.job("count.yaml", &counting(600));
    let mut running = home.start(&["run", text(&job)]);
    home.until("a running run", || home.state() == "running");
    let agents = home.pids(" agent ");
    let [agent] = agents.as_slice() else { panic!("agents: {agents:?}") };
    // A command that the program starts is called so for an instant.
    let ranks: Vec<u32> = home.pids("bash").into_iter().filter(|pid| session(*pid) == Some(*pid)).collect();
    let [rank] = ranks.as_slice() else { panic!("ranks: {ranks:?}") };
    let sessions = [session(running.id()), session(*agent), session(*rank)];
    assert_eq!(sessions[1..], [Some(*agent), Some(*rank)], "agent and rank lead their sessions");
    assert!(sessions[0] != sessions[1] && sessions[1] != sessions[2] && sessions[0] != sessions[2], "{sessions:?}");
    assert_eq!(home.gradus(&["stop", "last"]).code, Some(0));
    assert_eq!(running.wait().unwrap().code(), Some(103));
    assert!(home.pids(" agent ").is_empty() && home.pids("bash").is_empty());
}

#[test]
fn every_table_but_the_events_can_be_dropped() {
    let home = Home::new();
    let job = home.job("count.yaml", &counting(30));
    let mut running = home.start(&["run", text(&job), "--price", "3.6/h", "--yes"]);
    home.until("a running run", || home.state() == "running");
    assert_eq!(home.gradus(&["stop", "last"]).code, Some(0));
    running.wait().unwrap();
    let told = || {
        [&["status"][..], &["status", "last", "--json"], &["cost", "--json"], &["events", "--json"]]
            .map(|words| home.gradus(words).out)
    };
    let before = told();
    let db = rusqlite::Connection::open(home.path().join("state.db")).unwrap();
    let tables: Vec<String> = {
        let mut names = db.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'events'").unwrap();
        names.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    assert!(tables.contains(&"run_rows".to_owned()), "{tables:?}");
    for table in tables {
        db.execute_batch(&format!("DROP TABLE {table}")).unwrap();
    }
    drop(db);
    assert_eq!(told(), before);
    let resumed = home.gradus(&["resume", "last", "--json"]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.err);
    assert_eq!(resumed.last()["attempts"], 2);
    assert!(home.gradus(&["logs", "last"]).out.contains("counted to 30"));
}

#[test]
fn ctrl_c_leaves_the_agent_at_work_and_says_so() {
    let home = Home::new();
    let job = home.job("count.yaml", &counting(100));
    let running = home.start(&["run", text(&job)]);
    home.until("a running run", || home.state() == "running");
    signal(running.id(), "INT");
    let left = said(running.wait_with_output().unwrap());
    assert_eq!(left.code, Some(130), "{}", left.err);
    assert!(left.err.contains("gradus resume") && left.err.contains("gradus stop"), "{}", left.err);
    assert_eq!(home.pids(" agent ").len(), 1, "the agent goes on");
    let resumed = home.gradus(&["run", text(&job), "--json"]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.err);
    assert_eq!(resumed.last()["attempts"], 1, "the agent was adopted again, and nothing was started twice");
}

#[test]
fn a_command_runs_in_the_folder_of_a_run_that_goes_on() {
    let home = Home::new();
    let exec = |arguments: &[&str]| {
        // What follows the command is its own.
        let mut command = home.command(&[]);
        command.arg("exec").args(arguments);
        said(command.output().unwrap())
    };
    assert_eq!(exec(&["last", "true"]).code, Some(102));
    let job = home.job("gated.yaml", &format!("{}setup: touch made\n", gated()));
    assert_eq!(home.gradus(&["run", text(&job), "--detach"]).code, Some(0));
    home.until("a running run", || home.state() == "running");
    let found = exec(&["last", "ls; echo $GRADUS_RUN $NODE_RANK; echo away >&2; exit 7"]);
    assert_eq!((found.code, found.err.as_str()), (Some(7), "away\n"));
    let lines: Vec<&str> = found.out.lines().collect();
    assert!(matches!(lines[..], ["made", run] if run.starts_with("gated-") && run.ends_with(" 0")), "{lines:?}");
    let found = exec(&["--json", "last", "echo", "one"]);
    assert_eq!(found.last(), serde_json::json!({ "node": 0, "stream": "stdout", "line": "one" }));
    let found = exec(&["--node", "3", "last", "true"]);
    assert!(found.code == Some(2) && found.err.contains("no machine of node rank 3"), "{}", found.err);
    let found = home.gradus(&["forward", "last", "6006"]);
    assert!(found.code == Some(2) && found.err.contains("its port is at `localhost:6006`"), "{}", found.err);
    home.open_gate();
    home.until("its end", || home.state() == "succeeded");
    let found = exec(&["last", "true"]);
    assert!(found.code == Some(2) && found.err.contains("has no machine that is up"), "{}", found.err);
}

/// A program that logs no step, and has a process in a session of its own, as torchrun has its workers.
const UNLOGGED: &str = "name: unlogged\nrun: |\n  setsid sleep 600 &\n  sleep 600\n  true\n";

/// Times [`UNLOGGED`] until this signal.
fn profile_ended_by(home: &Home, name: &str) -> Said {
    let job = home.job("unlogged.yaml", UNLOGGED);
    let running = home.start(&["plan", text(&job), "--profile", "3"]);
    home.until("a program", || home.pids("sleep 600").len() == 2);
    signal(running.id(), name);
    said(running.wait_with_output().unwrap())
}

/// The folders of profiles.
fn profiles(home: &Home) -> usize {
    let names = fs::read_dir(home.path().join("cache")).unwrap().flatten().map(|entry| entry.file_name());
    names.filter(|name| name.to_string_lossy().starts_with("profile-")).count()
}

#[test]
fn a_profile_that_is_interrupted_leaves_nothing() {
    for name in ["INT", "TERM", "HUP"] {
        let home = Home::new();
        let ended = profile_ended_by(&home, name);
        assert_eq!(ended.code, Some(130), "{name}: {}", ended.err);
        assert!(ended.err.contains("interrupted; the program was ended"), "{}", ended.err);
        assert_eq!(profiles(&home), 0, "{name}");
        home.until("the program's end", || home.pids("").is_empty());
    }
}

#[test]
fn a_profile_that_is_killed_ends_its_program() {
    let home = Home::new();
    assert_eq!(profile_ended_by(&home, "KILL").code, None);
    home.until("the program's end", || home.pids("").is_empty());
    assert_eq!(profiles(&home), 1);
    let job = home.job("fails.yaml", "name: fails\nrun: exit 3\n");
    let next = home.gradus(&["plan", text(&job), "--profile", "3"]);
    assert!(next.code == Some(100) && next.err.contains("ended with code 3"), "{}", next.err);
    assert_eq!(profiles(&home), 0, "the next one removes what is left");
}
