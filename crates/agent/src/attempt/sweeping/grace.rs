//! How long an attempt that ends may save its state: a pure function of why it ends and of what its job asks for.

use std::time::Duration;

use control::StopReason;

use crate::Patience;

/// What an attempt is given to save in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaveTime {
    /// That of the agent for this kind of work.
    pub usual: Duration,
    /// The job's own `stop_grace`.
    pub of_job: Option<Duration>,
    /// Whether the loop is on another machine, and so may have replaced this one when it does not answer.
    pub is_remote: bool,
}

/// How long an attempt may go on that ends for this reason; an order may grant less.
pub fn time_to_save(why: StopReason, time: SaveTime, patience: &Patience) -> Duration {
    let whole = time.of_job.unwrap_or(time.usual);
    match why {
        StopReason::Leave | StopReason::Replaced | StopReason::Hang(_) => Duration::ZERO,
        StopReason::Signalled => patience.hurry,
        StopReason::NodeLost => patience.node_lost,
        // Nobody may pay twice for longer than loops reckon with.
        StopReason::LeaseOver if time.is_remote => whole.min(time.usual),
        StopReason::Stop | StopReason::LeaseOver | StopReason::Reclaim => whole,
    }
}

#[cfg(test)]
mod tests {
    use domain::Elapsed;

    use super::*;

    /// The grace in seconds of a job with this `stop_grace`, on this machine and on another one.
    fn check(why: StopReason, of_job: Option<u64>, expected: [u64; 2]) {
        let found = [false, true].map(|is_remote| {
            let time = SaveTime { usual: Duration::from_secs(60), of_job: of_job.map(Duration::from_secs), is_remote };
            time_to_save(why, time, &Patience::default()).as_secs()
        });
        assert_eq!(found, expected, "{why:?} {of_job:?}");
    }

    #[test]
    fn a_job_s_own_grace_counts_where_it_is_told_to_stop() {
        for why in [StopReason::Stop, StopReason::Reclaim] {
            check(why, None, [60, 60]);
            check(why, Some(600), [600, 600]);
            check(why, Some(5), [5, 5]);
        }
        check(StopReason::LeaseOver, None, [60, 60]);
        check(StopReason::LeaseOver, Some(600), [600, 60]);
        check(StopReason::LeaseOver, Some(5), [5, 5]);
        for (why, seconds) in [
            (StopReason::Signalled, 1),
            (StopReason::NodeLost, 10),
            (StopReason::Leave, 0),
            (StopReason::Replaced, 0),
            (StopReason::Hang(Elapsed(1)), 0),
        ] {
            check(why, Some(600), [seconds; 2]);
        }
    }
}
