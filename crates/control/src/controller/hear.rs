//! Heartbeats of agents, and the replies to them.

use std::collections::BTreeSet;

use domain::rank::Report;
use domain::run::{InstanceState, Sight};
use domain::wire::{AgentCommand, AgentEvent, Entry, Heartbeat, HeartbeatReply, Start};
use domain::{AttemptId, Elapsed, Event, Fence, InstanceId, RunId};
use plan::{Instance, ObservedState, Policy, Run, Scope};

use super::memory::{Heard, LastEvents, MachineMemory, RunMemory, UnknownAgent};
use super::{Controller, ControllerOutput, ReplyId, ReplyToAgent};

/// An agent that has not called for so long, in microseconds, is forgotten by those that count unknown ones.
const UNKNOWN_FORGOTTEN: u64 = 60_000_000;

impl Controller {
    /// Handles an agent's heartbeat, and replies with its orders.
    pub(super) fn hear(&mut self, from: ReplyId, heartbeat: &Heartbeat) {
        let id = &self.world.holder(&heartbeat.instance).unwrap_or(&heartbeat.instance).clone();
        let Some(instance) = self.world.instances.get(id) else { return self.hear_unknown(from, heartbeat) };
        let (run, carried) = (instance.run.clone(), instance.run.clone());
        if is_other(instance, heartbeat) {
            return self.hear_double(from, heartbeat);
        }
        let is_first = match instance.state {
            InstanceState::Intended | InstanceState::Launching => true,
            InstanceState::Up | InstanceState::Releasing | InstanceState::Released { .. } => false,
        };
        let is_live = !matches!(instance.state, InstanceState::Released { .. });
        if is_live {
            let silent = self.silence(id).0;
            let (awake, at) = (self.awake, self.now.monotonic);
            let age = self.now.wall.since(instance.intended);
            let memory = self.machines.entry(id.clone()).or_insert_with(|| MachineMemory::new(awake, age, at));
            // A delayed heartbeat may be older than one handled before.
            let rent = heartbeat.elapsed.max(memory.heard.map_or(Elapsed(0), |heard| heard.rent));
            memory.heard = Some(Heard { awake, at, rent });
            let is_asked = std::mem::replace(&mut memory.last_events, LastEvents::UNREAD) != LastEvents::UNREAD;
            // Whatever missed it was taken before.
            let is_found = memory.sight == Some(Sight::Unknown) || silent >= self.policy.suspect.0;
            if is_found {
                (memory.sight, memory.missing) = (memory.sight.filter(|sight| *sight != Sight::Unknown), None);
            }
            // The rented time is now known more precisely.
            let has_budget = |run: &Run| plan::budget_of(&self.world, run).is_some();
            if is_found || is_asked || self.world.runs.get(&run).is_some_and(has_budget) {
                self.touch_run(&run);
            }
        }
        if is_first {
            let (started, incarnation) = (heartbeat.started, heartbeat.incarnation);
            self.must(Event::AgentUp { instance: id.clone(), started, incarnation });
        }
        self.take(id, &heartbeat.entries);
        self.take_notice(id, heartbeat.reclaim);
        let is_changed = self.is_changed;
        let seen = is_changed.then(|| self.settle()).flatten();
        self.is_due_changed |= is_changed;
        // What it reports may have led to other work for its machine.
        let id = &self.world.holder(&heartbeat.instance).unwrap_or(id).clone();
        let run = self.world.instances.get(id).map_or(run, |instance| instance.run.clone());
        let start = |run_id: &RunId, run: &Run, attempt: &AttemptId| self.start(run_id, run, attempt);
        let orders = plan::orders(&self.world, &self.policy, id, start);
        let lease = self.lease(&run, seen.as_ref());
        let saving = self.world.runs.get(&run).and_then(|run| {
            let budget = plan::budget_of(&self.world, run)?;
            Some(domain::Duration::from_micros(plan::wind_down(&self.policy, &run.job, Some(budget), run.rate()).0))
        });
        let known = self.world.runs.get(&run);
        let interval = known.map_or(self.policy.heartbeat_interval, |run| plan::heartbeat(&self.policy, run));
        let reply = HeartbeatReply { lease, saving, ..answer(heartbeat, orders, &self.policy, interval) };
        // One that waits for other machines of its attempt waits for long.
        let waits_long = |run: &Run| run.job.machines() > 1 || self.world.active_attempt(run).is_some();
        let next = if known.is_some_and(waits_long) { domain::Duration::from_micros(interval.0) } else { reply.next };
        self.reply(from, Some(carried), HeartbeatReply { next, ..reply });
    }

