//! Bootstrapped bands: many sample paths are drawn from the observed intervals, and a run is simulated on each.
//!
//! Intervals are drawn with replacement twice (Efron 1979): once for the sampling error, once for each path. The
//! probability of having machines changes from week to week by more than that; each path has its own regime, with the
//! spread [`REGIME`].

use domain::random::{Draws, GOLDEN};
use serde::Serialize;

use super::{CheckpointOverhead, Ended, OutagePolicy, SpotAvailability, UptimeInterval, walk};

/// Standard deviation of the logarithm of the odds of having machines, from one stretch of weeks to the next. Over the
/// halves of 14 published traces it is 1.6; a wider band than 1.5 gives hardly covers more.
pub const REGIME: f64 = 1.5;

/// Sample paths that a band is read from.
pub const PATHS: usize = 400;

/// Intervals after which a path that has not ended is abandoned.
pub(super) const LONGEST: usize = 20_000;

/// Three percentiles of seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Band {
    /// One run in ten is below.
    pub low: f64,
    pub middle: f64,
    /// One run in ten is above.
    pub high: f64,
}

/// The run that is simulated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimulatedRun {
    /// Seconds of work.
    pub work: f64,
    /// Between checkpoints.
    pub interval: f64,
    pub costs: CheckpointOverhead,
    pub policy: OutagePolicy,
    /// Seconds of the first start, where it differs from a restart.
    pub start: f64,
    /// One run in ten takes less than so many times the work, and one more.
    pub pace: (f64, f64),
    /// The spot price as a share of the on-demand price, and the standard deviation of its mean's logarithm.
    pub price: (f64, f64),
}

impl SimulatedRun {
    /// A run whose work and price are known, and whose first start takes as long as any.
    pub fn certain(
        work: f64,
        interval: f64,
        costs: CheckpointOverhead,
        policy: OutagePolicy,
        price: f64,
    ) -> SimulatedRun {
        let (start, pace, price) = (costs.restart, (1.0, 1.0), (price, 0.0));
        SimulatedRun { work, interval, costs, policy, start, pace, price }
    }

    /// Seconds of a run that is never interrupted, at the pace that one in ten exceeds: the least of any percentile.
    pub fn fastest(&self) -> f64 {
        self.start + self.work * self.pace.0.min(1.0)
    }

    /// What becomes of the run on a sample path, and its cost in seconds of a machine on demand.
    fn on_path(&self, path: impl Iterator<Item = UptimeInterval>, draws: &mut Draws) -> Option<(Ended, f64)> {
        let work = self.work * pace(self.pace, draws);
        let price = self.price.0 * (self.price.1 * normal(draws) - self.price.1.powi(2) / 2.0).exp();
        let mut ended = walk(path, work, self.interval, &self.costs, self.policy)?;
        let more = self.start - self.costs.restart;
        ended.wall += more;
        match ended.spot >= ended.on_demand {
            true => ended.spot += more,
            false => ended.on_demand += more,
        }
        Some((ended, ended.spot * price + ended.on_demand))
    }
}

/// Draws how many times the work a run takes: lognormal on either side of 1.
fn pace((low, high): (f64, f64), draws: &mut Draws) -> f64 {
    /// The standard normal distribution's ninetieth percentile.
    const NINETIETH: f64 = 1.2816;
    let off = normal(draws) / NINETIETH;
    let edge = if off < 0.0 { 1.0 / low.min(1.0) } else { high.max(1.0) };
    (off * edge.ln()).exp()
}

/// The results of the sample paths.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OutcomeBands {
    /// Seconds paid for.
    pub paid: Band,
    /// Seconds from start to end.
    pub wall: Band,
    /// What is paid, in seconds of a machine on demand.
    pub cost: Band,
    /// Means of all sample paths.
    pub mean: Ended,
    /// The share of sample paths on which the run ends.
    pub ends: f64,
}

