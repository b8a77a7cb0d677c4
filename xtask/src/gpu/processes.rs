//! Ends what a section has left running: its own group, and whatever else runs an executable of the pack in a session of
//! its own, as agents and ranks do.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Ends the process group `group` and every process, but this one, whose executable lies in `folder`.
pub fn end(group: u32, folder: &Path) {
    kill(&[format!("-{group}")]);
    let own = std::process::id();
    for _ in 0..5 {
        let left: Vec<String> = of(folder).into_iter().filter(|pid| *pid != own).map(|pid| pid.to_string()).collect();
        if left.is_empty() {
            return;
        }
        kill(&left);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// The processes whose executable lies in `folder`.
pub fn of(folder: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let runs_from_it =
        |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|program| program.starts_with(folder));
    pids.filter(runs_from_it).collect()
}

fn kill(targets: &[String]) {
    let _ = Command::new("kill").args(["-KILL", "--"]).args(targets).stderr(Stdio::null()).status();
}
