//! Events on machines: agents boot, call and get replies; ranks make steps, save and die.

use control::{StopReason, SupervisorInput, SupervisorOutput, is_decision};
use domain::rank::Report;
use domain::rental::MachineHandle;
use domain::run::AttemptEnd;
use domain::wire::{AgentEvent, HeartbeatReply, Start};
use domain::{AttemptId, Cause, Elapsed, Finding, InstanceId, Money, RunId};

use crate::job::sweep::{SWEEP, is_of_sweep};
use crate::job::{checkpointed, model, ready};
use crate::machine::{Machine, Rank};
use crate::rule::Rule;
use crate::scenario::SECOND;
use crate::simulation::{ABANDONED, SimEvent, Simulation};
use crate::verdict::parts;

/// How long a rank may take to save a checkpoint, where its order states no time.
const SAVE_WITHIN: u64 = 60 * SECOND;

impl Simulation {
    pub(crate) fn agent_boots(&mut self, handle: &MachineHandle) {
        let wall = if self.scenario.are_clocks_alike { 0 } else { self.wall() };
        let now = self.now;
        // Two machines never draw the same number; handles differ.
        let number: u64 = handle.0.trim_start_matches("m-").parse().unwrap_or(0);
        let incarnation = if self.rule == Some(Rule::AgentsAreToldApart) { 0 } else { 1 + number };
        let Some(machine) = self.cloud.machines.get_mut(handle).filter(|machine| machine.is_alive()) else { return };
        let outputs = machine.boot(now, wall, incarnation);
        self.agent_does(handle, outputs);
        self.tell_notice(handle);
    }

    pub(crate) fn agent_timer(&mut self, handle: &MachineHandle, timer: u64) {
        if self.cloud.machines.get(handle).is_some_and(|machine| machine.timer == timer) {
            self.tell_agent(handle, SupervisorInput::Timer);
        }
    }

    pub(crate) fn reply_arrives(&mut self, handle: &MachineHandle, call: u64, reply: Option<Box<HeartbeatReply>>) {
        let now = self.now;
        let Some(machine) = self.cloud.machines.get_mut(handle) else { return };
        if machine.call != call || machine.agent.is_none() {
            return;
        }
        // The next one has another number.
        machine.call += 1;
        if reply.is_some() {
            machine.renewed = now;
        }
        self.tell_agent(handle, SupervisorInput::Answered(reply));
    }

    /// Passes an input to an agent and carries out its outputs.
    pub(crate) fn tell_agent(&mut self, handle: &MachineHandle, input: SupervisorInput) {
        let now = self.now;
        let Some(machine) = self.cloud.machines.get_mut(handle).filter(|machine| !machine.is_frozen) else { return };
        let age = machine.age(now);
        let Some(agent) = &mut machine.agent else { return };
        let outputs = agent.step(input, age);
        self.agent_does(handle, outputs);
    }

    fn agent_does(&mut self, handle: &MachineHandle, outputs: Vec<SupervisorOutput>) {
        let mut outputs = outputs.into_iter();
        while let Some(output) = outputs.next() {
            if self.is_stormy && self.draws.below(10_000) < self.scenario.agent_crash {
                let is_lost = |output: &SupervisorOutput| matches!(output, SupervisorOutput::Write(entry) if is_decision(&entry.event));
                self.lost_decisions += u32::from(is_lost(&output) || outputs.as_slice().iter().any(is_lost));
                return self.agent_dies(handle);
            }
            let Some(machine) = self.cloud.machines.get_mut(handle) else { return };
            match output {
                SupervisorOutput::Write(entry) => {
                    if matches!(entry.event, AgentEvent::Reported { .. }) {
                        machine.measured.push(entry.clone());
                    }
                    if is_decision(&entry.event) && self.rule != Some(Rule::DecisionsAreSpooled) {
                        machine.spool.push(entry);
                    }
                }
                SupervisorOutput::Forget { before } => {
                    machine.measured.retain(|entry| entry.seq >= before);
                    if self.draws.below(2) == 0 {
                        machine.spool.clear();
                    }
                }
                SupervisorOutput::ReadBack(range) => {
                    let (through, entries) = (*range.entries.end(), machine.measured_in(&range));
                    self.tell_agent(handle, SupervisorInput::ReadBack { through, entries });
                }
                SupervisorOutput::Call(heartbeat) => self.heartbeat(handle, Box::new(heartbeat)),
                SupervisorOutput::Begin(start) => self.begin(handle, &start),
                SupervisorOutput::Go { .. } => self.go(handle),
                SupervisorOutput::End { why, within } => self.end_rank(handle, why, within),
                SupervisorOutput::Leave(_) => {
                    machine.lose_agent();
                    if self.rule != Some(Rule::DeadManSwitch) {
                        machine.end(self.now);
                    }
                }
            }
        }
        let Some(machine) = self.cloud.machines.get_mut(handle) else { return };
        let Some(agent) = &machine.agent else { return };
        machine.timer += 1;
        let (due, timer) = (agent.due().0, machine.timer);
        if due < u64::MAX {
            let time = machine.boots.unwrap_or(0).saturating_add(due).max(self.now + 1);
            self.at(time, SimEvent::AgentTimer { handle: handle.clone(), timer });
        }
    }

