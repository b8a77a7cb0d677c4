//! One schedule: everything that happens, in virtual time.

mod exchange;

use std::collections::{BTreeMap, BTreeSet};

use control::{ControllerInput, ReplyId};
use domain::random::{Draws, key};
use domain::rental::{MachineHandle, ProviderAnswer, ProviderCall};
use domain::wire::{Heartbeat, HeartbeatReply};
use domain::{AttemptId, Cause, Elapsed, InstanceId, Money, RunId, Timestamp};

pub(crate) use exchange::is_submission;

use crate::cloud::Cloud;
use crate::job::rate;
use crate::job::schedule::SCHEDULE;
use crate::job::sweep::SWEEP;
use crate::loop_process::{LoopProcess, clocks};
use crate::machine::Store;
use crate::rule::Rule;
use crate::scenario::{SECOND, Scenario};

/// Counts of one schedule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScheduleStats {
    /// Crashes of the loop.
    pub crashes: u64,
    /// Machines that were rented.
    pub machines: u64,
    /// Calls to the provider.
    pub calls: u64,
    /// Events in the log at the end.
    pub events: u64,
    /// Machines that a run has taken over from another one.
    pub taken: u64,
    /// Runs and sweeps that schedules have submitted.
    pub due: u64,
}

impl ScheduleStats {
    /// Adds those of another schedule.
    pub fn add(&mut self, other: &ScheduleStats) {
        self.crashes += other.crashes;
        self.machines += other.machines;
        self.calls += other.calls;
        self.events += other.events;
        self.taken += other.taken;
        self.due += other.due;
    }
}

/// A pending event.
#[derive(Debug)]
pub(crate) enum SimEvent {
    LoopStarts,
    LoopWakes { life: u64 },
    Synced { life: u64, seq: u64 },
    CallArrives { life: u64, id: control::CallId, call: ProviderCall, is_answered: bool },
    AnswerArrives { life: u64, id: control::CallId, answer: ProviderAnswer },
    AgentBoots(MachineHandle),
    AgentTimer { handle: MachineHandle, timer: u64 },
    HeartbeatArrives { handle: MachineHandle, call: u64, heartbeat: Box<Heartbeat> },
    ReplyArrives { handle: MachineHandle, call: u64, reply: Option<Box<HeartbeatReply>> },
    RankWorks { handle: MachineHandle, attempt: AttemptId },
    FollowerLooks { handle: MachineHandle, attempt: AttemptId },
    RankSaved { handle: MachineHandle, attempt: AttemptId, is_saved: bool },
    Reclaimed(MachineHandle),
    MachineFails,
    UserSubmits(RunId),
    KeeperLooks,
    KeeperHasPlanned { life: u64, due: Timestamp, before: Box<plan::ScheduleRecord> },
    Faults,
    Watchdog,
    Calm,
    UserResumes,
}

pub(crate) enum ReplyTo {
    Agent {
        handle: MachineHandle,
        call: u64,
    },
    User(RunId),
    /// The keeper of schedules; with the due time and the run that it has submitted, if it has.
    Keeper(Option<(Timestamp, RunId)>),
}

/// What the keeper of schedules does, and what it has asked for.
#[derive(Debug, Default)]
pub(crate) struct KeeperState {
    /// In which life of the loop, and until when, it waits for an answer.
    pub busy: (u64, u64),
    /// The due times of the runs that it has submitted.
    pub asked: BTreeMap<RunId, Timestamp>,
}

