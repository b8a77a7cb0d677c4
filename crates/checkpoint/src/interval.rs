//! The checkpoint interval that minimizes lost work.
//!
//! Each save costs a stall; each failure costs the work since the last save. With the stall δ and the mean time between
//! failures M, Young's optimum is √(2δM), and Daly gives a better approximation. Saving in the background reduces δ to
//! the time that training stalls, and excludes the time until the state is durable; that time L bounds the interval
//! from below, since one save must end before the next begins: τ ≥ L + δ. The optimum is flat, so a measured δ and an
//! estimate of M suffice. Pure functions; times are passed in.

use domain::train::Every;
use domain::units::Duration;

/// What saving costs, measured. Seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CheckpointCosts {
    /// What training loses for one checkpoint: copying, and waiting for the writer.
    pub stall: f64,
    /// From the snapshot to the durable manifest.
    pub commit: f64,
    /// One step, without the above.
    pub step: f64,
}

/// Longest interval that `auto` chooses, in seconds: users expect to lose at most an hour.
const LONGEST: f64 = 3600.0;

/// `auto` saves for the first time after this many steps, to measure the cost …
const FIRST_STEPS: u64 = 10;
/// … but not in the first second, which is warming up, …
const FIRST_EARLIEST: f64 = 1.0;
/// … and when steps are long, after so many seconds.
const FIRST_LATEST: f64 = 60.0;

/// Weight of the newest measurement; the first one includes memory that is used for the first time.
const NEWEST: f64 = 0.5;

/// Young's interval √(2δM), in the unit of both: J. W. Young, "A first order approximation to the optimum checkpoint
/// interval", Communications of the ACM 17(9), 1974.
pub fn young(stall: f64, mtbf: f64) -> f64 {
    (2.0 * stall * mtbf).sqrt()
}

/// Daly's interval √(2δM)·[1 + ⅓√(δ/2M) + (δ/2M)/9] − δ for δ < 2M, else M: J. T. Daly, "A higher order estimate of
/// the optimum checkpoint interval for restart dumps", Future Generation Computer Systems 22, 2006, equation 37.
pub fn daly(stall: f64, mtbf: f64) -> f64 {
    let ratio = stall / (2.0 * mtbf);
    if ratio >= 1.0 {
        return mtbf;
    }
    young(stall, mtbf) * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - stall
}

/// The interval in seconds for a state that is saved in the background: [`daly`]'s, at least until the last save has
/// ended, at most an hour unless saving itself takes longer.
pub fn seconds(costs: CheckpointCosts, mtbf: f64) -> f64 {
    daly(costs.stall, mtbf).min(LONGEST).max(costs.commit + costs.stall)
}

/// The interval in steps, at least 1.
pub fn steps(costs: CheckpointCosts, mtbf: f64) -> u64 {
    rounded(seconds(costs, mtbf) / costs.step)
}

/// Rounds to an integer of at least 1, also for NaN.
fn rounded(steps: f64) -> u64 {
    (steps.round() as u64).max(1)
}

/// Decides when the next checkpoint is due, from the job and the measured cost of saving.
#[derive(Debug, Clone)]
pub struct Pace {
    every: Every,
    mtbf: f64,
    last: u64,
    costs: Option<CheckpointCosts>,
}

impl Pace {
    /// Starts at `step`, 0 or the one that was resumed from.
    pub fn new(every: Every, mtbf: Duration, step: u64) -> Pace {
        Pace { every, mtbf: mtbf.as_secs_f64().max(1.0), last: step, costs: None }
    }

    /// Whether to save the state after `step`; `since` is the time in seconds since the last save, or the start.
    ///
    /// `500 steps` means every multiple of 500, whatever step training resumed from.
    pub fn due(&self, step: u64, since: f64) -> bool {
        if step <= self.last {
            return false;
        }
        match (self.every, self.costs) {
            (Every::Steps(steps), _) => step.is_multiple_of(steps.max(1)),
            (Every::Time(time), _) => since >= time.as_secs_f64(),
            (Every::Auto, None) => {
                let enough = step - self.last >= FIRST_STEPS || since >= FIRST_LATEST;
                enough && since >= FIRST_EARLIEST
            }
            (Every::Auto, Some(costs)) => step - self.last >= steps(costs, self.mtbf),
        }
    }

