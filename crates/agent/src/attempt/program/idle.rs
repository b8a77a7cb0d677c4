//! Whether a user's program has been idle for so long that its run is to be stopped.
//!
//! Use is what costs the machine something: processor time, a kernel on a GPU, a report of the program. What it prints is
//! none, for a prompt that is printed again and again is no work; and neither is its age.

use std::time::Duration;

/// Less of a core than this is no work: what shells, notebook servers and connections take by themselves.
const LEAST: f64 = 0.05;

/// Between two looks: a part of the timeout, within bounds.
const LOOKS: u32 = 20;
const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(10);

/// Since when a program is idle. Times are since the agent's start.
#[derive(Debug)]
pub struct Idleness {
    timeout: Duration,
    since: Duration,
    next: Duration,
    /// When it was looked at last, and the processor time that was used until then.
    before: Option<(Duration, Duration)>,
    is_told: bool,
}

impl Idleness {
    /// Of a program that begins `now`.
    pub fn new(timeout: Duration, now: Duration) -> Idleness {
        Idleness { timeout, since: now, next: now, before: None, is_told: false }
    }

    /// When to look next.
    pub fn due(&self) -> Duration {
        if self.is_told { Duration::MAX } else { self.next }
    }

    /// It does something.
    pub fn used(&mut self, now: Duration) {
        self.since = now;
    }

    /// Takes in the processor time of its processes; whether the timeout is over, once.
    pub fn look(&mut self, used: Duration, now: Duration) -> bool {
        self.next = now + (self.timeout / LOOKS).clamp(SHORTEST, LONGEST);
        let (at, before) = self.before.replace((now, used)).unwrap_or((now, used));
        let passed = now.saturating_sub(at).as_secs_f64();
        if used.saturating_sub(before).as_secs_f64() >= LEAST * passed && passed > 0.0 {
            self.since = now;
        }
        let is_over = !self.is_told && now.saturating_sub(self.since) >= self.timeout;
        self.is_told |= is_over;
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// When it is told to be idle, in seconds, with this share of a core in each minute.
    fn told(shares: &[f64], uses: &[u32]) -> Option<u32> {
        let mut idle = Idleness::new(3 * MINUTE, Duration::ZERO);
        let mut used = Duration::ZERO;
        (0..shares.len() as u32 * 60).find(|second| {
            let now = Duration::from_secs(u64::from(*second));
            used += Duration::from_secs(1).mul_f64(shares[*second as usize / 60]);
            if uses.contains(second) {
                idle.used(now);
            }
            now >= idle.due() && idle.look(used, now)
        })
    }

    #[test]
    fn a_program_that_does_nothing_is_idle_after_its_timeout() {
        assert_eq!(told(&[0.0; 10], &[]), Some(180));
        assert_eq!(told(&[0.01; 10], &[]), Some(180), "a notebook server is no work");
        assert_eq!(told(&[0.0; 3], &[]), None);
    }

    #[test]
    fn work_is_no_matter_of_age() {
        assert_eq!(told(&[0.5; 100], &[]), None);
        let mut shares = [0.0; 20];
        (0..20).step_by(2).for_each(|minute| shares[minute] = 0.1);
        assert_eq!(told(&shares, &[]), None, "now and then is enough");
        assert_eq!(told(&[0.0; 10], &[170, 300]), Some(486), "a report, or a GPU; looked at every nine seconds");
    }

    #[test]
    fn it_is_told_once() {
        let mut idle = Idleness::new(MINUTE, Duration::ZERO);
        assert!(idle.look(Duration::ZERO, MINUTE));
        assert!(!idle.look(Duration::ZERO, 5 * MINUTE) && idle.due() == Duration::MAX);
        // A process that has ended takes its time with it.
        let mut idle = Idleness::new(MINUTE, Duration::ZERO);
        assert!(!idle.look(MINUTE, Duration::ZERO) && idle.look(Duration::ZERO, MINUTE));
    }
}
