//! Forecasts from a given moment: weighted by recency, and conditioned on whether there are machines now.
//!
//! [`bootstrap`](super::bootstrap) forecasts weeks ahead from earlier weeks, and must allow for changing odds. A run
//! that starts now can also use the last hours: sample paths begin with the current interval, and intervals are
//! weighted by how long ago they ended.

use domain::random::Draws;

use super::bootstrap::{Band, LONGEST, band, normal};
use super::{CheckpointOverhead, Ended, OutagePolicy, UptimeInterval, walk};

/// Seconds after which a period counts by a factor of e less: a month. Five days do as well on the traces of
/// `docs/estimate.md`.
const MEMORY: f64 = 30.0 * 86400.0;
/// Standard deviation of the log odds of having machines, between the observations and the run: such that four fifths
/// of the runs in those traces are covered.
const REGIME: f64 = 0.25;
/// Sample paths that a band is read from.
const PATHS: usize = 200;

/// The same for the expected split between spot machines and machines on demand: half a day, which lags behind the weeks
/// least on the same traces, whichever of their groups is left out. A band spans them instead.
const RECENT: f64 = 0.5 * 86400.0;

/// The wall times of a run of `work` seconds that starts now. The last of the intervals `seen` is current. `None` if
/// half of the sample paths do not end.
pub fn band_from(
    seen: &[UptimeInterval],
    work: f64,
    interval: f64,
    costs: &CheckpointOverhead,
    policy: OutagePolicy,
    draws: &mut Draws,
) -> Option<Band> {
    let ended = outcomes(seen, MEMORY, draws, |path| walk(path, work, interval, costs, policy))?;
    let endless = PATHS - ended.len();
    Some(band(ended.iter().map(|ended| ended.wall).collect(), endless))
}

/// Expected seconds on spot machines and on demand of a run of `work` seconds that starts now; as [`band_from`].
pub fn expected_from(
    seen: &[UptimeInterval],
    work: f64,
    interval: f64,
    costs: &CheckpointOverhead,
    policy: OutagePolicy,
    draws: &mut Draws,
) -> Option<[f64; 2]> {
    let ended = outcomes(seen, RECENT, draws, |path| walk(path, work, interval, costs, policy))?;
    let mean = |of: fn(&Ended) -> f64| ended.iter().map(of).sum::<f64>() / ended.len() as f64;
    Some([mean(|ended| ended.spot), mean(|ended| ended.on_demand)])
}

/// What becomes of a run on each sample path on which it ends, if half of them are such; intervals weigh by a factor of e
/// less for each `memory` seconds that have passed since.
fn outcomes(
    seen: &[UptimeInterval],
    memory: f64,
    draws: &mut Draws,
    run: impl Fn(std::iter::Take<PathFromNow<'_>>) -> Option<Ended>,
) -> Option<Vec<Ended>> {
    let (now, _) = seen.split_last()?;
    let mut ago = 0.0;
    // Up and down: seconds of each interval and its weight. The current one is at least as long as it is now.
    let mut lengths: [Vec<(f64, f64)>; 2] = [Vec::new(), Vec::new()];
    for period in seen.iter().rev() {
        lengths[usize::from(period.is_up)].push((period.seconds, (-ago / memory).exp()));
        ago += period.seconds;
    }
    let mut ended = Vec::with_capacity(PATHS);
    for _ in 0..PATHS {
        ended.extend(run(PathFromNow::draw(&lengths, *now, draws).take(LONGEST)));
    }
    (ended.len() * 2 >= PATHS).then_some(ended)
}

/// One sample path from now on.
struct PathFromNow<'a> {
    /// Down and up: lengths, and sums of their weights up to each.
    lengths: [Vec<(f64, f64)>; 2],
    is_up: bool,
    /// Seconds of the period under way; none once it was told.
    age: Option<f64>,
    draws: &'a mut Draws,
}

