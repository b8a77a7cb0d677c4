//! The forecast of a candidate: the uncertainty of its time and its cost.
//!
//! There are two sources of uncertainty: the time of a step, with the estimate's own band, and spot interruptions, for
//! which runs are simulated ([`bands_of`](crate::spot::bootstrap::bands_of)). They are independent, so the variances of
//! their logarithms add up.

use domain::plan::{CostSpread, Spread};
use domain::{Duration, Money};
use serde::Serialize;

use super::market::PurchaseOption;
use super::timeline::{self, RunProfile, RunTimeline};
use super::{Candidate, Constraints, Search, parallel::Estimator};
use crate::spot::bootstrap::bands_of;

/// One run in ten is below the low end, one above the high one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Forecast {
    pub time: Spread,
    pub cost: CostSpread,
    /// The share of simulated runs that end: on spot machines that are taken back too often, some never do.
    pub ends: f64,
}

impl Constraints {
    /// Whether one run in ten or more misses the deadline or the budget. What makes a run longer makes it dearer too, so
    /// the runs that miss the one are taken to be those that miss the other.
    pub fn is_risky(&self, forecast: &Forecast) -> bool {
        forecast.ends < 0.9
            || self.deadline.is_some_and(|most| forecast.time.high.micros() > most.0)
            || self.budget.is_some_and(|most| forecast.cost.high > most)
    }
}

/// The forecast, where one step in ten takes less than `step.0` times the estimate, and one more than `step.1` times.
pub fn forecast<E: Estimator>(
    search: &mut Search<E>,
    constraints: &Constraints,
    candidate: &Candidate,
    step: (f64, f64),
    seed: u64,
) -> Forecast {
    let (spec, market) = (search.spec, search.market);
    let priced = &market.listings[candidate.listing];
    let timeline = &candidate.timeline;
    let gpu = &market.hardware[priced.hardware].device.gpu;
    let (middle, start) = match search.way(priced.hardware, candidate.nodes) {
        Ok(way) => (way.step, way.start),
        // No candidate comes from machines without a way.
        Err(_) => (timeline.work / (spec.length.steps as f64).max(1.0), 0.0),
    };
    let profile = RunProfile::of(spec, priced, gpu, candidate.nodes, middle, start);
    // Only the steps are uncertain by the band of steps, not the time to boot.
    let scaled = |factor: f64| -> RunTimeline {
        let profile = RunProfile { work: timeline.work * factor, ..profile };
        let availability = constraints.availability_of(priced, candidate.nodes);
        profile.timeline(spec, candidate.terms, timeline::policy(&constraints.admission, priced), availability)
    };
    let (fast, slow) = (scaled(step.0), scaled(step.1));
    let spot = match candidate.terms {
        PurchaseOption::OnDemand | PurchaseOption::Dedicated => None,
        PurchaseOption::Spot => {
            let availability = constraints.availability_of(priced, candidate.nodes);
            let policy = timeline::policy(&constraints.admission, priced);
            bands_of(availability, timeline.work, timeline.interval, &profile.costs, policy, seed)
        }
    };
    let ends = match candidate.terms {
        PurchaseOption::OnDemand | PurchaseOption::Dedicated => 1.0,
        PurchaseOption::Spot => spot.map_or(0.0, |bands| bands.ends),
    };
    let ratios = |low: f64, high: f64, band: Option<(f64, f64)>| {
        let (fewer, more) = band.unwrap_or((1.0, 1.0));
        let both = |one: f64, other: f64| one.ln().hypot(other.ln()).exp();
        (1.0 / both(low.min(1.0), fewer.min(1.0)), both(high.max(1.0), more.max(1.0)))
    };
    let walls = spot.map(|bands| (bands.wall.low / bands.mean.wall, bands.wall.high / bands.mean.wall));
    let bills = spot.map(|bands| (bands.paid.low / bands.mean.paid(), bands.paid.high / bands.mean.paid()));
    let leaving = constraints.leaving(priced);
    let cost_of = |timeline: &RunTimeline| {
        timeline::cost(spec, priced, candidate.terms, candidate.nodes, timeline, &leaving).total()
    };
    let total = candidate.cost.total();
    let share = |money: Money| money.micros() as f64 / (total.micros() as f64).max(1.0);
    let (less, more) = ratios(fast.wall / timeline.wall, slow.wall / timeline.wall, walls);
    let (cheaper, dearer) = ratios(share(cost_of(&fast)), share(cost_of(&slow)), bills);
    let time = |factor: f64| Duration::from_micros((timeline.wall * factor * 1e6).round() as u64);
    let money = |factor: f64| Money::from_micros((total.micros() as f64 * factor).round() as i64);
    Forecast {
        time: Spread { low: time(less), middle: time(1.0), high: time(more) },
        cost: CostSpread { low: money(cheaper), middle: total, high: money(dearer) },
        ends,
    }
}

#[cfg(test)]
mod tests {
    use domain::Elapsed;

    use super::*;

    #[test]
    fn a_limit_is_kept_in_nine_runs_of_ten_or_it_is_risky() {
        let time = Duration::from_micros;
        let forecast = Forecast {
            time: Spread { low: time(80), middle: time(100), high: time(120) },
            cost: CostSpread {
                low: Money::from_micros(8),
                middle: Money::from_micros(10),
                high: Money::from_micros(12),
            },
            ends: 1.0,
        };
        let check = |deadline: Option<u64>, budget: Option<i64>, ends: f64, risky: bool| {
            let (deadline, budget) = (deadline.map(Elapsed), budget.map(Money::from_micros));
            let constraints = Constraints { deadline, budget, ..Constraints::default() };
            let forecast = Forecast { ends, ..forecast };
            assert_eq!(constraints.is_risky(&forecast), risky, "{deadline:?} {budget:?} {ends}");
        };
        check(None, None, 1.0, false);
        check(Some(120), Some(12), 1.0, false);
        check(Some(110), Some(12), 1.0, true);
        check(Some(120), Some(11), 1.0, true);
        // The middle would keep both; runs that never end keep none.
        check(Some(1_000), Some(1_000), 0.85, true);
        check(None, None, 0.9, false);
    }
}