    /// An agent dies, and its ranks with it. A machine of a cloud costs money until it is ended; a node does nothing more.
    fn agent_dies(&mut self, handle: &MachineHandle) {
        self.machine_disturbed(handle, 0);
        let (now, is_remote) = (self.now, self.scenario.is_remote);
        let Some(machine) = self.cloud.machines.get_mut(handle) else { return };
        match is_remote {
            true => machine.end(now),
            false => machine.lose_agent(),
        }
    }

    fn begin(&mut self, handle: &MachineHandle, start: &Start) {
        let store = self.stores.entry(start.run.clone()).or_default();
        if store.fence.is_some_and(|fence| start.fence < fence) {
            let finding = Finding::new(Cause::Fenced, "a newer attempt has taken over");
            return self.ended(handle, &start.attempt, failed(finding));
        }
        store.fence = Some(start.fence);
        self.check_members(&start.attempt);
        let store = self.stores.entry(start.run.clone()).or_default();
        // Ranks hear from each other that their attempt is over. A restored log may use the number of an attempt again.
        store.closed = store.closed.filter(|closed| *closed != start.fence);
        let step = store.durable(self.now, self.scenario.work.lag);
        let Some(machine) = self.cloud.machines.get_mut(handle) else { return };
        machine.rank = Some(Rank {
            run: start.run.clone(),
            attempt: start.attempt.clone(),
            fence: start.fence,
            step,
            is_staged: false,
            is_ending: false,
            member: start.member,
            may_run: start.member.is_none(),
            has_met: false,
            meets_until: 0,
        });
        let staged = self.now + SECOND + self.draws.below(10 * SECOND);
        self.at(staged, SimEvent::RankWorks { handle: handle.clone(), attempt: start.attempt.clone() });
    }

    pub(crate) fn rank_works(&mut self, handle: &MachineHandle, attempt: &AttemptId) {
        let Some(machine) = self.cloud.machines.get_mut(handle) else { return };
        let Some(rank) = machine.rank.as_mut().filter(|rank| rank.attempt == *attempt && !rank.is_ending) else {
            return;
        };
        let work = self.scenario.work;
        let mut events = Vec::new();
        if !rank.may_run {
            return self.prepared(handle, attempt);
        }
        if rank.is_staged {
            rank.step += 1;
        } else {
            rank.is_staged = true;
            events.extend([AgentEvent::Started, reported(ready(rank.step, &work))]);
        }
        let (step, run, fence) = (rank.step, rank.run.clone(), rank.fence);
        self.worked_from.get_or_insert(self.now);
        if !machine.is_frozen {
            self.check_budget(&run);
            self.disturbed(&run);
        }
        if !self.are_all_there(handle, attempt) {
            return self.rank_lost(handle, attempt);
        }
        if self.rank_fails(handle, attempt) {
            return;
        }
        let is_saved = step % work.save_every == 0 || step >= work.steps;
        if is_saved {
            if !self.commit(&run, fence, step) {
                let finding = Finding::new(Cause::Fenced, "a newer attempt has taken over");
                return self.ended(handle, attempt, failed(finding));
            }
            events.push(reported(checkpointed(step)));
        }
        if !events.is_empty() {
            self.tell_agent(handle, SupervisorInput::Happened { attempt: attempt.clone(), events });
        }
        // Its agent may have died of that, and the ranks with it.
        if self.cloud.machines.get(handle).is_none_or(|machine| machine.agent.is_none()) {
            return;
        }
        if step >= work.steps {
            let is_frozen = self.cloud.machines.get(handle).is_some_and(|machine| machine.is_frozen);
            if !is_frozen {
                self.worked_until = self.now;
                let store = self.stores.entry(run).or_default();
                store.completions += 1;
                store.closed = Some(fence);
            }
            return self.ended(handle, attempt, AttemptEnd::Trained { model: model(step) });
        }
        let pace = if self.scenario.is_slow { 5 } else { 1 };
        let drawn = pace * (2 * SECOND + self.draws.below(8 * SECOND));
        let next = self.now + work.step.unwrap_or(drawn) + if is_saved { work.stall } else { 0 };
        self.at(next, SimEvent::RankWorks { handle: handle.clone(), attempt: attempt.clone() });
    }

