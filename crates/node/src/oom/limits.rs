//! Limits on the memory and the cores of a program: a control group of its own (cgroup v2), where this process may make one.
//!
//! Whether and where it may is decided by a pure function of what the groups above this process say of themselves. Without
//! root that is rarely anywhere; programs then run without a limit.

use std::fs;
use std::path::{Path, PathBuf};

use domain::Bytes;
use rustix::fs::{Access, access};

/// Where control groups are mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// The period that shares of processors are counted in, in microseconds.
const PERIOD: u64 = 100_000;

/// The most that a program may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResourceLimits {
    /// Memory.
    pub memory: Option<Bytes>,
    /// Processor cores.
    pub cores: Option<u32>,
}

impl ResourceLimits {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == ResourceLimits::default()
    }

    /// The controllers that they need.
    fn controllers(&self) -> impl Iterator<Item = &'static str> {
        self.memory.map(|_| "memory").into_iter().chain(self.cores.map(|_| "cpu"))
    }

    /// The files of a group and what is written to them, and whether the limit needs it.
    fn files(&self) -> Vec<(&'static str, String, bool)> {
        let mut files = Vec::new();
        if let Some(memory) = self.memory {
            files.push(("memory.max", memory.0.to_string(), true));
            // Without swap in the kernel there is no such file.
            files.push(("memory.swap.max", "0".to_owned(), false));
        }
        files.extend(self.cores.map(|cores| ("cpu.max", format!("{} {PERIOD}", u64::from(cores) * PERIOD), true)));
        files
    }
}

/// What a control group says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
struct GroupFacts {
    path: PathBuf,
    /// What groups in it may be limited in.
    controllers: String,
    /// Whether this process may make a group in it and move processes there.
    is_writable: bool,
}

/// The group in which one for a program is made: the nearest of those above this process that may be used.
fn place<'a>(groups: &'a [GroupFacts], limits: &ResourceLimits) -> Result<&'a Path, String> {
    if groups.is_empty() {
        return Err("there are no control groups of version 2".to_owned());
    }
    let has = |group: &&GroupFacts| {
        let mut given =
            limits.controllers().map(|needed| group.controllers.split_whitespace().any(|one| one == needed));
        given.all(|is_given| is_given)
    };
    let mut able = groups.iter().filter(has).peekable();
    if able.peek().is_none() {
        let needed: Vec<&str> = limits.controllers().collect();
        return Err(format!("no control group passes on {}", needed.join(" and ")));
    }
    let found = able.find(|group| group.is_writable);
    found.map(|group| group.path.as_path()).ok_or_else(|| "this user may not make control groups".to_owned())
}

/// The groups of this process, the nearest first; none without version 2.
fn groups() -> Vec<GroupFacts> {
    let mount = Path::new(MOUNT);
    if !mount.join("cgroup.controllers").is_file() {
        return Vec::new();
    }
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(own) = text.lines().find_map(|line| line.strip_prefix("0::/")) else { return Vec::new() };
    let facts = |group: &Path| {
        let path = mount.join(group);
        let may_write = |path: &Path| access(path, Access::WRITE_OK).is_ok();
        let is_writable = may_write(&path) && may_write(&path.join("cgroup.procs"));
        let controllers = fs::read_to_string(path.join("cgroup.subtree_control")).unwrap_or_default();
        GroupFacts { path, controllers, is_writable }
    };
    Path::new(own).ancestors().map(facts).collect()
}

/// A control group of one program, which is gone with this value.
#[derive(Debug)]
pub struct LimitedGroup {
    path: PathBuf,
}

impl LimitedGroup {
    /// Makes a group called `name` with these limits.
    ///
    /// # Errors
    /// Why this process cannot: lower case, no full stop.
    pub fn make(name: &str, limits: &ResourceLimits) -> Result<LimitedGroup, String> {
        LimitedGroup::make_in(place(&groups(), limits)?, name, limits)
    }

