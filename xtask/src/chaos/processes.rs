//! The processes of a run, found by what stands on their command lines.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::storm::Target;

/// A process of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub role: Role,
}

/// The role of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    Loop,
    /// With the name of its instance.
    Agent(String),
    Rank,
}

/// Every living process of the run whose state is in `home`.
pub fn of(home: &Path) -> Vec<Process> {
    let home = home.to_string_lossy();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let process = |pid: u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words: Vec<String> =
            line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let at = words.iter().find(|word| word.starts_with(&*home))?;
        let role = if words.first()?.ends_with("gradus-rank") {
            Role::Rank
        } else if words.get(1).is_some_and(|word| word == "agent") {
            Role::Agent(Path::new(at).file_name()?.to_string_lossy().into_owned())
        } else if words.first()?.ends_with("gradus") {
            Role::Loop
        } else {
            return None;
        };
        Some(Process { pid, role })
    };
    pids.filter_map(process).collect()
}

/// Kills everything that a target names, at once; returns how many processes that were.
pub fn kill(home: &Path, target: Target) -> usize {
    let is_target = |role: &Role| match target {
        Target::Rank => *role == Role::Rank,
        Target::Agent => matches!(role, Role::Agent(_)),
        Target::Loop => *role == Role::Loop,
        Target::All => true,
    };
    let pids: Vec<String> =
        of(home).iter().filter(|process| is_target(&process.role)).map(|process| process.pid.to_string()).collect();
    if !pids.is_empty() {
        let _ = Command::new("kill").arg("-9").args(&pids).stderr(std::process::Stdio::null()).status();
    }
    pids.len()
}

/// When each instance's agent was first and last seen alive, in seconds on the harness' own clock.
#[derive(Debug, Default, Clone)]
pub struct Sightings(pub BTreeMap<String, (f64, f64)>);

impl Sightings {
    /// Notes the processes that are alive now.
    pub fn look(&mut self, home: &Path, now: f64) {
        for process in of(home) {
            if let Role::Agent(instance) = process.role {
                self.0.entry(instance).or_insert((now, now)).1 = now;
            }
        }
    }
}
