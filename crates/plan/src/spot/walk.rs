//! Simulates a run through uptimes and outages of spot machines: what is paid and when it ends.

use serde::Serialize;

use super::{CheckpointOverhead, UptimeInterval};

/// What a run does during spot outages.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "policy")]
pub enum OutagePolicy {
    /// It waits until there are.
    Wait,
    /// It waits, then continues on demand until there are spot machines again; on-demand machines are held for at least
    /// `hold` seconds, to avoid flapping.
    FallBack { patience: f64, hold: f64 },
}

/// Paid time, and total time; seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Ended {
    /// Of spot machines.
    pub spot: f64,
    /// Of machines on demand.
    pub on_demand: f64,
    /// From the submission to the end.
    pub wall: f64,
    /// Number of interruptions.
    pub interruptions: u32,
}

impl Ended {
    /// Paid seconds, at any price.
    pub fn paid(&self) -> f64 {
        self.spot + self.on_demand
    }
}

/// Work that is done bit by bit.
struct WalkProgress<'a> {
    left: f64,
    interval: f64,
    costs: &'a CheckpointOverhead,
    ended: Ended,
}

/// What became of a stretch of computing.
enum Stretch {
    Finished(f64),
    /// All of it was used.
    Used,
}

impl WalkProgress<'_> {
    /// The time for the remaining work, including snapshots.
    fn needed(&self) -> f64 {
        let snapshots = (self.left / self.interval).ceil() - 1.0;
        self.left + snapshots.max(0.0) * self.costs.stall
    }

    /// What has become of the run, which ends after so many seconds more on demand.
    fn finished_on_demand(&self, took: f64) -> Ended {
        let Ended { on_demand, wall, .. } = self.ended;
        Ended { on_demand: on_demand + took, wall: wall + took, ..self.ended }
    }

    /// Computes for up to `seconds`, after a restart if needed. `is_safe`: the machines are released once all is saved,
    /// so nothing is lost.
    fn compute(&mut self, seconds: f64, starts: bool, is_safe: bool) -> Stretch {
        let restart = if starts { self.costs.restart } else { 0.0 };
        let total = restart + self.needed();
        if seconds >= total {
            return Stretch::Finished(total);
        }
        let each = self.interval + self.costs.stall;
        if is_safe {
            let useful = (seconds - restart).max(0.0);
            self.left -= useful * self.interval / each;
        } else {
            let safe = ((seconds - restart - self.costs.lag) / each).floor();
            self.left -= safe.max(0.0) * self.interval;
        }
        Stretch::Used
    }
}

/// Runs `work` seconds of work through `uptime_intervals`; `None` if they end earlier.
pub fn walk(
    uptime_intervals: impl Iterator<Item = UptimeInterval>,
    work: f64,
    interval: f64,
    costs: &CheckpointOverhead,
    policy: OutagePolicy,
) -> Option<Ended> {
    metered(uptime_intervals, work, interval, costs, policy, |_, _| ())
}

