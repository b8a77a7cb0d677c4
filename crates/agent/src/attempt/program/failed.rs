//! The last lines of the process of a program that failed first, where several write to one log.
//!
//! Scripts of `gradus launch` label the lines of each process with its rank, and write down which ones failed before the others
//! were told to end (`domain::file::written::processes`). The others have the last word: they complain that a connection
//! is lost.

use std::path::Path;

use node::log;

use crate::attempt::process::Exit;

/// Bytes of the log in which the lines are looked for.
const BYTES: u64 = 256 << 10;

/// The last lines of the process that failed first, with its rank; none if the log does not say which it was. Lines without a
/// label are of rank `own`.
pub fn of_first_failed(path: &Path, own: u32, exit: Exit) -> Option<String> {
    let Exit::Code(code) = exit else { return None };
    of_first(&log::end(path, BYTES), own, code)
}

fn of_first(text: &str, own: u32, code: i32) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let ends: Vec<(u32, i32)> = lines.iter().filter_map(|line| end(line)).collect();
    // Else they are of other processes, that the script ran before.
    if !ends.iter().any(|(_, other)| *other == code) {
        return None;
    }
    let rank_of = |line: &str| labelled(line).map_or(own, |(rank, _)| rank);
    let is_said_by = |line: &str, rank: u32| rank_of(line) == rank && end(line).is_none() && !line.trim().is_empty();
    // Where several were found to have failed at once, the one that fell silent first.
    let last = |rank: u32| lines.iter().rposition(|line| is_said_by(line, rank));
    let (first, _) = ends.into_iter().min_by_key(|(rank, _)| last(*rank))?;
    let said = log::last_lines(text, |line| is_said_by(line, first));
    // One that has said nothing is named with its code.
    Some(if said.is_empty() { log::last_lines(text, |line| rank_of(line) == first) } else { said })
}

/// The rank that a line begins with, and what follows.
fn labelled(line: &str) -> Option<(u32, &str)> {
    let (rank, said) = line.strip_prefix("[rank")?.split_once("]:")?;
    Some((rank.parse().ok()?, said.trim_start()))
}

/// The rank and the code of a line that says how a process failed.
fn end(line: &str) -> Option<(u32, i32)> {
    let (rank, said) = labelled(line)?;
    Some((rank, said.strip_prefix("ended with code ")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, code: i32, expected: Option<&str>) {
        assert_eq!(of_first(text, 0, code).as_deref(), expected, "{text}");
    }

    #[test]
    fn the_process_that_failed_first_has_the_word() {
        let later = "Connection closed by peer\nthe last word\n";
        check(
            &format!("step 1\n[rank1]: step 1\n[rank1]: boom\n[rank1]: ended with code 1\n{later}"),
            1,
            Some("[rank1]: step 1\n[rank1]: boom"),
        );
        // Both had ended when they were looked at.
        let both = format!("[rank1]: boom\n{later}[rank0]: ended with code 1\n[rank1]: ended with code 1\n");
        check(&both, 1, Some("[rank1]: boom"));
        check("boom\n[rank1]: lost\n[rank0]: ended with code 3\n[rank1]: ended with code 1\n", 3, Some("boom"));
        // PyTorch labels lines of rank 0 too.
        check("a\n[rank0]: boom\n[rank1]: lost\n[rank0]: ended with code 1\n", 1, Some("a\n[rank0]: boom"));
    }

    #[test]
    fn a_process_that_said_nothing_is_named_with_its_code() {
        check("lost\n[rank2]: ended with code 137\n", 137, Some("[rank2]: ended with code 137"));
    }

    #[test]
    fn a_log_that_does_not_say_who_failed_is_taken_as_it_is() {
        check("one\n[rank1]: two\n", 1, None);
        check("[rank1]: ended with code 1\nanother program\n", 2, None);
    }
}
