//! Whether a user's program has been idle for so long that its run is to be stopped.
//!
//! Use is what costs the machine something: processor time, a kernel on a GPU, a call of the package `gradus`. What a
//! program prints is none, for a prompt that is printed again and again is no work; and neither is its age. Only time
//! that was observed counts: not that of a suspended machine, or while the loop cannot hear of it.

use std::time::Duration;

/// Less of a core than this is no work: what shells, notebook servers and connections take by themselves.
const LEAST: f64 = 0.05;

/// Between two checks: a part of the timeout, within bounds.
const CHECKS: u32 = 20;
const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(10);

/// For how long a program has been idle. Times are since the agent's start.
#[derive(Debug)]
pub struct Idleness {
    timeout: Duration,
    idle_for: Duration,
    next: Duration,
    /// When it was checked last, and the processor time that was used until then.
    before: Option<(Duration, Duration)>,
    is_reported: bool,
}

impl Idleness {
    /// Of a program that begins `now`.
    pub fn new(timeout: Duration, now: Duration) -> Idleness {
        Idleness { timeout, idle_for: Duration::ZERO, next: now, before: None, is_reported: false }
    }

    /// When to check next.
    pub fn due(&self) -> Duration {
        if self.is_reported { Duration::MAX } else { self.next }
    }

    /// Time between two checks.
    pub fn pause(&self) -> Duration {
        (self.timeout / CHECKS).clamp(SHORTEST, LONGEST)
    }

    /// It does something.
    pub fn note_use(&mut self) {
        self.idle_for = Duration::ZERO;
    }

    /// Takes in the processor time that its processes have used until `now`, where it is known; whether the timeout is over,
    /// once.
    pub fn check(&mut self, used: Option<Duration>, now: Duration) -> bool {
        self.next = now + self.pause();
        let Some(used) = used else {
            self.note_use();
            return false;
        };
        let (at, before) = self.before.replace((now, used)).unwrap_or((now, used));
        // The machine may have been suspended.
        let passed = now.saturating_sub(at).min(2 * self.pause());
        self.idle_for += passed;
        if !passed.is_zero() && used.saturating_sub(before).as_secs_f64() >= LEAST * passed.as_secs_f64() {
            self.note_use();
        }
        let is_over = !self.is_reported && self.idle_for >= self.timeout;
        self.is_reported |= is_over;
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// When it is idle for its timeout, in seconds, with this share of a core in each minute and other use at these seconds.
    fn idle_at(shares: &[f64], uses: &[u32]) -> Option<u32> {
        let mut idle = Idleness::new(3 * MINUTE, Duration::ZERO);
        let mut used = Duration::ZERO;
        (0..shares.len() as u32 * 60).find(|second| {
            let now = Duration::from_secs(u64::from(*second));
            used += Duration::from_secs(1).mul_f64(shares[*second as usize / 60]);
            if uses.contains(second) {
                idle.note_use();
            }
            now >= idle.due() && idle.check(Some(used), now)
        })
    }

    #[test]
    fn a_program_that_does_nothing_is_idle_after_its_timeout() {
        assert_eq!(idle_at(&[0.0; 10], &[]), Some(180));
        assert_eq!(idle_at(&[0.01; 10], &[]), Some(180), "a notebook server is no work");
        assert_eq!(idle_at(&[0.0; 3], &[]), None);
    }

    #[test]
    fn work_is_no_matter_of_age() {
        assert_eq!(idle_at(&[0.5; 100], &[]), None);
        let mut shares = [0.0; 20];
        (0..20).step_by(2).for_each(|minute| shares[minute] = 0.1);
        assert_eq!(idle_at(&shares, &[]), None, "now and then is enough");
        assert_eq!(idle_at(&[0.0; 10], &[170, 300]), Some(477), "a call, or a GPU; checked every nine seconds");
    }

    #[test]
    fn it_is_reported_once() {
        let mut idle = Idleness::new(Duration::from_secs(10), Duration::ZERO);
        let seconds = |second: u64| Duration::from_secs(second);
        assert_eq!((0..60).filter(|second| idle.check(Some(Duration::ZERO), seconds(*second))).count(), 1);
        assert_eq!(idle.due(), Duration::MAX);
    }

    #[test]
    fn what_was_not_observed_is_not_idle() {
        let mut idle = Idleness::new(10 * MINUTE, Duration::ZERO);
        assert!(!idle.check(Some(MINUTE), Duration::ZERO));
        assert!(!idle.check(Some(MINUTE), 600 * MINUTE), "the machine was suspended");
        assert!(!idle.check(None, 610 * MINUTE) && idle.due() > 610 * MINUTE, "nothing could be read");
        // A process that has ended takes its time with it.
        assert!(!idle.check(Some(Duration::ZERO), 611 * MINUTE));
    }
}
