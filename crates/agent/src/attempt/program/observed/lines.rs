//! Lines of a program's output that match the pattern of the job.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use regex_lite::{Captures, Regex};

use super::steps::ObservedStep;
use super::trainer_state::seconds;

/// Most bytes that one look reads; more waits for the next.
const MOST: u64 = 4 << 20;

/// A line that has no end within so many bytes is no line.
const LONGEST: usize = 64 << 10;

/// The output, from where it was read to.
#[derive(Debug)]
pub(super) struct Lines {
    path: PathBuf,
    pattern: Regex,
    at: u64,
    /// The beginning of a line whose end was not written yet.
    rest: Vec<u8>,
}

impl Lines {
    /// The output from byte `at` on.
    pub fn from(path: &Path, at: u64, pattern: Regex) -> Lines {
        Lines { path: path.to_owned(), pattern, at, rest: Vec::new() }
    }

    /// What the lines since the last look say.
    pub fn read(&mut self) -> Vec<ObservedStep> {
        let mut bytes = Vec::new();
        let read = File::open(&self.path).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.at))?;
            file.take(MOST).read_to_end(&mut bytes)
        });
        self.at += read.unwrap_or(0) as u64;
        self.rest.append(&mut bytes);
        // A progress bar returns to the beginning of its line.
        let Some(end) = self.rest.iter().rposition(|byte| matches!(byte, b'\n' | b'\r')) else {
            if self.rest.len() > LONGEST {
                self.rest.clear();
            }
            return Vec::new();
        };
        let left = self.rest.split_off(end + 1);
        let text = String::from_utf8_lossy(&std::mem::replace(&mut self.rest, left)).into_owned();
        let now = seconds(SystemTime::now());
        text.split(['\n', '\r']).filter_map(|line| seen(&self.pattern.captures(line)?, &self.pattern, now)).collect()
    }
}

/// What the groups of a match say; nothing if `step` is no whole number.
fn seen(captures: &Captures, pattern: &Regex, at: f64) -> Option<ObservedStep> {
    let mut seen = ObservedStep { step: whole(captures.name("step")?.as_str())?, at, ..ObservedStep::default() };
    for name in pattern.capture_names().flatten().filter(|name| *name != "step") {
        let Some(text) = captures.name(name).map(|found| found.as_str()) else { continue };
        match name {
            "epoch" => seen.epoch = number(text),
            "steps" => seen.steps = whole(text),
            "samples" => seen.samples = whole(text),
            "loss" => seen.loss = number(text),
            "lr" => seen.lr = number(text),
            _ => seen.others.extend(number(text).map(|value| (name.to_owned(), value))),
        }
    }
    Some(seen)
}

/// A number as programs print it: `1,000` and `0.5,` at the end of a clause.
fn number(text: &str) -> Option<f64> {
    text.trim_end_matches([',', ';', ')', ']', '.', '|']).replace([',', '_'], "").parse().ok()
}

fn whole(text: &str) -> Option<u64> {
    text.replace([',', '_'], "").parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// What a pattern finds in text that is written in two parts.
    fn check(pattern: &str, text: &str, expected: &[&str]) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        for middle in [0, text.len() / 2, text.len()] {
            fs::write(&path, "").unwrap();
            let mut lines = Lines::from(&path, 0, Regex::new(pattern).unwrap());
            let mut found = Vec::new();
            for end in [middle, text.len()] {
                fs::write(&path, &text.as_bytes()[..end]).unwrap();
                found.extend(lines.read());
            }
            let shown = found.iter().map(|seen| {
                let ObservedStep { step, steps, epoch, loss, lr, samples, others, .. } = seen;
                format!("{step} {steps:?} {epoch:?} {loss:?} {lr:?} {samples:?} {others:?}")
            });
            assert_eq!(shown.collect::<Vec<_>>(), expected, "in two parts at byte {middle}");
        }
    }

    #[test]
    fn groups_of_a_pattern_are_numbers() {
        check(
            r"step (?<step>[\d,]+)/(?<steps>\d+).*loss[:=] ?(?<loss>\S+).*lr (?<lr>\S+)(.*f1 (?<f1>\S+))?",
            "begins\nstep 1,200/9000 | loss=0.25, lr 3e-4\nstep x/1 loss=1 lr 1\nstep 1300/9000 loss: nan lr 1 f1 0.5\nstep 1",
            &[
                "1200 Some(9000) None Some(0.25) Some(0.0003) None {}",
                r#"1300 Some(9000) None Some(NaN) Some(1.0) None {"f1": 0.5}"#,
            ],
        );
    }

    #[test]
    fn a_progress_bar_is_a_row_of_lines() {
        check(
            r"(?<step>\d+)/(?<steps>\d+) \[.*loss=(?<loss>[\d.]+)",
            "  1%| | 1/100 [00:01<01:39, loss=0.9]\r  2%| | 2/100 [00:02<01:38, loss=0.8]\r",
            &["1 Some(100) None Some(0.9) None None {}", "2 Some(100) None Some(0.8) None None {}"],
        );
    }
}