    /// Records that a machine will be reclaimed, the first time that its agent reports it.
    fn take_notice(&mut self, id: &InstanceId, left: Option<domain::Duration>) {
        let is_new = self.world.instances.get(id).is_some_and(|instance| {
            instance.reclaim.is_none() && matches!(instance.state, InstanceState::Up | InstanceState::Releasing)
        });
        if let Some(left) = left.filter(|_| is_new) {
            let micros = i64::try_from(left.micros()).unwrap_or(i64::MAX);
            let at = domain::Timestamp(self.now.wall.0.saturating_add(micros));
            self.must(Event::ReclaimNoticed { instance: id.clone(), at });
        }
    }

    /// Records the decisions among the entries. An entry that was handled before has no effect.
    pub(super) fn take(&mut self, id: &InstanceId, entries: &[Entry]) {
        let mut stepped = None;
        for entry in entries {
            if self.is_new_step(id, entry) {
                stepped = Some(&entry.attempt);
            }
            if entry.event == AgentEvent::Unknown {
                let text =
                    "its agent, of a later version, reports what this version does not know; that is passed over";
                self.note(entry.attempt.as_str(), text, false);
            }
            if let Some(event) = plan::hear(&self.world, id, entry) {
                self.must(event);
            }
        }
        let pace = stepped.and_then(|attempt| Some((attempt, self.paces.get(attempt)?)));
        let found = pace.and_then(|(attempt, pace)| plan::straggler_found(&self.world, attempt, &pace.times));
        if let Some(event) = found {
            self.must(event);
        }
    }

    /// Takes in a step of one of several machines that work on an attempt; whether it is one that was not handled before.
    fn is_new_step(&mut self, id: &InstanceId, entry: &Entry) -> bool {
        let AgentEvent::Reported { report: Report::Step(step), .. } = &entry.event else { return false };
        let world = &self.world;
        let is_open = |attempt: &plan::RunAttempt| !matches!(attempt.state, plan::AttemptState::Ended { .. });
        let known = world.attempts.get(&entry.attempt);
        if !known.is_some_and(|attempt| attempt.member(id).is_some() && is_open(attempt)) {
            return false;
        }
        if !self.paces.contains_key(&entry.attempt) {
            self.paces.retain(|attempt, _| world.attempts.get(attempt).is_some_and(is_open));
        }
        self.paces.entry(entry.attempt.clone()).or_default().is_new(id, entry.seq, step)
    }

    /// An agent that is not in the log, because the log was restored from a backup or belongs to another home, keeps
    /// its work for a while: it gets no orders, and leaves only after a long time unclaimed.
    fn hear_unknown(&mut self, from: ReplyId, heartbeat: &Heartbeat) {
        let now = self.now.monotonic;
        self.unknown.retain(|_, agent| now.0.saturating_sub(agent.last.0) < UNKNOWN_FORGOTTEN);
        let agent = self.unknown.entry(heartbeat.instance.clone()).or_insert(UnknownAgent { since: now, last: now });
        agent.last = now;
        let is_over = now.0.saturating_sub(agent.since.0) >= self.policy.unknown.0;
        let text = format!(
            "its agent calls, and the event log does not know it; told to leave after {} s",
            self.policy.unknown.0 / 1_000_000
        );
        self.note(heartbeat.instance.as_str(), text, false);
        let orders = if is_over { vec![AgentCommand::Leave] } else { Vec::new() };
        let reply = HeartbeatReply {
            acknowledged: 0,
            measured: Some(0),
            next: domain::Duration::from_micros(self.policy.heartbeat_interval.0),
            ..answer(heartbeat, orders, &self.policy, self.policy.heartbeat_interval)
        };
        self.reply(from, None, reply);
    }

    /// Another agent has this name already: the provider has rented two machines for one request.
    fn hear_double(&mut self, from: ReplyId, heartbeat: &Heartbeat) {
        self.note(heartbeat.instance.as_str(), "two agents have its name; the second is told to leave", false);
        let reply = answer(heartbeat, vec![AgentCommand::Leave], &self.policy, self.policy.heartbeat_interval);
        self.reply(from, None, HeartbeatReply { acknowledged: 0, measured: Some(0), ..reply });
    }

    fn reply(&mut self, to: ReplyId, run: Option<RunId>, reply: HeartbeatReply) {
        self.hold(ControllerOutput::Reply(Box::new(ReplyToAgent { to, run, reply })));
    }

    fn start(&self, run_id: &RunId, run: &Run, attempt: &AttemptId) -> Start {
        let known = self.world.attempts.get(attempt);
        let fence = known.map_or(Fence(0), |attempt| attempt.fence);
        let job = known.map(|attempt| plan::job_of_attempt(&self.world, run, attempt, self.now.wall));
        Start {
            run: run_id.clone(),
            attempt: attempt.clone(),
            fence,
            job: job.unwrap_or_else(|| run.job.clone()),
            job_hash: run.job_hash.clone(),
            threads: run.plan.share.map_or(run.plan.offer.node.cores, |share| share.threads),
            accept_data_change: run.accept_data_change,
            member: None,
            folder: String::new(),
        }
    }

