//! Whether the kernel has killed a process for lack of memory: its counters before and after.
//!
//! The counter of our own control group tells of this attempt's processes, which are in it or below; that of the machine
//! also of everybody else's.

pub mod limits;

use std::fs;
use std::path::{Path, PathBuf};

/// What the kernel has killed for lack of memory while a process ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryKill {
    /// Nothing.
    No,
    /// A process of another control group of the machine.
    Elsewhere,
    /// A process of the attempt; where no control group can be read, of the machine.
    Here,
}

/// How many processes the kernel has killed for lack of memory so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KillCounters {
    /// Of our control group.
    group: Option<u64>,
    /// Of the machine, since it started.
    machine: u64,
}

impl KillCounters {
    /// The counters of this process and machine.
    pub fn read() -> KillCounters {
        KillCounters::under(Path::new("/"))
    }

    /// The counters of a control group and of this machine. One that is not limited in memory counts with the nearest
    /// above it that is.
    pub fn of(group: &Path) -> KillCounters {
        let nearest = group.ancestors().find_map(|group| counted(&group.join("memory.events")));
        KillCounters { group: nearest, ..KillCounters::read() }
    }

    /// The counter in a file that [`counter_of`] has found, and that of this machine. A control group that is gone has
    /// none.
    pub fn in_file(file: &Path) -> KillCounters {
        KillCounters { group: counted(file), ..KillCounters::read() }
    }

    fn under(root: &Path) -> KillCounters {
        KillCounters {
            group: counter_under(root, "self").and_then(|file| counted(&file)),
            machine: counted(&root.join("proc/vmstat")).unwrap_or(0),
        }
    }

    /// What was killed since `before`.
    pub fn since(self, before: KillCounters) -> MemoryKill {
        let on_machine = self.machine > before.machine;
        match self.group.zip(before.group) {
            Some((now, then)) if now > then => MemoryKill::Here,
            Some(_) if on_machine => MemoryKill::Elsewhere,
            None if on_machine => MemoryKill::Here,
            _ => MemoryKill::No,
        }
    }
}

/// The file that counts what the kernel kills for lack of memory in the control group of a process, or in the nearest
/// above it that counts.
pub fn counter_of(process: u32) -> Option<PathBuf> {
    counter_under(Path::new("/"), &process.to_string())
}

fn counter_under(root: &Path, process: &str) -> Option<PathBuf> {
    let groups = fs::read_to_string(root.join("proc").join(process).join("cgroup")).ok()?;
    files(&groups).into_iter().map(|file| root.join(file)).find(|file| counted(file).is_some())
}

/// The counter in a file.
fn counted(file: &Path) -> Option<u64> {
    kills(&fs::read_to_string(file).ok()?)
}

/// The counter in `memory.events` of a control group, in its `memory.oom_control` of version 1, or in `/proc/vmstat`.
fn kills(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Where the counter of our control group may be, the nearest first, from `/proc/self/cgroup`.
fn files(cgroups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in cgroups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let group = Path::new(group.trim_start_matches('/'));
        if controllers.split(',').any(|controller| controller == "memory") {
            let top = Path::new("sys/fs/cgroup/memory");
            // In a container the path is the host's, and what is mounted is the container's own group.
            files.extend([top.join(group), top.to_owned()].map(|group| group.join("memory.oom_control")));
        } else if controllers.is_empty() {
            // A group without the memory controller counts with the nearest above it that has one.
            files.extend(group.ancestors().map(|group| Path::new("sys/fs/cgroup").join(group).join("memory.events")));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: &str = "low 0\nhigh 0\nmax 3121\noom 4\noom_kill 3\noom_group_kill 0\n";

    #[test]
    fn the_kernel_s_counters_are_read() {
        assert_eq!(kills(EVENTS), Some(3));
        assert_eq!(kills("oom_kill_disable 0\nunder_oom 0\noom_kill 12\n"), Some(12));
        assert_eq!(kills("pgmajfault 7\noom_kill 1\nnuma_hit 5\n"), Some(1));
        // Of kernels before 4.13.
        assert_eq!(kills("oom_kill_disable 0\nunder_oom 0\n"), None);
        assert_eq!(kills("oom_kill x\n"), None);
    }

    #[test]
    fn the_nearest_group_comes_first() {
        let paths = |text: &str| files(text).iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        assert_eq!(
            paths("0::/user.slice/session-1.scope\n"),
            [
                "sys/fs/cgroup/user.slice/session-1.scope/memory.events",
                "sys/fs/cgroup/user.slice/memory.events",
                "sys/fs/cgroup/memory.events",
            ]
        );
        assert_eq!(paths("0::/\n"), ["sys/fs/cgroup/memory.events"]);
        assert_eq!(
            paths("5:devices:/\n4:cpu,memory:/docker/a:b\n0::/\n"),
            [
                "sys/fs/cgroup/memory/docker/a:b/memory.oom_control",
                "sys/fs/cgroup/memory/memory.oom_control",
                "sys/fs/cgroup/memory.events",
            ]
        );
        assert!(paths("").is_empty() && paths("odd\n").is_empty());
    }

    #[test]
    fn a_kill_in_our_group_is_told_from_one_elsewhere() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let machine = |kills: u64| write("proc/vmstat", &format!("pgfault 5\noom_kill {kills}\n"));
        machine(7);
        let alone = KillCounters::under(root.path());
        write("proc/self/cgroup", "0::/a/b\n");
        write("sys/fs/cgroup/a/memory.events", EVENTS);
        let before = KillCounters::under(root.path());
        assert_eq!(before, KillCounters { group: Some(3), machine: 7 });
        assert_eq!(before.since(before), MemoryKill::No);
        machine(8);
        assert_eq!(KillCounters::under(root.path()).since(before), MemoryKill::Elsewhere);
        write("sys/fs/cgroup/a/memory.events", &EVENTS.replace("oom_kill 3", "oom_kill 4"));
        assert_eq!(KillCounters::under(root.path()).since(before), MemoryKill::Here);
        // Of another process, such as a container's first.
        write("proc/7/cgroup", "0::/b/box\n");
        write("sys/fs/cgroup/b/box/memory.events", EVENTS);
        let file = counter_under(root.path(), "7").unwrap();
        assert_eq!(file, root.path().join("sys/fs/cgroup/b/box/memory.events"));
        assert_eq!(KillCounters::in_file(&file).group, Some(3));
        fs::remove_file(&file).unwrap();
        assert_eq!(KillCounters::in_file(&file).group, None);
        assert_eq!((counter_under(root.path(), "7"), counter_under(root.path(), "8")), (None, None));
        let of = |path: &str| KillCounters::of(&root.path().join(path)).group;
        assert_eq!([of("sys/fs/cgroup/a"), of("sys/fs/cgroup/a/program")], [Some(4); 2]);
        // Without a group that can be read the machine's counter is all there is.
        assert_eq!(KillCounters::under(root.path()).since(alone), MemoryKill::Here);
    }
}
