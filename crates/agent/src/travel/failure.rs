//! What is said of outputs that did not reach the loop's machine.

use std::io::ErrorKind;

use domain::run::AttemptEnd;
use domain::{Cause, Finding};

use super::loop_files::TravelError;

/// Why not everything of an attempt has reached the loop's machine.
#[derive(Debug, Clone, PartialEq)]
pub struct UploadFailure {
    /// What is missing, and why.
    pub finding: Finding,
    /// Whether it is more than logs.
    pub lacks_outputs: bool,
    /// Whether files of checkpoints are among it.
    pub lacks_checkpoints: bool,
    /// The step of the newest manifest that is there.
    pub arrived: Option<u64>,
}

impl UploadFailure {
    /// The failure of an attempt of which nothing more is sent, or is known to have arrived.
    pub fn unsent(cause: Cause, why: &str) -> UploadFailure {
        let message = format!("not everything that was written has reached the loop's machine: {why}");
        UploadFailure {
            finding: Finding::new(cause, message).hint("resume the run: it continues from its newest checkpoint"),
            lacks_outputs: true,
            lacks_checkpoints: true,
            arrived: None,
        }
    }

    /// The failure by an error, with the paths of what is missing.
    pub fn new(error: &TravelError, missing: &[String], arrived: Option<u64>) -> UploadFailure {
        let place = match error {
            TravelError::Store(_) | TravelError::Denied(_) => "the job's `checkpoint_store`",
            _ => "the loop's machine",
        };
        let what = match missing {
            [] => format!("not everything that was written has reached {place}"),
            [path] => format!("`{path}` has not reached {place}"),
            [path, rest @ ..] => format!("`{path}` and {} more have not reached {place}", rest.len()),
        };
        let (cause, hint) = cause(error);
        UploadFailure {
            finding: Finding::new(cause, format!("{what}: {error}")).hint(hint),
            lacks_outputs: !missing.is_empty(),
            lacks_checkpoints: missing.iter().any(|path| path.starts_with("checkpoints")),
            arrived,
        }
    }

    /// Another end, if `end` says too much: an attempt whose result is not there has not succeeded, and a state that is
    /// not there is not saved.
    pub fn instead_of(&self, end: &AttemptEnd) -> Option<AttemptEnd> {
        match end {
            AttemptEnd::Trained { .. } | AttemptEnd::Succeeded if self.lacks_outputs => {
                Some(AttemptEnd::Failed { finding: self.finding.clone(), exit_code: None })
            }
            AttemptEnd::Stopped { step: Some(step) } if self.lacks_checkpoints => {
                Some(AttemptEnd::Stopped { step: self.arrived.map(|arrived| arrived.min(*step)) })
            }
            AttemptEnd::Trained { .. }
            | AttemptEnd::Succeeded
            | AttemptEnd::Stopped { .. }
            | AttemptEnd::Failed { .. } => None,
        }
    }
}

/// The cause, which decides whether another attempt is worthwhile, and what to do.
fn cause(error: &TravelError) -> (Cause, &str) {
    match error {
        TravelError::Store(finding) | TravelError::Denied(finding) => {
            (finding.cause, finding.hint.as_deref().unwrap_or("check the bucket and the credentials of the machine"))
        }
        TravelError::Full(_) => {
            (Cause::DiskFull, "free some space on the machine where `gradus run` runs, then resume the run")
        }
        TravelError::Disk { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            (Cause::ReadOnly, "make it readable on the node (`gradus ssh NODE`), then resume the run")
        }
        TravelError::Disk { .. } => (Cause::Unreadable, "check the disk of the node (`gradus doctor NODE`)"),
        TravelError::Refused(_) | TravelError::Missing(_) => (Cause::Fenced, "see `gradus events`"),
        TravelError::Failed(_) => (Cause::Unreadable, "check the disk of the machine where `gradus run` runs"),
        TravelError::Unprocessable(_) | TravelError::Changing | TravelError::Late | TravelError::Unreachable(_) => {
            (Cause::Unreadable, "check the network between this machine and the node, then resume the run")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(missing: &[&str], arrived: Option<u64>) -> UploadFailure {
        let missing: Vec<String> = missing.iter().map(|path| (*path).to_owned()).collect();
        UploadFailure::new(&TravelError::Full("no".into()), &missing, arrived)
    }

    #[test]
    fn an_end_without_its_outputs_is_another_one() {
        let stopped = |step| AttemptEnd::Stopped { step };
        let lost = failure(&["checkpoints/a", "export/b"], Some(20));
        let Some(AttemptEnd::Failed { finding, exit_code: None }) = lost.instead_of(&AttemptEnd::Succeeded) else {
            panic!("it has not succeeded")
        };
        assert_eq!(finding.cause, Cause::DiskFull);
        assert!(finding.message.starts_with("`checkpoints/a` and 1 more have not"), "{}", finding.message);
        // A step that is not there is not saved.
        assert_eq!(lost.instead_of(&stopped(Some(30))), Some(stopped(Some(20))));
        assert_eq!(failure(&["checkpoints/a"], None).instead_of(&stopped(Some(30))), Some(stopped(None)));
        assert_eq!(failure(&["export/b"], None).instead_of(&stopped(Some(30))), None);
        // Logs are no result.
        assert_eq!(failure(&[], None).instead_of(&AttemptEnd::Succeeded), None);
        let failed = AttemptEnd::Failed { finding: Finding::new(Cause::ExitCode, "code 1"), exit_code: Some(1) };
        assert_eq!(lost.instead_of(&failed), None, "the first cause stays");
        let late = UploadFailure::unsent(Cause::InstanceLost, "it was released").instead_of(&AttemptEnd::Succeeded);
        assert!(matches!(late, Some(AttemptEnd::Failed { .. })));
    }

    #[test]
    fn what_a_person_must_mend_is_not_tried_again() {
        let disk = |kind: ErrorKind| TravelError::Disk { doing: "read", path: "a".into(), source: kind.into() };
        for (error, expected) in [
            (TravelError::Full(String::new()), Cause::DiskFull),
            (disk(ErrorKind::PermissionDenied), Cause::ReadOnly),
            (disk(ErrorKind::Other), Cause::Unreadable),
            (TravelError::Refused(String::new()), Cause::Fenced),
            (TravelError::Late, Cause::Unreadable),
        ] {
            assert_eq!(cause(&error).0, expected, "{error}");
        }
    }
}
