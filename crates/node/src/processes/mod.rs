//! Finds the processes of an instance: those whose environment carries its tags.
//!
//! The tags are set for the agent and inherited by all its descendants, whatever session or parent a process has moved
//! to. A process is signalled through a pidfd that was opened before its tags were read, so a reused process id is never
//! signalled. The name of an instance or attempt is unique within one owner only, so the owner is asked for as well.

pub mod containers;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, PidfdFlags, Signal, getpgid, getpid, kill_process_group, pidfd_open, pidfd_send_signal};

/// The variable that names the owner.
pub const OWNER: &str = "GRADUS_OWNER";

/// The variable that names the instance.
pub const INSTANCE: &str = "GRADUS_INSTANCE";

/// Variables of the environment and their values; a process is meant if it carries all of them.
pub type Tags<'a> = [(&'a str, &'a str)];

/// Whether a process carries `tags`, the caller aside.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn any(tags: &Tags) -> io::Result<bool> {
    Ok(one(tags, None)?.is_some())
}

/// The number of a process that carries `tags`, the caller aside: `before` if it still does, so that a process that is
/// waited for is looked at alone, and not every one of the machine.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn one(tags: &Tags, before: Option<i32>) -> io::Result<Option<i32>> {
    let tags = entries(tags);
    if let Some(pid) = before.and_then(Pid::from_raw).filter(|pid| has(*pid, &tags)) {
        return Ok(Some(pid.as_raw_pid()));
    }
    Ok(others()?.find(|pid| has(*pid, &tags)).map(Pid::as_raw_pid))
}

/// The numbers of the processes that carry `tags`, the caller aside, in ascending order.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn numbers(tags: &Tags) -> io::Result<Vec<i32>> {
    let tags = entries(tags);
    let mut numbers: Vec<i32> = others()?.filter(|pid| has(*pid, &tags)).map(Pid::as_raw_pid).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The numbers of those of them that stand still since a signal such as SIGSTOP has stopped them.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn stopped(tags: &Tags) -> io::Result<Vec<i32>> {
    let state = |pid: &i32| Some(fields(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?.next()?.to_owned());
    Ok(numbers(tags)?.into_iter().filter(|pid| state(pid).as_deref() == Some("T")).collect())
}

/// Sends `signal` to every other process that carries `tags`, and returns their number.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn signal(tags: &Tags, signal: Signal) -> io::Result<usize> {
    let tags = entries(tags);
    let mut count = 0;
    for pid in others()? {
        let tagged = has(pid, &tags).then(|| pidfd_open(pid, PidfdFlags::empty()));
        let Some(Ok(handle)) = tagged else { continue };
        if has(pid, &tags) && pidfd_send_signal(handle, signal).is_ok() {
            count += 1;
        }
    }
    Ok(count)
}

/// Sends `signal` once to each process of the group of `leader`, and to each other one that carries `variable` with
/// `value`. What they start in answer to it does not get it. Only for a leader that was not reaped.
///
/// # Errors
/// If `/proc` cannot be read; the group has got the signal all the same.
pub fn signal_once(leader: Pid, tags: &Tags, signal: Signal) -> io::Result<()> {
    let tags = entries(tags);
    let beside = |pid: &Pid| getpgid(Some(*pid)).is_ok_and(|group| group != leader);
    // Looked for before the first one gets it: processes that a handler starts come later.
    let outside: io::Result<Vec<OwnedFd>> = others().map(|pids| {
        let handles = pids.filter(|pid| beside(pid) && has(*pid, &tags)).filter_map(|pid| {
            let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
            has(pid, &tags).then_some(handle)
        });
        handles.collect()
    });
    // A group whose processes have all ended is what is wanted.
    let _ = kill_process_group(leader, signal);
    for handle in outside? {
        let _ = pidfd_send_signal(handle, signal);
    }
    Ok(())
}

