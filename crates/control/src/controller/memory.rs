//! State of a controller besides its world. It may be lost in a crash, and is recovered by queries.

use std::collections::{BTreeMap, BTreeSet};

use domain::rental::{MachineHandle, ProviderTraits};
use domain::run::{InstanceState, Sight, Usage};
use domain::{Elapsed, InstanceId};

use super::{CallId, Controller};

/// A call to a provider that was not answered yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pending {
    Launch { instance: InstanceId, sent: Elapsed },
    Observe { provider: String, sent: Elapsed, asked: Vec<InstanceId> },
    End { instances: Vec<InstanceId> },
    LastEvents { instance: InstanceId },
}

/// The state of one machine that is not released.
#[derive(Debug, Clone)]
pub(super) struct MachineMemory {
    /// Since when it is waited for, in time awake.
    pub since: Elapsed,
    /// Age of its token when this controller first knew of it, and that time, on the monotonic clock.
    pub token: (Elapsed, Elapsed),
    pub heard: Option<Heard>,
    pub launch: LaunchMemory,
    /// The result of its provider's newest view.
    pub sight: Option<Sight>,
    /// When the first and the newest of the consecutive views that missed it were taken.
    pub missing: Option<(Elapsed, Elapsed)>,
    /// When the newest view that showed it was taken.
    pub looked: Elapsed,
    /// Every machine that was seen with its name: more than one where the provider has rented twice.
    pub machines: BTreeMap<MachineHandle, Option<Usage>>,
    pub end: EndMemory,
    pub last_events: LastEvents,
    /// Whether its provider has it as one about which a query may have a new result soon; `None` if it does not have it.
    pub noted: Option<bool>,
}

/// The newest call of an agent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heard {
    /// When, in time awake.
    pub awake: Elapsed,
    /// When, on the monotonic clock.
    pub at: Elapsed,
    /// Rented time.
    pub rent: Elapsed,
}

/// Requests for a machine. Times are on the monotonic clock.
#[derive(Debug, Clone, Default)]
pub(super) struct LaunchMemory {
    pub pending: Option<CallId>,
    /// Requests with unknown outcome.
    pub requests: u32,
    /// When the last one was answered, or should have been.
    pub last: Elapsed,
    /// Until when a request may still rent a machine.
    pub effective_until: Elapsed,
    /// Earliest time of the next request, because the provider throttles.
    pub not_before: Elapsed,
}

#[derive(Debug, Clone, Default)]
pub(super) struct EndMemory {
    pub is_pending: bool,
    /// When it was first and last requested.
    pub first: Option<Elapsed>,
    pub last: Option<Elapsed>,
    /// Requests in succession that failed or were refused.
    pub failures: u32,
    /// Requests in succession that were accepted.
    pub accepted: u32,
}

/// Between two requests to end the same machine, at least, in microseconds.
const END_AGAIN: u64 = 200_000;

impl EndMemory {
    /// When it is asked for again; none before the first request. The wait doubles with each request that fails, and after
    /// each that is accepted but the first, up to `most`: a machine needs a minute to end, and hundreds of them share the
    /// rate limit of an API.
    pub fn due(&self, every: Elapsed, most: Elapsed) -> Option<Elapsed> {
        let every = every.0.max(END_AGAIN);
        let doublings = self.failures.max(self.accepted.saturating_sub(1)).min(10);
        let wait = every.saturating_mul(1 << doublings).min(most.0.max(every));
        self.last.map(|last| Elapsed(last.0.saturating_add(wait)))
    }
}

/// Whether the last events of the agent of a machine that is gone were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastEvents {
    Unread { tries: u32, not_before: Elapsed },
    Asked { tries: u32 },
    Read,
}

impl LastEvents {
    /// Not requested yet, or requested before a machine of this name was alive again, which may write more.
    pub(super) const UNREAD: LastEvents = LastEvents::Unread { tries: 0, not_before: Elapsed(0) };
}

#[derive(Debug)]
pub(super) struct ProviderMemory {
    pub traits: ProviderTraits,
    pub is_observing: bool,
    pub last_observed: Option<Elapsed>,
    /// Failures in succession.
    pub failures: u32,
    /// Machines that are rented from it.
    pub rented: BTreeSet<InstanceId>,
    /// Those about which a query may have a new result soon.
    pub changing: BTreeSet<InstanceId>,
    /// Unknown machines: when each was first seen.
    pub strangers: BTreeMap<MachineHandle, Stranger>,
}

/// A machine with our tag that is not, or not any more, in the world.
#[derive(Debug)]
pub(super) struct Stranger {
    pub instance: InstanceId,
    pub since: Elapsed,
    pub asked: Option<Elapsed>,
}

/// The state of a run.
#[derive(Debug)]
pub(super) struct RunMemory {
    /// A count that changes when something happens to the run.
    pub marks: u64,
    /// Since when the count has not changed.
    pub since: Elapsed,
    /// Since when no process waits for it.
    pub alone: Option<Elapsed>,
}

/// The steps of an attempt on several machines, since this controller knows of it.
#[derive(Debug, Default)]
pub(super) struct AttemptPace {
    /// The newest report of each machine.
    seen: BTreeMap<InstanceId, u64>,
    pub times: plan::StepTimes,
}

