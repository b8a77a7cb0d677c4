//! The first process of a container, as the machine sees it.

use std::fs;
use std::path::{Path, PathBuf};

use node::containers::ContainerRuntime;
use node::oom::counter_of;

/// A container's first process, known by its number and by when it was started, for numbers are used again.
#[derive(Debug)]
pub struct FirstProcess {
    number: u32,
    started: String,
}

impl FirstProcess {
    /// That of a container which runs. `None` where the runtime is on another machine, or its processes are not shown.
    pub fn of(runtime: &ContainerRuntime, name: &str) -> Option<FirstProcess> {
        let said = runtime.ask(&["inspect", "--format", "{{.State.Pid}}", name]).ok()?;
        // 0 is that of a container which does not run.
        FirstProcess::numbered(said.trim().parse().ok().filter(|number| *number > 0)?)
    }

    fn numbered(number: u32) -> Option<FirstProcess> {
        Some(FirstProcess { number, started: started(number)? })
    }

    /// Whether it runs no more.
    pub fn has_ended(&self) -> bool {
        started(self.number).as_ref() != Some(&self.started)
    }

    /// The file that counts what the kernel kills in its control group for lack of memory.
    pub fn kill_counter(&self) -> Option<PathBuf> {
        counter_of(self.number)
    }
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
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;

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
