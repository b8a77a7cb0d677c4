//! The processes of hosts, read from `/proc`: a file of process ids could not be right after a crash.
//!
//! The first processes of a host carry its mark among their arguments, and a network namespace is shared by whatever
//! they start. So a host's processes are the marked ones and all in their namespaces.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Done;
use super::names::Host;

/// Timeout for killed processes to exit.
const PATIENCE: Duration = Duration::from_secs(20);

/// One process of the machine.
#[derive(Debug, Clone, PartialEq)]
struct Process {
    id: u32,
    /// The network namespace; none of a zombie.
    network: Option<u64>,
    arguments: Vec<String>,
    /// Whether it is the first of a namespace of process ids directly below ours.
    is_init: bool,
}

/// The first process of a host, which everything on it descends from; none while the host is off.
pub fn init(host: &Host) -> Option<u32> {
    let all = all();
    let found = of_hosts(&all, own(), |mark| mark == host.mark);
    found.into_iter().find(|process| process.is_init).map(|process| process.id)
}

/// Kills everything on the hosts whose mark is chosen, until no process remains; returns how many there were at first.
pub fn end(chosen: impl Fn(&str) -> bool) -> Done<usize> {
    let began = Instant::now();
    let mut first = None;
    loop {
        let all = all();
        let ids: Vec<String> = of_hosts(&all, own(), &chosen).iter().map(|process| process.id.to_string()).collect();
        let count = *first.get_or_insert(ids.len());
        if ids.is_empty() {
            return Ok(count);
        }
        if began.elapsed() > PATIENCE {
            let hint = "`cat /proc/ID/stack` shows what a process waits for in the kernel";
            return Err(format!("processes {} survive SIGKILL\n  hint: {hint}", ids.join(", ")).into());
        }
        // Those that ended meanwhile make `kill` fail, and the next look decides.
        let _ = Command::new("kill").arg("-KILL").args(&ids).stderr(Stdio::null()).status();
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The marked processes, and those in their network namespaces. `own` is the machine's own namespace, in which a host's
/// first process is for an instant.
fn of_hosts(all: &[Process], own: Option<u64>, chosen: impl Fn(&str) -> bool) -> Vec<&Process> {
    let is_marked = |process: &Process| process.arguments.iter().any(|argument| chosen(argument));
    let networks: BTreeSet<u64> = all.iter().filter(|process| is_marked(process)).filter_map(|p| p.network).collect();
    let is_inside = |process: &Process| {
        process.network != own && process.network.is_some_and(|network| networks.contains(&network))
    };
    all.iter().filter(|process| is_inside(process) || (is_marked(process) && process.network.is_some())).collect()
}

fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.map(|id| {
        let text = |name: &str| fs::read(format!("/proc/{id}/{name}")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&text("cmdline")).split('\0').map(str::to_owned).collect();
        let is_init = is_first(&String::from_utf8_lossy(&text("status")));
        Process { id, network: network(&id.to_string()), arguments, is_init }
    })
    .collect()
}

fn own() -> Option<u64> {
    network("self")
}

fn network(process: &str) -> Option<u64> {
    fs::metadata(format!("/proc/{process}/ns/net")).ok().map(|namespace| namespace.ino())
}

/// Whether `status` is of a process that has number 1 in a namespace directly below ours.
fn is_first(status: &str) -> bool {
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let ids: Vec<&str> = ids.unwrap_or_default().split_whitespace().collect();
    matches!(ids.as_slice(), [_, "1"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_process_of_a_namespace_is_known() {
        assert!(is_first("Name:\tsshd\nNSpid:\t812\t1\n"));
        for other in ["NSpid:\t1\n", "NSpid:\t812\t2\n", "NSpid:\t812\t7\t1\n", ""] {
            assert!(!is_first(other), "{other}");
        }
    }

    #[test]
    fn a_host_is_all_that_shares_its_network() {
        let process = |id, network, argument: &str| Process {
            id,
            network,
            arguments: vec!["sh".into(), argument.into()],
            is_init: false,
        };
        let all = [
            process(1, Some(7), "init"),
            // Has not left our namespace yet.
            process(2, Some(7), "lab:host-1"),
            process(3, Some(8), "lab:host-1"),
            process(4, Some(8), "-c"),
            process(5, Some(9), "lab:host-11"),
            process(6, None, "lab:host-1"),
        ];
        let check = |chosen: &dyn Fn(&str) -> bool, expected: &[u32]| {
            let found: Vec<u32> = of_hosts(&all, Some(7), chosen).iter().map(|process| process.id).collect();
            assert_eq!(found, expected);
        };
        check(&|mark| mark == "lab:host-1", &[2, 3, 4]);
        check(&|mark| mark.starts_with("lab:host-"), &[2, 3, 4, 5]);
        check(&|_| false, &[]);
    }
}
