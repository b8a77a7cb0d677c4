//! Whether ranks on several nodes can exchange gradients, and how fast.

use domain::all_reduce::{AllReduceFigures, CollectiveBackend};
use domain::finding::{Cause, Finding};

use super::network::GIGABIT;
use super::{Diagnosis, LinkResult, Severity};
use crate::figures::size;

/// What came of an all-reduce over nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllReduceOutcome {
    /// It was measured between these nodes.
    Measured {
        /// In the order of their ranks.
        nodes: Vec<String>,
        /// Of the slowest rank.
        figures: AllReduceFigures,
    },
    /// It failed.
    Failed {
        /// In the order of their ranks.
        nodes: Vec<String>,
        /// The node that said so.
        node: String,
        /// Why.
        finding: Finding,
    },
    /// It was not tried: these nodes have no libtorch.
    NoLibtorch(Vec<String>),
    /// It was not tried: the nodes do not reach each other.
    NoNetwork,
}

/// Less than this part of the slowest link is too little.
const PART_OF_LINK: u64 = 4;

/// What an all-reduce says of the nodes that have tried it, whose links were measured just before.
pub fn all_reduce(outcome: &AllReduceOutcome, links: &[LinkResult]) -> Diagnosis {
    match outcome {
        AllReduceOutcome::Measured { nodes, figures } => measured(nodes, figures, links),
        AllReduceOutcome::Failed { nodes, node, finding } => failed(nodes, node, finding),
        AllReduceOutcome::NoLibtorch(nodes) => {
            let symptom = format!("not tried: there is no libtorch on {}", nodes.join(", "));
            let cause = "it takes the built-in trainer, which is copied with libtorch (440 MB) when a node is added";
            let remedy = "`gradus nodes add` with the same name and address copies it; then run this again";
            Diagnosis::found(Severity::Unknown, "all-reduce", symptom, cause, remedy)
        }
        AllReduceOutcome::NoNetwork => {
            let cause = "ranks on them would wait for each other until they fail";
            let remedy = "see the findings of `network`, then run this again";
            let symptom = "not tried: not all nodes reach each other";
            Diagnosis::found(Severity::Unknown, "all-reduce", symptom, cause, remedy)
        }
    }
}

fn measured(nodes: &[String], figures: &AllReduceFigures, links: &[LinkResult]) -> Diagnosis {
    let rate = figures.bus_rate();
    let text = format!(
        "{}: {}/s over {} ({} in {:.1} ms, {} nodes)",
        nodes.join(", "),
        size(rate),
        figures.backend.name(),
        size(figures.bytes),
        figures.micros as f64 / 1e3,
        nodes.len()
    );
    let slowest = links.iter().filter_map(|link| link.sent.as_ref().ok()).map(|sent| sent.rate).min();
    let least = slowest.map_or(0, |slowest| slowest / PART_OF_LINK);
    let least = match figures.backend {
        // It copies through the memory of the host. Plans ask for no more than this, whatever the link gives.
        CollectiveBackend::Gloo => least.min(GIGABIT),
        CollectiveBackend::Nccl => least,
    };
    if rate >= least {
        return Diagnosis::pass("all-reduce", text);
    }
    let symptom = format!("{text}; the links between them give {}/s", size(slowest.unwrap_or(0)));
    let cause = "gradients are exchanged at each step at this speed: another interface than that of SSH is used, other \
                 programs need the cores or the network, or packets are lost";
    let remedy = "run it again while the nodes are idle; then look at `ip -s link` for lost packets, and for NCCL set \
                  `NCCL_DEBUG: INFO` in `envs` of a job to see its choice of interface";
    Diagnosis::found(Severity::Warning, "all-reduce", symptom, cause, remedy)
}

