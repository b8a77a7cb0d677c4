//! Runs on several machines: ranks are staged, rendezvous, and cannot continue without each other. Node rank 0 makes
//! the steps; the others check that it is alive.

use std::collections::BTreeSet;

use control::SupervisorInput;
use domain::random::{Draws, key};
use domain::rental::MachineHandle;
use domain::run::{AttemptEnd, InstanceState, RunState};
use domain::wire::{AgentEvent, NodeAddress};
use domain::{AttemptId, Cause, Finding, RunId, Timestamp};
use plan::{AttemptState, Policy};

use crate::ranks::failed;
use crate::rule::Rule;
use crate::scenario::{SECOND, Scenario, SimulatedSchedule, SimulatedSweep};
use crate::simulation::{SimEvent, Simulation};

/// How long ranks wait for the others at the meeting.
const MEETING: u64 = 120 * SECOND;

/// Waits between tries, and what is on its way.
const RESTS: u64 = 120 * SECOND;

/// How long machines may wait for others of their run, in addition to their boots.
const WAITING: u64 = 180 * SECOND;

impl Scenario {
    /// The scenario of a seed with one run, on 5 to 64 machines, in an account that may have so many.
    pub fn draw_large(seed: u64) -> Scenario {
        let mut draws = Draws::new(key(seed, [19]));
        let nodes = 5 + draws.below(60) as u32;
        let least = if draws.below(2) == 0 { nodes } else { 1 + draws.below(u64::from(nodes)) as u32 };
        let drawn = Scenario::draw(seed);
        Scenario {
            runs: 1,
            nodes,
            least,
            capacity: drawn.capacity.map(|_| nodes as usize - 1),
            quota: 0,
            sweep: SimulatedSweep::default(),
            schedule: SimulatedSchedule::default(),
            ..drawn
        }
    }
}

impl Simulation {
    /// All that a rank needs is on its machine.
    pub(crate) fn prepared(&mut self, handle: &MachineHandle, attempt: &AttemptId) {
        let address = NodeAddress { host: handle.0.clone(), port: 1 };
        let events = vec![AgentEvent::Prepared { address }];
        self.tell_agent(handle, SupervisorInput::Happened { attempt: attempt.clone(), events });
        if self.rule == Some(Rule::AllArePrepared) {
            self.go(handle);
        }
    }

    /// All machines are prepared: the ranks start, unless they were started before.
    pub(crate) fn go(&mut self, handle: &MachineHandle) {
        let Some(machine) = self.cloud.machines.get_mut(handle) else { return };
        let Some(rank) = machine.rank.as_mut().filter(|rank| !rank.may_run && !rank.is_ending) else { return };
        rank.may_run = true;
        rank.meets_until = self.now + MEETING;
        let (attempt, run) = (rank.attempt.clone(), rank.run.clone());
        let is_first = rank.member.is_none_or(|place| place.rank == 0);
        let expected = rank.member.map_or(1, |place| place.nodes);
        // A log that was put back has forgotten it.
        if !self.is_restored && self.prepared_members(&attempt) < u64::from(expected) {
            return self.violate(format!("ranks of {run} were started before all machines were prepared"));
        }
        let handle = handle.clone();
        let event = match is_first {
            true => SimEvent::RankWorks { handle, attempt },
            false => SimEvent::FollowerLooks { handle, attempt },
        };
        self.at(self.now + SECOND, event);
    }

    /// Machines that were prepared for an attempt, according to the log on disk or the loop.
    fn prepared_members(&self, attempt: &AttemptId) -> u64 {
        let is_it =
            |event: &domain::Event| matches!(event, domain::Event::MemberPrepared { attempt: of, .. } if of == attempt);
        let records = self.process.disk.iter().chain(&self.process.unsynced);
        records.filter(|record| is_it(&record.event)).count() as u64
    }

    /// The running node ranks of an attempt. After a restored log, two machines may have the same one.
    fn running(&self, attempt: &AttemptId) -> usize {
        let machines = self.cloud.machines.values().filter(|machine| !machine.is_frozen);
        let ranks = machines.filter_map(|machine| machine.rank.as_ref());
        let ranks = ranks.filter(|rank| rank.may_run && rank.attempt == *attempt);
        // There are at most 64; one beyond 128 would count as missing.
        let bit = |rank: u32| 1_u128.checked_shl(rank).unwrap_or(0);
        let found = ranks.fold(0_u128, |found, rank| found | bit(rank.member.map_or(0, |place| place.rank)));
        found.count_ones() as usize
    }

    /// Whether a rank can continue: after the rendezvous, no rank may be missing.
    pub(crate) fn are_all_there(&mut self, handle: &MachineHandle, attempt: &AttemptId) -> bool {
        let running = self.running(attempt);
        let machine = self.cloud.machines.get_mut(handle);
        let Some(rank) = machine.and_then(|machine| machine.rank.as_mut()) else { return true };
        let all = running >= rank.member.map_or(1, |place| place.nodes) as usize;
        rank.has_met |= all;
        rank.member.is_none() || all
    }