/// The bands of a run from observed intervals. `None` if no interval had machines, or if the run does not end.
pub fn bands(seen: &[UptimeInterval], run: &SimulatedRun, seed: u64) -> Option<OutcomeBands> {
    let lengths = |is_up: bool| -> Vec<f64> {
        seen.iter().filter(|period| period.is_up == is_up).map(|period| period.seconds).collect()
    };
    let (ups, downs) = (lengths(true), lengths(false));
    if ups.is_empty() {
        return None;
    }
    // Paths have draws of their own, so that they are the same whatever is uncertain about the run.
    let (mut draws, mut of_run) = (Draws::new(seed), Draws::new(seed ^ GOLDEN));
    let mut outcomes = Vec::with_capacity(PATHS);
    for _ in 0..PATHS {
        let path = SamplePath::draw(&ups, &downs, &mut draws);
        // Sample paths on which the run cannot end do not contribute a time; they rank last.
        outcomes.extend(run.on_path(path.take(LONGEST), &mut of_run));
    }
    if outcomes.len() * 2 < PATHS {
        return None;
    }
    let endless = PATHS - outcomes.len();
    let mean = |of: fn(&Ended) -> f64| outcomes.iter().map(|(ended, _)| of(ended)).sum::<f64>() / outcomes.len() as f64;
    // Percentiles of few paths scatter; none is below what no luck can shorten.
    let least = |of: fn(&Ended) -> f64| {
        let Band { low, middle, high } = band(outcomes.iter().map(|(ended, _)| of(ended)).collect(), endless);
        let fastest = run.fastest();
        Band { low: low.max(fastest), middle: middle.max(fastest), high: high.max(fastest) }
    };
    Some(OutcomeBands {
        paid: least(Ended::paid),
        wall: least(|ended| ended.wall),
        cost: band(outcomes.iter().map(|(_, cost)| *cost).collect(), endless),
        mean: Ended {
            spot: mean(|ended| ended.spot),
            on_demand: mean(|ended| ended.on_demand),
            wall: mean(|ended| ended.wall),
            interruptions: mean(|ended| f64::from(ended.interruptions)).round() as u32,
        },
        ends: outcomes.len() as f64 / PATHS as f64,
    })
}

/// The bands if only mean durations are known: exponentially distributed intervals replace observations.
pub fn bands_of(availability: SpotAvailability, run: &SimulatedRun, seed: u64) -> Option<OutcomeBands> {
    const PERIODS: u32 = 64;
    let quantile = |index: u32| -(1.0 - (f64::from(index) + 0.5) / f64::from(PERIODS)).ln();
    let of = |is_up: bool, mean: f64| {
        (0..PERIODS)
            .map(move |index| UptimeInterval { is_up, seconds: mean * quantile(index) })
            .filter(|period| period.seconds > 0.0)
    };
    let seen: Vec<UptimeInterval> = of(true, availability.up).chain(of(false, availability.down)).collect();
    bands(&seen, run, seed)
}

/// Percentiles; runs that never end rank above all others.
pub(super) fn band(mut seconds: Vec<f64>, endless: usize) -> Band {
    seconds.sort_by(f64::total_cmp);
    let count = seconds.len() + endless;
    let at = |share: f64| {
        let index = (share * (count - 1) as f64).round() as usize;
        seconds[index.min(seconds.len() - 1)]
    };
    Band { low: at(0.1), middle: at(0.5), high: at(0.9) }
}

/// One sample path, without end.
struct SamplePath<'a> {
    ups: Vec<f64>,
    downs: Vec<f64>,
    is_up: bool,
    is_first: bool,
    draws: &'a mut Draws,
}

impl<'a> SamplePath<'a> {
    fn draw(ups: &[f64], downs: &[f64], draws: &'a mut Draws) -> SamplePath<'a> {
        let regime = (REGIME * normal(draws) / 2.0).exp();
        let mut again = |lengths: &[f64], factor: f64| -> Vec<f64> {
            (0..lengths.len()).map(|_| lengths[draws.below(lengths.len() as u64) as usize] * factor).collect()
        };
        let (ups, downs) = (again(ups, regime), again(downs, 1.0 / regime));
        let (up, down): (f64, f64) = (ups.iter().sum(), downs.iter().sum());
        let is_up = draws.share() * (up + down) < up;
        SamplePath { ups, downs, is_up, is_first: true, draws }
    }
}

impl Iterator for SamplePath<'_> {
    type Item = UptimeInterval;

    fn next(&mut self) -> Option<UptimeInterval> {
        let (is_up, lengths) = (self.is_up, if self.is_up { &self.ups } else { &self.downs });
        let seconds = match (lengths.is_empty(), std::mem::take(&mut self.is_first)) {
            (true, _) => 0.0,
            // A run begins somewhere in a period, and more likely in a long one.
            (false, true) => {
                let mut at = self.draws.share() * lengths.iter().sum::<f64>();
                let inside = lengths.iter().find(|length| {
                    at -= **length;
                    at <= 0.0
                });
                self.draws.share() * inside.copied().unwrap_or(lengths[0])
            }
            (false, false) => lengths[self.draws.below(lengths.len() as u64) as usize],
        };
        self.is_up = !is_up;
        Some(UptimeInterval { is_up, seconds })
    }
}