fn failed(nodes: &[String], node: &str, finding: &Finding) -> Diagnosis {
    let symptom = format!("{}: {node} says: {}", nodes.join(", "), finding.message);
    let (severity, cause, remedy) = match finding.cause {
        Cause::OutOfMemory => (
            Severity::Unknown,
            "the GPU or the memory is full, perhaps with a job",
            "run this again when the nodes are idle",
        ),
        // Without a library of libtorch a rank ends before it can say anything.
        Cause::Library | Cause::Internal => (
            Severity::Critical,
            "jobs with `train:` do not start there: the built-in trainer or its libtorch is incomplete, or was killed",
            "`gradus nodes add` with the same name and address copies what is missing",
        ),
        Cause::Data
        | Cause::Job
        | Cause::NotFinite
        | Cause::DiskFull
        | Cause::ReadOnly
        | Cause::Unreadable
        | Cause::Fenced
        | Cause::Killed
        | Cause::RankLost
        | Cause::Hang
        | Cause::ExitCode
        | Cause::InstanceLost
        | Cause::NoCapacity
        | Cause::Setup => (
            Severity::Critical,
            "jobs on these nodes together would fail in the same way: ranks connect to each other at any port, at the \
             address by which each reaches the first node",
            "open all TCP ports between the nodes for each other, in both directions; one node alone is not affected",
        ),
    };
    let remedy = finding.hint.as_deref().unwrap_or(remedy);
    Diagnosis::found(severity, "all-reduce", symptom, cause, remedy)
}

#[cfg(test)]
mod tests {
    use node::facts::link::SentFigures;

    use super::*;

    fn link(rate: u64) -> LinkResult {
        let sent = Ok(SentFigures { connect_us: 300, rate });
        LinkResult { from: "a".into(), to: "b".into(), sent }
    }

    #[test]
    fn an_all_reduce_far_below_the_link_is_warned_of() {
        let check = |backend, rate: u64, links: &[u64], severity| {
            let figures = AllReduceFigures { backend, size: 2, bytes: rate, rounds: 5, micros: 1_000_000 };
            let outcome = AllReduceOutcome::Measured { nodes: vec!["a".into(), "b".into()], figures };
            let links: Vec<LinkResult> = links.iter().copied().map(link).collect();
            let found = all_reduce(&outcome, &links);
            assert_eq!(found.severity, severity, "{found:?}");
            assert!(found.symptom.starts_with("a, b: ") && found.symptom.contains(backend.name()), "{found:?}");
        };
        let (gloo, nccl) = (CollectiveBackend::Gloo, CollectiveBackend::Nccl);
        check(gloo, 90_000_000, &[118_000_000, 117_000_000], Severity::Pass);
        check(gloo, 20_000_000, &[118_000_000, 117_000_000], Severity::Warning);
        // The slowest link decides, and Gloo need not fill one that plans do not count on.
        check(gloo, 3_000_000, &[118_000_000, 10_000_000], Severity::Pass);
        check(gloo, 300_000_000, &[2_900_000_000], Severity::Pass);
        check(nccl, 300_000_000, &[2_900_000_000], Severity::Warning);
        check(nccl, 20_000_000_000, &[2_900_000_000], Severity::Pass);
    }

    #[test]
    fn an_all_reduce_that_fails_says_where_and_what_to_do() {
        let check = |cause, severity| {
            let nodes = vec!["a".into(), "b".into()];
            let finding = Finding::new(cause, "rank 1 did not arrive within 40 s");
            let found = all_reduce(&AllReduceOutcome::Failed { nodes, node: "a".into(), finding }, &[]);
            assert_eq!(found.severity, severity, "{found:?}");
            assert_eq!(found.symptom, "a, b: a says: rank 1 did not arrive within 40 s");
            assert!(found.cause.is_some() && found.remedy.is_some(), "{found:?}");
        };
        check(Cause::RankLost, Severity::Critical);
        check(Cause::Library, Severity::Critical);
        check(Cause::Internal, Severity::Critical);
        check(Cause::OutOfMemory, Severity::Unknown);
        let finding = Finding::new(Cause::Internal, "its rank has ended without an answer");
        let found = all_reduce(&AllReduceOutcome::Failed { nodes: Vec::new(), node: "a".into(), finding }, &[]);
        assert!(!found.remedy.unwrap().contains("ports"), "a trainer that does not start has no network yet");
        for outcome in [AllReduceOutcome::NoLibtorch(vec!["b".into()]), AllReduceOutcome::NoNetwork] {
            let found = all_reduce(&outcome, &[]);
            assert_eq!(found.severity, Severity::Unknown);
            assert!(found.symptom.starts_with("not tried: ") && found.remedy.is_some(), "{found:?}");
        }
    }
}
