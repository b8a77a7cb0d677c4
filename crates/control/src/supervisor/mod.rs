//! The agent of one machine as a pure state machine: replies and events of its attempt go in; heartbeats, orders to the
//! attempt and entries to record come out. All times are since the agent's start, on a monotonic clock that includes
//! suspensions.
//!
//! The lease is the dead-man switch: when the loop has not answered for longer than it granted, and a call after that
//! has failed too, the attempt is ended (its state saved first) and the agent leaves. A machine that was suspended past
//! its lease therefore calls once more before it gives up.

mod backlog;
mod exchange;
mod lease;
mod queue;
mod reason;

use std::collections::BTreeMap;

use domain::run::AttemptEnd;
use domain::wire::{self, AgentCommand, AgentEvent, Heartbeat, HeartbeatReply, NodeAddress, NodeRank, Start};
use domain::{AttemptId, Duration, Elapsed, InstanceId, Timestamp};

pub use backlog::{QueueMemory, SpoolRange};
pub use exchange::{SupervisorInput, SupervisorOutput};
use lease::{Lease, after};
use queue::BATCH;
pub use queue::{EntryQueue, is_decision};
use reason::Reclaim;
pub use reason::{Departure, StopReason};

/// Between the starts of two calls while much waits, a decision was not acknowledged, or nothing more will come, in
/// microseconds.
const GAP: u64 = 30_000;

/// Until a failed call is repeated, in microseconds.
const RETRY: u64 = 50_000;

/// A failed call is repeated after at most so long, in microseconds.
const RETRY_AT_MOST: u64 = 500_000;

/// Each failed call halves what the next one carries, so many times at most: a slow connection may not take all of it before
/// the call is given up.
const HALVED_AT_MOST: u32 = 5;

/// A call that is answered within so long is followed by one twice as large, in microseconds. The agent gives a call up after
/// three times as long.
const FAST: u64 = 5_000_000;

/// How long a signalled agent tries to deliver pending reports, in microseconds.
const LAST_CALL: u64 = 300_000;

/// The agent's state.
#[derive(Debug)]
pub struct Supervisor {
    instance: InstanceId,
    started: Timestamp,
    incarnation: u64,
    attempt: Option<AttemptId>,
    /// Its place among the machines that it waits for, and starts with; `None` alone.
    place: Option<NodeRank>,
    /// Where the others reach this machine for it, once it was prepared.
    address: Option<NodeAddress>,
    /// The machines that its ranks were started with, once they were.
    nodes: Option<Vec<NodeAddress>>,
    /// Every attempt that was ever started here, so that a repeated order starts nothing, and how it ended.
    begun: BTreeMap<AttemptId, Option<AttemptEnd>>,
    queue: EntryQueue,
    lease: Lease,
    calls: Calls,
    leaving: Option<Leaving>,
    /// When the provider reclaims the machine, if announced, and whether the loop knows.
    reclaim: Option<Reclaim>,
    has_left: bool,
    out: Vec<SupervisorOutput>,
}

#[derive(Debug, Default)]
struct Calls {
    is_under_way: bool,
    /// Failures in succession.
    failures: u32,
    /// How often the size of a call was halved.
    halved: u32,
    /// Start of the last one.
    last: Elapsed,
    /// When the loop wants to be called again.
    next: Elapsed,
    /// Earliest time of the next call, whatever is pending.
    not_before: Elapsed,
}

#[derive(Debug)]
struct Leaving {
    departure: Departure,
    /// When it stops waiting for the loop to acknowledge the rest.
    until: Elapsed,
}

