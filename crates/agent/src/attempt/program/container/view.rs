//! A container as the machine sees it: by its first process and its control group.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use node::containers::ContainerRuntime;
use node::oom::counter_of;

/// What the machine shows of a container that runs. Nothing where the runtime is on another machine, or does not say.
#[derive(Debug, Default)]
pub struct ContainerView {
    first: Option<FirstProcess>,
    kill_counter: Option<PathBuf>,
    /// Whether it is held to the memory that was asked for.
    is_limited: Option<bool>,
}

impl ContainerView {
    /// Looks at the container of this name, whose first process has `folder` among its words, and which was to be limited to so
    /// many bytes of memory.
    pub fn of(runtime: &ContainerRuntime, name: &str, folder: &Path, memory: Option<u64>) -> ContainerView {
        let said = runtime.ask(&["inspect", "--format", "{{.State.Pid}}", name]).unwrap_or_default();
        // Where docker is in a virtual machine the number is of that one, and here of anything else or nothing.
        let number = said.trim().parse::<u32>().ok().filter(|number| has_word(*number, folder));
        let kill_counter = number.and_then(counter_of);
        let seen = memory.zip(kill_counter.as_deref());
        let is_limited = seen.map(|(bytes, counter)| is_limited(counter, bytes));
        ContainerView { first: number.and_then(FirstProcess::numbered), kill_counter, is_limited }
    }

    /// The file that counts what the kernel kills in it for lack of memory.
    pub fn kill_counter(&self) -> Option<&Path> {
        self.kill_counter.as_deref()
    }

    /// Whether it is known to be held to the memory that was asked for.
    pub fn is_limited(&self) -> bool {
        self.is_limited == Some(true)
    }

    /// What is not as asked of the runtime of this name.
    pub fn note(&self, name: &str) -> Option<String> {
        let text = format!(
            "`enforce` has no effect on memory: {name} has not limited the container; without root it can where the \
             machine has control groups of version 2 and passes their controllers on to users"
        );
        Some(text).filter(|_| self.is_limited == Some(false))
    }

    /// Whether it is known to run no more.
    pub fn has_ended(&self) -> bool {
        self.first.as_ref().is_some_and(FirstProcess::has_ended)
    }
}

/// A process, known by its number and by when it was started, for numbers are used again.
#[derive(Debug)]
struct FirstProcess {
    number: u32,
    started: String,
}

impl FirstProcess {
    fn numbered(number: u32) -> Option<FirstProcess> {
        Some(FirstProcess { number, started: started(number)? })
    }

    fn has_ended(&self) -> bool {
        started(self.number).as_ref() != Some(&self.started)
    }
}

/// Whether the control group with this counter, or one above it, is limited to so many bytes of memory.
fn is_limited(counter: &Path, bytes: u64) -> bool {
    let limit = |file: PathBuf| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    // Of version 2, where `max` is none, and of version 1, where none is a large number.
    let limits = |group: &Path| ["memory.max", "memory.limit_in_bytes"].map(|name| limit(group.join(name)));
    counter.ancestors().skip(1).flat_map(limits).flatten().any(|limit| limit <= bytes)
}

/// Whether a process was started with this path as one of its words.
fn has_word(number: u32, word: &Path) -> bool {
    let words = fs::read(Path::new("/proc").join(number.to_string()).join("cmdline")).unwrap_or_default();
    words.split(|byte| *byte == 0).any(|one| one == word.as_os_str().as_bytes())
}

/// When a process was started, unless it has ended.
fn started(number: u32) -> Option<String> {
    let stat = fs::read_to_string(Path::new("/proc").join(number.to_string()).join("stat")).ok()?;
    // The name comes before, in brackets; the state is the third field, and the start the 22nd.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let is_over = matches!(fields.first(), Some(&("Z" | "X")));
    fields.get(19).filter(|_| !is_over).map(|started| (*started).to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_limit_that_a_runtime_has_not_set_is_said() {
        let view = |is_limited| ContainerView { is_limited, ..ContainerView::default() };
        for (is_limited, expected) in [(None, false), (Some(true), true)] {
            assert_eq!((view(is_limited).is_limited(), view(is_limited).note("podman")), (expected, None));
        }
        let unlimited = view(Some(false));
        assert!(!unlimited.is_limited() && unlimited.note("podman").unwrap().contains("podman has not limited"));
    }

    #[test]
    fn the_limit_of_a_group_is_its_own_or_that_of_one_above() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("box.scope/container");
        fs::create_dir_all(&group).unwrap();
        let counter = group.join("memory.events");
        assert!(!is_limited(&counter, 64_000_000));
        fs::write(group.join("memory.max"), "max\n").unwrap();
        assert!(!is_limited(&counter, 64_000_000));
        // The kernel counts in pages.
        fs::write(root.path().join("box.scope/memory.max"), "63999999\n").unwrap();
        assert!(is_limited(&counter, 64_000_000) && !is_limited(&counter, 32_000_000));
        fs::write(root.path().join("box.scope/memory.max"), "max\n").unwrap();
        fs::write(group.join("memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        assert!(!is_limited(&counter, 64_000_000));
        fs::write(group.join("memory.limit_in_bytes"), "63999999\n").unwrap();
        assert!(is_limited(&counter, 64_000_000));
    }

    #[test]
    fn a_process_of_another_machine_s_number_is_not_the_container_s() {
        let folder = Path::new("/home/runs/it's/attempts/a1/container");
        let mut held = Command::new("sh");
        let mut child = held.args(["-c", "read line", "hold.sh"]).arg(folder).stdin(Stdio::piped()).spawn().unwrap();
        let number = child.id();
        // The kernel sets the words of a process a moment after it has released the one that started it.
        let begun = std::time::Instant::now();
        while !has_word(number, folder) && begun.elapsed().as_secs() < 10 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(has_word(number, folder) && !has_word(number, Path::new("/home/runs")));
        assert!(!has_word(std::process::id(), folder) && !has_word(0, folder));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_was_killed_has_ended_before_it_is_waited_for() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let first = FirstProcess::numbered(child.id()).unwrap();
        assert!(!first.has_ended());
        child.kill().unwrap();
        let begun = Instant::now();
        while !first.has_ended() {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(5));
        }
        child.wait().unwrap();
        assert!(first.has_ended());
        let other = FirstProcess { number: std::process::id(), started: "1".into() };
        assert!(other.has_ended(), "its number is another one's");
    }
}
