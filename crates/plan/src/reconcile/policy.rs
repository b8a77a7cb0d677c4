//! What the loop may do: how many machines, and how long it waits for what.

use domain::Elapsed;
use domain::run::RunState;

use crate::world::Run;

/// Heartbeats of all agents in a second at most, where there are no more than a thousand: about a quarter of a core
/// (`cargo xtask bench server`).
const HEARTBEATS_PER_SECOND: u64 = 200;

/// Intervals between the heartbeats of an agent, in microseconds: few, for a change concerns everything. The longest is a
/// third of [`Policy::suspect`].
const HEARTBEAT_INTERVALS: [u64; 5] = [200_000, 500_000, 1_000_000, 2_000_000, 5_000_000];

/// What the loop may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Runs that may work on this machine at the same time, beside trials of the same sweep.
    pub slots: usize,
    /// Wait before the second restart without progress; doubled for each further one.
    pub backoff: Elapsed,
    /// The longest wait between restarts.
    pub backoff_max: Elapsed,
    /// The longest time that a run is given to save its state and leave; what it is given is kept back from its budget
    /// ([`wind_down`]).
    pub saving: Elapsed,
    /// A machine whose agent has not spoken for so long is given up: longer than its lease, after which it ends itself.
    /// One whose agent has never spoken is given the time that its provider takes to boot it.
    pub silence: Elapsed,
    /// The same for a machine whose provider cannot prove its end: waiting proves nothing more.
    pub silence_remote: Elapsed,
    /// Wait before a launch that is in doubt is asked for again; doubled each time, up to `backoff_max`.
    pub doubt: Elapsed,
    /// How long an agent may go on without a reply before it saves, ends its ranks and leaves.
    pub lease: Elapsed,
    /// The longest lease that any loop grants: that of `gradus serve`.
    pub lease_longest: Elapsed,
    /// The shortest interval between the heartbeats of an agent that works.
    pub heartbeat: Elapsed,
    /// That interval with as many agents as there are ([`Policy::interval_for`]).
    pub heartbeat_interval: Elapsed,
    /// When it calls again while it waits for its first command.
    pub heartbeat_idle: Elapsed,
    /// A machine with our tag that no run has is ended after so long.
    pub strangers: Elapsed,
    /// A run whose machine was given up continues elsewhere when its end was not proved after so long.
    pub replace: Elapsed,
    /// A run on several machines that cannot start because some are missing gives the others back after so long.
    pub incomplete: Elapsed,
    /// Machines that are asked for at the same time for a run that needs one, once its first choice was refused.
    pub race: usize,
    /// A request for a machine that is unanswered for so long is not waited for alone any more.
    pub hedge: Elapsed,
    /// An offer whose provider has no capacity is not asked for again for so long, where there are others; doubled each time.
    pub shortage: Elapsed,
    /// The longest such wait; also the first one after a refusal for another reason, such as a quota.
    pub shortage_max: Elapsed,
    /// A job that can do with fewer machines starts with those that are up after so long, beside what boots take.
    pub shrink: Elapsed,
    /// An attempt on fewer machines than its job could use goes on for so long before it is interrupted for more.
    pub settle: Elapsed,
    /// Between two tries to rent more machines beside an attempt that goes on.
    pub regrow: Elapsed,
    /// An agent that has been silent for so long is suspected: its provider is looked at more often, and nothing else.
    pub suspect: Elapsed,
    /// An agent that the log does not know is told to leave after so long: the log may have been put back from a copy,
    /// and whoever did that may want to know what runs.
    pub unknown: Elapsed,
    /// The longest wait between two requests to end a machine that fail.
    pub ending_max: Elapsed,
    /// How often the last events of a machine are asked for before it is billed without them.
    pub last_events_tries: u32,
    /// Whether runs that wait take over the machines of runs that have ended.
    pub hands_over: bool,
    /// Whether a machine is rented only where what is left of the budget pays for ending it too. The simulation does
    /// without, to show that it is needed.
    pub is_admitting: bool,
    /// Whether a loop that starts takes it that an earlier one may have asked for what it intended. The same.
    pub doubts_earlier_calls: bool,
}

