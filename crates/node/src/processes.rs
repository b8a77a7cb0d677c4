//! Finds the processes of an instance: those whose environment carries its tag.
//!
//! The tag is set for the agent and inherited by all its descendants, whatever session or parent a process has moved
//! to. A process is signalled through a pidfd that was opened before its tag was read, so a reused process id is never
//! signalled.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, getuid, pidfd_open, pidfd_send_signal};

/// The variable that names the owner.
pub const OWNER: &str = "GRADUS_OWNER";

/// The variable that names the instance.
pub const INSTANCE: &str = "GRADUS_INSTANCE";

/// Whether a process carries `variable` with `value`, the caller aside.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn any(variable: &str, value: &str) -> io::Result<bool> {
    let tag = tag(variable, value);
    Ok(others()?.any(|pid| has(pid, &tag)))
}

/// The numbers of the processes that carry `variable` with `value`, the caller aside, in ascending order.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn numbers(variable: &str, value: &str) -> io::Result<Vec<i32>> {
    let tag = tag(variable, value);
    let mut numbers: Vec<i32> = others()?.filter(|pid| has(*pid, &tag)).map(Pid::as_raw_pid).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Sends `signal` to every other process that carries `variable` with `value`, and returns their number.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn signal(variable: &str, value: &str, signal: Signal) -> io::Result<usize> {
    let tag = tag(variable, value);
    let mut count = 0;
    for pid in others()? {
        let tagged = has(pid, &tag).then(|| pidfd_open(pid, PidfdFlags::empty()));
        let Some(Ok(handle)) = tagged else { continue };
        if has(pid, &tag) && pidfd_send_signal(handle, signal).is_ok() {
            count += 1;
        }
    }
    Ok(count)
}

/// Sends `signal` to one process, if it carries `variable` with `value`; returns whether it did.
pub fn signal_one(pid: i32, variable: &str, value: &str, signal: Signal) -> bool {
    let tag = tag(variable, value);
    let handle: Option<OwnedFd> = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let (Some(handle), Some(pid)) = (handle, Pid::from_raw(pid)) else { return false };
    has(pid, &tag) && pidfd_send_signal(handle, signal).is_ok()
}

/// The values of `wanted` among the processes that carry `variable` with `value`.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn values(variable: &str, value: &str, wanted: &str) -> io::Result<BTreeSet<String>> {
    let tag = tag(variable, value);
    let prefix = format!("{wanted}=");
    let mut values = BTreeSet::new();
    for pid in others()? {
        let environment = environment(pid);
        let mut entries = environment.split(|byte| *byte == 0);
        if !entries.clone().any(|entry| entry == tag) {
            continue;
        }
        let found = entries.find_map(|entry| entry.strip_prefix(prefix.as_bytes()));
        values.extend(found.map(|value| String::from_utf8_lossy(value).into_owned()));
    }
    Ok(values)
}

/// The numbers of the processes whose owner is the caller's, or of all where that is root; the caller aside.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn reachable() -> io::Result<Vec<i32>> {
    let own = getuid();
    let is_own = |pid: &Pid| {
        own.is_root() || fs::metadata(format!("/proc/{pid}")).is_ok_and(|entry| entry.uid() == own.as_raw())
    };
    Ok(others()?.filter(is_own).map(Pid::as_raw_pid).collect())
}

/// The processor time of processes, with that of their children that were waited for. Those that have ended count nothing.
pub fn cpu_time(pids: &[i32]) -> Duration {
    let ticks: u64 = pids.iter().filter_map(|pid| ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)).sum();
    Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second().max(1) as f64)
}

/// Fields 14 to 17 of `/proc/PID/stat` (`man 5 proc`): in user and kernel mode, by itself and by its children. Its name,
/// which may hold spaces and brackets, ends at the last bracket.
fn ticks(stat: &str) -> Option<u64> {
    let fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(4);
    fields.map(|field| field.parse::<u64>().ok()).sum()
}

fn tag(variable: &str, value: &str) -> Vec<u8> {
    format!("{variable}={value}").into_bytes()
}

fn others() -> io::Result<impl Iterator<Item = Pid>> {
    let own = getpid();
    let entries = fs::read_dir("/proc")?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw));
    Ok(pids.filter(move |pid| *pid != own))
}

fn has(pid: Pid, tag: &[u8]) -> bool {
    environment(pid).split(|byte| *byte == 0).any(|entry| entry == tag)
}

/// Empty for a process that has ended, whether or not it was waited for, and for other people's.
fn environment(pid: Pid) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/environ")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn processor_time_is_that_of_a_process_and_of_its_children() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 200 300 0 0 25 5 60 10 20 0 1 0 9 10 11";
        assert_eq!(ticks(stat), Some(100));
        assert_eq!(ticks("no stat"), None);
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap();
        let pid = i32::try_from(busy.id()).unwrap();
        let used = std::iter::repeat_with(|| {
            std::thread::sleep(Duration::from_millis(20));
            cpu_time(&[pid])
        });
        let grows = used.take(3_000).any(|used| used >= Duration::from_millis(50));
        let is_reachable = reachable().unwrap().contains(&pid);
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert!(grows && is_reachable);
        assert_eq!(cpu_time(&[pid]), Duration::ZERO, "one that has ended counts nothing");
    }
}
