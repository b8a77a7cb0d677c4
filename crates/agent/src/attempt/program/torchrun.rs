//! What torchrun writes down of processes that have failed: their ranks and codes, and which it takes for the cause.
//!
//! First a line `… failed (exitcode: -9) local_rank: 0 (pid: 7) of binary: …`, then a traceback of its own, then a table with
//! `rank`, `exitcode` and `traceback` of each process that it has found failed, or has ended because of that, the first one
//! last.

/// What the line about a failure has before the code of the process.
const FAILED: &str = "failed (exitcode: ";

/// What its own lines have in them before that.
pub const LAUNCHER: &str = "torch/distributed/elastic/";

/// What torchrun says at the end of a log.
#[derive(Debug, PartialEq, Eq)]
pub struct TorchrunReport<'a> {
    /// What the log has before that.
    pub before: &'a str,
    /// Ranks and codes of the processes that failed or were ended then, the first one first; one that signal N has ended has
    /// the code −N.
    pub failed: Vec<(u32, i32)>,
    /// How a signal has ended the first one, if one has.
    pub signalled: Option<&'a str>,
}

/// Reads the report at the end of a log; none without one. A process whose rank it does not have is `own`.
pub fn report(text: &str, own: u32) -> Option<TorchrunReport<'_>> {
    let at = text.rfind(FAILED)?;
    let begins = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let (before, report) = text.split_at(begins);
    let (code, _) = text[at + FAILED.len()..].split_once(')')?;
    let code: i32 = code.trim().parse().ok()?;
    let (mut failed, mut rank) = (Vec::new(), None);
    for line in report.lines() {
        if let Some(number) = field(line, "rank") {
            rank = Some(number);
        }
        if let (Some(rank), Some(code)) = (rank, field(line, "exitcode")) {
            failed.push((u32::try_from(rank).unwrap_or(own), code));
        }
    }
    // The first one is told last.
    failed.reverse();
    if failed.is_empty() {
        if is_restarted(report) {
            return None;
        }
        failed.push((own, code));
    }
    let signalled = report.lines().rev().map(str::trim).find(|line| line.starts_with("traceback"));
    let signalled = signalled.and_then(|line| line.split_once(": ")).map(|(_, how)| how.trim());
    Some(TorchrunReport { before, failed, signalled: signalled.filter(|how| how.starts_with("Signal ")) })
}

/// Whether processes have said anything after a failure that has no table: so torchrun has started them again
/// (`--max-restarts`), and whatever has ended the program came later. Else torchrun was ended before it wrote the table.
fn is_restarted(report: &str) -> bool {
    let is_launchers = |line: &str| line.contains(LAUNCHER) || line.contains("torch.distributed.elastic.");
    let mut others = report.lines().skip(1).filter(|line| !line.trim().is_empty() && !is_launchers(line));
    others.next().is_some_and(|line| !line.starts_with("Traceback"))
}

/// The number that a line of the table begins with after its name.
fn field(line: &str, name: &str) -> Option<i32> {
    let value = line.trim().strip_prefix(name)?.trim_start().strip_prefix(':')?;
    value.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// What torchrun of PyTorch 2.11 writes of a process, without its own traceback.
    pub(crate) fn told(rank: u32, code: i32) -> String {
        let how = match code {
            -9 => "Signal 9 (SIGKILL) received by PID 18509",
            _ => "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
        };
        format!(
            "E1128 00:43:06.004000 18413 torch/distributed/elastic/multiprocessing/api.py:986] failed (exitcode: {code}) \
             local_rank: 0 (pid: 18509) of binary: /usr/bin/python3\nTraceback (most recent call last):\n  File \
             \"<frozen runpy>\", line 198, in _run_module_as_main\n\
             torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n====\nddp.py FAILED\n----\nFailures:\n  \
             <NO_OTHER_FAILURES>\n----\nRoot Cause (first observed failure):\n[0]:\n  time      : 2026-11-28_00:43:06\n  \
             host      : host-1\n  rank      : {rank} (local_rank: 0)\n  exitcode  : {code} (pid: 18509)\n  error_file: <N/A>\n  \
             traceback : {how}\n====\n"
        )
    }

    #[test]
    fn processes_that_failed_are_read_and_the_first_is_first() {
        let text = format!("step 1\n{}", told(3, -9));
        let found = report(&text, 2).unwrap();
        assert_eq!((found.before, found.failed), ("step 1\n", vec![(3, -9)]));
        assert_eq!(found.signalled, Some("Signal 9 (SIGKILL) received by PID 18509"));
        let other = "Failures:\n[1]:\n  rank      : 5 (local_rank: 1)\n  exitcode  : -6 (pid: 8)\n  traceback : Signal 6 (SIGABRT)\n----\n";
        let two = told(4, 1).replace("Failures:\n  <NO_OTHER_FAILURES>\n", other);
        let found = report(&two, 4).unwrap();
        assert_eq!((found.failed, found.signalled), (vec![(4, 1), (5, -6)], None));
        // Of older versions, and cut off.
        let line = "[2024-01-02 03:04:05,006] torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: 1) local_rank: 0";
        assert_eq!(report(line, 2).unwrap().failed, [(2, 1)]);
        assert_eq!(report("step 1\nit failed\n", 0), None);
        // Torchrun was ended before it wrote the table, and has started the processes again.
        let closing =
            "W1128 18413 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 7 closing signal";
        let ended = format!("{line}\n{closing}\nTraceback (most recent call last):\n  File \"a\"\n");
        assert_eq!(report(&ended, 2).unwrap().failed, [(2, 1)]);
        assert_eq!(report(&format!("{line}\n{closing}\nstep 2\n"), 2), None);
        assert_eq!(report(&format!("{line}\nstep 2\n{}", told(2, -9)), 2).unwrap().failed, [(2, -9)]);
    }
}
