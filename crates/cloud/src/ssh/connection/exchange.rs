//! One try to run a command on another machine.
//!
//! The shell there says that it is ready, and begins once it is asked to. So it is certain of a try whose connection broke before
//! that the command has not run, and does not run afterwards either: a shell whose connection is gone reads the end of its input.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::quoted;
use super::verdict::{TryEnd, TryFacts};

/// Says that it is ready, waits for [`GO`], and runs the command `$1`. Its exit code is never 255, with which `ssh` reports a
/// connection that broke, but also a shell that a signal has ended.
const BEGIN: &str = r#"echo gradus-ready && read -r go && [ "$go" = go ] && sh -c "$1"; code=$?; [ "$code" -ne 255 ] || code=254; exit "$code""#;

/// What [`BEGIN`] prints; the user's shell may have printed something before.
const READY: &[u8] = b"gradus-ready\n";

/// What the command is asked to begin with.
const GO: &[u8] = b"go\n";

/// What a try came to.
#[derive(Debug)]
pub(super) struct SshTry {
    pub facts: TryFacts,
    /// What the command has printed on standard output.
    pub output: Vec<u8>,
    /// How its standard input was written.
    pub written: io::Result<()>,
}

/// The line of a shell that runs a command once it is asked to.
pub(super) fn waiting(remote: &str) -> String {
    format!("exec sh -c {} sh {}", quoted(BEGIN), quoted(remote))
}

/// Runs `ssh` with a line that [`waiting`] has made. The command is asked to begin if its shell is ready `within` a time, and
/// then `write` writes its standard input.
///
/// # Errors
/// If `ssh` cannot be started or waited for.
pub(super) fn attempt(
    mut ssh: Command,
    within: Duration,
    write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> io::Result<SshTry> {
    ssh.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = ssh.spawn()?;
    let (sender, ready) = mpsc::channel();
    let output = child.stdout.take().map(|pipe| thread::spawn(move || read_output(pipe, &sender)));
    let complaint = child.stderr.take().map(|pipe| thread::spawn(move || read_all(pipe)));
    let mut input = child.stdin.take();
    let answer = ready.recv_timeout(within);
    if answer == Err(RecvTimeoutError::Timeout) {
        child.kill()?;
        child.wait()?;
        // What has inherited its pipes is not waited for.
        let facts = TryFacts { end: TryEnd::Late, began: false, complaint: String::new(), greeting: String::new() };
        return Ok(SshTry { facts, output: Vec::new(), written: Ok(()) });
    }
    let began = answer.is_ok();
    let written = match &mut input {
        Some(pipe) if began => pipe.write_all(GO).and_then(|()| write(pipe)),
        _ => Ok(()),
    };
    drop(input);
    let status = child.wait()?;
    let end = status.code().map_or(TryEnd::Killed, TryEnd::Exited);
    let (greeting, output) = joined(output);
    let (greeting, complaint) = (text(&greeting), text(&joined(complaint)));
    Ok(SshTry { facts: TryFacts { end, began, complaint, greeting }, output, written })
}

/// Reads what comes before the shell is ready, and what the command prints.
fn read_output(pipe: impl Read, ready: &Sender<()>) -> (Vec<u8>, Vec<u8>) {
    let mut pipe = BufReader::new(pipe);
    let (mut greeting, mut line) = (Vec::new(), Vec::new());
    while pipe.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        if line.ends_with(READY) {
            // Nobody waits for it any more where it is late.
            let _ = ready.send(());
            return (greeting, read_all(pipe));
        }
        greeting.append(&mut line);
    }
    (greeting, Vec::new())
}

fn read_all(mut pipe: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = pipe.read_to_end(&mut bytes);
    bytes
}

fn joined<T: Default>(thread: Option<JoinHandle<T>>) -> T {
    thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_whose_connection_breaks_before_it_was_asked_to_begin_does_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("it's");
        let touch = format!("touch {}", quoted(&trace.to_string_lossy()));
        let shell = |input: &[u8]| {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(waiting(&touch)).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut shell = shell.spawn().unwrap();
            shell.stdin.take().unwrap().write_all(input).unwrap();
            shell.wait_with_output().unwrap()
        };
        for cut in ["", "g", "go", "gone\n"] {
            let output = shell(cut.as_bytes());
            assert!(!output.status.success() && output.stdout == READY && !trace.exists(), "{cut}: {output:?}");
        }
        assert!(shell(GO).status.success() && trace.exists());
    }

    #[test]
    fn a_shell_that_is_not_ready_in_time_is_given_up() {
        let mut sleep = Command::new("sleep");
        sleep.arg("600");
        let tried = attempt(sleep, Duration::ZERO, &mut |_| panic!("it is not asked to begin")).unwrap();
        assert!(tried.facts.end == TryEnd::Late && !tried.facts.began, "{tried:?}");
    }
}
