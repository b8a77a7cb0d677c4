//! Stack traces of the threads of an attempt, recorded before a hang is ended.
//!
//! The kernel's view of each thread is always available. If `py-spy` (for Python), `eu-stack` or `gdb` is installed and
//! permitted to trace, their stacks follow.

use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use node::processes;

/// For one tool and one process.
const TOOL: Duration = Duration::from_secs(5);

/// After so long no further process is looked at.
pub const WITHIN: Duration = Duration::from_secs(20);

/// Maximum stored output of a tool, in bytes.
const MOST: usize = 1 << 20;

/// Writes the stacks of all processes that carry `tags` to `path`, without the `secrets` in them.
///
/// # Errors
/// When `/proc` cannot be read, or the file not be written.
pub fn record(tags: &processes::Tags, secrets: &[String], path: &Path) -> std::io::Result<()> {
    let started = Instant::now();
    let mut text = String::new();
    for pid in processes::numbers(tags)? {
        text.push_str(&of_process(pid, started.elapsed() < WITHIN.saturating_sub(TOOL)));
    }
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        text = text.replace(secret.as_str(), "***");
    }
    fs::write(path, text)
}

/// One process: its command, its threads, and a tool's output.
fn of_process(pid: i32, may_ask: bool) -> String {
    let read = |path: String| fs::read_to_string(path).unwrap_or_default();
    let words = read(format!("/proc/{pid}/cmdline")).replace('\0', " ");
    let mut text = format!("== process {pid}: {}\n", words.trim());
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut tasks: Vec<i32> = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
    tasks.sort_unstable();
    for task in tasks {
        let of = |file: &str| read(format!("/proc/{pid}/task/{task}/{file}"));
        let status = of("status");
        let state = status.lines().find_map(|line| line.strip_prefix("State:")).unwrap_or("ended").trim();
        let (name, place) = (of("comm"), of("wchan"));
        let place = if matches!(place.trim(), "" | "0") { String::new() } else { format!(", in {}", place.trim()) };
        let _ = writeln!(text, "thread {task} {}: {state}{place}", name.trim());
    }
    if may_ask {
        text.push_str(&asked(pid));
    }
    text.push('\n');
    text
}

/// The output of the first tool that is installed and permitted to trace.
fn asked(pid: i32) -> String {
    let number = pid.to_string();
    let is_python = fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.to_string_lossy().contains("python"));
    let py_spy: &[&str] = &["py-spy", "dump", "--pid", &number];
    let native: [&[&str]; 2] =
        [&["eu-stack", "-p", &number], &["gdb", "-p", &number, "-batch", "-ex", "thread apply all bt"]];
    let python = is_python.then_some(py_spy);
    let mut refused = Vec::new();
    for words in python.into_iter().chain(native) {
        match output(words) {
            Some(Ok(text)) => return format!("-- {}\n{text}", words[0]),
            Some(Err(why)) => refused.push(format!("-- {}: {why}\n", words[0])),
            None => {}
        }
    }
    match refused.is_empty() {
        true => "-- no stacks: neither py-spy (for Python), eu-stack nor gdb is installed\n".to_owned(),
        false => refused.concat(),
    }
}

/// A tool's output, or its error; `None` if it is not installed.
fn output(words: &[&str]) -> Option<Result<String, String>> {
    let (program, arguments) = words.split_first()?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let reader = child.stdout.take().map(|out| std::thread::spawn(move || read(out)));
    let status = wait(&mut child);
    let text = reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
    Some(match status {
        None => Err(format!("did not end within {} s", TOOL.as_secs())),
        Some(status) if !status.success() && text.is_empty() => Err(format!("ended with {status}")),
        Some(_) => Ok(text),
    })
}

fn read(mut out: impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = out.by_ref().take(MOST as u64).read_to_end(&mut bytes);
    // The remaining output is read and discarded, so that the tool can end.
    let _ = std::io::copy(&mut out, &mut std::io::sink());
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits for a tool; it is killed when it takes too long.
fn wait(child: &mut Child) -> Option<std::process::ExitStatus> {
    let started = Instant::now();
    while started.elapsed() < TOOL {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sleeping process is found by its tag, with its wait channel, and without its secret.
    #[test]
    fn a_process_is_found_with_its_threads() {
        let tag = format!("stacks-{}", std::process::id());
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 # hunter2"]).env("GRADUS_STACKS_TEST", &tag);
        let mut child = command.spawn().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stacks.txt");
        // It may not have started to sleep yet.
        let text = loop {
            record(&[("GRADUS_STACKS_TEST", &tag)], &["hunter2".to_owned()], &path).unwrap();
            let text = fs::read_to_string(&path).unwrap();
            if text.contains("sleep 1000") && text.contains("sleeping") {
                break text;
            }
        };
        child.kill().unwrap();
        child.wait().unwrap();
        let _ = processes::signal(&[("GRADUS_STACKS_TEST", &tag)], rustix::process::Signal::KILL);
        assert!(text.contains(&format!("thread {} ", child.id())), "{text}");
        assert!(text.contains("***") && !text.contains("hunter2"), "{text}");
        assert!(text.contains("\n-- "), "{text}");
    }

    #[test]
    fn a_tool_that_is_not_there_is_none() {
        assert!(output(&["gradus-no-such-tool"]).is_none());
        assert_eq!(output(&["sh", "-c", "echo here"]), Some(Ok("here\n".to_owned())));
        assert!(output(&["false"]).unwrap().unwrap_err().contains("exit status: 1"));
    }
}
