//! The output of a user's own program while it runs: new lines in the logs of the run.
//!
//! It is read from the logs, so it is the same whichever process runs the control loop, and secrets are masked.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::figures::{counted, size as byte_size};
use crate::printer::Printer;

/// Maximum lines of a log printed per poll; more are counted, and remain in the log.
const MOST_LINES: usize = 40;

/// Bytes of a log that are read per look.
const MOST_BYTES: u64 = 1 << 20;

/// Bytes that are not read yet, at most; a program that writes faster is not followed line by line.
const MOST_BEHIND: u64 = 32 << 20;

/// Follows the logs of one run.
#[derive(Debug)]
pub struct ProgramOutput {
    logs: PathBuf,
    read: Vec<(PathBuf, u64)>,
}

impl ProgramOutput {
    /// Follows the logs in a folder; with `from_now`, only new output.
    pub fn new(logs: PathBuf, from_now: bool) -> ProgramOutput {
        let length = |path: PathBuf| (path.clone(), fs::metadata(&path).map_or(0, |file| file.len()));
        let read = if from_now { files(&logs).into_iter().map(length).collect() } else { Vec::new() };
        ProgramOutput { logs, read }
    }

    /// Prints the lines that are new; with `all`, also a last one that has no end yet.
    pub fn print(&mut self, printer: &mut Printer, all: bool) {
        for path in files(&self.logs) {
            let place = self.read.iter().position(|(known, _)| *known == path).unwrap_or_else(|| {
                self.read.push((path.clone(), 0));
                self.read.len() - 1
            });
            // A log that cannot be read now is read at the next look, or by `gradus logs`.
            self.skip(place, printer);
            if let Ok(bytes) = new_bytes(&path, self.read[place].1) {
                let end =
                    if all { bytes.len() } else { bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1) };
                self.read[place].1 += end as u64;
                let place = path.display().to_string();
                shown(&rank_of(&path), &bytes[..end], &place).iter().for_each(|line| printer.say(line));
            }
        }
    }
}

impl ProgramOutput {
    /// Skips output that is too fast to read, so that the newest is shown.
    fn skip(&mut self, place: usize, printer: &mut Printer) {
        let (path, read) = &mut self.read[place];
        let size = fs::metadata(&*path).map_or(0, |file| file.len());
        let behind = size.saturating_sub(*read);
        if behind > MOST_BEHIND {
            *read = size - MOST_BYTES;
            let rank = rank_of(path);
            printer.say(format!("{rank} | ({} of output, see `{}`)", byte_size(behind - MOST_BYTES), path.display()));
        }
    }
}

/// Streamed output of a server's program: an incomplete line waits for its end.
#[derive(Debug, Default)]
pub struct OutputParts {
    begun: BTreeMap<String, String>,
}

impl OutputParts {
    /// Prints the lines completed by this part.
    pub fn print(&mut self, printer: &mut Printer, file: &str, text: &str) {
        let begun = self.begun.entry(file.to_owned()).or_default();
        begun.push_str(text);
        let end = begun.rfind('\n').map_or(0, |at| at + 1);
        let whole: String = begun.drain(..end).collect();
        shown(&rank_of(Path::new(file)), whole.as_bytes(), "gradus logs").iter().for_each(|line| printer.say(line));
    }

    /// Prints lines that have no end.
    pub fn finish(&mut self, printer: &mut Printer) {
        for (file, line) in std::mem::take(&mut self.begun).into_iter().filter(|(_, line)| !line.is_empty()) {
            shown(&rank_of(Path::new(&file)), line.as_bytes(), "gradus logs").iter().for_each(|line| printer.say(line));
        }
    }
}

/// The lines to print of one rank's output. A progress bar redraws its line with `\r`: its last state is printed.
fn shown(rank: &str, bytes: &[u8], place: &str) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let last_state = |line: &str| line.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default().to_owned();
    let lines: Vec<String> = text.split_terminator('\n').map(last_state).collect();
    let left_out = lines.len().saturating_sub(MOST_LINES);
    let mut all: Vec<String> = lines.into_iter().take(MOST_LINES).map(|line| with_rank(rank, &line)).collect();
    if left_out > 0 {
        let lines = counted(left_out as u64, "more line");
        all.push(format!("{rank} | ({lines}, all of them in `{place}`)"));
    }
    all
}

/// A line with its rank: its own, if it begins with one as where the processes of a program share a log, or that of the log.
fn with_rank(rank: &str, line: &str) -> String {
    let own = line.strip_prefix("[rank").and_then(|rest| rest.split_once("]: "));
    match own.filter(|(number, _)| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())) {
        Some((number, said)) => format!("rank {number} | {said}"),
        None => format!("{rank} | {line}"),
    }
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
    use super::*;

    #[test]
    fn a_flood_is_counted_and_a_progress_bar_shows_its_last_state() {
        let path = Path::new("logs/a-a1-rank-0.log");
        assert_eq!(rank_of(path), "rank 0");
        assert_eq!(shown("rank 0", b"10 %\r20 %\r\nnext\n", "l"), ["rank 0 | 20 %", "rank 0 | next"]);
        let mixed = b"a\n[rank12]: b\n[rank1]: \n[rank]: c\n[rankx]: d\n";
        let expected = ["rank 0 | a", "rank 12 | b", "rank 1 | ", "rank 0 | [rank]: c", "rank 0 | [rankx]: d"];
        assert_eq!(shown("rank 0", mixed, "l"), expected);
        let flood = shown("rank 0", "y\n".repeat(1000).as_bytes(), "logs/a.log");
        assert_eq!(flood.len(), MOST_LINES + 1);
        assert_eq!(flood[MOST_LINES], "rank 0 | (960 more lines, all of them in `logs/a.log`)");
    }
}
