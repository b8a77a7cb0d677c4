//! Containers of an instance: which runtime a machine has, and ending them by name.
//!
//! A container belongs to its runtime and not to the agent that has asked for it, so it outlives a killed agent. The agent
//! writes each name into the instance's folder before it starts the container; whoever finds the agent gone ends what is
//! written there, and the instance counts as gone once the runtime knows none of these names.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::facts::ask::ask;
use crate::folder::{Folder, found};

/// The file in an instance's folder that lists its containers, one per line.
const LIST: &str = "containers";

/// How long a runtime may take to answer.
const WITHIN: Duration = Duration::from_secs(30);

/// A kind of runtime; the first that a machine has is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContainerEngine {
    /// podman, with or without root.
    Podman,
    /// docker, by its daemon.
    Docker,
}

impl ContainerEngine {
    /// The name of its program.
    pub const fn name(self) -> &'static str {
        match self {
            ContainerEngine::Podman => "podman",
            ContainerEngine::Docker => "docker",
        }
    }
}

/// A runtime of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRuntime {
    /// Which it is.
    pub engine: ContainerEngine,
    /// The path of its program.
    pub program: String,
}

impl ContainerRuntime {
    /// The runtime that this machine has, if it has one.
    pub fn find() -> Option<ContainerRuntime> {
        [ContainerEngine::Podman, ContainerEngine::Docker].into_iter().find_map(|engine| {
            let found = ask("sh", &["-c", &format!("command -v {}", engine.name())], WITHIN).ok()?;
            let program = found.trim().to_owned();
            // An alias or a function is no program.
            program.starts_with('/').then_some(ContainerRuntime { engine, program })
        })
    }

    /// What the runtime prints to these arguments; else why there is nothing.
    ///
    /// # Errors
    /// A sentence with the first line that it has said.
    pub fn ask(&self, arguments: &[&str]) -> Result<String, String> {
        ask(&self.program, arguments, WITHIN)
    }

    /// Kills and removes a container. Returns whether it is proved that there is none of this name any more.
    pub fn end(&self, name: &str) -> bool {
        // One that does not run cannot be killed, and one that is removed at its end is gone by then.
        let _ = self.ask(&["kill", "--signal", "KILL", name]);
        let _ = self.ask(&["rm", "--force", name]);
        match self.is_listed(&["ps", "--all"], name) {
            Ok(is_there) => !is_there,
            // A runtime that was uninstalled runs nothing.
            Err(_) => !Path::new(&self.program).exists(),
        }
    }

    /// Whether a container of this name runs.
    ///
    /// # Errors
    /// A sentence with the first line that the runtime has said.
    pub fn runs(&self, name: &str) -> Result<bool, String> {
        self.is_listed(&["ps"], name)
    }

    fn is_listed(&self, which: &[&str], name: &str) -> Result<bool, String> {
        let filter = format!("name={name}");
        let listed = self.ask(&[which, &["--format", "{{.Names}}", "--filter", filter.as_str()]].concat())?;
        Ok(lists(&listed, name))
    }
}