    fn make_in(above: &Path, name: &str, limits: &ResourceLimits) -> Result<LimitedGroup, String> {
        let path = above.join(name);
        let failed = |doing: &str, error: std::io::Error| format!("cannot {doing} `{}`: {error}", path.display());
        // One that is there is of an agent that was killed.
        if !path.is_dir() {
            fs::create_dir(&path).map_err(|error| failed("make", error))?;
        }
        let group = LimitedGroup { path: path.clone() };
        for (file, text, is_needed) in limits.files() {
            match fs::write(path.join(file), text) {
                Err(error) if is_needed => return Err(failed(&format!("write `{file}` of"), error)),
                Err(_) | Ok(()) => {}
            }
        }
        Ok(group)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Processes that are left in it are killed: a group that is not empty cannot be removed.
impl Drop for LimitedGroup {
    fn drop(&mut self) {
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
        for _ in 0..50 {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                Err(_) | Ok(()) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oom::{KillCounters, MemoryKill};

    const BOTH: ResourceLimits = ResourceLimits { memory: Some(Bytes(8_000_000_000)), cores: Some(4) };

    /// Where a group is made, of groups with these controllers that may be written to or not, the nearest first.
    fn check(groups: &[(&str, bool)], limits: ResourceLimits, expected: Result<usize, &str>) {
        let facts = groups.iter().zip(0..).map(|((controllers, is_writable), number)| GroupFacts {
            path: PathBuf::from(format!("/{number}")),
            controllers: (*controllers).to_owned(),
            is_writable: *is_writable,
        });
        let facts: Vec<GroupFacts> = facts.collect();
        let expected = expected.map(|number| PathBuf::from(format!("/{number}"))).map_err(str::to_owned);
        assert_eq!(place(&facts, &limits).map(Path::to_owned), expected, "{groups:?}");
    }

    #[test]
    fn the_nearest_group_that_passes_on_what_is_needed_is_used() {
        let all = "cpuset cpu io memory pids";
        check(&[("", true), (all, true), (all, true)], BOTH, Ok(1));
        check(&[(all, true)], BOTH, Ok(0));
        // As root's sessions are: memory is passed on lower than processors are.
        check(&[("", true), ("memory pids", true), (all, true)], BOTH, Ok(2));
        let memory = ResourceLimits { cores: None, ..BOTH };
        check(&[("", true), ("memory pids", true), (all, true)], memory, Ok(1));
        check(&[("cpuset", true)], ResourceLimits { memory: None, ..BOTH }, Err("no control group passes on cpu"));
        // As in a container, or as any user but root.
        check(&[("", false), (all, false)], BOTH, Err("this user may not make control groups"));
        check(&[("", true), ("pids", true)], BOTH, Err("no control group passes on memory and cpu"));
        check(&[], BOTH, Err("there are no control groups of version 2"));
    }

    #[test]
    fn a_group_gets_its_limits_and_is_gone_with_its_value() {
        let above = tempfile::tempdir().unwrap();
        let group = LimitedGroup::make_in(above.path(), "gradus-a-1-a1", &BOTH).unwrap();
        let text = |file: &str| fs::read_to_string(group.path().join(file)).unwrap();
        assert_eq!((text("memory.max").as_str(), text("cpu.max").as_str()), ("8000000000", "400000 100000"));
        assert_eq!(text("memory.swap.max"), "0");
        // In the kernel's file system these files go with their group.
        for file in ["memory.max", "memory.swap.max", "cpu.max"] {
            fs::remove_file(group.path().join(file)).unwrap();
        }
        let path = group.path().to_owned();
        let gone = LimitedGroup::make_in(Path::new("/nonexistent"), "x", &BOTH).unwrap_err();
        assert!(gone.starts_with("cannot make `/nonexistent/x`: "), "{gone}");
        drop(group);
        assert!(!path.join("memory.max").exists());
    }

    /// Where the kernel has control groups of version 2 and this user may make one, as root may on most machines.
    #[test]
    fn a_program_that_takes_more_than_its_limit_is_killed_in_its_group() {
        let limits = ResourceLimits { memory: Some(Bytes(64 << 20)), cores: None };
        let group = match LimitedGroup::make(&format!("gradus-test-{}", std::process::id()), &limits) {
            Ok(group) => group,
            Err(why) => return println!("skipped: {why}"),
        };
        let before = KillCounters::of(group.path());
        // `tail` keeps what may be the end of its input.
        let script = "echo 0 > \"$1\" && head -c 256M /dev/zero | tail -c 200M > /dev/null; echo $?";
        let mut shell = std::process::Command::new("sh");
        let output = shell.args(["-c", script, "sh"]).arg(group.path().join("cgroup.procs")).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "137\n", "{output:?}");
        assert_eq!(KillCounters::of(group.path()).since(before), MemoryKill::Here);
        let path = group.path().to_owned();
        drop(group);
        assert!(!path.exists());
    }
}
