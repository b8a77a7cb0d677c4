//! `gradus exec`: a command on the machines of a run, in its working folder.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};

use domain::file::written::quoted;
use server::Home;

use super::members::{RunMachine, machines};
use crate::error::Error;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus exec`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run that has machines: its name, a unique prefix of it, or `last`
    run: String,
    /// Only on the machine of this node rank
    #[arg(long, value_name = "RANK")]
    node: Option<usize>,
    /// Command, for the machine's shell
    #[arg(trailing_var_arg = true, required = true)]
    command: Vec<String>,
}

/// A line of output: of which node rank, and whether it is of stderr.
type Line = (usize, bool, String);

/// Lines that are read and not printed yet, at most: a command that prints faster waits.
const WAITING: usize = 1_000;

/// Bytes of a line, at most; what is longer is printed in parts.
const LONGEST: u64 = 16 << 20;

/// Runs the command on all of them at once; the exit code is the first that is not 0, by node rank.
///
/// # Errors
/// [`Error::Usage`] for a run without machines, [`Error::File`] when `ssh` or a shell cannot be started.
pub fn run(args: &Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let machines = machines(&home, &args.run, args.node)?;
    let (sender, lines) = sync_channel::<Line>(WAITING);
    let mut children: Vec<Child> = Vec::new();
    for machine in &machines {
        match start(machine, &args.command.join(" "), &sender) {
            Ok(child) => children.push(child),
            Err(error) => {
                children.iter_mut().for_each(|child| drop(child.kill()));
                return Err(error);
            }
        }
    }
    // Their end is that of the commands, also where this process is killed: until then they stay open.
    let inputs: Vec<Option<ChildStdin>> = children.iter_mut().map(|child| child.stdin.take()).collect();
    drop(sender);
    for (rank, is_error, text) in lines {
        print(printer, machines.len() > 1, rank, is_error, &text);
    }
    let mut code = 0;
    for (machine, mut child) in machines.iter().zip(children) {
        let status = child.wait().map_err(Error::file("wait for", Path::new("ssh")))?;
        // As a shell says it of a program that was killed.
        let code_of = || status.code().or_else(|| Some(128 + status.signal()?));
        let own = code_of().and_then(|code| u8::try_from(code).ok()).unwrap_or(255);
        if own != 0 && machines.len() > 1 {
            printer.say(format!("node {}: exit code {own}", machine.rank));
        }
        code = if code == 0 { own } else { code };
    }
    drop(inputs);
    Ok(code)
}

fn print(printer: &mut Printer, are_several: bool, rank: usize, is_error: bool, text: &str) {
    let stream = if is_error { "stderr" } else { "stdout" };
    let line = if are_several { format!("node {rank} | {text}") } else { text.to_owned() };
    match (printer.is_json(), is_error) {
        (true, _) => printer.json(&serde_json::json!({ "node": rank, "stream": stream, "line": text })),
        (false, false) => printer.data(line),
        (false, true) => printer.say(line),
    }
}

/// Starts the command on a machine; what it prints goes to `lines`.
fn start(machine: &RunMachine, command: &str, lines: &SyncSender<Line>) -> Result<Child, Error> {
    let script = script(machine, command);
    let mut process = machine.route.ssh(&["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]).map_or_else(
        || {
            let mut shell = Command::new("bash");
            // Of a terminal here it keeps the foreground, and its interrupts.
            shell.arg("-c").arg(&script).stdin(Stdio::null());
            shell
        },
        |mut ssh| {
            // Whatever the user's own shell is there.
            ssh.arg("--").arg(format!("bash -c {}", quoted(&guarded(&script)))).stdin(Stdio::piped());
            ssh
        },
    );
    process.stdout(Stdio::piped()).stderr(Stdio::piped());
    let name = process.get_program().to_owned();
    let mut child = process.spawn().map_err(Error::file("start", Path::new(&name)))?;
    if let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) {
        read_lines(machine.rank, false, out, lines.clone());
        read_lines(machine.rank, true, err, lines.clone());
    }
    Ok(child)
}

/// The command in the working folder of the attempt, or else in the folder of the run; nowhere else.
fn script(machine: &RunMachine, command: &str) -> String {
    let RunMachine { rank, attempt, run, folder, .. } = machine;
    format!(
        "cd {folder}/attempts/{attempt}/workdir 2>/dev/null || cd {folder} || \
         {{ echo 'run {run} has no folder on this machine yet' >&2; exit 1; }}; \
         export GRADUS_RUN={run} NODE_RANK={rank}; {command}"
    )
}

/// A script that runs another one in a process group of its own, and ends that group when its own input ends: an
/// interrupted `ssh` closes it and sends no signal. What it prints and its exit code are those of the other one.
fn guarded(script: &str) -> String {
    let script = quoted(script);
    format!(
        "exec 3<&0; set -m; bash -c {script} </dev/null 3<&- & job=$!; set +m; \
         {{ while read -r _; do :; done <&3; kill -TERM -- -$job; sleep 5; kill -KILL -- -$job; }} >/dev/null 2>&1 & \
         watch=$!; exec 3<&-; wait $job; code=$?; kill $watch 2>/dev/null; exit $code"
    )
}

fn read_lines(rank: usize, is_error: bool, pipe: impl Read + Send + 'static, lines: SyncSender<Line>) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while reader.by_ref().take(LONGEST).read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
            if lines.send((rank, is_error, text)).is_err() {
                return;
            }
            line.clear();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_ends_with_the_connection_and_keeps_its_exit_code() {
        let check = |command: &str, is_closed: bool, expected: i32| {
            let mut bash = Command::new("bash");
            let mut child = bash.arg("-c").arg(guarded(command)).stdin(Stdio::piped()).spawn().unwrap();
            let input = child.stdin.take().filter(|_| !is_closed);
            assert_eq!(child.wait().unwrap().code(), Some(expected), "{command}");
            drop(input);
        };
        check("exit 7", false, 7);
        check("cat", false, 0);
        check("sleep 600 & wait", true, 143);
    }

    #[test]
    fn a_line_without_end_is_printed_in_parts() {
        let (sender, lines) = sync_channel::<Line>(WAITING);
        let text = "x".repeat(usize::try_from(LONGEST).unwrap()) + "y\nz";
        read_lines(1, true, std::io::Cursor::new(text.into_bytes()), sender);
        let ends: Vec<char> = lines.iter().filter_map(|(.., text)| text.chars().last()).collect();
        assert_eq!(ends, ['x', 'y', 'z']);
    }
}
