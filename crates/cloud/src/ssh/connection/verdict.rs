//! What follows once a try to run a command on another machine has ended: a pure function of what is known of it.
//!
//! `ssh` has the exit code 255 where it fails itself, and gives no reason where a connection breaks that it shares with other
//! commands. A command that has begun is never run again by itself: it may have done its work.

/// Exit code of `ssh` where it fails itself.
const NO_CONNECTION: i32 = 255;

/// How a signal ends a command, as a shell reports it: this plus the signal's number, which is 64 at most.
const KILLED: i32 = 128;

/// What is known of a try that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TryFacts {
    pub end: TryEnd,
    /// Whether the command was asked to begin.
    pub began: bool,
    /// What `ssh` and the command have printed on standard error.
    pub complaint: String,
    /// What the shell there had printed on standard output before it was ready for the command.
    pub greeting: String,
}

/// How `ssh` has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TryEnd {
    /// With this exit code: that of the command, or its own.
    Exited(i32),
    /// By a signal on this machine.
    Killed,
    /// It was ended, because the shell there was not ready for the command in time.
    Late,
}

/// What follows from a try.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TryVerdict {
    /// The command has succeeded.
    Done,
    /// It has not begun, and may over a connection that is not shared.
    Again,
    /// It has not begun; the reason, where one was given.
    Unreached(Option<String>),
    /// The connection broke when the command had been asked to begin.
    Broken,
    /// The command has failed; why.
    Failed(String),
}

/// Decides what follows from a try over the shared connection, or one of its own.
pub(super) fn judge(facts: &TryFacts, is_shared: bool) -> TryVerdict {
    let last = last_line(&facts.complaint);
    match (facts.end, facts.began) {
        (TryEnd::Exited(0), true) => TryVerdict::Done,
        (TryEnd::Exited(NO_CONNECTION) | TryEnd::Killed | TryEnd::Late, true) => TryVerdict::Broken,
        (TryEnd::Exited(code), true) => TryVerdict::Failed(why(code, last)),
        (TryEnd::Late, false) if is_shared => TryVerdict::Again,
        (TryEnd::Exited(NO_CONNECTION), false) if is_shared && last.is_none_or(is_of_sharing) => TryVerdict::Again,
        (TryEnd::Late, false) => TryVerdict::Unreached(Some("the shell there has not started in time".to_owned())),
        (TryEnd::Exited(NO_CONNECTION) | TryEnd::Killed, false) => TryVerdict::Unreached(last.map(str::to_owned)),
        // Its shell is one that refuses commands, and may say so on standard output.
        (TryEnd::Exited(_), false) => {
            TryVerdict::Unreached(last.or_else(|| last_line(&facts.greeting)).map(str::to_owned))
        }
    }
}

/// Whether a message of `ssh` is about sharing a connection, and not about the machine.
fn is_of_sharing(line: &str) -> bool {
    let words =
        ["unix_listener:", "ControlPath", "ControlSocket", "Control socket", "control master", "Master refused"];
    line.starts_with("mux") || words.iter().any(|word| line.contains(word))
}

/// Why a command has failed that ended with this code, and printed this last.
fn why(code: i32, last: Option<&str>) -> String {
    let signal = Some(code - KILLED).filter(|signal| (1..=64).contains(signal));
    match (signal, last) {
        (Some(signal), Some(last)) => format!("it was killed by signal {signal}: {last}"),
        (Some(signal), None) => format!("it was killed by signal {signal}"),
        (None, Some(last)) => last.to_owned(),
        (None, None) => format!("it ended with exit code {code}"),
    }
}