/// The complete simulated world.
pub(crate) struct Simulation {
    pub scenario: Scenario,
    pub rule: Option<Rule>,
    pub draws: Draws,
    pub now: u64,
    pub skew: i64,
    pub order: u64,
    pub queue: BTreeMap<(u64, u64), SimEvent>,
    pub process: LoopProcess,
    pub cloud: Cloud,
    pub stores: BTreeMap<RunId, Store>,
    pub runs: Vec<RunId>,
    pub acknowledged: BTreeSet<RunId>,
    pub budget: Option<Money>,
    pub sweep_budget: Option<Money>,
    /// By what attempts have ended, as drawn.
    pub causes: BTreeMap<AttemptId, Cause>,
    pub replies: BTreeMap<ReplyId, ReplyTo>,
    pub last_reply: u64,
    pub requests: u64,
    pub ended_once: BTreeSet<InstanceId>,
    /// Launches that were refused: no delivery of the same request rents anything.
    pub refused: BTreeSet<(u64, control::CallId)>,
    /// Launches of which a delivery has rented a machine: no other is refused.
    pub rented: BTreeSet<(u64, control::CallId)>,
    pub is_stormy: bool,
    pub is_restored: bool,
    pub violation: Option<String>,
    pub stats: ScheduleStats,
    pub trace: Option<Vec<String>>,
    /// When each machine was asked to be released.
    pub releasing: BTreeMap<InstanceId, u64>,
    /// Times that an agent has died before it had written down what it had decided.
    pub lost_decisions: u32,
    /// Since when each run was seen to have enough machines to start with, though not all.
    pub able_since: BTreeMap<(RunId, usize), u64>,
    /// What is billed for machines that nobody could reach when they were settled.
    pub settled_unseen: BTreeMap<InstanceId, Elapsed>,
    /// When each run has worked last, or something has happened to it.
    pub worked: BTreeMap<RunId, u64>,
    /// When the storm was over.
    pub calm_since: u64,
    /// The tokens of launches that were not answered.
    pub launches: BTreeMap<(u64, control::CallId), String>,
    /// For how long answers that are on their way ask for patience, in microseconds.
    pub throttled: BTreeMap<(u64, control::CallId), u64>,
    /// When the first step was made, and the last one.
    pub worked_from: Option<u64>,
    pub worked_until: u64,
    pub keeper: KeeperState,
    /// Until when a provider wants not to be asked with a token, and which life of the loop it has told.
    pub patience: BTreeMap<String, (u64, u64)>,
}

/// Between two rounds of faults.
pub(crate) const ROUND: u64 = 10 * SECOND;

/// A machine whose agent was not answered for this long ends itself.
pub(crate) const ABANDONED: u64 = 1_800 * SECOND;

impl Simulation {
    pub(crate) fn new(seed: u64, scenario: Scenario, rule: Option<Rule>) -> Simulation {
        let mut draws = Draws::new(key(seed, [2]));
        let runs: Vec<RunId> = (1..=scenario.runs).map(|number| RunId::new(format!("r{number}"))).collect();
        let rate = rate().times(scenario.nodes + scenario.spares);
        let budget = scenario.is_budgeted.then(|| rate.cost(Elapsed((100 + draws.below(400)) * SECOND)));
        let sweep_time = Elapsed((200 + Draws::new(key(seed, [12])).below(1_500)) * SECOND);
        let sweep_budget = scenario.sweep.is_budgeted.then(|| rate.cost(sweep_time));
        let mut simulation = Simulation {
            rule,
            draws,
            now: 0,
            skew: 0,
            order: 0,
            queue: BTreeMap::new(),
            process: LoopProcess::new(),
            cloud: Cloud::default(),
            stores: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            budget,
            sweep_budget,
            causes: BTreeMap::new(),
            replies: BTreeMap::new(),
            last_reply: 0,
            requests: 0,
            ended_once: BTreeSet::new(),
            refused: BTreeSet::new(),
            rented: BTreeSet::new(),
            is_stormy: true,
            is_restored: false,
            violation: None,
            stats: ScheduleStats::default(),
            trace: None,
            releasing: BTreeMap::new(),
            settled_unseen: BTreeMap::new(),
            able_since: BTreeMap::new(),
            lost_decisions: 0,
            worked: BTreeMap::new(),
            calm_since: 0,
            launches: BTreeMap::new(),
            worked_from: None,
            worked_until: 0,
            throttled: BTreeMap::new(),
            patience: BTreeMap::new(),
            keeper: KeeperState::default(),
            runs,
            scenario,
        };
        simulation.begin_schedule();
        simulation
    }

    /// What is bound to happen.
    fn begin_schedule(&mut self) {
        if self.scenario.has_leftover
            && let Some(handle) = self.cloud.hold_leftover(self.scenario.is_leftover_alive)
        {
            self.at(SECOND, SimEvent::AgentBoots(handle));
        }
        self.at(0, SimEvent::LoopStarts);
        let sweep = (self.scenario.sweep.trials > 0).then(|| RunId::new(SWEEP));
        for work in self.runs.clone().into_iter().chain(sweep) {
            let when = self.draws.below(60 * SECOND);
            self.at(when, SimEvent::UserSubmits(work));
        }
        if self.scenario.schedule.every > 0 {
            self.at(SECOND, SimEvent::UserSubmits(RunId::new(SCHEDULE)));
            self.at(SECOND, SimEvent::KeeperLooks);
        }
        self.next_failure();
        self.at(ROUND, SimEvent::Faults);
        self.at(60 * SECOND, SimEvent::Watchdog);
        self.at(self.scenario.storm, SimEvent::Calm);
    }

