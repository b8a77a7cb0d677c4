//! Spot availability: how long spot machines stay and how long outages last.

use serde::Serialize;

/// A stretch of time in which all machines of a run can be had, or cannot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UptimeInterval {
    pub is_up: bool,
    pub seconds: f64,
}

/// Mean lengths of periods, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SpotAvailability {
    /// Time from getting a machine until it is interrupted.
    pub up: f64,
    /// From then until there is one again.
    pub down: f64,
}

/// Hours in a month, as clouds count them.
pub const MONTH_HOURS: f64 = 730.0;

/// Mean hours until a spot GPU machine was taken, in the middle of 12 traces of 2022 and 2023 (V100 and K80 on AWS, one
/// week to four weeks each): between 0.7 and 15. All were of kinds that AWS's advisor puts into its worst band.
const OBSERVED_UP: f64 = 2.0 * 3600.0;

/// Mean seconds without one, in the middle of the same traces: between 0.3 and 4 h.
const OBSERVED_DOWN: f64 = 1.2 * 3600.0;

/// What the band stands for that those traces are in, and for a band that is not known: per cent a month.
const WORST_BAND: f64 = 25.0;
const UNKNOWN_BAND: f64 = 12.5;

/// How much sooner one of several machines is interrupted: with exponent 1, `k` times as soon, as if they were
/// independent. The traces with 4 and 16 machines give 0.64 and 0.04.
const TOGETHER: f64 = 0.33;

impl SpotAvailability {
    /// Machines are never interrupted.
    pub const STEADY: SpotAvailability = SpotAvailability { up: f64::INFINITY, down: 0.0 };

    /// The availability in the intervals of a trace: uptime divided by the number of interruptions. `None` if there
    /// never were machines.
    pub fn of(uptime_intervals: &[UptimeInterval]) -> Option<SpotAvailability> {
        let total = |up: bool| -> f64 {
            uptime_intervals.iter().filter(|period| period.is_up == up).map(|period| period.seconds).sum()
        };
        let taken = uptime_intervals.windows(2).filter(|pair| pair[0].is_up && !pair[1].is_up).count();
        let gone = uptime_intervals.iter().filter(|period| !period.is_up).count();
        let up = total(true);
        (up > 0.0).then(|| SpotAvailability { up: up / taken.max(1) as f64, down: total(false) / gone.max(1) as f64 })
    }

    /// A prior for `nodes` machines together from a cloud's band of monthly interruptions. Bands alone are far too
    /// optimistic (they imply months), so they only scale observations.
    pub fn prior(band: Option<(u8, u8)>, nodes: u32) -> SpotAvailability {
        let percent = match band {
            Some((from, to)) if from >= 20 => {
                f64::from(from).max(WORST_BAND).min(f64::from(to.max(from))).max(WORST_BAND)
            }
            Some((from, to)) => f64::midpoint(f64::from(from), f64::from(to)).max(0.5),
            None => UNKNOWN_BAND,
        };
        let hazard = |percent: f64| -(1.0 - percent.min(99.0) / 100.0).ln() / MONTH_HOURS;
        let alone = OBSERVED_UP * hazard(WORST_BAND) / hazard(percent);
        SpotAvailability { up: alone / f64::from(nodes.max(1)).powf(TOGETHER), down: OBSERVED_DOWN }
    }

    /// The share of the time in which there are machines.
    pub fn fraction(self) -> f64 {
        self.up / (self.up + self.down)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(band: Option<(u8, u8)>, nodes: u32, hours: f64) {
        let availability = SpotAvailability::prior(band, nodes);
        assert!((availability.up / 3600.0 - hours).abs() < 0.05, "{band:?} × {nodes}: {} h", availability.up / 3600.0);
    }

    #[test]
    fn bands_scale_what_was_observed() {
        check(Some((20, 100)), 1, 2.0);
        check(Some((15, 20)), 1, 2.99);
        check(Some((0, 5)), 1, 22.73);
        check(None, 1, 4.31);
        check(None, 16, 1.73);
    }

    #[test]
    fn periods_are_counted() {
        let uptime_intervals = [(true, 60.0), (false, 30.0), (true, 40.0), (false, 10.0)];
        let uptime_intervals = uptime_intervals.map(|(is_up, seconds)| UptimeInterval { is_up, seconds });
        assert_eq!(SpotAvailability::of(&uptime_intervals), Some(SpotAvailability { up: 50.0, down: 20.0 }));
        assert_eq!(SpotAvailability::of(&uptime_intervals[1..2]), None);
    }
}