impl Supervisor {
    /// An agent that has just started on a machine, at `started` on its wall clock. It waits for the loop's first
    /// answer for `first_answer`; afterwards the granted lease applies.
    pub fn new(instance: InstanceId, started: Timestamp, first_answer: Elapsed) -> Supervisor {
        Supervisor {
            instance,
            started,
            incarnation: 0,
            attempt: None,
            place: None,
            address: None,
            nodes: None,
            begun: BTreeMap::new(),
            queue: EntryQueue::default(),
            lease: Lease { last_answer: Elapsed(0), length: first_answer, is_refused: false, saving: None },
            calls: Calls::default(),
            leaving: None,
            reclaim: None,
            has_left: false,
            out: Vec::new(),
        }
    }

    /// The same with a number that tells it from other agents of its name; 0 for none.
    pub fn with_incarnation(self, incarnation: u64) -> Supervisor {
        Supervisor { incarnation, ..self }
    }

    /// The same with so much memory for measurements that wait.
    pub fn with_memory(self, memory: QueueMemory) -> Supervisor {
        Supervisor { queue: EntryQueue::with_memory(memory), ..self }
    }

    /// Handles one input at the time `now`, which is not before the last one, and returns outputs.
    pub fn step(&mut self, input: SupervisorInput, now: Elapsed) -> Vec<SupervisorOutput> {
        match input {
            SupervisorInput::Answered(Some(reply)) => self.answered(*reply, now),
            SupervisorInput::Answered(None) => self.unanswered(now),
            SupervisorInput::Happened { attempt, events } => {
                if self.attempt.as_ref() == Some(&attempt) {
                    events.into_iter().for_each(|event| self.happened(&attempt, event));
                }
            }
            SupervisorInput::Ended { attempt, end } => self.ended(&attempt, end, now),
            SupervisorInput::Signalled => self.leave(Departure::Signalled, StopReason::Signalled, now),
            SupervisorInput::ReclaimNotice(left) => self.noticed(left, now),
            SupervisorInput::ReadBack { through, entries } => {
                let note = self.queue.restore(through, entries);
                self.out.extend(note.map(SupervisorOutput::Write));
            }
            SupervisorInput::Timer => {}
        }
        if self.leaving.is_none() && (self.lease.is_refused || self.money_ends().is_some_and(|ends| now > ends)) {
            self.leave(Departure::LeaseOver, StopReason::LeaseOver, now);
        }
        self.depart(now);
        if !self.has_left {
            self.out.extend(self.queue.read_back().map(SupervisorOutput::ReadBack));
        }
        if !self.has_left && !self.calls.is_under_way && self.call_due() <= now {
            self.call(now);
        }
        std::mem::take(&mut self.out)
    }

    /// When [`Supervisor::step`] is to be called again without an input.
    pub fn due(&self) -> Elapsed {
        let call = match self.calls.is_under_way {
            true => {
                self.money_ends().filter(|_| self.leaving.is_none()).map_or(Elapsed(u64::MAX), |ends| after(ends, 1))
            }
            false => self.call_due(),
        };
        match &self.leaving {
            Some(leaving) if self.attempt.is_none() => call.min(leaving.until),
            _ => call,
        }
    }

    fn answered(&mut self, reply: HeartbeatReply, now: Elapsed) {
        self.calls.is_under_way = false;
        self.calls.failures = 0;
        if now.0.saturating_sub(self.calls.last.0) <= FAST {
            self.calls.halved = self.calls.halved.saturating_sub(1);
        }
        self.calls.next = after(now, reply.next.micros());
        let (length, saving) = (Elapsed(reply.lease.micros()), reply.saving.map(|time| Elapsed(time.micros())));
        self.lease = Lease { last_answer: now, length, is_refused: false, saving };
        let note = self.queue.acknowledge(reply.acknowledged, reply.measured.unwrap_or(reply.acknowledged));
        if let Some(entry) = note {
            self.out.push(SupervisorOutput::Write(entry));
        }
        if self.queue.is_decided() {
            self.out.push(SupervisorOutput::Forget { before: self.queue.oldest() });
        }
        for order in reply.orders {
            match order {
                AgentCommand::Start(start) | AgentCommand::Prepare(start) => self.start(start),
                AgentCommand::Go { attempt, nodes } => self.go(&attempt, nodes),
                AgentCommand::Stop { attempt, is_node_lost, within } => {
                    let why = if is_node_lost { StopReason::NodeLost } else { StopReason::Stop };
                    self.stop(attempt, why, within.map(|time| Elapsed(time.micros())));
                }
                AgentCommand::Leave => self.leave(Departure::Ordered, StopReason::Leave, now),
            }
        }
    }

