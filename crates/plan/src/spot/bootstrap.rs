//! Bootstrapped bands: many sample paths are drawn from the observed intervals, and a run is simulated on each.
//!
//! Intervals are drawn with replacement twice (Efron 1979): once for the sampling error, once for each path. The
//! probability of having machines changes from week to week by more than that; each path has its own regime, with the
//! spread [`REGIME`].

use domain::random::Draws;
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

/// The results of the sample paths.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OutcomeBands {
    /// Seconds paid for.
    pub paid: Band,
    /// Seconds from start to end.
    pub wall: Band,
    /// Means of all sample paths.
    pub mean: Ended,
    /// The share of sample paths on which the run ends.
    pub ends: f64,
}

/// The bands of a run of `work` seconds, from observed intervals. `None` if no interval had machines, or if a run does
/// not end.
pub fn bands(
    seen: &[UptimeInterval],
    work: f64,
    interval: f64,
    costs: &CheckpointOverhead,
    policy: OutagePolicy,
    seed: u64,
) -> Option<OutcomeBands> {
    let lengths = |is_up: bool| -> Vec<f64> {
        seen.iter().filter(|period| period.is_up == is_up).map(|period| period.seconds).collect()
    };
    let (ups, downs) = (lengths(true), lengths(false));
    if ups.is_empty() {
        return None;
    }
    let mut draws = Draws::new(seed);
    let mut ended = Vec::with_capacity(PATHS);
    for _ in 0..PATHS {
        let path = SamplePath::draw(&ups, &downs, &mut draws);
        // Sample paths on which the run cannot end do not contribute a time; they rank last.
        ended.extend(walk(path.take(LONGEST), work, interval, costs, policy));
    }
    if ended.len() * 2 < PATHS {
        return None;
    }
    let endless = PATHS - ended.len();
    let mean = |of: fn(&Ended) -> f64| ended.iter().map(of).sum::<f64>() / ended.len() as f64;
    Some(OutcomeBands {
        paid: band(ended.iter().map(Ended::paid).collect(), endless),
        wall: band(ended.iter().map(|ended| ended.wall).collect(), endless),
        mean: Ended {
            spot: mean(|ended| ended.spot),
            on_demand: mean(|ended| ended.on_demand),
            wall: mean(|ended| ended.wall),
            interruptions: mean(|ended| f64::from(ended.interruptions)).round() as u32,
        },
        ends: ended.len() as f64 / PATHS as f64,
    })
}

/// The bands if only mean durations are known: exponentially distributed intervals replace observations.
pub fn bands_of(
    availability: SpotAvailability,
    work: f64,
    interval: f64,
    costs: &CheckpointOverhead,
    policy: OutagePolicy,
    seed: u64,
) -> Option<OutcomeBands> {
    const PERIODS: u32 = 64;
    let quantile = |index: u32| -(1.0 - (f64::from(index) + 0.5) / f64::from(PERIODS)).ln();
    let of = |is_up: bool, mean: f64| {
        (0..PERIODS)
            .map(move |index| UptimeInterval { is_up, seconds: mean * quantile(index) })
            .filter(|period| period.seconds > 0.0)
    };
    let seen: Vec<UptimeInterval> = of(true, availability.up).chain(of(false, availability.down)).collect();
    bands(&seen, work, interval, costs, policy, seed)
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

    #[test]
    fn the_same_seed_gives_the_same_bands() {
        let availability = SpotAvailability { up: 3.0 * HOUR, down: HOUR };
        let at = |seed: u64| bands_of(availability, 12.0 * HOUR, 300.0, &COSTS, OutagePolicy::Wait, seed).unwrap();
        assert_eq!(at(1), at(1));
        assert_ne!(at(1), at(2));
    }

    #[test]
    fn bands_are_in_order_and_hold_the_work() {
        for (up, down) in [(0.5, 2.0), (2.0, 1.0), (100.0, 0.1)] {
            let availability = SpotAvailability { up: up * HOUR, down: down * HOUR };
            for policy in [OutagePolicy::Wait, OutagePolicy::FallBack { patience: 1800.0, hold: HOUR }] {
                let bands = bands_of(availability, 12.0 * HOUR, 300.0, &COSTS, policy, 7).unwrap();
                for band in [bands.paid, bands.wall] {
                    assert!(12.0 * HOUR < band.low && band.low <= band.middle && band.middle <= band.high, "{bands:?}");
                }
                assert!(bands.paid.middle <= bands.wall.middle + 1e-6);
            }
        }
    }

    #[test]
    fn machines_that_never_come_make_no_band() {
        assert_eq!(
            bands(&[UptimeInterval { is_up: false, seconds: 1.0 }], 10.0, 1.0, &COSTS, OutagePolicy::Wait, 1),
            None
        );
        let short = [UptimeInterval { is_up: true, seconds: 1.0 }, UptimeInterval { is_up: false, seconds: 1.0 }];
        assert_eq!(bands(&short, 1e4, 60.0, &COSTS, OutagePolicy::Wait, 1), None, "no stay is long enough to save");
    }
}