impl Policy {
    /// The interval between an agent's heartbeats where there are so many agents. A change for the better waits until there
    /// are a fifth fewer than it needs.
    pub fn interval_for(&self, agents: usize) -> Elapsed {
        let interval = |agents: usize| {
            let wanted = (agents as u64).saturating_mul(1_000_000 / HEARTBEATS_PER_SECOND);
            let longest = HEARTBEAT_INTERVALS[HEARTBEAT_INTERVALS.len() - 1];
            HEARTBEAT_INTERVALS.into_iter().find(|interval| *interval >= wanted).unwrap_or(longest)
        };
        let (least, most) = (interval(agents), interval(agents.saturating_add(agents / 4)));
        Elapsed(self.heartbeat_interval.0.clamp(least, most))
    }

    /// How long an offer is not asked for that was refused so many times in succession.
    pub fn shortage(&self, refusals: u32, is_capacity: bool) -> Elapsed {
        if !is_capacity {
            return self.shortage_max;
        }
        Elapsed(self.shortage.0.saturating_mul(1 << refusals.saturating_sub(1).min(20)).min(self.shortage_max.0))
    }

    /// Wait after so many requests for a launch that is in doubt.
    pub(crate) fn wait_in_doubt(&self, requests: u32) -> Elapsed {
        self.doubled(self.doubt, requests.saturating_sub(1))
    }

    /// Wait before a run that failed without progress, or found no machine, is tried again.
    pub(crate) fn rest(&self, run: &Run) -> Elapsed {
        let failures = run.restarts.max(run.error_restarts).saturating_sub(1).max(run.waits);
        if !matches!(run.state, RunState::Recovering { .. }) || failures == 0 {
            return Elapsed(0);
        }
        self.doubled(self.backoff, failures - 1)
    }

    fn doubled(&self, wait: Elapsed, times: u32) -> Elapsed {
        Elapsed(wait.0.saturating_mul(1 << times.min(20)).min(self.backoff_max.0))
    }
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            slots: 1,
            backoff: Elapsed(250_000),
            backoff_max: Elapsed(60_000_000),
            saving: Elapsed(60_000_000),
            silence: Elapsed(120_000_000),
            silence_remote: Elapsed(45_000_000),
            doubt: Elapsed(1_000_000),
            lease: Elapsed(60_000_000),
            lease_longest: Elapsed(1_800_000_000),
            heartbeat: Elapsed(200_000),
            heartbeat_interval: Elapsed(200_000),
            heartbeat_idle: Elapsed(20_000),
            strangers: Elapsed(600_000_000),
            replace: Elapsed(10_000_000),
            incomplete: Elapsed(600_000_000),
            race: 4,
            hedge: Elapsed(20_000_000),
            shortage: Elapsed(60_000_000),
            shortage_max: Elapsed(600_000_000),
            shrink: Elapsed(60_000_000),
            settle: Elapsed(60_000_000),
            regrow: Elapsed(60_000_000),
            suspect: Elapsed(15_000_000),
            unknown: Elapsed(600_000_000),
            ending_max: Elapsed(60_000_000),
            last_events_tries: 8,
            hands_over: true,
            is_admitting: true,
            doubts_earlier_calls: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_agents_call_less_often() {
        let mut policy = Policy::default();
        let mut millis = |agents| {
            policy.heartbeat_interval = policy.interval_for(agents);
            policy.heartbeat_interval.0 / 1_000
        };
        assert_eq!([0, 1, 40, 41, 100, 101, 1_000].map(&mut millis), [200, 200, 200, 500, 500, 1_000, 5_000]);
        assert_eq!(millis(usize::MAX), 5_000, "none is suspected for it");
        // It does not change with each machine around a limit.
        assert_eq!([401, 400, 321, 320, 400].map(&mut millis), [5_000, 5_000, 5_000, 2_000, 2_000]);
        assert_eq!([401, 0].map(&mut millis), [5_000, 200]);
        assert!(policy.suspect.0 >= 3 * 5_000_000);
    }
}