impl<'a> PathFromNow<'a> {
    fn draw(seen: &[Vec<(f64, f64)>; 2], now: UptimeInterval, draws: &'a mut Draws) -> PathFromNow<'a> {
        let regime = (REGIME * normal(draws) / 2.0).exp();
        // What might have been seen instead: weights that fall off exponentially (Rubin 1981).
        let mut again = |lengths: &[(f64, f64)], factor: f64| -> Vec<(f64, f64)> {
            let mut sum = 0.0;
            let mut up_to = |weight: f64| {
                sum += weight * -(1.0 - draws.share()).ln();
                sum
            };
            lengths.iter().map(|(seconds, weight)| (seconds * factor, up_to(*weight))).collect()
        };
        let lengths = [again(&seen[0], 1.0 / regime), again(&seen[1], regime)];
        PathFromNow { lengths, is_up: now.is_up, age: Some(now.seconds), draws }
    }

    /// A length of the period that is there, longer than `least`; none where none is.
    fn length(&mut self, least: f64) -> Option<f64> {
        let lengths = &self.lengths[usize::from(self.is_up)];
        let mut before = 0.0;
        let longer: Vec<(f64, f64)> = lengths
            .iter()
            .scan(0.0, |sum, (seconds, up_to)| {
                let weight = up_to - before;
                before = *up_to;
                if *seconds > least {
                    *sum += weight;
                }
                Some((*seconds, *sum))
            })
            .filter(|(seconds, _)| *seconds > least)
            .collect();
        let (_, all) = *longer.last()?;
        let at = self.draws.share() * all;
        let index = longer.partition_point(|(_, up_to)| *up_to < at);
        longer.get(index.min(longer.len() - 1)).map(|(seconds, _)| *seconds)
    }
}

impl Iterator for PathFromNow<'_> {
    type Item = UptimeInterval;

    fn next(&mut self) -> Option<UptimeInterval> {
        let is_up = self.is_up;
        let seconds = match self.age.take() {
            // One that is longer than all that were seen may well last as long again (a heavy tail of exponent one).
            Some(age) => match self.length(age) {
                Some(length) => length - age,
                None => age * (1.0 / (1.0 - self.draws.share()) - 1.0),
            },
            None => self.length(0.0).unwrap_or(if is_up { 0.0 } else { 60.0 }),
        };
        self.is_up = !is_up;
        Some(UptimeInterval { is_up, seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: CheckpointOverhead = CheckpointOverhead { stall: 2.0, lag: 60.0, restart: 300.0 };
    const HOUR: f64 = 3600.0;

    fn uptime_intervals(hours: &[f64], last_is_up: bool) -> Vec<UptimeInterval> {
        let count = hours.len();
        let is_up = |index: usize| (count - 1 - index).is_multiple_of(2) == last_is_up;
        let period = |(index, hours): (usize, &f64)| UptimeInterval { is_up: is_up(index), seconds: hours * HOUR };
        hours.iter().enumerate().map(period).collect()
    }

    fn wall(seen: &[UptimeInterval], hours: f64) -> Option<Band> {
        band_from(seen, hours * HOUR, 300.0, &COSTS, OutagePolicy::Wait, &mut Draws::new(7))
    }

    #[test]
    fn a_run_without_machines_now_ends_later() {
        // Four hours with machines, two without, and an hour of what is there now.
        let (up, down) = ([4.0, 2.0, 4.0, 2.0, 1.0], [4.0, 2.0, 4.0, 2.0, 4.0, 1.0]);
        let (with, without) = (wall(&uptime_intervals(&up, true), 2.0), wall(&uptime_intervals(&down, false), 2.0));
        let (with, without) = (with.expect("it ends"), without.expect("it ends"));
        assert!(with.low < without.low && with.middle < without.middle, "{with:?} {without:?}");
        assert!(2.0 * HOUR < with.low, "{with:?} holds the work");
    }

    #[test]
    fn what_was_seen_of_late_counts_most() {
        // Twenty days with machines four fifths of the time, then twenty with a fifth; and the other way round.
        let (good, bad) = ([1.0, 4.0].repeat(96), [4.0, 1.0].repeat(96));
        let of = |early: &[f64], late: &[f64]| {
            wall(&uptime_intervals(&[early, late].concat(), true), 12.0).expect("it ends")
        };
        let (worse, better) = (of(&good, &bad), of(&bad, &good));
        assert!(better.middle * 1.3 < worse.middle, "{better:?} {worse:?}");
    }

    #[test]
    fn the_expected_split_follows_the_last_days() {
        // A week in which machines were hardly ever there, then four days in which they hardly ever were not; and the
        // other way round.
        let (scarce, plenty) = ([9.0, 1.0].repeat(16), [1.0, 9.0].repeat(10));
        let of = |early: &[f64], late: &[f64]| {
            let seen = uptime_intervals(&[early, late].concat(), true);
            let policy = OutagePolicy::FallBack { patience: 1800.0, hold: HOUR };
            expected_from(&seen, 12.0 * HOUR, 300.0, &COSTS, policy, &mut Draws::new(7)).expect("it ends")
        };
        let ([_, better], [_, worse]) = (of(&scarce, &plenty), of(&plenty, &scarce));
        assert!(better < 3.0 * HOUR && worse > 4.0 * HOUR, "{better} {worse}");
    }

    #[test]
    fn nothing_seen_and_machines_that_never_come_make_no_band() {
        assert_eq!(wall(&[], 1.0), None);
        assert_eq!(wall(&uptime_intervals(&[5.0], false), 1.0), None);
    }
}
