//! What is wrong with a machine, from what it says of itself: pure functions from [`NodeFacts`] to a list of [`Diagnosis`].
//!
//! Each has a symptom; one that asks for something to be done has a cause and a remedy as well. The limits stand beside the
//! checks, and what NVIDIA says of its drivers in the tables `cuda.tsv` and `xid.tsv`.

mod all_reduce;
mod gpu;
mod kernel_log;
mod machine;
mod network;
mod versions;

use node::facts::NodeFacts;
use serde::Serialize;

pub use all_reduce::{AllReduceOutcome, all_reduce};
pub use network::{ClockOffset, LinkResult, links};

/// How bad it is, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Pass,
    /// Good to know.
    Info,
    /// It could not be looked at.
    Unknown,
    /// Jobs run, and slower or not for ever.
    Warning,
    /// Jobs fail.
    Critical,
}

impl Severity {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Pass => "pass",
            Severity::Info => "info",
            Severity::Unknown => "unknown",
            Severity::Warning => "WARNING",
            Severity::Critical => "CRITICAL",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// What was looked at, in one word.
    pub check: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What was found.
    pub symptom: String,
    /// Why it is so, or what comes of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What to do, and what to type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Diagnosis {
    /// Something that is as it should be.
    pub fn pass(check: &'static str, symptom: impl Into<String>) -> Diagnosis {
        Diagnosis { check, severity: Severity::Pass, symptom: symptom.into(), cause: None, remedy: None }
    }

    /// Something that was not.
    pub fn found(
        severity: Severity,
        check: &'static str,
        symptom: impl Into<String>,
        cause: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Diagnosis {
        Diagnosis { check, severity, symptom: symptom.into(), cause: Some(cause.into()), remedy: Some(remedy.into()) }
    }
}

/// Everything that can be said of one machine, the worst last within each part. `clock` is none where the machine is the
/// one that looks.
pub fn examine(facts: &NodeFacts, clock: Option<ClockOffset>) -> Vec<Diagnosis> {
    let mut all = machine::system(&facts.system);
    all.extend(machine::disk(&facts.disk));
    all.extend(network::names(&facts.names));
    all.extend(clock.map(network::clock));
    all.extend(gpu::driver(&facts.gpu));
    all.extend(gpu::versions(&facts.gpu, &facts.software));
    all.extend(gpu::devices(&facts.gpu));
    all.extend(kernel_log::faults(&facts.kernel_log, facts.kernel_log_error.as_deref()));
    all
}

/// The worst of all; [`Severity::Pass`] where there is nothing.
pub fn worst(all: &[Diagnosis]) -> Severity {
    all.iter().map(|one| one.severity).max().unwrap_or(Severity::Pass)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_warned_is_told_why_and_what_to_do() {
        let mut facts = NodeFacts::default();
        facts.disk.error = Some("cannot use `/x`: Read-only file system".into());
        facts.gpu.on_bus = 1;
        facts.names.error = Some("failed to lookup address information".into());
        facts.kernel_log_error = Some("cannot open `/dev/kmsg`: Permission denied".into());
        let all = examine(&facts, Some(ClockOffset { offset_us: 3_600_000_000, uncertainty_us: 1_000 }));
        for one in all.iter().filter(|one| one.severity > Severity::Info) {
            assert!(one.cause.is_some() && one.remedy.is_some(), "{one:?}");
        }
        assert_eq!(worst(&all), Severity::Critical);
        assert_eq!(worst(&[]), Severity::Pass);
        assert!(Severity::Warning > Severity::Unknown && Severity::Unknown > Severity::Info);
    }
}