    /// As [`Pace::due`], for a caller that asks after some steps only: a multiple of the steps between counts, too. `before`
    /// is the step of its last question.
    pub fn due_after(&self, before: u64, step: u64, since: f64) -> bool {
        match self.every {
            Every::Steps(steps) => {
                let passed = |step: u64| step / steps.max(1);
                step > self.last && passed(step) > passed(before.max(self.last))
            }
            Every::Time(_) | Every::Auto => self.due(step, since),
        }
    }

    /// Records that the state after `step` was saved, as scheduled or on request.
    pub fn saved(&mut self, step: u64) {
        self.last = step;
    }

    /// Records the cost of a checkpoint once it is durable.
    pub fn measured(&mut self, newest: CheckpointCosts) {
        let blend = |before: f64, now: f64| before + NEWEST * (now - before);
        self.costs = Some(self.costs.map_or(newest, |before| CheckpointCosts {
            stall: blend(before.stall, newest.stall),
            commit: blend(before.commit, newest.commit),
            step: blend(before.step, newest.step),
        }));
    }

    /// Steps from one checkpoint to the next, as far as that is known.
    pub fn interval(&self) -> Option<u64> {
        match (self.every, self.costs) {
            (Every::Steps(steps), _) => Some(steps.max(1)),
            (Every::Time(time), Some(costs)) => Some(rounded(time.as_secs_f64() / costs.step)),
            (Every::Auto, Some(costs)) => Some(steps(costs, self.mtbf)),
            (Every::Time(_) | Every::Auto, None) => None,
        }
    }

