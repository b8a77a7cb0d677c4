//! A program that prints without end: memory and disk stay bounded, who follows it sees its newest lines, and what was
//! dropped is said.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::home::{Home, text};

/// Bytes that it prints.
const PRINTED: u64 = 10_000_000_000;

/// The most that its log may take of the disk: the bound of 1 GiB is looked at twice a second, in which a fast program prints
/// as much again.
const DISK: u64 = 4 << 30;

/// The most that a process of gradus may take of the memory, in KiB.
const MEMORY: u64 = 96 << 10;

/// The longest until a printed line is seen.
const DELAY: f64 = 60.0;

/// What was seen of the logs.
struct ReadLogs {
    /// How long after it was printed the last line was seen, in seconds.
    delay: Option<f64>,
    /// Whether something was said to be missing.
    is_dropped: bool,
}

/// Reads what a command prints of the logs.
fn reader(home: &Home, arguments: &[&str]) -> std::thread::JoinHandle<ReadLogs> {
    let mut command = home.command(arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::spawn(move || {
        let mut read = ReadLogs { delay: None, is_dropped: false };
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
            read.is_dropped |= line.contains("bytes of output were dropped here");
            if let Some((_, printed)) = line.split_once("the end at ") {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
                read.delay = printed.trim().parse::<f64>().ok().map(|printed| now - printed);
            }
        }
        let _ = child.wait();
        read
    })
}

/// Resident memory of the largest process of the home, in KiB.
fn memory(home: &Home) -> u64 {
    let of = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    home.pids("gradus").into_iter().filter_map(of).max().unwrap_or(0)
}

/// Bytes on the disk that the logs of all runs take.
fn disk(home: &Home) -> u64 {
    let runs = fs::read_dir(home.path().join("runs")).into_iter().flatten().flatten();
    let logs = runs.filter_map(|run| fs::read_dir(run.path().join("logs")).ok()).flatten().flatten();
    logs.filter_map(|log| log.metadata().ok()).map(|meta| meta.blocks() * 512).sum()
}

#[test]
#[ignore = "prints 10 GB: `cargo xtask test --long` runs it"]
fn a_log_of_ten_gigabytes_is_bounded_and_followed() {
    let home = Home::new();
    let program = format!(
        "yes {} | head -c {PRINTED} || true\n  echo \"the end at $(date +%s.%N)\"\n  sleep {DELAY}\n",
        "0123456789".repeat(10).trim_end_matches('9')
    );
    let job = home.job("loud.yaml", &format!("name: loud\nrun: |\n  {program}"));
    let detached = home.gradus(&["run", text(&job), "-d", "--json"]);
    assert_eq!(detached.code, Some(0), "{}", detached.err);
    let follower = reader(&home, &["logs", "last", "--follow"]);
    let (begun, mut most_memory, mut most_disk) = (Instant::now(), 0, 0);
    while home.state() != "succeeded" {
        assert!(begun.elapsed() < Duration::from_secs(900), "it has not ended: {}", home.state());
        most_memory = most_memory.max(memory(&home));
        most_disk = most_disk.max(disk(&home));
        std::thread::sleep(Duration::from_millis(200));
    }
    let delay = follower.join().unwrap().delay.expect("the last line was seen");
    // A follower may have been fast enough for all of it.
    let is_dropped = reader(&home, &["logs", "last"]).join().unwrap().is_dropped;
    eprintln!(
        "10 GB printed: at most {:.0} MiB of memory in a process and {:.1} GiB of the disk; the last line is seen after {delay:.1} s",
        most_memory as f64 / 1024.0,
        most_disk as f64 / f64::from(1 << 30)
    );
    assert!(is_dropped, "what is missing is said");
    assert!(most_memory < MEMORY && most_disk < DISK && delay < DELAY, "{most_memory} {most_disk} {delay}");
}
