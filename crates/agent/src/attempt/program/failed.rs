//! What a program's log says of its process that failed first, where several write to one log, and whether it failed by itself.
//!
//! Scripts of `gradus launch` label the lines of each process with its rank, and write down which ones failed before the others
//! were told to end (`domain::file::written::processes`); torchrun writes a report ([`super::torchrun`]). The others have the
//! last word: they complain that a connection is lost. So does each process of the other machines of a job, whose code is that
//! of any error: what it says tells the one that was first from those that it took down.

use std::ops::Range;
use std::path::Path;

use node::log;

use super::torchrun;
use crate::attempt::process::{Exit, FailedFirst};

/// Bytes of the log in which the lines are looked for.
const BYTES: u64 = 256 << 10;

/// Where Python begins to say what has ended a process.
const TRACEBACK: &str = "Traceback (most recent call last):";

/// Lines at the end that count where there is no traceback, such as those of a thread of NCCL's.
const WORDS: usize = 50;

/// Codes of a process that ended by itself, and not by a signal.
const CODES: Range<i32> = 1..128;

/// What PyTorch, Gloo and NCCL say where another process is gone or does not answer.
const LOST: [&str; 9] = [
    "gloo/transport/tcp/",
    "Gloo connectFullMesh failed",
    "Application timeout caused pair closure",
    "ncclRemoteError",
    "remote process exited or there was a network error",
    "Watchdog caught collective operation timeout",
    "Connection was likely closed. Did the remote server shutdown or crash?",
    "client socket has timed out",
    "clients joined",
];

/// Looks for the process that failed first. Lines without a label are of rank `own`.
pub fn of_first_failed(path: &Path, own: u32, exit: Exit) -> FailedFirst {
    match exit {
        Exit::Code(0) | Exit::Never => FailedFirst::default(),
        Exit::Code(_) | Exit::Signal(_) => failed_first(&log::end(path, BYTES), own, exit),
    }
}

fn failed_first(text: &str, own: u32, exit: Exit) -> FailedFirst {
    let code = match exit {
        Exit::Code(code) => code,
        Exit::Signal(_) | Exit::Never => 0,
    };
    let is_victim = |text: &str, rank: u32, code: i32| CODES.contains(&code) && has_lost_another(text, own, rank);
    if let Some((said, failed)) = of_launch(text, own, code) {
        let is_lost = failed.iter().all(|(rank, code)| is_victim(text, *rank, *code));
        return FailedFirst { said: Some(said), is_by_itself: false, has_lost_another: is_lost };
    }
    let Some(report) = torchrun::report(text, own) else {
        return FailedFirst { has_lost_another: is_victim(text, own, code), ..FailedFirst::default() };
    };
    // A thread of NCCL's ends its process by SIGABRT where another one is gone.
    let code_of = |code: i32| if code == -libc::SIGABRT { 1 } else { code };
    // All but the first may have been ended by torchrun.
    let is_ended = |code: i32| [-libc::SIGTERM, -libc::SIGKILL].contains(&code);
    let failed = report.failed.iter().enumerate().filter(|(place, (_, code))| *place == 0 || !is_ended(*code));
    let failed: Vec<(u32, i32)> = failed.map(|(_, process)| *process).collect();
    let is_lost = failed.iter().all(|(rank, code)| is_victim(report.before, *rank, code_of(*code)));
    let first = report.failed.first().map_or(own, |(rank, _)| *rank);
    let is_its = is_said_by(report.before, own, first);
    let said = log::last_lines(report.before, |line| is_its(line) && !line.contains(torchrun::LAUNCHER));
    let said = [said.as_str(), report.signalled.unwrap_or("")].join("\n").trim().to_owned();
    let said = Some(said).filter(|said| !said.is_empty());
    // So the first one ends if it is told to.
    let is_by_itself = !is_lost && failed.iter().any(|(_, code)| *code != -libc::SIGTERM);
    FailedFirst { said, is_by_itself, has_lost_another: is_lost }
}

/// Whether a line is of a rank: by its label, or without any if no line has that of the rank.
fn is_said_by(text: &str, own: u32, rank: u32) -> impl Fn(&str) -> bool {
    let is_of = move |line: &str| labelled(line).is_some_and(|(of, _)| of == rank);
    let may_lack = rank == own || !text.lines().any(is_of);
    move |line: &str| is_of(line) || may_lack && labelled(line).is_none()
}

/// Whether the last words of a process are that another one is gone.
fn has_lost_another(text: &str, own: u32, rank: u32) -> bool {
    let is_its = is_said_by(text, own, rank);
    let said = |line| labelled(line).map_or(line, |(_, said)| said.strip_prefix(' ').unwrap_or(said));
    let words: Vec<&str> = text.lines().filter(|line| is_its(line)).map(said).collect();
    let from = words.iter().rposition(|line| line.starts_with(TRACEBACK));
    let from = from.unwrap_or(words.len().saturating_sub(WORDS));
    // Indented lines quote the program.
    let says = |line: &&str| !line.starts_with(' ') && LOST.iter().any(|sign| line.contains(sign));
    words[from..].iter().any(says)
}

