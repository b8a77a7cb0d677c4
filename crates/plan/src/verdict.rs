//! What ended an attempt on several machines: the first cause, and not its victims.
//!
//! Ranks compute together, so the end of one ends all. Each machine reports an end of its own: most say only that another
//! rank is lost. A machine that is gone is noticed last, after its silence, though it was the first: so it goes before
//! what the others' programs made of it.

use domain::run::AttemptEnd;
use domain::{Cause, Finding};

/// The end of an attempt from those on its machines, by node rank, each with the number of its event. None where there are
/// none.
pub fn verdict(ends: &[&(u64, AttemptEnd)], is_stopping: bool) -> Option<AttemptEnd> {
    let first = &ends.first()?.1;
    // Node rank 0 has the model, or has saved for all.
    if matches!(first, AttemptEnd::Trained { .. }) || is_stopping && matches!(first, AttemptEnd::Stopped { .. }) {
        return Some(first.clone());
    }
    let failures = ends.iter().enumerate().filter_map(|(rank, (seq, end))| match end {
        AttemptEnd::Failed { finding, exit_code } => Some((weight(finding), seq, rank, finding, *exit_code)),
        AttemptEnd::Trained { .. } | AttemptEnd::Succeeded | AttemptEnd::Stopped { .. } => None,
    });
    if let Some((_, _, rank, finding, exit_code)) = failures.min_by_key(|(weight, seq, ..)| (*weight, **seq)) {
        let finding = Finding { message: format!("node {rank}: {}", finding.message), ..finding.clone() };
        return Some(AttemptEnd::Failed { finding, exit_code });
    }
    let stopped = ends.iter().map(|(_, end)| end).find(|end| matches!(end, AttemptEnd::Stopped { .. }));
    Some(stopped.unwrap_or(first).clone())
}

/// How far a finding is from the first cause.
fn weight(finding: &Finding) -> u8 {
    match finding.cause {
        Cause::InstanceLost => 0,
        Cause::RankLost => 2,
        Cause::Fenced => 3,
        Cause::Data | Cause::Job | Cause::NotFinite | Cause::OutOfMemory | Cause::DiskFull | Cause::ReadOnly => 1,
        Cause::Unreadable | Cause::Library | Cause::Killed | Cause::Hang | Cause::ExitCode => 1,
        Cause::NoCapacity | Cause::Setup | Cause::Internal => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(cause: Cause, message: &str) -> AttemptEnd {
        AttemptEnd::Failed { finding: Finding::new(cause, message), exit_code: None }
    }

    fn said(ends: &[(u64, AttemptEnd)], is_stopping: bool) -> String {
        match verdict(&ends.iter().collect::<Vec<_>>(), is_stopping) {
            Some(AttemptEnd::Failed { finding, .. }) => finding.message,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn the_first_cause_is_named_and_not_its_victims() {
        let lost = || failed(Cause::RankLost, "rank 1 is gone");
        let code = AttemptEnd::Failed { finding: Finding::new(Cause::ExitCode, "code 1"), exit_code: Some(1) };
        let gone = || failed(Cause::InstanceLost, "it is gone");
        assert_eq!(said(&[(5, lost()), (9, failed(Cause::Killed, "killed"))], false), "node 1: killed");
        assert_eq!(said(&[(5, code.clone()), (9, gone())], false), "node 1: it is gone", "its machine was first");
        assert_eq!(said(&[(5, code.clone()), (4, code.clone())], false), "node 1: code 1", "the earlier one");
        assert_eq!(said(&[(5, lost()), (6, lost())], false), "node 0: rank 1 is gone");
        assert_eq!(said(&[(5, AttemptEnd::Succeeded), (6, code)], false), "node 1: code 1");
    }

    #[test]
    fn a_stop_that_was_asked_for_is_no_failure() {
        let saved = AttemptEnd::Stopped { step: Some(7) };
        let killed = || failed(Cause::Killed, "killed");
        assert_eq!(said(&[(5, saved.clone()), (6, killed())], true), format!("{:?}", Some(saved.clone())));
        assert_eq!(said(&[(5, saved.clone()), (6, killed())], false), "node 1: killed");
        assert_eq!(said(&[(5, AttemptEnd::Succeeded), (6, saved.clone())], false), format!("{:?}", Some(saved)));
        assert_eq!(said(&[(5, AttemptEnd::Succeeded)], false), "Some(Succeeded)");
        assert_eq!(verdict(&[], false), None);
    }
}
