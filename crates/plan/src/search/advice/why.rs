//! Why an offer is chosen or is not: what becomes of it on each number of machines, by the same steps as the search takes.

use serde::Serialize;

use crate::search::market::PurchaseOption;
use crate::search::parallel::{Estimator, Infeasible};
use crate::search::{Candidate, Constraints, Reason, Search};

/// What becomes of an offer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OfferOutcome {
    /// The job does not admit it, on any number of machines.
    Refused { reason: Reason },
    /// No parallel configuration can train on it.
    Infeasible { nodes: u32, why: Infeasible },
    /// It exceeds a limit.
    Missed { reason: Reason, candidate: Candidate },
    /// It is compared.
    Compared { candidate: Candidate },
}

impl OfferOutcome {
    /// The candidate, where it came as far as being one.
    pub fn candidate(&self) -> Option<&Candidate> {
        match self {
            OfferOutcome::Refused { .. } | OfferOutcome::Infeasible { .. } => None,
            OfferOutcome::Missed { candidate, .. } | OfferOutcome::Compared { candidate } => Some(candidate),
        }
    }
}

/// What becomes of a listing of the market under given terms: once where the job does not admit it, else on each number of
/// machines.
pub fn outcomes<E: Estimator>(
    search: &mut Search<E>,
    constraints: &Constraints,
    listing: usize,
    terms: PurchaseOption,
) -> Vec<OfferOutcome> {
    let priced = &search.market.listings[listing];
    if let Some(reason) = constraints.admission.refusal(priced, terms) {
        return vec![OfferOutcome::Refused { reason }];
    }
    let nodes: Vec<u32> = constraints.nodes.iter().copied().filter(|nodes| !priced.has_fewer_than(*nodes)).collect();
    if nodes.is_empty() {
        return vec![OfferOutcome::Refused { reason: Reason::Machines }];
    }
    let steps = search.steps(priced.hardware, &nodes);
    let outcome = |(nodes, step): (&u32, crate::search::StepOrReason)| match step {
        Err(infeasible) => OfferOutcome::Infeasible { nodes: *nodes, why: infeasible },
        Ok(step) => {
            let candidate = search.candidate(constraints, (listing, terms), *nodes, step);
            match constraints.misses(priced, &candidate) {
                Some(reason) => OfferOutcome::Missed { reason, candidate },
                None => OfferOutcome::Compared { candidate },
            }
        }
    };
    nodes.iter().zip(steps).map(outcome).collect()
}