    /// Steps that training may run ahead of a checkpoint that is not durable yet: a fiftieth of the interval, so that a
    /// kill costs little more than the interval; at least 1.
    pub fn lag(&self) -> u64 {
        (self.interval().unwrap_or(1) / 50).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: f64 = 3600.0;

    /// Time lost for each second of work, without restarts: a segment of τ and a save of δ is repeated until no
    /// failure falls into it (Daly 2006, equation 20).
    fn loss(interval: f64, stall: f64, mtbf: f64) -> f64 {
        mtbf * ((interval + stall) / mtbf).exp_m1() / interval - 1.0
    }

    #[test]
    fn the_intervals_are_those_of_the_formulas() {
        assert_eq!(young(2.0, 100.0), 20.0);
        // √1,296,000 · [1 + ⅓√(30/43,200) + (30/43,200)/9] − 30, and so on, computed by hand.
        for (stall, mtbf, expected) in [(30.0, 6.0 * HOUR, 1118.5), (60.0, HOUR, 617.9), (1.0, 6.0 * HOUR, 207.2)] {
            assert!((daly(stall, mtbf) - expected).abs() < 0.1, "{}", daly(stall, mtbf));
        }
        assert_eq!(daly(200.0, 100.0), 100.0);
        assert_eq!(daly(500.0, 100.0), 100.0);
    }

    #[test]
    fn no_other_interval_loses_noticeably_less() {
        for mtbf in [60.0, HOUR, 24.0 * HOUR] {
            for stall in [1e-3, 0.1, 1.0, 10.0] {
                let chosen = loss(daly(stall, mtbf), stall, mtbf);
                let candidates =
                    (0..4000).map(|number| stall / 10.0 * 1.01f64.powi(number)).take_while(|tried| *tried < mtbf * 9.0);
                let least = candidates.map(|tried| loss(tried, stall, mtbf)).fold(f64::INFINITY, f64::min);
                assert!(chosen <= least * 1.001, "stall {stall}, mtbf {mtbf}: {chosen} against {least}");
            }
        }
    }

    #[test]
    fn a_save_ends_before_the_next_begins() {
        let slow = CheckpointCosts { stall: 0.001, commit: 500.0, step: 1.0 };
        assert_eq!(steps(slow, HOUR), 500);
        let fast = CheckpointCosts { commit: 0.1, ..slow };
        assert_eq!(steps(fast, HOUR), 3);
        let reliable = CheckpointCosts { stall: 30.0, ..fast };
        assert_eq!(steps(reliable, 1e9), 3600);
        assert_eq!(steps(CheckpointCosts { step: 1e9, ..fast }, HOUR), 1);
        assert_eq!(steps(CheckpointCosts { step: f64::NAN, ..fast }, HOUR), 1);
    }

    /// The steps after which the state is saved, for steps of `step` seconds and the given cost of saving.
    fn saved(every: &str, start: u64, end: u64, step: f64, stall: f64) -> Vec<u64> {
        let mut pace = Pace::new(every.parse().unwrap(), Duration::from_secs(3600), start);
        let mut saved = Vec::new();
        let mut last = start;
        for number in start + 1..=end {
            if pace.due(number, (number - last) as f64 * step) {
                pace.saved(number);
                pace.measured(CheckpointCosts { stall, commit: 2.0 * stall, step });
                saved.push(number);
                last = number;
            }
        }
        saved
    }

    #[test]
    fn the_state_is_saved_when_it_is_due() {
        assert_eq!(saved("20 steps", 0, 70, 0.1, 0.01), [20, 40, 60]);
        // A resumed run saves after the same steps as an undisturbed one.
        assert_eq!(saved("20 steps", 35, 70, 0.1, 0.01), [40, 60]);
        assert_eq!(saved("3s", 0, 10, 1.0, 0.01), [3, 6, 9]);
        assert_eq!(saved("3s", 5, 12, 1.0, 0.01), [8, 11]);
        // √(2 · 0.02 · 3600) = 12 s, less a little.
        assert_eq!(saved("auto", 0, 500, 0.1, 0.02), [10, 130, 250, 370, 490]);
        // Short steps wait for the end of the first second, long ones for no tenth of them.
        assert_eq!(saved("auto", 0, 1500, 0.001, 0.02), [1000]);
        assert_eq!(saved("auto", 0, 5, 100.0, 0.02), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_multiple_between_two_questions_counts() {
        let mut pace = Pace::new(Every::Steps(500), Duration::from_secs(3600), 0);
        let (mut before, mut saved) = (0, Vec::new());
        for step in (391..=3128).step_by(391) {
            if pace.due_after(before, step, 0.0) {
                pace.saved(step);
                saved.push(step);
            }
            before = step;
        }
        assert_eq!(saved, [782, 1173, 1564, 2346, 2737, 3128]);
        assert!(!pace.due_after(0, 3128, 0.0) && !pace.due_after(0, 3129, 0.0) && pace.due_after(0, 3500, 0.0));
    }

    #[test]
    fn the_lag_is_a_fiftieth_of_the_interval() {
        let pace = |every: &str| Pace::new(every.parse().unwrap(), Duration::from_secs(3600), 0);
        assert_eq!(pace("20 steps").lag(), 1);
        assert_eq!(pace("500 steps").lag(), 10);
        assert_eq!((pace("auto").lag(), pace("auto").interval()), (1, None));
        let mut timed = pace("100s");
        timed.measured(CheckpointCosts { stall: 0.1, commit: 0.1, step: 0.5 });
        assert_eq!((timed.interval(), timed.lag()), (Some(200), 4));
    }

    #[test]
    fn one_odd_measurement_does_not_decide() {
        let mut pace = Pace::new(Every::Auto, Duration::from_secs(3600), 0);
        pace.measured(CheckpointCosts { stall: 8.0, commit: 8.0, step: 1.0 });
        let first = pace.interval();
        for _ in 0..20 {
            pace.measured(CheckpointCosts { stall: 0.02, commit: 0.02, step: 1.0 });
        }
        assert_eq!((first, pace.interval()), (Some(235), Some(12)));
    }
}
