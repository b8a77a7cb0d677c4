//! The outcome of an attempt on several machines: the first cause, rather than its consequences.
//!
//! Ranks compute together, so the end of one ends all. Each machine reports its own end: most report only that another
//! rank is lost. A machine that is gone is noticed last, after a timeout, though it was the first: so it takes
//! precedence over the errors of the others' programs. Where steps are no longer made, all machines wait, and the one with the
//! clock tells it: so what another one says of itself comes before. [`straggler`] finds the machine that holds up the others.

mod straggler;

use domain::run::AttemptEnd;
use domain::{Cause, Finding};

pub use straggler::{StepTimes, Straggler, straggler_found};

/// The end of an attempt on one of its machines.
#[derive(Debug, Clone, Copy)]
pub struct MemberEnd<'a> {
    /// Number of its event: earlier ones come first.
    pub seq: u64,
    /// How its ranks ended.
    pub end: &'a AttemptEnd,
    /// Whether the machine is gone, or given up.
    pub is_machine_lost: bool,
}

/// The outcome of an attempt from those on its machines, by node rank. `None` if there are none.
pub fn verdict(ends: &[MemberEnd<'_>], is_stopping: bool) -> Option<AttemptEnd> {
    let first = ends.first()?.end;
    // Node rank 0 has the model, or has saved for all.
    if matches!(first, AttemptEnd::Trained { .. }) || is_stopping && matches!(first, AttemptEnd::Stopped { .. }) {
        return Some(first.clone());
    }
    let failures = ends.iter().enumerate().filter_map(|(rank, member)| match member.end {
        AttemptEnd::Failed { finding, exit_code } => {
            Some(((weight(finding, member.is_machine_lost), member.seq), rank, finding, *exit_code))
        }
        AttemptEnd::Trained { .. } | AttemptEnd::Succeeded | AttemptEnd::Stopped { .. } => None,
    });
    if let Some((_, rank, finding, exit_code)) = failures.min_by_key(|(weight, ..)| *weight) {
        let finding = Finding { message: format!("node {rank}: {}", finding.message), ..finding.clone() };
        return Some(AttemptEnd::Failed { finding, exit_code });
    }
    let stopped = ends.iter().map(|member| member.end).find(|end| matches!(end, AttemptEnd::Stopped { .. }));
    Some(stopped.unwrap_or(first).clone())
}

/// How far a finding is from the first cause.
fn weight(finding: &Finding, is_machine_lost: bool) -> u8 {
    match finding.cause {
        Cause::InstanceLost if is_machine_lost => 0,
        // Reported by an agent whose lease is over: it has waited for a loop that was away.
        Cause::InstanceLost => 1,
        Cause::Hang => 2,
        Cause::RankLost => 3,
        Cause::Fenced => 4,
        Cause::Data | Cause::Job | Cause::NotFinite | Cause::OutOfMemory | Cause::DiskFull | Cause::ReadOnly => 1,
        Cause::Unreadable | Cause::Library | Cause::Killed | Cause::ExitCode => 1,
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
        let is_gone =
            |end: &AttemptEnd| matches!(end, AttemptEnd::Failed { finding, .. } if finding.message == "it is gone");
        let member = |(seq, end): &'_ (u64, AttemptEnd)| (*seq, end.clone(), is_gone(end));
        let members: Vec<_> = ends.iter().map(member).collect();
        let members: Vec<MemberEnd<'_>> = members
            .iter()
            .map(|(seq, end, is_machine_lost)| MemberEnd { seq: *seq, end, is_machine_lost: *is_machine_lost })
            .collect();
        match verdict(&members, is_stopping) {
            Some(AttemptEnd::Failed { finding, .. }) => finding.message,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn the_first_cause_is_named_and_not_its_victims() {
        let lost = || failed(Cause::RankLost, "rank 1 is gone");
        let code = AttemptEnd::Failed { finding: Finding::new(Cause::ExitCode, "code 1"), exit_code: Some(1) };
        let gone = || failed(Cause::InstanceLost, "it is gone");
        let alone = || failed(Cause::InstanceLost, "the control loop did not answer");
        assert_eq!(said(&[(5, lost()), (9, failed(Cause::Killed, "killed"))], false), "node 1: killed");
        assert_eq!(said(&[(5, code.clone()), (9, gone())], false), "node 1: it is gone", "its machine was first");
        assert_eq!(said(&[(9, alone()), (5, code.clone())], false), "node 1: code 1", "the loop was away");
        assert_eq!(said(&[(5, code.clone()), (4, code.clone())], false), "node 1: code 1", "the earlier one");
        assert_eq!(said(&[(5, lost()), (6, lost())], false), "node 0: rank 1 is gone");
        let hang = failed(Cause::Hang, "no step for 60 s");
        assert_eq!(said(&[(5, hang.clone()), (6, lost())], false), "node 0: no step for 60 s");
        assert_eq!(said(&[(5, hang), (6, failed(Cause::Killed, "stopped"))], false), "node 1: stopped");
        // Its program has missed another one, and has ended with a code.
        let missed = AttemptEnd::Failed { finding: Finding::new(Cause::RankLost, "code 1"), exit_code: Some(1) };
        assert_eq!(said(&[(5, missed), (6, code.clone())], false), "node 1: code 1");
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