/// The next number of the standard normal distribution (Box and Muller 1958).
pub(super) fn normal(draws: &mut Draws) -> f64 {
    let radius = (-2.0 * (1.0 - draws.share()).ln()).sqrt();
    radius * (std::f64::consts::TAU * draws.share()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: CheckpointOverhead = CheckpointOverhead { stall: 2.0, lag: 60.0, restart: 300.0 };
    const HOUR: f64 = 3600.0;

    const FALL_BACK: OutagePolicy = OutagePolicy::FallBack { patience: 1800.0, hold: HOUR };

    fn availability(up: f64, down: f64) -> SpotAvailability {
        SpotAvailability { up: up * HOUR, down: down * HOUR }
    }

    /// A run of so many hours at 0.4 of the on-demand price.
    fn run(hours: f64, policy: OutagePolicy) -> SimulatedRun {
        SimulatedRun::certain(hours * HOUR, 300.0, COSTS, policy, 0.4)
    }

    #[test]
    fn the_same_seed_gives_the_same_bands() {
        let at = |seed: u64| bands_of(availability(3.0, 1.0), &run(12.0, OutagePolicy::Wait), seed).unwrap();
        assert_eq!(at(1), at(1));
        assert_ne!(at(1), at(2));
    }

    #[test]
    fn bands_are_in_order_and_hold_the_work() {
        for (up, down) in [(0.5, 2.0), (2.0, 1.0), (100.0, 0.1)] {
            for policy in [OutagePolicy::Wait, FALL_BACK] {
                let bands = bands_of(availability(up, down), &run(12.0, policy), 7).unwrap();
                for band in [bands.paid, bands.wall] {
                    assert!(12.0 * HOUR < band.low && band.low <= band.middle && band.middle <= band.high, "{bands:?}");
                }
                assert!(bands.paid.middle <= bands.wall.middle + 1e-6);
                let cost = bands.cost;
                assert!(cost.low <= cost.middle && cost.middle <= cost.high, "{bands:?}");
                assert!(0.4 * bands.paid.low <= cost.low + 1e-6 && cost.high <= bands.paid.high + 1e-6, "{bands:?}");
            }
        }
    }

    #[test]
    fn no_percentile_is_below_the_fastest_run_however_long_it_is() {
        for hours in [0.02, 0.2, 1.0, 12.0, 100.0] {
            for (up, down) in [(0.5, 1.2), (2.0, 1.2), (40.0, 0.3)] {
                for (policy, pace) in
                    [(OutagePolicy::Wait, (0.7, 1.5)), (FALL_BACK, (0.7, 1.5)), (FALL_BACK, (1.0, 1.0))]
                {
                    let run = SimulatedRun { pace, start: 600.0, ..run(hours, policy) };
                    let Some(bands) = bands_of(availability(up, down), &run, 5) else { continue };
                    let fastest = 600.0 + pace.0 * hours * HOUR;
                    for band in [bands.wall, bands.paid] {
                        let in_order = fastest <= band.low && band.low <= band.middle && band.middle <= band.high;
                        assert!(in_order, "{run:?} {bands:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn an_uncertain_pace_and_price_widen_the_bands() {
        let of = |pace: (f64, f64), moves: f64| {
            let run = SimulatedRun { pace, price: (0.4, moves), ..run(12.0, OutagePolicy::Wait) };
            bands_of(availability(200.0, 0.2), &run, 9).unwrap()
        };
        let (sure, paced, moving) = (of((1.0, 1.0), 0.0), of((0.7, 1.5), 0.0), of((1.0, 1.0), 0.3));
        let width = |band: Band| band.high / band.low;
        assert!(width(paced.wall) > 1.5 * width(sure.wall), "{paced:?} {sure:?}");
        assert!(width(moving.cost) > 1.5 * width(sure.cost), "{moving:?} {sure:?}");
        assert_eq!(moving.wall, sure.wall);
    }

    #[test]
    fn machines_that_never_come_make_no_band() {
        let none = [UptimeInterval { is_up: false, seconds: 1.0 }];
        assert_eq!(bands(&none, &run(0.01, OutagePolicy::Wait), 1), None);
        let short = [UptimeInterval { is_up: true, seconds: 1.0 }, UptimeInterval { is_up: false, seconds: 1.0 }];
        assert_eq!(bands(&short, &run(3.0, OutagePolicy::Wait), 1), None, "no stay is long enough to save");
    }
}
