//! Loops and agents of two versions, with the executables of both. `cargo xtask versions` builds the other one, and names it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::home::{Home, gated, said, signal, text};

/// The executables of this version and of the other.
fn versions() -> [PathBuf; 2] {
    #[allow(clippy::disallowed_methods, reason = "a test is told where its other executable is")]
    let other = std::env::var_os("GRADUS_OTHER_VERSION").expect("`cargo xtask versions` sets GRADUS_OTHER_VERSION");
    [env!("CARGO_BIN_EXE_gradus").into(), other.into()]
}

/// Whether a process executes this file.
fn executes(pid: u32, program: &Path) -> bool {
    let file = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    file(program).is_some_and(|program| file(Path::new(&format!("/proc/{pid}/exe"))) == Some(program))
}

#[test]
#[ignore = "needs an executable of another version: `cargo xtask versions`"]
fn a_loop_of_this_version_adopts_an_agent_of_the_version_before() {
    let [this, other] = versions();
    let home = Home::new();
    let job = home.job("gated.yaml", &gated());
    let before = home.start_with(&other, &["run", text(&job)]);
    home.until("a running run", || home.state() == "running");
    let agents = home.pids(" agent ");
    assert!(agents.len() == 1 && executes(agents[0], &other), "{agents:?}");
    signal(before.id(), "KILL");
    said(before.wait_with_output().unwrap());
    let after = home.start_with(&this, &["resume", "last", "--json"]);
    home.until("the loop of this version", || home.is_loop(after.id()));
    home.open_gate();
    let after = said(after.wait_with_output().unwrap());
    assert_eq!(after.code, Some(0), "{}", after.err);
    assert_eq!(after.last()["attempts"], 1, "the agent was adopted, and nothing was started twice");
    home.until("the agent's end", || home.pids(" agent ").is_empty());
}

/// The executable is replaced while its loop runs, as an installation does: agents that the loop starts from then on are
/// of the new version.
fn replaced(before: &Path, after: &Path) {
    let home = Home::new();
    let program = home.path().with_file_name("gradus");
    fs::copy(before, &program).unwrap();
    let (first, second) = (home.job("first.yaml", &gated()), home.job("second.yaml", &gated()));
    let first = home.start_with(&program, &["run", text(&first)]);
    home.until("a running run", || home.state() == "running");
    let second = home.start_with(&program, &["run", text(&second), "--json"]);
    home.until("a queued run", || home.state() == "queued");
    let new = home.path().with_file_name("new");
    fs::copy(after, &new).unwrap();
    fs::rename(&new, &program).unwrap();
    home.open_gate();
    home.until("an agent of the other version", || home.pids(" agent ").iter().any(|pid| executes(*pid, &program)));
    home.until("the second run", || home.state() == "running");
    home.open_gate();
    let [first, second] = [first, second].map(|run| said(run.wait_with_output().unwrap()));
    assert_eq!(first.code, Some(0), "{}", first.err);
    assert_eq!(second.code, Some(0), "{}", second.err);
    assert_eq!(second.last()["attempts"], 1);
    assert!(home.gradus(&["logs", "last"]).out.contains("went through"));
    home.until("the agents' end", || home.pids(" agent ").is_empty());
}

#[test]
#[ignore = "needs an executable of another version: `cargo xtask versions`"]
fn a_loop_of_the_version_before_starts_agents_of_this_one() {
    let [this, other] = versions();
    replaced(&other, &this);
}

#[test]
#[ignore = "needs an executable of another version: `cargo xtask versions`"]
fn a_loop_of_this_version_starts_agents_of_the_version_before() {
    let [this, other] = versions();
    replaced(&this, &other);
}