    /// Written records are synced, unless another process has appended first: then the loop starts over from the log.
    fn sync(&mut self, seq: u64) {
        if !self.process.is_overtaken() {
            self.process.synced(seq);
            if let Err(illegal) = self.process.file() {
                return self.violate(format!("the log cannot be replayed: {illegal}"));
            }
            self.note_able();
            // What was to be synced before the loop started over is not on disk.
            let newest = self.process.disk.last().map_or(0, |record| record.seq);
            return self.deliver(ControllerInput::Durable { seq: seq.min(newest) });
        }
        self.process.unsynced.clear();
        match (self.process.open_world(), &mut self.process.controller) {
            (Ok(world), Some(controller)) => {
                // Replies that were held back are lost.
                controller.restart(world);
                self.deliver(ControllerInput::Timer);
            }
            (Ok(_), None) => {}
            (Err(illegal), _) => self.violate(format!("the log cannot be replayed: {illegal}")),
        }
    }

    /// Advances to the next event; returns false if there is none.
    pub(crate) fn advance(&mut self) -> bool {
        let Some(((time, _), event)) = self.queue.pop_first() else { return false };
        self.now = time;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>12.6} {event:.400?}", time as f64 / 1e6));
        }
        self.happen(event);
        true
    }

    fn happen(&mut self, event: SimEvent) {
        match event {
            SimEvent::LoopStarts => self.start_loop(),
            SimEvent::LoopWakes { life } => {
                let monotonic = clocks(self.now, self.skew, self.rule).monotonic.0;
                if life == self.process.life && monotonic >= self.process.wake {
                    self.deliver(ControllerInput::Timer);
                }
            }
            SimEvent::Synced { life, seq } => {
                if life == self.process.life {
                    self.sync(seq);
                }
            }
            SimEvent::CallArrives { life, id, call, is_answered } => self.call_arrives(life, id, &call, is_answered),
            SimEvent::AnswerArrives { life, id, answer } => {
                if life == self.process.life {
                    self.deliver(ControllerInput::Answered { call: id, answer, details: Default::default() });
                }
            }
            SimEvent::AgentBoots(handle) => self.agent_boots(&handle),
            SimEvent::AgentTimer { handle, timer } => self.agent_timer(&handle, timer),
            SimEvent::HeartbeatArrives { handle, call, heartbeat } => self.heartbeat_arrives(handle, call, heartbeat),
            SimEvent::ReplyArrives { handle, call, reply } => self.reply_arrives(&handle, call, reply),
            SimEvent::RankWorks { handle, attempt } => self.rank_works(&handle, &attempt),
            SimEvent::FollowerLooks { handle, attempt } => self.follower_looks(&handle, &attempt),
            SimEvent::Reclaimed(handle) => self.reclaimed(&handle),
            SimEvent::RankSaved { handle, attempt, is_saved } => self.rank_saved(&handle, &attempt, is_saved),
            SimEvent::UserSubmits(run) => self.user_submits(run),
            SimEvent::KeeperLooks => self.keeper_looks(),
            SimEvent::KeeperHasPlanned { life, due, before } => self.keeper_has_planned(life, due, &before),
            SimEvent::MachineFails => self.machine_fails(),
            SimEvent::Faults => self.faults(),
            SimEvent::Watchdog => self.watchdog(),
            SimEvent::Calm => self.calm(),
            SimEvent::UserResumes => self.user_resumes(),
        }
    }

    pub(crate) fn at(&mut self, time: u64, event: SimEvent) {
        self.order += 1;
        self.queue.insert((time.max(self.now), self.order), event);
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.is_stormy && percent > 0 && self.draws.below(100) < percent
    }

    pub(crate) fn delay(&mut self) -> u64 {
        self.draws.below(self.scenario.delay) + 1
    }

    pub(crate) fn wall(&self) -> i64 {
        self.now as i64 + self.skew
    }

    pub(crate) fn violate(&mut self, why: String) {
        self.violation.get_or_insert(why);
    }
}