    /// Whether some process waits for a run, or for the sweep that it is a trial of.
    pub(super) fn is_watched(&self, id: &RunId) -> bool {
        let trial = self.world.runs.get(id).and_then(|run| run.trial.as_ref());
        self.watched.all
            || self.watched.runs.contains(id)
            || trial.is_some_and(|trial| self.watched.sweeps.contains(&trial.sweep))
    }

    /// Agents call less often the more of them there are. What budgets keep back changes with it.
    pub(super) fn set_heartbeat_interval(&mut self) {
        let interval = self.policy.interval_for(self.world.live_count());
        if interval != self.policy.heartbeat_interval {
            self.policy.heartbeat_interval = interval;
            self.touch_all();
        }
    }

    /// How long the agents of a run may continue without the loop, limited by its budget and deadline. The lease of a
    /// run that no process waits for runs out as if there were no loop: unattended work must not cost money
    /// indefinitely. `seen` is what was just observed of a scope.
    fn lease(&mut self, id: &RunId, seen: Option<&(Scope, ObservedState)>) -> domain::Duration {
        let now = self.now.monotonic;
        let is_watched = self.is_watched(id);
        let memory = self.run_memory(id);
        let since = (!is_watched).then(|| memory.alone.unwrap_or(now));
        memory.alone = since;
        let alone = since.map_or(0, |since| now.0.saturating_sub(since.0));
        let left = self.policy.lease.0.saturating_sub(alone);
        let is_limited = |run: &&Run| plan::is_limited(&self.world, run);
        let allowed = self.world.runs.get(id).filter(is_limited).map(|run| {
            // The trials of a sweep share its budget.
            let sweeps = run.trial.iter().map(|trial| trial.sweep.clone()).collect();
            let scope = Scope { runs: BTreeSet::from([id.clone()]), sweeps };
            match seen.filter(|(seen, _)| seen.holds(&scope)) {
                Some((_, facts)) => plan::lease(&self.world, facts, &self.policy, run),
                None => plan::lease(&self.world, &self.machine_facts(&scope), &self.policy, run),
            }
        });
        domain::Duration::from_micros(allowed.map_or(left, |allowed| allowed.0.min(left)))
    }

    /// The state of a run, brought up to date.
    pub(super) fn run_memory(&mut self, id: &RunId) -> &mut RunMemory {
        let marks = self.world.runs.get(id).map_or(0, marks);
        let now = self.now.monotonic;
        let memory = self.runs.entry(id.clone()).or_insert(RunMemory { marks, since: now, alone: None });
        if memory.marks != marks {
            memory.marks = marks;
            memory.since = now;
        }
        memory
    }

    /// How long an agent has not called, or has been waited for, in time awake.
    pub(super) fn silence(&self, id: &InstanceId) -> Elapsed {
        self.machines.get(id).map_or(Elapsed(0), |memory| self.silence_of(memory))
    }

    /// The same, of a machine whose memory is at hand.
    pub(super) fn silence_of(&self, memory: &MachineMemory) -> Elapsed {
        let since = memory.heard.map_or(memory.since, |heard| heard.awake);
        Elapsed(self.awake.0.saturating_sub(since.0))
    }
}

/// Whether another agent than the one that was heard first has its name. Clocks may be wrong, and alike: what its agents
/// have drawn tells them apart, where they are of a version that draws.
fn is_other(instance: &Instance, heartbeat: &Heartbeat) -> bool {
    match (instance.incarnation, heartbeat.incarnation) {
        (0, _) | (_, 0) => instance.started.is_some_and(|started| started != heartbeat.started),
        (known, calls) => known != calls,
    }
}

fn marks(run: &Run) -> u64 {
    u64::from(run.restarts) + u64::from(run.error_restarts) + u64::from(run.waits) + run.attempts.len() as u64
}

fn answer(heartbeat: &Heartbeat, orders: Vec<AgentCommand>, policy: &Policy, interval: Elapsed) -> HeartbeatReply {
    let acknowledged = heartbeat.entries.last().map_or(0, |entry| entry.seq);
    // One that waits for its first command calls as much more often as with few agents.
    let idle = policy.heartbeat_idle.0.saturating_mul(interval.0) / policy.heartbeat.0.max(1);
    let next = if orders.is_empty() { Elapsed(idle) } else { interval };
    let (next, lease) = (domain::Duration::from_micros(next.0), domain::Duration::from_micros(policy.lease.0));
    HeartbeatReply { acknowledged, measured: Some(acknowledged), lease, saving: None, next, orders }
}
