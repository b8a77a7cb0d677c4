//! How many lines of a log are printed while a run is followed.
//!
//! After a pause, such as a lost connection, all that a program usually writes in a minute is printed. Of a flood, so much is
//! printed per poll that the newest can be seen, and the rest is counted. While a run stops, its result is what is waited
//! for: a backlog is skipped, and counted once.

use crate::figures::{counted, size as byte_size};

/// Lines of a log that are printed at once, at most.
const BURST: usize = 2_000;

/// Lines that may be printed in addition with each poll, of which there are 20 per second.
const PER_POLL: usize = 40;

/// The same as [`BURST`] while a run stops.
const STOPPING_BURST: usize = 200;

/// After so many polls without new output, a backlog has been read.
const DRAINED: u32 = 20;

/// What may be printed of one log, and what was left out.
#[derive(Debug)]
pub struct LinePace {
    allowed: usize,
    lines_left_out: u64,
    bytes_left_out: u64,
    has_new: bool,
    /// Polls since the last that had new output.
    quiet: u32,
}

impl Default for LinePace {
    fn default() -> LinePace {
        LinePace { allowed: BURST, lines_left_out: 0, bytes_left_out: 0, has_new: false, quiet: 0 }
    }
}

impl LinePace {
    /// The lines to print of one rank's output; the others are counted.
    pub fn take(&mut self, rank: &str, bytes: &[u8], is_stopping: bool) -> Vec<String> {
        self.allowed = self.allowed.min(burst(is_stopping));
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.split_terminator('\n');
        let printed: Vec<String> =
            lines.by_ref().take(self.allowed).map(|line| with_rank(rank, last_state(line))).collect();
        self.allowed -= printed.len();
        self.lines_left_out += lines.count() as u64;
        self.has_new |= !bytes.is_empty();
        printed
    }

    /// Leaves out output that was not read.
    pub fn skip(&mut self, bytes: u64) {
        self.bytes_left_out += bytes;
        self.has_new = true;
    }

    /// What to print after a poll: how much was left out, and where all of it is.
    pub fn end_poll(&mut self, (rank, place): (&str, &str), is_stopping: bool) -> Vec<String> {
        self.quiet = if self.has_new { 0 } else { self.quiet.saturating_add(1) };
        self.has_new = false;
        let has_left_out = self.lines_left_out > 0 || self.bytes_left_out > 0;
        if is_stopping && has_left_out && self.quiet < DRAINED {
            self.allowed = 0;
            return Vec::new();
        }
        self.allowed = (self.allowed + PER_POLL).min(burst(is_stopping));
        let mut said = Vec::new();
        match std::mem::take(&mut self.bytes_left_out) {
            0 => {}
            bytes => said.push(format!("{rank} | ({} of output, see `{place}`)", byte_size(bytes))),
        }
        match std::mem::take(&mut self.lines_left_out) {
            0 => {}
            lines => said.push(format!("{rank} | ({}, all of them in `{place}`)", counted(lines, "more line"))),
        }
        said
    }
}

fn burst(is_stopping: bool) -> usize {
    if is_stopping { STOPPING_BURST } else { BURST }
}

/// What a line shows. A progress bar redraws its line with `\r`: its last state is printed.
fn last_state(line: &str) -> &str {
    line.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default()
}

/// A line with its rank: its own, if it begins with one as where the processes of a program share a log, or that of the log.
fn with_rank(rank: &str, line: &str) -> String {
    let own = line.strip_prefix("[rank").and_then(|rest| rest.split_once("]: "));
    match own.filter(|(number, _)| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())) {
        Some((number, said)) => format!("rank {number} | {said}"),
        None => format!("{rank} | {line}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines that are printed, and what is said of those left out, in polls of so many lines each.
    fn printed(pace: &mut LinePace, polls: &[usize], is_stopping: bool) -> (usize, Vec<String>) {
        let (mut lines, mut said) = (0, Vec::new());
        for lines_of_poll in polls {
            lines += pace.take("rank 0", "y\n".repeat(*lines_of_poll).as_bytes(), is_stopping).len();
            said.extend(pace.end_poll(("rank 0", "l"), is_stopping));
        }
        (lines, said)
    }

    #[test]
    fn a_line_has_its_rank_and_a_progress_bar_shows_its_last_state() {
        let shown = |bytes: &[u8]| LinePace::default().take("rank 0", bytes, false);
        assert_eq!(shown(b"10 %\r20 %\r\nnext\n"), ["rank 0 | 20 %", "rank 0 | next"]);
        let mixed = b"a\n[rank12]: b\n[rank1]: \n[rank]: c\n[rankx]: d\n";
        let expected = ["rank 0 | a", "rank 12 | b", "rank 1 | ", "rank 0 | [rank]: c", "rank 0 | [rankx]: d"];
        assert_eq!(shown(mixed), expected);
    }

    /// Before, a server that was away for ten seconds cost lines of those ten seconds.
    #[test]
    fn what_a_program_usually_writes_in_a_minute_is_printed_after_a_pause() {
        let mut pace = LinePace::default();
        assert_eq!(printed(&mut pace, &[1_900, 0, 1, 30, 30], false), (1_961, Vec::new()));
    }

    #[test]
    fn of_a_flood_some_is_printed_in_each_poll_and_the_rest_counted() {
        let mut pace = LinePace::default();
        let (lines, said) = printed(&mut pace, &[5_000, 5_000, 5_000], false);
        assert_eq!(lines, 2_080);
        let more = |lines: &str| format!("rank 0 | ({lines} more lines, all of them in `l`)");
        assert_eq!(said, [more("3,000"), more("4,960"), more("4,960")]);
        // After a pause there is a whole burst again.
        assert_eq!(printed(&mut pace, &[0; 60], false), (0, Vec::new()));
        assert_eq!(printed(&mut pace, &[2_000], false), (2_000, Vec::new()));
    }

    #[test]
    fn the_backlog_of_a_run_that_stops_is_skipped_and_counted_once() {
        let mut pace = LinePace::default();
        assert_eq!(printed(&mut pace, &[5_000; 100], true), (200, Vec::new()));
        pace.skip(40_000_000);
        let (lines, said) = printed(&mut pace, &[0; 60], true);
        let more = "rank 0 | (499,800 more lines, all of them in `l`)";
        assert_eq!((lines, said), (0, vec!["rank 0 | (40.0 MB of output, see `l`)".to_owned(), more.to_owned()]));
        // What a program writes while it saves is printed.
        assert_eq!(printed(&mut pace, &[10; 60], true), (600, Vec::new()));
        // The result does not wait for the end of a backlog.
        printed(&mut pace, &[5_000], true);
        assert_eq!(pace.end_poll(("rank 0", "l"), false).len(), 1);
    }
}