    fn unanswered(&mut self, now: Elapsed) {
        self.calls.is_under_way = false;
        self.reclaim = self.reclaim.map(|reclaim| Reclaim { is_told: false, ..reclaim });
        let wait = RETRY.saturating_mul(1 << self.calls.failures.min(10)).min(RETRY_AT_MOST);
        self.calls.failures += 1;
        self.calls.halved = (self.calls.halved + 1).min(HALVED_AT_MOST);
        self.calls.not_before = after(now, wait);
        self.lease.is_refused |= now > self.lease.ends();
    }

    /// The attempt saves its state now: the loop learns of it with the next call, and resumes elsewhere.
    fn noticed(&mut self, left: Elapsed, now: Elapsed) {
        let at = after(now, left.0);
        if self.reclaim.is_some_and(|known| known.at <= at) {
            return;
        }
        self.reclaim = Some(Reclaim { at, is_told: false });
        if self.attempt.is_some() {
            self.out.push(SupervisorOutput::End { why: StopReason::Reclaim, within: Some(left) });
        }
    }

    fn start(&mut self, start: Box<Start>) {
        // Nothing is started on a machine that will be reclaimed, even if the loop does not know yet.
        if self.leaving.is_some() || self.reclaim.is_some() {
            return;
        }
        if self.begun.contains_key(&start.attempt) {
            return self.tell_again(&start.attempt, start.member);
        }
        if self.attempt.is_some() {
            // The order is repeated, and finds the machine free once the older attempt has ended.
            return self.replace();
        }
        self.begun.insert(start.attempt.clone(), None);
        (self.attempt, self.place) = (Some(start.attempt.clone()), start.member);
        (self.address, self.nodes) = (None, None);
        self.out.push(SupervisorOutput::Begin(start));
    }

    /// The loop has lost earlier reports: its log may have been restored from a backup.
    fn tell_again(&mut self, attempt: &AttemptId, place: Option<NodeRank>) {
        if !self.queue.is_decided() {
            return;
        }
        if let Some(Some(end)) = self.begun.get(attempt).cloned() {
            self.push(attempt, AgentEvent::Ended { end });
        } else if self.attempt.as_ref() == Some(attempt) && self.place != place {
            // After the backup it was decided anew, on other machines: what the loop waits for would never come.
            self.replace();
        } else if let (Some(_), Some(address)) = (place, self.address.clone()) {
            self.push(attempt, AgentEvent::Prepared { address });
        }
    }

    /// What runs here is not what the loop wants here.
    fn replace(&mut self) {
        self.out.push(SupervisorOutput::End { why: StopReason::Replaced, within: None });
    }

    fn happened(&mut self, attempt: &AttemptId, event: AgentEvent) {
        if let AgentEvent::Prepared { address } = &event {
            self.address = Some(address.clone());
        }
        self.push(attempt, event);
    }

    fn go(&mut self, attempt: &AttemptId, nodes: Vec<NodeAddress>) {
        if self.leaving.is_some() {
            return;
        }
        if self.attempt.as_ref() != Some(attempt) {
            return self.tell_again(attempt, None);
        }
        // Its ranks would wait for machines that the loop does not know of any more.
        if self.nodes.as_ref().is_some_and(|started| *started != nodes) {
            return self.replace();
        }
        self.nodes.get_or_insert_with(|| nodes.clone());
        self.out.push(SupervisorOutput::Go { nodes });
    }