impl AttemptPace {
    /// Takes in a step, unless a report as new was handled before; returns whether it did.
    pub fn is_new(&mut self, id: &InstanceId, seq: u64, step: &domain::rank::Step) -> bool {
        let seen = self.seen.entry(id.clone()).or_default();
        let is_new = seq > *seen;
        if is_new {
            *seen = seq;
            self.times.add(id, step);
        }
        is_new
    }
}

/// An agent that calls and that the log does not know.
#[derive(Debug)]
pub(super) struct UnknownAgent {
    pub since: Elapsed,
    pub last: Elapsed,
}

impl ProviderMemory {
    pub(super) fn new(traits: ProviderTraits) -> ProviderMemory {
        ProviderMemory {
            traits,
            is_observing: false,
            last_observed: None,
            failures: 0,
            rented: BTreeSet::new(),
            changing: BTreeSet::new(),
            strangers: BTreeMap::new(),
        }
    }
}

impl MachineMemory {
    /// A machine that is known from now on; its token is of this age.
    pub fn new(awake: Elapsed, age: Elapsed, now: Elapsed) -> MachineMemory {
        MachineMemory {
            since: awake,
            token: (age, now),
            heard: None,
            launch: LaunchMemory::default(),
            sight: None,
            missing: None,
            looked: Elapsed(0),
            machines: BTreeMap::new(),
            end: EndMemory::default(),
            last_events: LastEvents::UNREAD,
            noted: None,
        }
    }
}

impl Controller {
    /// Conclusions from answers may have been undone: last events are read again, and whether a machine was rented is
    /// uncertain again.
    pub(super) fn doubt_answers(&mut self) {
        for (id, memory) in &mut self.machines {
            if memory.last_events == LastEvents::Read {
                memory.last_events = LastEvents::UNREAD;
            }
            let is_intended =
                self.world.instances.get(id).is_some_and(|instance| instance.state == InstanceState::Intended);
            if is_intended && memory.launch.pending.is_none() {
                memory.launch.requests = memory.launch.requests.max(1);
            }
        }
    }

    /// The machine of its request that stands for all of them: the first that has not ended.
    pub(super) fn remembered(&self, id: InstanceId) -> InstanceId {
        let mut members = plan::members(&self.world, &id).into_iter();
        members.find(|member| self.machines.contains_key(member)).unwrap_or(id)
    }

    /// What is known of a request is known of all machines that it rents.
    pub(super) fn share_launch(&mut self, id: &InstanceId) {
        let Some(launch) = self.machines.get(id).map(|memory| memory.launch.clone()) else { return };
        for member in plan::members(&self.world, id).iter().filter(|member| *member != id) {
            if let Some(memory) = self.machines.get_mut(member) {
                memory.launch = launch.clone();
            }
        }
    }

    /// Forgets a call that was never made.
    pub(super) fn forget_call(&mut self, id: CallId) {
        match self.pending.remove(&id) {
            None => {}
            Some(Pending::Launch { instance, .. }) => {
                let known = self.remembered(instance);
                if let Some(memory) = self.machines.get_mut(&known) {
                    memory.launch.pending = None;
                }
                self.share_launch(&known);
            }
            Some(Pending::Observe { provider, .. }) => {
                if let Some(provider) = self.providers.get_mut(&provider) {
                    (provider.is_observing, provider.last_observed) = (false, None);
                }
            }
            Some(Pending::End { instances }) => {
                for instance in instances {
                    if let Some(memory) = self.machines.get_mut(&instance) {
                        memory.end.is_pending = false;
                    }
                }
            }
            Some(Pending::LastEvents { instance }) => {
                if let Some(memory) = self.machines.get_mut(&instance) {
                    memory.last_events = LastEvents::UNREAD;
                }
            }
        }
    }

    /// Takes back what was seen and heard of machines whose release was not written down after all: when they were heard
    /// last decides what they are billed. Calls about them may have been answered meanwhile, so nothing is taken back of
    /// those.
    pub(super) fn take_back_released(&mut self) {
        for (_, id, old) in std::mem::take(&mut self.released) {
            let Some(memory) = self.machines.get_mut(&id) else { continue };
            (memory.since, memory.token, memory.heard) = (old.since, old.token, old.heard);
            (memory.sight, memory.missing, memory.looked) = (old.sight, old.missing, old.looked);
            memory.machines = old.machines;
            memory.end.first = old.end.first;
        }
    }

    /// Adds the machines of the log that this controller has not launched itself. Whether their launch was requested is
    /// unknown, so an earlier request may still have its effect.
    pub(super) fn remember_machines(&mut self) {
        for (id, instance) in self.world.live_instances() {
            if self.machines.contains_key(id) {
                continue;
            }
            let now = self.now.monotonic;
            let mut memory = MachineMemory::new(self.awake, self.now.wall.since(instance.intended), now);
            let provider = self.providers.get(&instance.offer.provider);
            if let Some(provider) = provider.filter(|_| self.policy.doubts_earlier_calls) {
                memory.launch.effective_until = Elapsed(now.0.saturating_add(provider.traits.effective_within.0));
                let asks_blindly = provider.traits.token_lifetime.is_none();
                memory.launch.requests = u32::from(asks_blindly && instance.state == InstanceState::Intended);
            }
            memory.launch.last = now;
            self.machines.insert(id.clone(), memory);
        }
        let live: std::collections::BTreeSet<&InstanceId> = self.world.live_instances().map(|(id, _)| id).collect();
        self.machines.retain(|id, _| live.contains(id));
    }
}
