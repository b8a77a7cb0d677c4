//! A simulated machine: the cloud's state of it, the agent on it, and the ranks of its attempt.

use control::{QueueMemory, SpoolRange, Supervisor, SupervisorInput, SupervisorOutput};
use domain::wire::{Entry, NodeRank};
use domain::{AttemptId, Elapsed, Fence, InstanceId, Rate, RunId, Timestamp};

/// A machine, from its rent to its end. Times are in microseconds of virtual time.
#[derive(Debug)]
pub(crate) struct Machine {
    pub instance: InstanceId,
    pub rented: u64,
    /// What it costs.
    pub rate: Rate,
    /// From when the cloud lists it.
    pub visible: u64,
    /// When its agent starts; `None` for never.
    pub boots: Option<u64>,
    pub ended: Option<u64>,
    /// How long its agent waits for the first answer.
    pub first_answer: u64,
    pub agent: Option<Supervisor>,
    /// Changes with each agent and each timer, so that old timers are known.
    pub timer: u64,
    /// Number of the newest call, so that a late reply is known.
    pub call: u64,
    /// The decisions in the agent's spool on disk.
    pub spool: Vec<Entry>,
    /// The measurements there.
    pub measured: Vec<Entry>,
    pub rank: Option<Rank>,
    /// The agent hangs forever.
    pub is_frozen: bool,
    /// Until when the network to it is cut.
    pub cut_until: u64,
    /// Until when its provider cannot reach it either.
    pub dark_until: u64,
    /// When its provider reclaims it, if announced.
    pub reclaim: Option<u64>,
    /// When the last call was answered, for the machine's own timer.
    pub renewed: u64,
    /// When an agent was last heard from and answered.
    pub healthy_at: Option<u64>,
    /// The cloud does not list it.
    pub is_unlisted: bool,
    /// Nothing can be read of it once it is gone.
    pub is_disk_lost: bool,
    /// It is on demand beside spot machines: it is never taken back.
    pub is_anchor: bool,
}

/// The ranks of an attempt.
#[derive(Debug)]
pub(crate) struct Rank {
    pub run: RunId,
    pub attempt: AttemptId,
    pub fence: Fence,
    pub step: u64,
    pub is_staged: bool,
    pub is_ending: bool,
    /// Its node rank, if there are several machines.
    pub member: Option<NodeRank>,
    /// Whether it was told that all machines are prepared.
    pub may_run: bool,
    /// Whether the rendezvous is complete.
    pub has_met: bool,
    /// Until when it waits for the others at the meeting.
    pub meets_until: u64,
}

impl Machine {
    pub(crate) fn new(instance: InstanceId, rate: Rate, rented: u64, visible: u64, boots: Option<u64>) -> Machine {
        Machine {
            instance,
            rented,
            rate,
            visible,
            boots,
            ended: None,
            first_answer: FIRST_ANSWER,
            agent: None,
            timer: 0,
            call: 0,
            spool: Vec::new(),
            measured: Vec::new(),
            rank: None,
            is_frozen: false,
            cut_until: 0,
            dark_until: 0,
            reclaim: None,
            renewed: rented,
            healthy_at: None,
            is_unlisted: false,
            is_disk_lost: false,
            is_anchor: false,
        }
    }

    /// It is gone, with everything that ran on it. The cloud keeps its disk.
    pub(crate) fn end(&mut self, now: u64) {
        self.ended.get_or_insert(now);
        self.agent = None;
        self.rank = None;
        self.timer += 1;
    }

    /// The agent process dies, and its ranks with it; the machine still costs money.
    pub(crate) fn lose_agent(&mut self) {
        self.agent = None;
        self.rank = None;
        self.timer += 1;
    }

    /// Starts the agent.
    pub(crate) fn boot(&mut self, now: u64, wall: i64, incarnation: u64) -> Vec<SupervisorOutput> {
        let agent = Supervisor::new(self.instance.clone(), Timestamp(wall), Elapsed(self.first_answer));
        let mut agent = agent.with_incarnation(incarnation).with_memory(MEMORY);
        self.measured.clear();
        self.boots = Some(now);
        self.renewed = now;
        let outputs = agent.step(SupervisorInput::Timer, Elapsed(0));
        self.agent = Some(agent);
        outputs
    }

    /// The measurements in its spool that its agent reads back.
    pub(crate) fn measured_in(&self, range: &SpoolRange) -> Vec<Entry> {
        self.measured.iter().filter(|entry| range.entries.contains(&entry.seq)).cloned().collect()
    }

    /// Time since the agent started.
    pub(crate) fn age(&self, now: u64) -> Elapsed {
        Elapsed(now - self.boots.unwrap_or(now))
    }

    /// For how long it has cost money.
    pub(crate) fn metered(&self, now: u64) -> Elapsed {
        Elapsed(self.ended.unwrap_or(now) - self.rented)
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.ended.is_none()
    }
}

/// Memory of an agent for measurements that wait: so little that it reads some back whenever calls are lost.
const MEMORY: QueueMemory = QueueMemory { entries: 2, bytes: 1 << 20 };

/// How long an agent waits for the first answer.
const FIRST_ANSWER: u64 = 120_000_000;

/// The durable storage of a run, which outlives its machines.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub fence: Option<Fence>,
    /// The attempt that has saved last.
    pub written_by: Option<Fence>,
    step: u64,
    /// When that was saved, and what was durable then.
    saved: (u64, u64),
    pub completions: u32,
    /// The last attempt that has ended, or has saved and stopped: its other machines see that.
    pub closed: Option<Fence>,
}

impl Store {
    /// Takes a state that will be durable after a while.
    pub(crate) fn save(&mut self, step: u64, now: u64, lag: u64) {
        self.saved = (now, self.durable(now, lag));
        self.step = step;
    }

    /// The newest step whose state is durable.
    pub(crate) fn durable(&self, now: u64, lag: u64) -> u64 {
        let (at, before) = self.saved;
        if now >= at + lag { self.step } else { before }
    }
}