    fn stop(&mut self, id: AttemptId, why: StopReason, within: Option<Elapsed>) {
        if self.attempt.as_ref() == Some(&id) {
            self.out.push(SupervisorOutput::End { why, within });
            return;
        }
        // Stopped before its start was ordered: it will not be started, and the loop waits for its end.
        let end = self.begun.entry(id.clone()).or_insert(Some(AttemptEnd::Stopped { step: None }));
        if let Some(end) = end.clone().filter(|_| self.queue.is_decided()) {
            self.push(&id, AgentEvent::Ended { end });
        }
    }

    fn ended(&mut self, id: &AttemptId, end: AttemptEnd, now: Elapsed) {
        if self.attempt.as_ref() != Some(id) {
            return;
        }
        self.begun.insert(id.clone(), Some(end.clone()));
        self.push(id, AgentEvent::Ended { end });
        self.attempt = None;
        if let Some(leaving) = &mut self.leaving {
            leaving.until = after(now, LAST_CALL);
        }
    }

    fn leave(&mut self, departure: Departure, why: StopReason, now: Elapsed) {
        // An order to leave overtakes a slow departure; nothing else restarts it.
        let before = self.leaving.as_ref().map(|leaving| leaving.departure);
        if before == Some(Departure::Ordered) || (before.is_some() && departure != Departure::Ordered) {
            return;
        }
        self.leaving = Some(Leaving { departure, until: after(now, LAST_CALL) });
        if self.attempt.is_some() {
            let within = self.lease.saving.filter(|_| why == StopReason::LeaseOver);
            self.out.push(SupervisorOutput::End { why, within });
        }
    }

    fn depart(&mut self, now: Elapsed) {
        let Some(leaving) = self.leaving.as_ref().filter(|_| self.attempt.is_none() && !self.has_left) else { return };
        let has_reported_all = match leaving.departure {
            // The loop has given up the work here.
            Departure::Ordered | Departure::Attended | Departure::Spent => true,
            Departure::LeaseOver | Departure::Signalled => self.queue.is_empty() || now >= leaving.until,
        };
        if has_reported_all {
            self.has_left = true;
            self.out.push(SupervisorOutput::Leave(leaving.departure));
        }
    }

    fn push(&mut self, attempt: &AttemptId, event: AgentEvent) {
        let entry = self.queue.push(attempt, event);
        self.out.push(SupervisorOutput::Write(entry));
    }

    fn call(&mut self, now: Elapsed) {
        self.calls.is_under_way = true;
        self.calls.last = now;
        self.out.push(SupervisorOutput::Call(Heartbeat {
            schema: wire::SCHEMA,
            instance: self.instance.clone(),
            started: self.started,
            elapsed: now,
            entries: self.queue.send(BATCH >> self.calls.halved),
            incarnation: self.incarnation,
            attempt: self.attempt.clone().filter(|_| self.place.is_none()),
            reclaim: self.reclaim.map(|reclaim| Duration::from_micros(reclaim.at.0.saturating_sub(now.0))),
        }));
        self.reclaim = self.reclaim.map(|reclaim| Reclaim { is_told: true, ..reclaim });
    }

    /// When the next call is to be made, if none is in flight.
    fn call_due(&self) -> Elapsed {
        let is_news = self.reclaim.is_some_and(|reclaim| !reclaim.is_told);
        // Measurements wait for the next call while steps are made, as long as one call carries them.
        let is_over = self.attempt.is_none() || self.leaving.is_some();
        let is_behind = !self.queue.is_decided() || self.queue.ready() >= BATCH / 2 || is_over;
        let wanted = match self.queue.is_urgent() || is_news {
            true => Elapsed(0),
            false if is_behind && self.queue.can_send() && !self.queue.is_refused() => after(self.calls.last, GAP),
            false => self.calls.next,
        };
        wanted.min(self.lease.ends()).max(self.calls.not_before)
    }
}
