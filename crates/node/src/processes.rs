//! Finds the processes of an instance: those whose environment carries its tag.
//!
//! The tag is set for the agent and inherited by all its descendants, whatever session or parent a process has moved
//! to. A process is signalled through a pidfd that was opened before its tag was read, so a reused process id is never
//! signalled.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

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