/// Sends `signal` to one process, if it carries `tags`; returns whether it did.
pub fn signal_one(pid: i32, tags: &Tags, signal: Signal) -> bool {
    let tags = entries(tags);
    let handle: Option<OwnedFd> = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let (Some(handle), Some(pid)) = (handle, Pid::from_raw(pid)) else { return false };
    has(pid, &tags) && pidfd_send_signal(handle, signal).is_ok()
}

/// The values of `wanted` among the processes that carry `tags`.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn values(tags: &Tags, wanted: &str) -> io::Result<BTreeSet<String>> {
    let tags = entries(tags);
    let prefix = format!("{wanted}=");
    let mut values = BTreeSet::new();
    for pid in others()? {
        let environment = environment(pid);
        if !holds(&environment, &tags) {
            continue;
        }
        let found = environment.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(prefix.as_bytes()));
        values.extend(found.map(|value| String::from_utf8_lossy(value).into_owned()));
    }
    Ok(values)
}

/// The numbers of all processes, the caller aside.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn all() -> io::Result<Vec<i32>> {
    Ok(others()?.map(Pid::as_raw_pid).collect())
}

/// The numbers of the processes that carry `tags`, and of all their descendants, which may be another
/// user's or have overwritten their environment; the caller aside.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn family(tags: &Tags) -> io::Result<Vec<i32>> {
    let tagged: BTreeSet<i32> = numbers(tags)?.into_iter().collect();
    let stat = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    let parents: BTreeMap<i32, i32> =
        all()?.into_iter().filter_map(|pid| Some((pid, fields(&stat(&pid)?)?.nth(1)?.parse().ok()?))).collect();
    let is_of = |pid: &i32| {
        let line = std::iter::successors(Some(*pid), |pid| parents.get(pid).copied());
        line.take(parents.len() + 1).any(|ancestor| tagged.contains(&ancestor))
    };
    Ok(parents.keys().copied().filter(is_of).collect())
}

/// The processor time of processes, with that of their children that were waited for. Those that have ended count nothing.
pub fn cpu_time(pids: &[i32]) -> Duration {
    let ticks: u64 = pids.iter().filter_map(|pid| ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)).sum();
    Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second().max(1) as f64)
}

/// In user and kernel mode, by itself and by its children: fields 14 to 17.
fn ticks(stat: &str) -> Option<u64> {
    fields(stat)?.skip(11).take(4).map(|field| field.parse::<u64>().ok()).sum()
}

/// The fields of `/proc/PID/stat` from the third on (`man 5 proc`). The second, its name, may hold spaces and brackets.
fn fields(stat: &str) -> Option<impl Iterator<Item = &str>> {
    Some(stat.rsplit_once(')')?.1.split_whitespace())
}

/// The tags as they stand in an environment.
fn entries(tags: &Tags) -> Vec<Vec<u8>> {
    tags.iter().map(|(variable, value)| format!("{variable}={value}").into_bytes()).collect()
}

fn others() -> io::Result<impl Iterator<Item = Pid>> {
    let own = getpid();
    let entries = fs::read_dir("/proc")?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw));
    Ok(pids.filter(move |pid| *pid != own))
}

fn has(pid: Pid, tags: &[Vec<u8>]) -> bool {
    holds(&environment(pid), tags)
}

fn holds(environment: &[u8], tags: &[Vec<u8>]) -> bool {
    tags.iter().all(|tag| environment.split(|byte| *byte == 0).any(|entry| entry == tag))
}

/// Empty for a process that has ended, whether or not it was waited for, and for other people's.
fn environment(pid: Pid) -> Vec<u8> {
    let path = format!("/proc/{pid}/environ");
    let mut empty_looks = 0;
    for _ in 0..EXEC_LOOKS {
        match read_at_once(&path) {
            Ok(environment) if environment.is_empty() => match environment_place(pid) {
                EnvironmentPlace::None => return environment,
                EnvironmentPlace::Empty if empty_looks == 2 => return environment,
                EnvironmentPlace::Empty => empty_looks += 1,
                EnvironmentPlace::Moving => {}
            },
            read => return read.unwrap_or_default(),
        }
        std::thread::sleep(EXEC_PAUSE);
    }
    Vec::new()
}

