//! What a controller remembers besides its world. All of it may be lost in a crash, and is found again by asking.

use std::collections::{BTreeMap, BTreeSet};

use domain::rental::{MachineHandle, ProviderTraits};
use domain::run::{InstanceState, Sight, Usage};
use domain::{Elapsed, InstanceId};

use super::{CallId, Controller};

/// What was asked of a provider and not answered yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pending {
    Launch { instance: InstanceId, sent: Elapsed },
    Observe { provider: String, sent: Elapsed, asked: Vec<InstanceId> },
    End { instances: Vec<InstanceId> },
    LastEvents { instance: InstanceId },
}

/// What is known of one machine that is not released.
#[derive(Debug)]
pub(super) struct MachineMemory {
    /// Since when it is waited for, in time awake.
    pub since: Elapsed,
    /// How old its token was when this controller first knew of it, and when that was, on the monotonic clock.
    pub token: (Elapsed, Elapsed),
    pub heard: Option<Heard>,
    pub launch: LaunchMemory,
    /// What the newest view of its provider showed.
    pub sight: Option<Sight>,
    /// The first and the newest of the views in succession that missed it: when they were taken.
    pub missing: Option<(Elapsed, Elapsed)>,
    /// When the newest view that showed it was taken.
    pub looked: Elapsed,
    /// Every machine that was seen with its name: more than one where the provider has rented twice.
    pub machines: BTreeMap<MachineHandle, Option<Usage>>,
    pub end: EndMemory,
    pub last_events: LastEvents,
}

/// The newest call of an agent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heard {
    /// When, in time awake.
    pub awake: Elapsed,
    /// When, on the monotonic clock.
    pub at: Elapsed,
    /// Rent so far.
    pub rent: Elapsed,
}

/// Requests for a machine. Times are on the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct LaunchMemory {
    pub pending: Option<CallId>,
    /// Requests of which it is not known what became of them.
    pub requests: u32,
    /// When the last one was answered, or should have been.
    pub last: Elapsed,
    /// Until when a request may still rent a machine.
    pub effective_until: Elapsed,
    /// Not before this, because the provider has asked for patience.
    pub not_before: Elapsed,
}

#[derive(Debug, Default)]
pub(super) struct EndMemory {
    pub is_pending: bool,
    /// When it was first and last asked for.
    pub first: Option<Elapsed>,
    pub last: Option<Elapsed>,
    /// Requests in succession that failed or were refused.
    pub failures: u32,
}

/// Between two requests to end the same machine, at least, in microseconds.
const END_AGAIN: u64 = 200_000;

/// The longest wait between two requests that fail, in microseconds.
const END_AT_MOST: u64 = 60_000_000;

impl EndMemory {
    /// When it is asked for again; none before the first request. The wait doubles while requests fail.
    pub fn due(&self, every: Elapsed) -> Option<Elapsed> {
        let every = every.0.max(END_AGAIN);
        let wait = every.saturating_mul(1 << self.failures.min(10)).min(END_AT_MOST.max(every));
        self.last.map(|last| Elapsed(last.0.saturating_add(wait)))
    }
}

/// Whether what the agent of a machine that is gone has left behind was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastEvents {
    Unread { tries: u32, not_before: Elapsed },
    Asked { tries: u32 },
    Read,
}

impl LastEvents {
    /// Not asked for yet, or asked for before a machine of this name was alive again: it may write more.
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
    /// Those of them of which a look may tell something new soon.
    pub changing: BTreeSet<InstanceId>,
    /// Machines that nobody here knows: when each was first seen.
    pub strangers: BTreeMap<MachineHandle, Stranger>,
}

/// A machine with our tag that is not, or not any more, in the world.
#[derive(Debug)]
pub(super) struct Stranger {
    pub instance: InstanceId,
    pub since: Elapsed,
    pub asked: Option<Elapsed>,
}

/// What is known of a run.
#[derive(Debug)]
pub(super) struct RunMemory {
    /// A count that changes when something happens to the run.
    pub marks: u64,
    /// Since when the count has not changed.
    pub since: Elapsed,
    /// Since when nobody waits for it.
    pub alone: Option<Elapsed>,
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
        }
    }
}

impl Controller {
    /// What followed from answers may have been undone: what was read is read again, and whether a machine was rented is
    /// in doubt again.
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

    /// A call was never made.
    pub(super) fn forget_call(&mut self, id: CallId) {
        match self.pending.remove(&id) {
            None => {}
            Some(Pending::Launch { instance, .. }) => {
                if let Some(memory) = self.machines.get_mut(&instance) {
                    memory.launch.pending = None;
                }
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

    /// Takes up the machines of the log that this controller has not launched itself. Whether their launch was asked
    /// for is not known, so a request of before may have its effect still.
    pub(super) fn remember_machines(&mut self) {
        for (id, instance) in self.world.live_instances() {
            if self.machines.contains_key(id) {
                continue;
            }
            let now = self.now.monotonic;
            let mut memory = MachineMemory::new(self.awake, self.now.wall.since(instance.intended), now);
            if let Some(provider) = self.providers.get(&instance.offer.provider) {
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