/// The last line that is a reason.
pub(in crate::ssh) fn last_line(text: &str) -> Option<&str> {
    let is_reason = |line: &&str| !line.is_empty() && !line.starts_with("Warning: Permanently added");
    text.lines().rev().map(str::trim).find(is_reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(end: TryEnd, began: bool, complaint: &str) -> TryFacts {
        TryFacts { end, began, complaint: complaint.to_owned(), greeting: String::new() }
    }

    fn unreached(why: &str) -> TryVerdict {
        TryVerdict::Unreached(Some(why.to_owned()))
    }

    #[test]
    fn a_command_that_has_not_begun_is_tried_again_where_sharing_may_be_to_blame() {
        let check = |complaint: &str, shared: TryVerdict, own: TryVerdict| {
            let facts = facts(TryEnd::Exited(255), false, complaint);
            assert_eq!((judge(&facts, true), judge(&facts, false)), (shared, own), "{complaint}");
        };
        check("", TryVerdict::Again, TryVerdict::Unreached(None));
        check(" \r\n\n", TryVerdict::Again, TryVerdict::Unreached(None));
        for sharing in [
            "mux_client_request_session: write packet: Broken pipe",
            "Failed to connect to new control master",
            "ControlPath too long ('/a' >= 108 bytes)",
            "unix_listener: cannot bind to path /a: Permission denied",
        ] {
            check(sharing, TryVerdict::Again, unreached(sharing));
        }
        let refused = "ssh: connect to host muxer port 22: Connection refused";
        check(refused, unreached(refused), unreached(refused));
        // `ssh` has tried a connection of its own by itself.
        let both = format!("mux_client_request_session: read from master failed: Broken pipe\r\n{refused}\r\n");
        check(&both, unreached(refused), unreached(refused));
    }

    #[test]
    fn a_command_that_has_begun_is_not_run_again() {
        for end in [TryEnd::Exited(255), TryEnd::Killed, TryEnd::Late] {
            for complaint in ["", "mux_client_request_session: write packet: Broken pipe", "a warning of the command"] {
                for is_shared in [true, false] {
                    let verdict = judge(&facts(end, true, complaint), is_shared);
                    assert_eq!(verdict, TryVerdict::Broken, "{end:?} {complaint}");
                }
            }
        }
        assert_eq!(judge(&facts(TryEnd::Exited(0), true, "a warning"), true), TryVerdict::Done);
    }

    #[test]
    fn a_shell_that_is_not_ready_in_time_is_asked_again_and_then_named() {
        let late = facts(TryEnd::Late, false, "");
        assert_eq!(judge(&late, true), TryVerdict::Again);
        assert_eq!(judge(&late, false), unreached("the shell there has not started in time"));
    }

    #[test]
    fn a_command_that_failed_says_why() {
        let check = |code: i32, complaint: &str, expected: &str| {
            let verdict = judge(&facts(TryEnd::Exited(code), true, complaint), true);
            assert_eq!(verdict, TryVerdict::Failed(expected.to_owned()), "{code} {complaint}");
        };
        check(1, "Warning: a\nno space left on device\n", "no space left on device");
        check(2, "", "it ended with exit code 2");
        check(139, "Segmentation fault\n", "it was killed by signal 11: Segmentation fault");
        check(137, "", "it was killed by signal 9");
        check(254, "", "it ended with exit code 254");
    }

    #[test]
    fn a_shell_that_refuses_commands_is_quoted() {
        let greeting = "Please login as the user \"ubuntu\" rather than the user \"root\".\n\n".to_owned();
        let refusing = TryFacts { greeting, ..facts(TryEnd::Exited(142), false, "") };
        assert_eq!(
            judge(&refusing, true),
            unreached("Please login as the user \"ubuntu\" rather than the user \"root\".")
        );
        let none = facts(TryEnd::Exited(0), false, "");
        assert_eq!(judge(&none, true), TryVerdict::Unreached(None), "a command that did not begin did not succeed");
    }

    #[test]
    fn the_last_line_that_says_something_is_the_reason() {
        let text = "Warning: a\nPermission denied (publickey).\r\n\n";
        assert_eq!(last_line(text), Some("Permission denied (publickey)."));
        assert_eq!(last_line("Warning: Permanently added 'a' (ED25519) to the list of known hosts.\r\n"), None);
        assert_eq!(last_line(" \n"), None);
    }
}