/// The contents of a file of `/proc` by one call. By several, it ends early if the process executes another program between
/// them.
fn read_at_once(path: &str) -> io::Result<Vec<u8>> {
    let mut contents = vec![0; 64 << 10];
    loop {
        let length = fs::File::open(path)?.read(&mut contents)?;
        if length < contents.len() {
            contents.truncate(length);
            return Ok(contents);
        }
        contents.resize(length * 2, 0);
    }
}

/// How often a process in the middle of `execve` is looked at again.
const EXEC_LOOKS: u32 = 200;

/// Time between two looks at a process in the middle of `execve`.
const EXEC_PAUSE: Duration = Duration::from_millis(1);

/// What a process has whose environment was read as empty.
enum EnvironmentPlace {
    /// It has ended, or is a thread of the kernel.
    None,
    /// Its environment is empty; for a moment of `execve`, any looks so.
    Empty,
    /// `execve` exchanged its memory after the file was opened, or has not yet placed the environment in the new one.
    Moving,
}

/// By fields 23, 50 and 51 of `/proc/PID/stat` (`man 5 proc`): size of the memory, where the environment starts and ends.
fn environment_place(pid: Pid) -> EnvironmentPlace {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return EnvironmentPlace::None };
    let field = |number: usize| fields(&stat)?.nth(number - 3)?.parse::<u64>().ok();
    match (field(23), field(50), field(51)) {
        (None | Some(0), ..) => EnvironmentPlace::None,
        (_, start, end) if start == end && end.is_some_and(|end| end > 0) => EnvironmentPlace::Empty,
        _ => EnvironmentPlace::Moving,
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;
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
        let is_there = all().unwrap().contains(&pid);
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert!(grows && is_there);
        assert_eq!(cpu_time(&[pid]), Duration::ZERO, "one that has ended counts nothing");
    }

    #[test]
    fn a_process_that_a_signal_has_stopped_is_told_from_one_that_waits() {
        let mut child = Command::new("sleep").arg("60").env("GRADUS_TEST_STOPPED", "a").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let tags = [("GRADUS_TEST_STOPPED", "a")];
        let until = |expected: &[i32]| {
            let looks = std::iter::repeat_with(|| {
                std::thread::sleep(Duration::from_millis(20));
                (numbers(&tags).unwrap(), stopped(&tags).unwrap())
            });
            looks.take(500).any(|(all, still)| all == [pid] && still == expected)
        };
        let runs = until(&[]);
        signal_one(pid, &tags, Signal::STOP);
        let stands_still = until(&[pid]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(runs && stands_still);
    }

    #[test]
    fn each_process_gets_a_signal_once_and_what_a_handler_starts_gets_none() {
        use std::os::unix::process::CommandExt;
        let folder = tempfile::tempdir().unwrap();
        let counted = |name: &str| {
            let path = folder.path().join(name).display().to_string();
            format!(
                "trap 'echo got >> {path}; sleep 0.3 && echo saved >> {path}; exit 0' TERM; echo up; while :; do sleep 0.01; done"
            )
        };
        // One in the group, and one in a session of its own.
        let script = format!("setsid bash -c \"{}\" & {}", counted("outside"), counted("inside"));
        let mut shell = Command::new("bash");
        shell.args(["-c", &script]).env("GRADUS_TEST_ONCE", "a").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = shell.process_group(0).spawn().unwrap();
        let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.map_while(Result::ok).filter(|line| line == "up").take(2).count(), 2);
        signal_once(Pid::from_child(&child), &[("GRADUS_TEST_ONCE", "a")], Signal::TERM).unwrap();
        child.wait().unwrap();
        while any(&[("GRADUS_TEST_ONCE", "a")]).unwrap() {
            std::thread::sleep(Duration::from_millis(10));
        }
        for name in ["inside", "outside"] {
            assert_eq!(fs::read_to_string(folder.path().join(name)).unwrap(), "got\nsaved\n", "{name}");
        }
    }

    #[test]
    fn a_process_is_meant_if_it_carries_all_tags() {
        let sleeper = |owner: &str| {
            let mut command = Command::new("sleep");
            command.arg("60").env("GRADUS_TEST_OWNER", owner).env("GRADUS_TEST_NAME", "same").stdin(Stdio::null());
            command.spawn().unwrap()
        };
        let (mut ours, mut theirs) = (sleeper("ours"), sleeper("theirs"));
        let tags = [("GRADUS_TEST_OWNER", "ours"), ("GRADUS_TEST_NAME", "same")];
        let other = i32::try_from(theirs.id()).unwrap();
        let found = numbers(&tags).unwrap();
        let is_signalled = signal_one(other, &tags, Signal::KILL);
        let count = signal(&tags, Signal::KILL).unwrap();
        ours.wait().unwrap();
        let is_left = theirs.try_wait().unwrap().is_none();
        theirs.kill().unwrap();
        theirs.wait().unwrap();
        assert_eq!(found, [i32::try_from(ours.id()).unwrap()]);
        assert!(!is_signalled && is_left && count == 1, "that of another owner has the same name");
    }

    #[test]
    fn a_process_that_replaces_itself_is_found_at_any_moment() {
        // It executes itself again and again: at most moments it is in the middle of that.
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("again.sh");
        fs::write(&script, "exec sh \"$0\"\n").unwrap();
        let mut shell = Command::new("sh");
        let mut child = shell.arg(&script).env("GRADUS_TEST_EXEC", "a").stdin(Stdio::null()).spawn().unwrap();
        let missed = (0..2_000).filter(|_| !any(&[("GRADUS_TEST_EXEC", "a")]).unwrap()).count();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(missed, 0, "of 2,000 looks");
        assert!(!any(&[("GRADUS_TEST_EXEC", "a")]).unwrap());
    }

    #[test]
    fn a_family_has_descendants_without_the_tag() {
        let script = "env -i sh -c 'echo $$; exec sleep 60' & wait";
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).env("GRADUS_TEST_FAMILY", "a").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (parent, sleeper): (i32, i32) = (i32::try_from(child.id()).unwrap(), line.trim().parse().unwrap());
        let found = family(&[("GRADUS_TEST_FAMILY", "a")]).unwrap();
        let tagged = numbers(&[("GRADUS_TEST_FAMILY", "a")]).unwrap();
        rustix::process::kill_process(Pid::from_raw(sleeper).unwrap(), Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(found.contains(&parent) && found.contains(&sleeper), "{found:?}");
        assert!(!tagged.contains(&sleeper) && !found.contains(&i32::try_from(std::process::id()).unwrap()));
    }

    #[test]
    fn one_that_was_found_before_is_looked_at_first() {
        let tags = [("GRADUS_TEST_ONE", "a")];
        let sleeper = || Command::new("sleep").arg("60").envs(tags).stdin(Stdio::null()).spawn().unwrap();
        let (mut first, mut second) = (sleeper(), sleeper());
        let number = |child: &std::process::Child| i32::try_from(child.id()).unwrap();
        let (one_of, other) = (number(&first), number(&second));
        for pid in [one_of, other] {
            assert_eq!(one(&tags, Some(pid)).unwrap(), Some(pid));
        }
        assert!(one(&tags, None).unwrap().is_some_and(|pid| [one_of, other].contains(&pid)));
        first.kill().unwrap();
        first.wait().unwrap();
        assert_eq!(one(&tags, Some(one_of)).unwrap(), Some(other), "the rest is looked for when it is gone");
        second.kill().unwrap();
        second.wait().unwrap();
        assert_eq!(one(&tags, Some(other)).unwrap(), None);
    }
}
