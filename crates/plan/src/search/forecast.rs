//! The forecast of a candidate: the uncertainty of its time and its cost.
//!
//! There are two sources of uncertainty: the time of a step, with the estimate's own band, and for spot machines their
//! interruptions and prices. Runs are simulated whose pace, outages and price are all drawn
//! ([`bands_of`](crate::spot::bootstrap::bands_of)), so that percentiles are those of whole runs: none is below the time
//! that the steps alone take.

use domain::plan::{CostSpread, Spread};
use domain::{Duration, Money};
use serde::Serialize;

use super::assumed;
use super::market::{PricedListing, PurchaseOption};
use super::timeline::{self, RunProfile, RunTimeline};
use super::{Candidate, Constraints, Search, parallel::Estimator};
use crate::spot::bootstrap::{OutcomeBands, SimulatedRun, bands_of};

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
    let (middle, start) = step_and_start(search, candidate);
    let profile = RunProfile::of(spec, priced, gpu, candidate.nodes, middle, start);
    let profile = candidate.volume.map_or(profile, |volume| volume.slowed(spec, candidate.nodes, profile));
    let policy = timeline::policy(&constraints.admission, priced, candidate.disk);
    let availability = constraints.availability_of(priced, candidate.nodes);
    // Only the steps are uncertain by the band of steps, not the time to boot.
    let scaled = |factor: f64| -> RunTimeline {
        let profile = RunProfile { work: timeline.work * factor, ..profile };
        profile.timeline(spec, candidate.terms, policy, availability)
    };
    let (fast, slow) = (scaled(step.0), scaled(step.1));
    let simulated = match candidate.terms {
        PurchaseOption::OnDemand | PurchaseOption::Dedicated => None,
        PurchaseOption::Spot => {
            let run =
                simulated_run(constraints, priced, &RunProfile { work: timeline.work, ..profile }, candidate, step);
            bands_of(availability, &run, seed)
        }
    };
    let ends = match candidate.terms {
        PurchaseOption::OnDemand | PurchaseOption::Dedicated => 1.0,
        PurchaseOption::Spot => simulated.map_or(0.0, |bands| bands.ends),
    };
    let leaving = constraints.leaving(priced);
    let anchors = constraints.admission.anchors(candidate.terms, candidate.nodes);
    let cost_of = |timeline: &RunTimeline| {
        let machines = (candidate.nodes, anchors);
        timeline::cost(spec, priced, candidate.terms, machines, timeline, &leaving, candidate.disk).total()
    };
    let (total, wall) = (candidate.cost.total(), timeline.wall);
    let [low, high] = match simulated {
        None => [&fast, &slow].map(|timeline| (timeline.wall, cost_of(timeline))),
        Some(OutcomeBands { wall, cost, .. }) => {
            [(wall.low, cost.low), (wall.high, cost.high)].map(|(wall, rented)| {
                // Disks, objects and machines on demand beside spot machines are paid for as long as the run takes; the
                // others as they were drawn.
                let rest = cost_of(&RunTimeline { wall, rented: 0.0, fallen_back: 0.0, ..*timeline });
                let rented = f64::from(candidate.nodes - anchors) * rented / 3600.0 * unit_price(priced);
                (wall, rest + Money::from_micros(rented.round() as i64))
            })
        }
    };
    let time = |seconds: f64| Duration::from_micros((seconds * 1e6).round() as u64);
    Forecast {
        time: Spread { low: time(low.0.min(wall)), middle: time(wall), high: time(high.0.max(wall)) },
        cost: CostSpread { low: low.1.min(total), middle: total, high: high.1.max(total) },
        ends,
    }
}

/// Seconds of a step, and of the start of an attempt.
fn step_and_start<E: Estimator>(search: &mut Search<E>, candidate: &Candidate) -> (f64, f64) {
    match search.config_of(candidate) {
        Some(config) => (config.step, config.start),
        // No candidate comes from machines without a configuration.
        None => (candidate.timeline.work / (search.spec.length.steps as f64).max(1.0), 0.0),
    }
}

/// Micro-dollars of an hour that simulated costs are counted in: of a machine on demand, or of a spot machine where there
/// is none on demand, and so nothing to fall back to.
fn unit_price(priced: &PricedListing) -> f64 {
    let rate = priced.rate(PurchaseOption::OnDemand).or_else(|| priced.rate(PurchaseOption::Spot));
    rate.map_or(0.0, |rate| rate.micros_per_hour() as f64)
}

/// The run to simulate on spot machines. Its price moves away from today's the longer it takes.
fn simulated_run(
    constraints: &Constraints,
    priced: &PricedListing,
    profile: &RunProfile,
    candidate: &Candidate,
    step: (f64, f64),
) -> SimulatedRun {
    let spot = priced.rate(PurchaseOption::Spot).map_or(0.0, |rate| rate.micros_per_hour() as f64);
    let passed = candidate.timeline.wall / assumed::SPOT_PRICE_MEMORY;
    SimulatedRun {
        work: profile.work,
        interval: candidate.timeline.interval,
        costs: profile.costs,
        policy: timeline::policy(&constraints.admission, priced, candidate.disk),
        start: profile.before,
        pace: step,
        price: (spot / unit_price(priced).max(1.0), assumed::SPOT_PRICE_MOVES * (-(-passed).exp_m1()).sqrt()),
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
