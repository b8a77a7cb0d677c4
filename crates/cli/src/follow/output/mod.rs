//! The output of a user's own program while it runs: new lines in the logs of the run.
//!
//! It is read from the logs, so it is the same whichever process runs the control loop, and secrets are masked.

mod pace;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use self::pace::LinePace;
use crate::figures::size as byte_size;
use crate::printer::Printer;

/// Bytes of a log that are read at a time.
const MOST_BYTES: u64 = 1 << 20;

/// Bytes that are not read yet, at most; a program that writes faster is not followed line by line.
const MOST_BEHIND: u64 = 32 << 20;

/// Follows the logs of one run.
#[derive(Debug)]
pub struct ProgramOutput {
    logs: PathBuf,
    followed: Vec<FollowedLog>,
}

/// A log, as far as it is read.
#[derive(Debug)]
struct FollowedLog {
    path: PathBuf,
    read: u64,
    pace: LinePace,
}

impl ProgramOutput {
    /// Follows the logs in a folder; with `from_now`, only new output.
    pub fn new(logs: PathBuf, from_now: bool) -> ProgramOutput {
        let at_end = |path: PathBuf| {
            let read = length(&path);
            FollowedLog { path, read, pace: LinePace::default() }
        };
        let followed = if from_now { files(&logs).into_iter().map(at_end).collect() } else { Vec::new() };
        ProgramOutput { logs, followed }
    }

    /// Prints the lines that are new; with `all`, everything, also a last line that has no end yet.
    pub fn print(&mut self, printer: &mut Printer, all: bool, is_stopping: bool) {
        for path in files(&self.logs) {
            let index = self.followed.iter().position(|log| log.path == path).unwrap_or_else(|| {
                self.followed.push(FollowedLog { path, read: 0, pace: LinePace::default() });
                self.followed.len() - 1
            });
            self.followed[index].print(printer, all, is_stopping);
        }
    }
}

impl FollowedLog {
    fn print(&mut self, printer: &mut Printer, all: bool, is_stopping: bool) {
        let (rank, place, length) = (rank_of(&self.path), self.path.display().to_string(), length(&self.path));
        self.skip(length, printer, is_stopping);
        // A log that cannot be read now is read at the next look, or by `gradus logs`.
        while let Ok(bytes) = new_bytes(&self.path, self.read) {
            let end = end_of_lines(&bytes, all);
            self.read += end as u64;
            self.pace.take(&rank, &bytes[..end], is_stopping).iter().for_each(|line| printer.say(line));
            if !all || end == 0 || self.read >= length {
                break;
            }
        }
        self.pace.end_poll((&rank, &place), is_stopping && !all).iter().for_each(|line| printer.say(line));
    }

    /// Skips output that is too fast to read, so that the newest is shown.
    fn skip(&mut self, length: u64, printer: &mut Printer, is_stopping: bool) {
        let behind = length.saturating_sub(self.read);
        if behind <= MOST_BEHIND {
            return;
        }
        self.read = length - MOST_BYTES;
        let skipped = behind - MOST_BYTES;
        if is_stopping {
            self.pace.skip(skipped);
        } else {
            let (rank, place) = (rank_of(&self.path), self.path.display());
            printer.say(format!("{rank} | ({} of output, see `{place}`)", byte_size(skipped)));
        }
    }
}

/// Streamed output of a server's program: an incomplete line waits for its end.
#[derive(Debug, Default)]
pub struct OutputParts {
    begun: BTreeMap<String, String>,
    paces: BTreeMap<String, LinePace>,
}

/// Where all output of a server's run is.
const LOGS: &str = "gradus logs";

impl OutputParts {
    /// Prints the lines completed by this part.
    pub fn print(&mut self, printer: &mut Printer, (file, text): (&str, &str), is_stopping: bool) {
        let begun = self.begun.entry(file.to_owned()).or_default();
        begun.push_str(text);
        let end = begun.rfind('\n').map_or(0, |at| at + 1);
        let whole: String = begun.drain(..end).collect();
        self.take(printer, (file, &whole), is_stopping);
    }

    /// Prints how much was left out, after the parts of one poll.
    pub fn end_poll(&mut self, printer: &mut Printer, is_stopping: bool) {
        for (file, pace) in &mut self.paces {
            let rank = rank_of(Path::new(file));
            pace.end_poll((&rank, LOGS), is_stopping).iter().for_each(|line| printer.say(line));
        }
    }

    /// Prints lines that have no end, and how much was left out.
    pub fn finish(&mut self, printer: &mut Printer) {
        for (file, line) in std::mem::take(&mut self.begun).into_iter().filter(|(_, line)| !line.is_empty()) {
            self.take(printer, (&file, &line), false);
        }
        self.end_poll(printer, false);
    }

    fn take(&mut self, printer: &mut Printer, (file, lines): (&str, &str), is_stopping: bool) {
        let pace = self.paces.entry(file.to_owned()).or_default();
        let printed = pace.take(&rank_of(Path::new(file)), lines.as_bytes(), is_stopping);
        printed.iter().for_each(|line| printer.say(line));
    }
}

/// Where the output ends that is printed now: with a line, unless it is the last, or longer than what is read at a time.
fn end_of_lines(bytes: &[u8], all: bool) -> usize {
    let is_full = bytes.len() as u64 >= MOST_BYTES;
    match bytes.iter().rposition(|byte| *byte == b'\n') {
        _ if all && !is_full => bytes.len(),
        Some(at) => at + 1,
        None if is_full => bytes.len(),
        None => 0,
    }
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |file| file.len())
}

fn new_bytes(path: &Path, from: u64) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The logs of a run, by name; empty before its first attempt.
fn files(logs: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(logs).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// `rank 0` of `NAME-a1-rank-0.log`.
fn rank_of(path: &Path) -> String {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    name.rsplit_once("rank-").map_or(name.clone(), |(_, rank)| format!("rank {rank}"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_line_waits_for_its_end_unless_it_is_the_last_or_too_long() {
        assert_eq!(rank_of(Path::new("logs/a-a1-rank-0.log")), "rank 0");
        let long = vec![b'x'; 1 << 20];
        let cases: [(&[u8], bool, usize); 5] =
            [(b"a\nb", false, 2), (b"a\nb", true, 3), (b"ab", false, 0), (b"", true, 0), (&long, false, 1 << 20)];
        for (bytes, all, end) in cases {
            assert_eq!(end_of_lines(bytes, all), end, "{} bytes", bytes.len());
        }
    }

    /// The rest of a log that is longer than what is read at a time was never printed, nor counted.
    #[test]
    fn the_last_poll_reads_a_log_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r-a1-rank-0.log");
        let mut log = File::create(&path).unwrap();
        log.write_all("a line of a program\n".repeat(200_000).as_bytes()).unwrap();
        log.write_all(b"no end").unwrap();
        let mut output = ProgramOutput::new(folder.path().to_owned(), false);
        output.print(&mut Printer::silent(), false, false);
        assert!(output.followed[0].read <= MOST_BYTES, "{}", output.followed[0].read);
        output.print(&mut Printer::silent(), true, false);
        assert_eq!(output.followed[0].read, length(&path));
    }
}
