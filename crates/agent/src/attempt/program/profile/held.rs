//! A script of a profile with all that it has started: waited for together, and ended together.
//!
//! They are one group, and carry [`MARK`] in their environment wherever they move to: torchrun starts its workers in
//! sessions of their own. A guard beside them reads from a pipe that closes when gradus is killed, and then kills them.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command as Process, ExitStatus, Stdio};
use std::time::Duration;

use domain::Finding;
use node::folder::not_written;
use node::{processes, session};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// The variable that holds the folder of the profile.
const MARK: &str = "GRADUS_PROFILE_IN";

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Looks for processes with the mark after they were killed: one may have started another meanwhile.
const ROUNDS: u32 = 250;

/// What the guard runs: it reads the number of the group, then waits for the end of the pipe. Its argument is the mark
/// as an environment has it.
const GUARD: &str = r#"
read -r group
while read -r _; do :; done
[ -z "$group" ] || kill -s KILL -- "-$group"
for round in 1 2 3 4 5 6 7 8 9 10; do
  found=$(grep -lszxF -e "$1" /proc/[0-9]*/environ)
  [ -n "$found" ] || break
  for file in $found; do
    file=${file%/environ}
    kill -s KILL "${file#/proc/}"
  done
  sleep 0.1
done
"#;

/// Why a script is waited for no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// It ended.
    Exited(ExitStatus),
    /// It has done what was wanted.
    Done,
    /// The user has interrupted gradus.
    Interrupted,
    /// It has logged no step in time.
    Unlogged,
}

/// Runs a script in `folder` until it ends, or `look` says why to wait no longer; then everything that it has started is
/// killed.
pub fn wait(script: Process, folder: &Path, mut look: impl FnMut() -> Option<Waited>) -> Result<Waited, Box<Finding>> {
    let held = Held::start(script, folder)?;
    let left = loop {
        if held.has_ended() {
            break None;
        }
        if let Some(left) = look() {
            break Some(left);
        }
        std::thread::sleep(LOOK);
    };
    let status = held.end();
    Ok(left.or(status.map(Waited::Exited)).unwrap_or(Waited::Done))
}

/// Kills every process that a profile in `folder` has started.
pub fn end_profile(folder: &Path) {
    end_marked(&mark(folder));
}

struct Held {
    script: Child,
    guard: Child,
    mark: String,
}

impl Held {
    fn start(mut script: Process, folder: &Path) -> Result<Held, Box<Finding>> {
        let log = folder.join("log");
        let file = File::options().create(true).append(true).open(&log);
        let outputs = file.and_then(|file| Ok((file.try_clone()?, file)));
        let (stdout, stderr) = outputs.map_err(|error| not_written("open", &log, &error))?;
        let mark = mark(folder);
        script.stdin(Stdio::null()).stdout(stdout).stderr(stderr).env(MARK, &mark);
        session::own_and_bound(&mut script);
        // First: nothing that the script starts is without a guard.
        let mut guard = guard(&mark).map_err(|error| not_written("start a guard for", &log, &error))?;
        let spawned = script.spawn().and_then(|script| {
            if let Some(pipe) = &mut guard.stdin {
                writeln!(pipe, "{}", script.id())?;
            }
            Ok(script)
        });
        match spawned {
            Ok(script) => Ok(Held { script, guard, mark }),
            Err(error) => {
                end_marked(&mark);
                dismiss(guard);
                Err(not_written("start", &log, &error))
            }
        }
    }

    /// Whether the script itself has ended. It is not reaped yet, so its number is of no other group.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        !matches!(waitid(WaitId::Pid(Pid::from_child(&self.script)), options), Ok(None) | Err(Errno::INTR))
    }

    /// Kills what is left, and returns how the script ended.
    fn end(mut self) -> Option<ExitStatus> {
        let _ = kill_process_group(Pid::from_child(&self.script), Signal::KILL);
        end_marked(&self.mark);
        let status = self.script.wait().ok();
        dismiss(self.guard);
        status
    }
}

/// Starts the guard. Its session is its own, so that Ctrl-C or a closed terminal does not end it before gradus.
fn guard(mark: &str) -> std::io::Result<Child> {
    let mut guard = Process::new("bash");
    guard.args(["-c", GUARD, "gradus-guard", &format!("{MARK}={mark}")]);
    guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).env_remove(MARK);
    session::own(&mut guard);
    guard.spawn()
}

/// Ends a guard that has nothing to guard. It is killed before the pipe is closed.
fn dismiss(mut guard: Child) {
    let _ = guard.kill();
    let _ = guard.wait();
}

/// Kills the processes with this mark, until there are none.
fn end_marked(mark: &str) {
    for _ in 0..ROUNDS {
        match processes::signal(&[(MARK, mark)], Signal::KILL) {
            Ok(0) | Err(_) => return,
            Ok(_) => std::thread::sleep(LOOK),
        }
    }
}

/// The value of [`MARK`] for a profile in `folder`, in one line: `grep` takes each line as a pattern of its own.
fn mark(folder: &Path) -> String {
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    folder.to_string_lossy().replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_left_the_group_is_ended_too() {
        let folder = tempfile::tempdir().unwrap();
        let mut script = Process::new("bash");
        let text = "setsid bash -c 'touch moved; exec sleep 600' & until [ -e moved ]; do sleep 0.05; done";
        script.args(["-c", text]).current_dir(folder.path());
        let left = wait(script, folder.path(), || None).unwrap();
        assert!(matches!(left, Waited::Exited(status) if status.success()), "{left:?}");
        assert!(!processes::any(&[(MARK, &mark(folder.path()))]).unwrap());
    }

    #[test]
    fn what_an_earlier_profile_has_left_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let mark = mark(folder.path());
        let mut left = Process::new("sleep").arg("600").env(MARK, &mark).stdin(Stdio::null()).spawn().unwrap();
        end_profile(folder.path());
        assert!(!left.wait().unwrap().success());
    }

    #[test]
    fn a_guard_ends_what_it_guards_when_its_pipe_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let mark = mark(folder.path());
        let mut guard = guard(&mark).unwrap();
        let sleeper = || {
            let mut command = Process::new("sleep");
            command.arg("600").stdin(Stdio::null());
            session::own(&mut command);
            command
        };
        let mut grouped = sleeper().spawn().unwrap();
        let mut marked = sleeper().env(MARK, &mark).spawn().unwrap();
        writeln!(guard.stdin.as_mut().unwrap(), "{}", grouped.id()).unwrap();
        drop(guard.stdin.take());
        let ended = [grouped.wait().unwrap(), marked.wait().unwrap()];
        assert!(ended.iter().all(|status| !status.success()), "{ended:?}");
        guard.wait().unwrap();
    }
}
