//! Programs of the user that print credentials. While one runs, every call to its cloud waits for it, also the one that would
//! end a machine: so it has a limit.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};

/// How long one may take: less than a provider's call, so that the answer says what it waited for.
const LIMIT: Duration = Duration::from_secs(50);

/// How often it is looked whether it has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Bytes that are read of what it prints, at most.
const PRINTED_MAX: u64 = 1 << 20;

/// What a program prints.
///
/// # Errors
/// If it cannot be started, or of [`ErrorKind::TimedOut`] if it was killed because it did not end.
pub(crate) fn output(command: &mut Command) -> io::Result<Output> {
    output_within(command, LIMIT)
}

fn output_within(command: &mut Command, limit: Duration) -> io::Result<Output> {
    let until = Instant::now() + limit;
    // Files and no pipes: what it has started may hold them for as long as it likes.
    let (stdout, stderr) = (in_memory()?, in_memory()?);
    command.stdin(Stdio::null()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    let mut child = command.spawn()?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= until {
            child.kill()?;
            // A program that the kernel does not let go of is not waited for.
            std::thread::spawn(move || child.wait());
            return Err(io::Error::new(ErrorKind::TimedOut, format!("did not end within {} s", limit.as_secs())));
        }
        std::thread::sleep(LOOK);
    };
    Ok(Output { status, stdout: text(stdout)?, stderr: text(stderr)? })
}

fn in_memory() -> io::Result<File> {
    Ok(File::from(memfd_create("printed", MemfdFlags::CLOEXEC)?))
}

fn text(mut file: File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.rewind()?;
    file.take(PRINTED_MAX).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, limit: Duration) -> io::Result<Output> {
        output_within(Command::new("sh").arg("-c").arg(script), limit)
    }

    #[test]
    fn what_a_program_prints_is_read_though_one_that_it_started_runs() {
        let output = run("echo out; echo err >&2; sleep 60 & exit 3", Duration::from_secs(30)).unwrap();
        assert_eq!((output.status.code(), &*output.stdout, &*output.stderr), (Some(3), &b"out\n"[..], &b"err\n"[..]));
    }

    /// All calls to its cloud waited for it as long as the server ran, and no machine was ended.
    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let killed = run("echo {}; exec sleep 60", Duration::from_millis(50)).unwrap_err();
        assert_eq!((killed.kind(), killed.to_string().as_str()), (ErrorKind::TimedOut, "did not end within 0 s"));
    }
}