    /// Whatever fails, no steps are made once a run's budget is spent.
    fn check_budget(&mut self, run: &RunId) {
        // The trials of a sweep share its budget.
        let (budget, of) = match is_of_sweep(run) {
            true => (self.sweep_budget, SWEEP),
            false => (self.budget_of(run), run.as_str()),
        };
        let Some(budget) = budget else { return };
        // Except with wrong wall clocks, a restored log, or a provider without tokens.
        if self.scenario.is_skewed || self.scenario.is_restored || self.scenario.traits.token_lifetime.is_none() {
            return;
        }
        let is_own = |id: &InstanceId| id.as_str().strip_prefix(of).is_some_and(|rest| rest.starts_with('-'));
        let billing = self.scenario.traits.billing;
        // What nobody could reach was settled: whatever a frozen agent costs beyond that, nobody knows.
        let used = |machine: &Machine| {
            let rent = match (self.settled_unseen.get(&machine.instance), machine.ended) {
                (Some(rent), _) => *rent,
                (None, Some(ended)) => billing.billed(Elapsed(ended - machine.rented)),
                (None, None) => Elapsed(self.now - machine.rented),
            };
            parts::owed(&self.process.archive, machine, rent, |id, _| is_own(id))
        };
        let spent: Money = self.cloud.machines.values().map(used).sum();
        if spent > budget {
            self.violate(format!("{run} trains after {of} has cost {spent} of a budget of {budget}"));
        }
    }

    /// Saves a state; false where a newer attempt owns the run.
    fn commit(&mut self, run: &RunId, fence: domain::Fence, step: u64) -> bool {
        let store = self.stores.entry(run.clone()).or_default();
        if store.fence.is_some_and(|newest| fence < newest) && self.rule != Some(Rule::StaleWritesAreFenced) {
            return false;
        }
        let is_stale = store.written_by.is_some_and(|newest| fence < newest);
        store.written_by = Some(fence);
        store.save(step, self.now, self.scenario.work.lag);
        if is_stale {
            self.violate(format!("a replaced attempt of {run} wrote over what a newer one had saved"));
        }
        true
    }

    fn end_rank(&mut self, handle: &MachineHandle, why: StopReason, within: Option<Elapsed>) {
        let Some(machine) = self.cloud.machines.get_mut(handle) else { return };
        let Some(rank) = &mut machine.rank else { return };
        let attempt = rank.attempt.clone();
        match why {
            StopReason::Reclaim if rank.is_ending => {
                let within = within.map_or(SAVE_WITHIN, |within| within.0);
                let killed = self.now + within - within / 4;
                self.at(killed, SimEvent::RankSaved { handle: handle.clone(), attempt, is_saved: false });
            }
            StopReason::Stop | StopReason::LeaseOver if rank.is_ending => {}
            StopReason::Stop | StopReason::LeaseOver | StopReason::Reclaim => {
                rank.is_ending = true;
                let within = within.map_or(SAVE_WITHIN, |within| within.0);
                // The remaining time is for uploading the saved state.
                let within = if why == StopReason::Reclaim { within - within / 4 } else { within };
                // One in ten stands still and would never be done.
                let is_stuck = self.draws.below(10) == 0;
                let needed = if is_stuck { u64::MAX } else { self.draws.below(40 * SECOND) };
                // Node rank 0 saves for all, if all are there.
                let is_follower = rank.member.is_some_and(|place| place.rank > 0);
                let needed = if is_follower { within } else { needed };
                let is_saved = needed <= within && !is_follower;
                let done = self.now.saturating_add(needed.min(within));
                self.at(done, SimEvent::RankSaved { handle: handle.clone(), attempt, is_saved });
            }
            StopReason::NodeLost if rank.is_ending => {}
            StopReason::NodeLost => {
                rank.is_ending = true;
                let done = self.now + self.draws.below(within.map_or(SECOND, |within| within.0));
                self.at(done, SimEvent::RankSaved { handle: handle.clone(), attempt, is_saved: false });
            }
            StopReason::Leave | StopReason::Replaced | StopReason::Signalled | StopReason::Hang(_) => {
                self.at(self.now, SimEvent::RankSaved { handle: handle.clone(), attempt, is_saved: false });
            }
        }
    }