/// The last lines of the process that failed first, and the ranks and codes of all that did, if a script of `gradus launch` has
/// written them down.
fn of_launch(text: &str, own: u32, code: i32) -> Option<(String, Vec<(u32, i32)>)> {
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
    let (first, _) = ends.iter().copied().min_by_key(|(rank, _)| last(*rank))?;
    let said = log::last_lines(text, |line| is_said_by(line, first));
    // One that has said nothing is named with its code.
    let said = if said.is_empty() { log::last_lines(text, |line| rank_of(line) == first) } else { said };
    Some((said, ends))
}

/// The rank that a line begins with, and what follows.
fn labelled(line: &str) -> Option<(u32, &str)> {
    let (rank, said) = line.strip_prefix("[rank")?.split_once("]:")?;
    Some((rank.parse().ok()?, said))
}

/// The rank and the code of a line that says how a process failed.
fn end(line: &str) -> Option<(u32, i32)> {
    let (rank, said) = labelled(line)?;
    Some((rank, said.trim_start().strip_prefix("ended with code ")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::torchrun::tests::told;
    use super::*;

    fn check(text: &str, code: i32, expected: Option<&str>) {
        assert_eq!(failed_first(text, 0, Exit::Code(code)).said.as_deref(), expected, "{text}");
    }

    /// What a process of PyTorch says whose peer is gone.
    fn lost(rank: u32) -> String {
        format!(
            "step 390/600 loss 0.8\n[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]:   File \"ddp.py\", line 55\n\
             [rank{rank}]:     loss.backward()\n[rank{rank}]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] \
             Read error [127.0.0.1]:45228: Connection reset by peer\n"
        )
    }

    /// Whether it failed by itself, and whether for want of another.
    fn which(text: &str, own: u32, exit: Exit) -> (bool, bool) {
        let found = failed_first(text, own, exit);
        (found.is_by_itself, found.has_lost_another)
    }

    #[test]
    fn one_that_has_lost_another_is_told_from_one_that_failed_by_itself() {
        let failed = Exit::Code(1);
        let raised = "[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: 7\n";
        assert_eq!(which(&(lost(1) + &told(1, 1)), 1, failed), (false, true));
        assert_eq!(which(&("step 390/600 loss 0.8\n".to_owned() + &told(1, -9)), 1, failed), (true, false), "killed");
        assert_eq!(which(&(raised.to_owned() + &told(1, 1)), 1, failed), (true, false));
        // What it has survived does not count.
        assert_eq!(which(&(lost(1) + raised + &told(1, 1)), 1, failed), (true, false));
        // It was ended by an order, after it had failed.
        assert_eq!(which(&("step\n".to_owned() + &told(1, -9)), 1, Exit::Signal(libc::SIGTERM)), (true, false));
        assert_eq!(which(&("step\n".to_owned() + &told(1, -15)), 1, Exit::Signal(libc::SIGTERM)), (false, false));
        // A launcher of another kind, or none.
        assert_eq!(which(&lost(0), 0, failed), (false, true));
        assert_eq!(which(&raised.replace("[rank1]: ", ""), 0, failed), (false, false));
        assert_eq!(which(&lost(0), 0, Exit::Code(137)), (false, false), "killed");
        assert_eq!(which(&lost(0), 0, Exit::Signal(libc::SIGTERM)), (false, false));
        // The others of its machine are ended by torchrun, and told as well.
        let ended = "Failures:\n[1]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : -15 (pid: 8)\n----\n";
        let with_others =
            |rank: u32, code: i32| told(rank, code).replace("Failures:\n  <NO_OTHER_FAILURES>\n----\n", ended);
        assert_eq!(which(&(lost(1) + &lost(0) + &with_others(1, 1)), 0, failed), (false, true));
        assert_eq!(which(&(lost(0) + &with_others(2, -9)), 0, failed), (true, false));
        let watchdog = "[rank1]:[E1128 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL\n";
        assert_eq!(which(&(watchdog.to_owned() + &told(1, -6)), 1, failed), (false, true));
        // The program's own text is no sign.
        let quoted =
            "Traceback (most recent call last):\n  File \"a.py\"\n    # gloo/transport/tcp/pair.cc\nValueError: 7\n";
        assert_eq!(which(quoted, 0, failed), (false, false));
        // One of two processes of a machine has failed by itself.
        let ended = "[rank1]: boom\n[rank0]: ended with code 1\n[rank1]: ended with code 1\n";
        assert_eq!(which(&(lost(0) + ended), 0, failed), (false, false));
    }

    #[test]
    fn torchrun_s_process_has_the_word_and_not_torchrun() {
        let killed = "step 380\nstep 390\n".to_owned() + &told(0, -9);
        check(&killed, 1, Some("step 380\nstep 390\nSignal 9 (SIGKILL) received by PID 18509"));
        let raised = "step 1\n[rank1]: ValueError: 7\n".to_owned() + &told(1, 1);
        check(&raised, 1, Some("[rank1]: ValueError: 7"));
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
