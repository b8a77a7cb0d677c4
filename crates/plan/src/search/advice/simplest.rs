//! The layout of what is recommended: the simplest that is as good as the fastest, as far as estimates can tell.
//!
//! Offers are compared with their fastest layouts, so the front is exact and the choice among machines is the same. Only
//! then a simpler layout of the chosen machines is taken, if it keeps every limit as well, and takes and costs at most
//! [`LAYOUT_MARGIN`] more.

use crate::search::parallel::Estimator;
use crate::search::{Candidate, Constraints, LAYOUT_MARGIN, MemoryFit, PricedListing, Search};

impl<E: Estimator> Search<'_, E> {
    /// The offer of a candidate with each simpler layout that may be recommended instead of the fastest, the simplest
    /// first.
    pub fn simpler(&mut self, constraints: &Constraints, fastest: &Candidate) -> Vec<Candidate> {
        let hardware = self.market.listings[fastest.listing].hardware;
        let Ok(config) = self.config(hardware, fastest.nodes) else { return Vec::new() };
        let steps: Vec<(f64, f64, MemoryFit)> =
            config.simpler.iter().map(|config| (config.step, config.start, config.verdict)).collect();
        let mut found = Vec::new();
        for (place, step) in steps.into_iter().enumerate() {
            let candidate = self.candidate(constraints, (fastest.listing, fastest.terms), fastest.nodes, step);
            let candidate = Candidate { simpler: Some(place), ..candidate };
            if is_as_good(constraints, &self.market.listings[fastest.listing], fastest, &candidate) {
                found.push(candidate);
            }
        }
        found
    }
}

/// Whether a candidate keeps the limits, and takes and costs at most [`LAYOUT_MARGIN`] more than the fastest. Both are
/// compared: a run on spot machines that takes a tenth longer may cost more than a tenth more.
fn is_as_good(constraints: &Constraints, priced: &PricedListing, fastest: &Candidate, candidate: &Candidate) -> bool {
    let ((time, cost), (least_time, least_cost)) = (candidate.point(), fastest.point());
    let is_within = |more: f64, least: f64| more <= least * (1.0 + LAYOUT_MARGIN);
    constraints.misses(priced, candidate).is_none()
        && is_within(time as f64, least_time as f64)
        && is_within(cost as f64, least_cost as f64)
}

/// Returns the first of the simpler candidates that is not risky, else the fastest: what misses a limit in one run of ten
/// needs its fastest layout.
pub fn simplest(fastest: &Candidate, simpler: &[Candidate], mut is_risky: impl FnMut(&Candidate) -> bool) -> Candidate {
    simpler.iter().copied().find(|candidate| !is_risky(candidate)).unwrap_or(*fastest)
}