    pub(crate) fn rank_saved(&mut self, handle: &MachineHandle, attempt: &AttemptId, is_saved: bool) {
        let Some(machine) = self.cloud.machines.get_mut(handle) else { return };
        let Some(rank) = machine.rank.as_ref().filter(|rank| rank.attempt == *attempt) else { return };
        let (run, fence, step, is_reclaimed) = (rank.run.clone(), rank.fence, rank.step, machine.reclaim.is_some());
        let is_saved = is_saved && (step == 0 || self.are_all_there(handle, attempt));
        let end = if is_saved && self.commit(&run, fence, step) {
            self.stores.entry(run).or_default().closed = Some(fence);
            match is_reclaimed {
                true => failed(Finding::new(Cause::InstanceLost, "the provider takes the machine back")),
                false => AttemptEnd::Stopped { step: Some(step) },
            }
        } else {
            failed(Finding::new(Cause::InstanceLost, "ended before its state was saved"))
        };
        self.ended(handle, attempt, end);
    }

    pub(crate) fn ended(&mut self, handle: &MachineHandle, attempt: &AttemptId, end: AttemptEnd) {
        if let Some(machine) = self.cloud.machines.get_mut(handle) {
            machine.rank = None;
        }
        self.tell_agent(handle, SupervisorInput::Ended { attempt: attempt.clone(), end });
    }

    pub(crate) fn machine_fault(&mut self, handle: &MachineHandle) {
        let kind = self.draws.below(7);
        let cut = self.now + self.draws.below(300 * SECOND);
        let dark = self.now + self.draws.below(900 * SECOND);
        let now = self.now;
        let (is_glitch, is_remote) = (self.draws.below(3) == 0, self.scenario.is_remote);
        self.machine_disturbed(handle, 0);
        let Some(machine) = self.cloud.machines.get_mut(handle) else { return };
        match kind {
            0 => machine.end(now),
            1 => self.agent_dies(handle),
            2 => machine.is_frozen = machine.agent.is_some(),
            3 => machine.cut_until = cut,
            4 => {
                (machine.cut_until, machine.dark_until) = (dark, dark);
                // What cuts it off may end its agent too. A node that loses power may never come back.
                if is_glitch && is_remote {
                    machine.end(now);
                    machine.dark_until = u64::MAX;
                } else if is_glitch {
                    machine.lose_agent();
                }
            }
            5 => self.notice(handle),
            _ => {
                if let Some(rank) = &machine.rank {
                    let attempt = rank.attempt.clone();
                    let finding = Finding::new(Cause::Killed, "rank 0 was ended by signal 9");
                    self.ended(handle, &attempt, failed(finding));
                }
            }
        }
    }

    /// The machine's own timer: it powers off when its agent was not answered for long.
    pub(crate) fn watchdog(&mut self) {
        let now = self.now;
        self.at(now + 60 * SECOND, SimEvent::Watchdog);
        self.check_waiting();
        self.check_waits();
        self.check_trials();
        self.check_memory();
        // It would hide that one of these is broken, as braces hide a missing belt.
        let hides = matches!(
            self.rule,
            Some(Rule::StrangersAreEnded | Rule::EndIsRepeated | Rule::SilenceIsGivenUp | Rule::MachinesAreTagged)
        );
        if matches!(self.rule, Some(Rule::DeadManSwitch | Rule::MachinesPowerOff))
            || (hides && !self.scenario.is_abandoned)
        {
            return;
        }
        for machine in self.cloud.machines.values_mut().filter(|machine| machine.is_alive()) {
            if now >= machine.renewed + ABANDONED {
                machine.end(now);
            }
        }
    }
}

pub(crate) fn failed(finding: Finding) -> AttemptEnd {
    AttemptEnd::Failed { finding, exit_code: None }
}

fn reported(report: Report) -> AgentEvent {
    AgentEvent::Reported { rank: 0, report }
}
