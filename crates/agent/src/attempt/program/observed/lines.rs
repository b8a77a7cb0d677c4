//! Lines of a program's output that match the pattern of the job.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use regex_lite::{Captures, Regex};

use super::steps::ObservedStep;
use super::trainer_state::seconds;

/// Most bytes that one read takes; more waits for the next, which follows soon.
const MOST: u64 = 1 << 20;

/// Output that is further behind than this is skipped, except for the newest: a program that prints faster than its
/// lines can be matched would be shown further and further in its past.
const BACKLOG: u64 = 64 << 20;

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
    /// Whether there may be more than the last read has taken.
    is_behind: bool,
    /// Bytes that were not read.
    skipped: u64,
    /// What follows is the end of a line whose beginning was skipped.
    is_cut: bool,
}

impl Lines {
    /// The output from byte `at` on.
    pub fn from(path: &Path, at: u64, pattern: Regex) -> Lines {
        let (rest, is_behind, skipped, is_cut) = (Vec::new(), false, 0, false);
        Lines { path: path.to_owned(), pattern, at, rest, is_behind, skipped, is_cut }
    }

    /// Whether there may be more to read.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Bytes that were not read.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Skips what is left to read, except for the newest that one read takes.
    pub fn skip_to_newest(&mut self) {
        self.skip_beyond(MOST);
    }

    /// Skips to the newest output if more than `most` is left to read.
    fn skip_beyond(&mut self, most: u64) {
        let length = self.path.metadata().map_or(0, |about| about.len());
        if length.saturating_sub(self.at) <= most {
            return;
        }
        let newest = length - MOST;
        self.skipped += newest - self.at;
        self.at = newest;
        self.rest.clear();
        self.is_cut = true;
    }

    /// What the lines since the last read say, as far as one read takes.
    pub fn read(&mut self) -> Vec<ObservedStep> {
        self.skip_beyond(BACKLOG);
        let mut bytes = Vec::new();
        let read = File::open(&self.path).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.at))?;
            file.take(MOST).read_to_end(&mut bytes)
        });
        let read = read.unwrap_or(0) as u64;
        self.at += read;
        self.is_behind = read == MOST;
        if self.is_cut {
            // Of a number that is cut, the rest would be taken for the whole.
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            self.is_cut = end.is_none();
            bytes.drain(..end.map_or(bytes.len(), |end| end + 1));
        }
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
    use std::io::Write;

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

    const STEPS: &str = r"step (?<step>\d+) loss (?<loss>\S+)";

    #[test]
    fn what_is_too_far_behind_is_skipped_from_line_to_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let end = "step 8 loss 0.5\nstep 9 loss nan\n";
        // The newest that is read begins within a line.
        let filler = "step 123 loss 0.5\n";
        let count = (MOST as usize - end.len()) / filler.len() + 1;
        let newest = format!("{}{end}", filler.repeat(count));
        fs::write(&path, "").unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_len(BACKLOG).unwrap();
        fs::File::options().append(true).open(&path).unwrap().write_all(newest.as_bytes()).unwrap();
        let length = BACKLOG + newest.len() as u64;
        let cut = newest.len() - MOST as usize;
        assert!(cut > 0 && cut < filler.len(), "the beginning of a line is skipped: {cut}");
        let mut lines = Lines::from(&path, 0, Regex::new(STEPS).unwrap());
        let steps: Vec<u64> = lines.read().iter().map(|seen| seen.step).collect();
        assert_eq!(steps.len(), count - 1 + 2, "all but the line that is cut");
        assert!(steps[..count - 1].iter().all(|step| *step == 123));
        assert_eq!(steps[count - 1..], [8, 9]);
        assert_eq!(lines.skipped(), length - MOST);
        assert!(lines.read().is_empty() && !lines.is_behind());
    }

    #[test]
    fn of_a_number_that_is_cut_the_rest_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        // The last mebibyte begins with `3/9`.
        let newest = format!("3/9\n7/9\n{}", " ".repeat(MOST as usize - 8));
        fs::write(&path, format!("12{newest}")).unwrap();
        let mut lines = Lines::from(&path, 0, Regex::new(r"(?<step>\d+)/(?<steps>\d+)").unwrap());
        lines.skip_to_newest();
        let steps: Vec<u64> = lines.read().iter().map(|seen| seen.step).collect();
        assert_eq!((steps, lines.skipped()), (vec![7], 2));
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