    /// Another rank is missing: the ranks end, or wait for it at the meeting.
    pub(crate) fn rank_lost(&mut self, handle: &MachineHandle, attempt: &AttemptId) {
        let Some(machine) = self.cloud.machines.get_mut(handle) else { return };
        let Some(rank) = machine.rank.as_mut() else { return };
        let waits_for_ever = self.scenario.are_deaf && rank.has_met && !rank.is_ending;
        if waits_for_ever {
            rank.step = rank.step.saturating_sub(1);
            let (handle, attempt) = (handle.clone(), attempt.clone());
            return self.at(self.now + 5 * SECOND, SimEvent::RankWorks { handle, attempt });
        }
        if !rank.has_met && !rank.is_ending && self.now < rank.meets_until {
            // The step was not made.
            rank.step = rank.step.saturating_sub(1);
            let (handle, attempt) = (handle.clone(), attempt.clone());
            return self.at(self.now + 5 * SECOND, SimEvent::RankWorks { handle, attempt });
        }
        self.ended(handle, attempt, failed(Finding::new(Cause::RankLost, "another rank is gone")));
    }

    /// A rank that is not the first looks for the first.
    pub(crate) fn follower_looks(&mut self, handle: &MachineHandle, attempt: &AttemptId) {
        let again = self.now + 3 * SECOND;
        let Some(rank) = self.cloud.machines.get(handle).and_then(|machine| machine.rank.as_ref()) else { return };
        if rank.attempt != *attempt {
            return;
        }
        let (has_met, is_ending, run, fence) = (rank.has_met, rank.is_ending, rank.run.clone(), rank.fence);
        let is_late = self.now >= rank.meets_until;
        let is_closed = self.stores.get(&run).is_some_and(|store| store.closed == Some(fence));
        if is_closed {
            let end = if is_ending { AttemptEnd::Stopped { step: None } } else { AttemptEnd::Succeeded };
            return self.ended(handle, attempt, end);
        }
        let is_deaf = self.scenario.are_deaf && has_met && !is_ending;
        if !self.are_all_there(handle, attempt) && !is_deaf && (has_met || is_late) {
            return self.ended(handle, attempt, failed(Finding::new(Cause::RankLost, "rank 0 is gone")));
        }
        self.at(again, SimEvent::FollowerLooks { handle: handle.clone(), attempt: attempt.clone() });
    }

    /// No machine costs money for long while others of its run are missing.
    pub(crate) fn check_waiting(&mut self) {
        // Waits are told by the wall clock, and by a loop that lives.
        if self.scenario.nodes + self.scenario.spares == 1
            || self.scenario.is_skewed
            || self.is_restored
            || self.stats.crashes > 0
        {
            return;
        }
        let world = &self.process.archive;
        let most = 2 * self.scenario.traits.boots_within.0 + WAITING;
        let wall = Timestamp(self.wall());
        let waits = |run: &&RunId| {
            let Some(known) = world.runs.get(*run).filter(|known| !known.state.is_final()) else { return false };
            let is_stopping = matches!(known.state, RunState::Stopping { .. });
            let up = world.live_instances_of(known).filter(|(_, instance)| instance.state == InstanceState::Up);
            let Some(first) = up.map(|(_, instance)| instance.intended).min() else { return false };
            let ended = known.attempts.last().and_then(|id| world.attempts.get(id)).map(|attempt| &attempt.state);
            let since = match ended {
                Some(AttemptState::Ended { at, .. }) => first.max(*at),
                Some(_) => return false,
                None => first,
            };
            !is_stopping && wall.since(since).0 > most
        };
        if let Some(run) = self.runs.iter().find(waits) {
            return self.violate(format!("machines of {run} wait for others for too long"));
        }
        self.check_shrinking();
    }

    /// A job that can do with fewer machines does, once they are up and the others had their time to boot.
    fn check_shrinking(&mut self) {
        self.note_able();
        let most = Policy::default().shrink.0 + self.scenario.traits.boots_within.0 + RESTS;
        let late = self.able_since.iter().find(|(_, since)| self.now > **since + most);
        if let Some(run) = late.map(|((run, _), _)| run.clone()) {
            self.violate(format!("{run} waits for machines that it could do without"));
        }
    }

    /// Keeps since when runs could start with fewer machines than they could use.
    pub(crate) fn note_able(&mut self) {
        if self.scenario.least >= self.scenario.nodes {
            return;
        }
        let world = &self.process.archive;
        let could_start = |run: &RunId| {
            let known = world.runs.get(run).filter(|known| !known.state.is_final())?;
            let is_up = |instance: &plan::Instance| instance.state == InstanceState::Up && instance.reclaim.is_none();
            let up = world.live_instances_of(known).filter(|(_, instance)| is_up(instance)).count();
            let is_stopping = matches!(known.state, RunState::Stopping { .. });
            let is_enough = up >= self.scenario.least as usize;
            let could = is_enough && !is_stopping && world.active_attempt(known).is_none();
            // An attempt may have begun and ended since the last look.
            could.then(|| (run.clone(), known.attempts.len()))
        };
        let able: BTreeSet<(RunId, usize)> = self.runs.iter().filter_map(could_start).collect();
        self.able_since.retain(|waiting, _| able.contains(waiting));
        for waiting in able {
            self.able_since.entry(waiting).or_insert(self.now);
        }
    }
}