/// Whether a runtime's list has the container of this name; the filter also finds longer ones. Only a list that was
/// printed proves anything: an error may come of a daemon that is away for a moment, and podman warns of much else.
fn lists(listed: &str, name: &str) -> bool {
    listed.lines().flat_map(|line| line.split(',')).any(|one| one.trim() == name)
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ListedContainer {
    #[serde(flatten)]
    runtime: ContainerRuntime,
    name: String,
}

/// Writes down in an instance's folder that a container is about to be started.
///
/// # Errors
/// If the list cannot be written; then nothing may be started.
pub fn record(folder: &Path, runtime: &ContainerRuntime, name: &str) -> io::Result<()> {
    let mut line = serde_json::to_string(&ListedContainer { runtime: runtime.clone(), name: name.to_owned() })?;
    line.push('\n');
    let mut file = OpenOptions::new().create(true).append(true).open(list(folder))?;
    file.write_all(line.as_bytes())?;
    file.sync_all()
}

/// Ends every container that is written down in an instance's folder. Returns whether one may still be there.
///
/// # Errors
/// If the list cannot be read or removed.
pub fn end_all(folder: &Path) -> io::Result<bool> {
    let Some(text) = found(fs::read_to_string(list(folder)))? else { return Ok(false) };
    // A line that was cut short was never acted on.
    let listed = text.lines().filter_map(|line| serde_json::from_str::<ListedContainer>(line).ok());
    let left = listed.filter(|one| !one.runtime.end(&one.name)).count();
    if left == 0 {
        found(fs::remove_file(list(folder)))?;
    }
    Ok(left > 0)
}

/// Ends the containers of instances in the folder `instances` whose agents are gone. What cannot be ended now is left to
/// their provider.
pub fn end_leftovers(instances: &Path) {
    let folders = fs::read_dir(instances).into_iter().flatten().flatten().map(|entry| entry.path());
    for folder in folders.filter(|folder| list(folder).is_file()) {
        if matches!(Folder::new(&folder).is_held(), Ok(false)) {
            let _ = end_all(&folder);
        }
    }
}

fn list(folder: &Path) -> PathBuf {
    folder.join(LIST)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A runtime that keeps each container as a file beside itself, and cannot remove those that are called `stuck`.
    fn stand_in(folder: &Path) -> ContainerRuntime {
        let program = folder.join("podman");
        let script = "#!/bin/sh
here=$(dirname \"$0\")
for name; do :; done
echo \"$*\" >> \"$here/asked\"
case $1 in
  rm) [ \"$name\" = stuck ] || rm -f \"$here/$name\" ;;
  ps)
    echo 'time=\"now\" level=warning msg=\"there is no systemd user session available\"' >&2
    [ -e \"$here/away\" ] && exit 125
    [ ! -e \"$here/${name#name=}\" ] || echo \"${name#name=}\"
    ;;
esac
";
        // Written by another process: while a child that another test starts has the file open, nobody can execute it.
        let draft = folder.join("draft");
        fs::write(&draft, script).unwrap();
        let install = Command::new("install").args(["-m", "755"]).arg(&draft).arg(&program).status().unwrap();
        assert!(install.success());
        ContainerRuntime { engine: ContainerEngine::Podman, program: program.display().to_string() }
    }

    #[test]
    fn what_is_written_down_is_ended_by_name_and_proved() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = stand_in(folder.path());
        assert!(!end_all(folder.path()).unwrap(), "there was none");
        for name in ["one", "stuck"] {
            record(folder.path(), &runtime, name).unwrap();
            fs::write(folder.path().join(name), "").unwrap();
        }
        fs::OpenOptions::new().append(true).open(list(folder.path())).unwrap().write_all(b"{\"eng").unwrap();
        assert!(end_all(folder.path()).unwrap(), "one is still there");
        assert!(!folder.path().join("one").exists() && list(folder.path()).exists());
        fs::remove_file(folder.path().join("stuck")).unwrap();
        assert!(!end_all(folder.path()).unwrap());
        assert!(!list(folder.path()).exists());
        let asked = fs::read_to_string(folder.path().join("asked")).unwrap();
        assert!(asked.starts_with("kill --signal KILL one\nrm --force one\nps --all "), "{asked}");
    }

    #[test]
    fn only_what_agents_that_are_gone_have_left_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = stand_in(folder.path());
        let instances = folder.path().join("instances");
        for name in ["gone", "alive"] {
            fs::create_dir_all(instances.join(name)).unwrap();
            record(&instances.join(name), &runtime, name).unwrap();
            fs::write(folder.path().join(name), "").unwrap();
        }
        let held = Folder::new(instances.join("alive")).lock().unwrap().unwrap();
        end_leftovers(&instances);
        let is_there = |name: &str| folder.path().join(name).exists();
        assert!(!is_there("gone") && is_there("alive"));
        // Also for a process that another test is about to start, which has a copy of it.
        held.into_file().unlock().unwrap();
        end_leftovers(&instances);
        assert!(!is_there("alive"));
        end_leftovers(Path::new("/nonexistent"));
    }

    #[test]
    fn a_runtime_that_does_not_answer_proves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = stand_in(folder.path());
        assert!(runtime.end("one"));
        fs::write(folder.path().join("away"), "").unwrap();
        assert!(!runtime.end("one"));
        fs::remove_file(&runtime.program).unwrap();
        assert!(runtime.end("one"), "it was uninstalled");
        for (listed, expected) in
            [("", false), ("one\n", true), ("one-more\nsome-one\n", false), ("x/alias,one\n", true)]
        {
            assert_eq!(lists(listed, "one"), expected, "{listed:?}");
        }
    }
}