/// The same, and calls `on_spot` with the start and the length of each stretch of time that spot machines are paid for.
pub(super) fn metered(
    uptime_intervals: impl Iterator<Item = UptimeInterval>,
    work: f64,
    interval: f64,
    costs: &CheckpointOverhead,
    policy: OutagePolicy,
    mut on_spot: impl FnMut(f64, f64),
) -> Option<Ended> {
    let interval = interval.min(work).max(1e-9);
    let mut progress = WalkProgress { left: work, interval, costs, ended: Ended::default() };
    // Seconds that machines on demand are still kept at least; none when there are none.
    let mut held: Option<f64> = None;
    for period in uptime_intervals {
        let mut seconds = period.seconds;
        if let Some(hold) = held {
            let used = if period.is_up { seconds.min(hold) } else { seconds };
            if let Stretch::Finished(took) = progress.compute(used, false, true) {
                return Some(progress.finished_on_demand(took));
            }
            progress.ended.on_demand += used;
            progress.ended.wall += used;
            seconds -= used;
            let kept = (hold - used).max(0.0);
            held = if period.is_up && seconds > 0.0 { None } else { Some(kept) };
            if seconds <= 0.0 {
                continue;
            }
        }
        if period.is_up {
            if let Stretch::Finished(took) = progress.compute(seconds, true, false) {
                on_spot(progress.ended.wall, took);
                progress.ended.spot += took;
                progress.ended.wall += took;
                return Some(progress.ended);
            }
            on_spot(progress.ended.wall, seconds);
            progress.ended.spot += seconds;
            progress.ended.wall += seconds;
            progress.ended.interruptions += 1;
            continue;
        }
        let OutagePolicy::FallBack { patience, hold } = policy else {
            progress.ended.wall += seconds;
            continue;
        };
        let waited = seconds.min(patience);
        progress.ended.wall += waited;
        seconds -= waited;
        if seconds <= 0.0 {
            continue;
        }
        if let Stretch::Finished(took) = progress.compute(seconds, true, true) {
            return Some(progress.finished_on_demand(took));
        }
        progress.ended.on_demand += seconds;
        progress.ended.wall += seconds;
        held = Some((hold - seconds).max(0.0));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: CheckpointOverhead = CheckpointOverhead { stall: 1.0, lag: 2.0, restart: 5.0 };
    const FALL_BACK: OutagePolicy = OutagePolicy::FallBack { patience: 10.0, hold: 20.0 };

    /// A path as `+100 -50`, what 60 seconds of work make of it with a checkpoint every 9.
    #[track_caller]
    fn check(path: &str, policy: OutagePolicy, expected: &str) {
        let uptime_intervals = path
            .split(' ')
            .map(|period| UptimeInterval { is_up: period.starts_with('+'), seconds: period[1..].parse().unwrap() });
        let told = match walk(uptime_intervals, 60.0, 9.0, &COSTS, policy) {
            Some(ended) => format!(
                "spot {} on demand {} wall {} interruptions {}",
                ended.spot, ended.on_demand, ended.wall, ended.interruptions
            ),
            None => "never".to_owned(),
        };
        assert_eq!(told, expected, "{path}");
    }

    #[test]
    fn a_run_pays_for_what_it_computes_and_for_what_it_loses() {
        // Restart 5, work 60, six snapshots.
        check("+100", OutagePolicy::Wait, "spot 71 on demand 0 wall 71 interruptions 0");
        check("-50 +100", OutagePolicy::Wait, "spot 71 on demand 0 wall 121 interruptions 0");
        // Of 30 seconds 5 start, and of two snapshots that are safe 18 are kept; then 5 + 42 + 4.
        check("+30 -50 +100", OutagePolicy::Wait, "spot 81 on demand 0 wall 131 interruptions 1");
        // A stay too short to save anything.
        check("+10 -50 +100", OutagePolicy::Wait, "spot 81 on demand 0 wall 131 interruptions 1");
        check("+30 -50", OutagePolicy::Wait, "never");
    }

    #[test]
    fn stretches_on_spot_machines_are_metered_where_they_are() {
        let path = [(true, 30.0), (false, 50.0), (true, 100.0)];
        let path = path.map(|(is_up, seconds)| UptimeInterval { is_up, seconds });
        let mut stretches = Vec::new();
        let of_spot = |from: f64, seconds: f64| stretches.push((from, seconds));
        let ended = metered(path.into_iter(), 60.0, 9.0, &COSTS, OutagePolicy::Wait, of_spot).unwrap();
        assert_eq!(stretches, [(0.0, 30.0), (80.0, 51.0)]);
        assert_eq!(ended.spot, 81.0);
    }

    #[test]
    fn a_run_falls_back_when_its_patience_ends() {
        check("+30 -10 +100", FALL_BACK, "spot 81 on demand 0 wall 91 interruptions 1");
        // 42 left: 10 waited, 5 started, 42 and four snapshots.
        check("+30 -90 +100", FALL_BACK, "spot 30 on demand 51 wall 91 interruptions 1");
        check("-90", FALL_BACK, "spot 0 on demand 71 wall 81 interruptions 0");
        // On demand for 15, of which 10 compute, and then 5 more though spot machines are back.
        check("-25 +200", FALL_BACK, "spot 56.5 on demand 20 wall 86.5 interruptions 0");
    }
}
