//! The expected cost of interruptions, and the optimal checkpoint interval.

use serde::Serialize;

use super::SpotAvailability;

/// Time that saving a checkpoint and restarting take, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CheckpointOverhead {
    /// Stall of the run while a snapshot is taken.
    pub stall: f64,
    /// Time from the snapshot until it is durable, in the background.
    pub lag: f64,
    /// From having machines again to the first new step.
    pub restart: f64,
}

/// Seconds of work between two checkpoints that lose least (Daly 2006, equation 37; Young 1974 is its first term). A
/// checkpoint is not begun before the last one is safe.
pub fn interval(up: f64, costs: &CheckpointOverhead) -> f64 {
    let ratio = costs.stall / (2.0 * up);
    let best = match costs.stall < 2.0 * up {
        true => (2.0 * costs.stall * up).sqrt() * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - costs.stall,
        false => up,
    };
    best.max(costs.lag).max(1.0)
}

/// Expected paid seconds until `work` seconds are done: interruptions are a Poisson process with a rate of one in `up`
/// seconds (Daly 2006, equation 20). Undurable work is lost with the rest, so the lag counts as restart time.
pub fn paid(work: f64, interval: f64, availability: SpotAvailability, costs: &CheckpointOverhead) -> f64 {
    let up = availability.up;
    let interval = interval.min(work).max(1e-9);
    let each = ((interval + costs.stall) / up).exp_m1();
    up * ((costs.restart + costs.lag) / up).exp() * each * work / interval
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: f64 = 3600.0;

    fn costs(stall: f64, lag: f64, restart: f64) -> CheckpointOverhead {
        CheckpointOverhead { stall, lag, restart }
    }

    #[test]
    fn the_interval_is_daly_s() {
        // sqrt(2 · 60 · 36000) = 2078.46; the higher terms add 1.0 % and take the stall off.
        let found = interval(10.0 * HOUR, &costs(60.0, 0.0, 0.0));
        assert!((found - 2038.5).abs() < 0.2, "{found}");
        assert_eq!(interval(HOUR, &costs(0.0, 60.0, 0.0)), 60.0, "not before the last one is safe");
        assert_eq!(interval(10.0, &costs(60.0, 0.0, 0.0)), 10.0);
    }

    #[test]
    fn no_other_interval_is_paid_less() {
        let costs = costs(30.0, 0.0, 300.0);
        for hours in [0.5, 2.0, 8.0, 50.0] {
            let availability = SpotAvailability { up: hours * HOUR, down: 0.0 };
            let best = interval(availability.up, &costs);
            let at = |interval: f64| paid(100.0 * HOUR, interval, availability, &costs);
            assert!(at(best) <= at(best * 1.3) && at(best) <= at(best / 1.3), "{hours}");
        }
    }

    #[test]
    fn nothing_is_lost_where_nothing_is_taken() {
        let availability = SpotAvailability { up: 1e9, down: 0.0 };
        let found = paid(12.0 * HOUR, 600.0, availability, &costs(0.0, 0.0, 0.0));
        assert!((found / (12.0 * HOUR) - 1.0).abs() < 1e-5, "{found}");
    }
}
