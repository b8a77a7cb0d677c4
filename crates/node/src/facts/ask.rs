//! Asking another program, for so long and no longer.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What a program prints within a time; else why there is nothing.
pub fn ask(program: &str, arguments: &[&str], within: Duration) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("cannot start `{program}`: {error}"))?;
    fn reader(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
    let (printed, complained) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let begun = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if begun.elapsed() < within => std::thread::sleep(Duration::from_millis(5)),
            _ => {
                // A process that waits for a broken device cannot be killed, so its output is not waited for.
                let _ = child.kill();
                return Err(format!("`{program}` has not answered for {} s", within.as_secs()));
            }
        }
    };
    let (printed, complained) = (printed.join().unwrap_or_default(), complained.join().unwrap_or_default());
    if status.success() {
        return Ok(printed);
    }
    let said = [complained, printed].join("\n");
    let why = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it says nothing").to_owned();
    Err(format!("`{program}` ended with {status}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_answer_is_ended() {
        let second = Duration::from_secs(20);
        assert_eq!(ask("echo", &["a b"], second).unwrap(), "a b\n");
        let failed = ask("sh", &["-c", "echo no device >&2; exit 9"], second).unwrap_err();
        assert!(failed.contains("no device") && failed.contains('9'), "{failed}");
        assert!(ask("no-such-program", &[], second).unwrap_err().contains("cannot start"));
        let begun = Instant::now();
        assert!(ask("sleep", &["60"], Duration::from_millis(50)).unwrap_err().contains("has not answered"));
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}
