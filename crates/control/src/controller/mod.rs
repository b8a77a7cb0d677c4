//! The control loop as a pure state machine.
//!
//! [`Controller::step`] takes one input and the time, and returns outputs. It applies events to its world at once and
//! outputs them to be appended; outputs that depend on them (a call to a provider, a reply to an agent or a user) are
//! held until [`ControllerInput::Durable`] covers these events. So a crash at any point loses only what was not
//! reported to anyone. Its state besides the world ([`memory`]) may be lost too: it is recovered by queries.
//!
//! Its world holds unfinished work. A run or sweep that is settled, also on disk, leaves it; when an input concerns
//! such a one, the shell restores it first ([`ControllerInput::Recalled`]).
//!
//! `message` has what goes in and out, `hear` handles heartbeats, `answer` answers of providers, `act` and `rent` carry out
//! what `plan::reconcile` decides, `facts` collects its inputs, `due` computes the next wake-up, and `mistake` handles
//! illegal decisions.

mod act;
mod answer;
mod dirty;
mod due;
mod facts;
mod hear;
mod memory;
mod message;
mod mistake;
mod note;
mod observe;
mod rent;
mod shortage;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use domain::rental::ProviderTraits;
use domain::{AttemptId, Elapsed, Event, InstanceId, Record, RunId};
use plan::{Illegal, Policy, World};

use dirty::Dirty;
use memory::{AttemptPace, MachineMemory, Pending, ProviderMemory, RunMemory, UnknownAgent};
use mistake::Mistakes;
use note::Notes;
use shortage::Shortages;

pub use message::{CallId, ControllerInput, ControllerOutput, Now, ReplyId, ReplyToAgent, WatchedWork};
pub use note::OperationNote;

/// The events of other processes cannot follow the known history: the log is damaged.
pub type Mistake = Illegal;

/// The control loop's state.
#[derive(Debug)]
pub struct Controller {
    world: World,
    policy: Policy,
    owner: String,
    providers: BTreeMap<String, ProviderMemory>,
    /// The traits of all of them.
    traits: Arc<BTreeMap<String, ProviderTraits>>,
    machines: BTreeMap<InstanceId, MachineMemory>,
    /// What is known of machines that are gone or were never rented, by the event that records it: until that is durable.
    released: VecDeque<(u64, InstanceId, MachineMemory)>,
    runs: BTreeMap<RunId, RunMemory>,
    paces: BTreeMap<AttemptId, AttemptPace>,
    unknown: BTreeMap<InstanceId, UnknownAgent>,
    watched: WatchedWork,
    pending: BTreeMap<CallId, Pending>,
    last_call: u64,
    now: Now,
    /// Time during which this process could act: the monotonic clock minus suspensions.
    awake: Elapsed,
    wake: Elapsed,
    durable: u64,
    new: Vec<Record>,
    held: VecDeque<(u64, ControllerOutput)>,
    notes: Notes,
    /// What was refused lately.
    shortages: Shortages,
    /// Runs and sweeps about which something was decided that cannot be.
    mistakes: Mistakes,
    out: Vec<ControllerOutput>,
    /// The scope of the next decision.
    dirty: Dirty,
    /// Whether something has changed that a decision rests on.
    is_changed: bool,
    /// Whether something has changed that only the time of the next step rests on.
    is_due_changed: bool,
}

/// Waking this much later than scheduled means that the machine was suspended, not that agents were silent.
const OVERSLEPT: u64 = 1_000_000;

/// Maximum rounds of decisions in one step. More means that the rules do not converge: a sweep begins its trials one by one,
/// up to 1,024 of them.
const PASSES: usize = 2_000;

impl Controller {
    /// Creates a controller for a world replayed from the log, all of which is durable, with its providers.
    pub fn new(
        mut world: World,
        owner: &str,
        providers: impl IntoIterator<Item = (String, ProviderTraits)>,
        policy: Policy,
        now: Now,
    ) -> Controller {
        world.find_open();
        let traits: BTreeMap<String, ProviderTraits> = providers.into_iter().collect();
        let providers = traits.iter().map(|(name, traits)| (name.clone(), ProviderMemory::new(*traits))).collect();
        let mut controller = Controller {
            durable: world.last_seq,
            policy,
            world,
            owner: owner.to_owned(),
            providers,
            traits: traits.into(),
            machines: BTreeMap::new(),
            released: VecDeque::new(),
            runs: BTreeMap::new(),
            paces: BTreeMap::new(),
            unknown: BTreeMap::new(),
            watched: WatchedWork::default(),
            pending: BTreeMap::new(),
            last_call: 0,
            now,
            awake: Elapsed(0),
            wake: now.monotonic,
            new: Vec::new(),
            held: VecDeque::new(),
            notes: Notes::default(),
            shortages: Shortages::default(),
            mistakes: Mistakes::default(),
            out: Vec::new(),
            dirty: Dirty::default(),
            is_changed: true,
            is_due_changed: true,
        };
        controller.touch_all();
        controller.remember_machines();
        controller
    }

    /// The unfinished work as it is known.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Its policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Takes the world out again.
    pub fn into_world(self) -> World {
        self.world
    }

    /// Another process has appended first: starts over from the world on disk. Held outputs are discarded; observations
    /// are kept.
    pub fn restart(&mut self, mut world: World) {
        world.find_open();
        self.durable = world.last_seq;
        self.world = world;
        for (_, output) in std::mem::take(&mut self.held) {
            if let ControllerOutput::Call { id, .. } = output {
                self.forget_call(id);
            }
        }
        self.new.clear();
        self.out.clear();
        self.remember_machines();
        self.take_back_released();
        self.doubt_answers();
        for provider in self.providers.values_mut() {
            provider.rented.clear();
            provider.changing.clear();
        }
        self.machines.values_mut().for_each(|memory| memory.noted = None);
        self.touch_all();
    }

    /// Takes in what providers promise now: nodes are added and drained while this runs.
    pub fn set_traits<'a>(&mut self, traits: impl IntoIterator<Item = (&'a str, ProviderTraits)>) {
        for (name, traits) in traits {
            if let Some(provider) = self.providers.get_mut(name)
                && provider.traits != traits
            {
                provider.traits = traits;
                Arc::make_mut(&mut self.traits).insert(name.to_owned(), traits);
                self.touch_all();
            }
        }
    }

    /// Handles one input at a time not before the last one.
    ///
    /// # Errors
    /// [`Mistake`] if the events of another process cannot follow the known history.
    pub fn step(&mut self, input: ControllerInput, now: Now) -> Result<Vec<ControllerOutput>, Mistake> {
        self.pass_time(now);
        let is_audit = matches!(input, ControllerInput::Audit);
        let is_recall = matches!(input, ControllerInput::Recalled(_));
        match input {
            ControllerInput::Heartbeat { from, heartbeat } => self.hear(from, &heartbeat),
            ControllerInput::Request { from, event } => self.request(from, *event),
            ControllerInput::Answered { call, answer, details } => self.answered(call, answer, &details),
            ControllerInput::Durable { seq } => self.durable = self.durable.max(seq),
            ControllerInput::Appended { records, recalled } => self.appended(&records, *recalled)?,
            ControllerInput::Recalled(part) => self.world.merge(*part),
            ControllerInput::Watched(watched) => {
                self.touch_watched(&watched);
                self.watched = watched;
                self.note_keeper();
            }
            ControllerInput::Timer => self.is_changed |= now.monotonic >= self.wake,
            ControllerInput::Audit => {}
        }
        if is_audit {
            self.audit();
        }
        self.set_heartbeat_interval();
        if self.is_changed {
            self.settle();
            self.is_due_changed = true;
        }
        if std::mem::take(&mut self.is_due_changed) {
            self.schedule();
        }
        let outputs = self.flush();
        // Work that is settled on disk is no longer needed here, unless the next input concerns it.
        if !is_recall && self.durable >= self.world.last_seq {
            self.world.evict_settled(&BTreeSet::new());
        }
        Ok(outputs)
    }

    fn pass_time(&mut self, now: Now) {
        let passed = now.monotonic.0.saturating_sub(self.now.monotonic.0);
        let asked = self.wake.0.saturating_sub(self.now.monotonic.0);
        self.awake.0 += passed.min(asked.saturating_add(OVERSLEPT));
        let is_set = Controller::is_clock_set(self.now, now);
        self.now = now;
        self.touch_due(is_set);
    }

    fn request(&mut self, from: ReplyId, event: Event) {
        let work = self.world.work_of(&event);
        let result = self.append(event).map(|()| self.world.last_seq);
        if result.is_ok() {
            self.note_keeper();
        }
        if let (Ok(_), Some(work)) = (&result, work) {
            self.retry(&work);
        }
        self.hold(ControllerOutput::Taken { to: from, result });
    }

    /// Writes down who keeps the runs going that are waited for, where that is somebody else than before.
    fn note_keeper(&mut self) {
        let keeper = self.watched.keeper;
        let open = self.world.open_runs().filter(|(_, run)| !run.state.is_final() && run.keeper != keeper);
        let taken: Vec<RunId> = open.map(|(id, _)| id.clone()).filter(|id| self.is_watched(id)).collect();
        taken.into_iter().for_each(|run| self.must(Event::KeeperChanged { run, keeper }));
    }

    fn appended(&mut self, records: &[Record], recalled: World) -> Result<(), Mistake> {
        self.world.catch_up(records, recalled)?;
        self.durable = self.durable.max(self.world.last_seq);
        for record in records {
            self.touch(&record.event);
            if let Some(work) = self.world.work_of(&record.event) {
                self.retry(&work);
                self.touch_work(work);
            }
        }
        self.note_keeper();
        Ok(())
    }

    /// Applies an event and outputs it to be appended.
    fn append(&mut self, event: Event) -> Result<(), Illegal> {
        self.try_append(event).map_err(|refused| refused.1)
    }

    /// The same; an event that cannot follow is given back.
    fn try_append(&mut self, event: Event) -> Result<(), Box<(Event, Illegal)>> {
        let record = Record { seq: self.world.last_seq + 1, at: self.now.wall, event };
        if let Err(illegal) = self.world.apply(&record) {
            return Err(Box::new((record.event, illegal)));
        }
        self.touch(&record.event);
        self.new.push(record);
        Ok(())
    }

    /// Outputs what depends on the events up to now, once they are durable.
    fn hold(&mut self, output: ControllerOutput) {
        self.held.push_back((self.world.last_seq, output));
    }

    fn flush(&mut self) -> Vec<ControllerOutput> {
        let mut out = Vec::new();
        if !self.new.is_empty() {
            out.push(ControllerOutput::Append(std::mem::take(&mut self.new)));
        }
        while self.held.front().is_some_and(|(after, _)| *after <= self.durable) {
            out.extend(self.held.pop_front().map(|(_, output)| output));
        }
        while self.released.front().is_some_and(|(seq, ..)| *seq <= self.durable) {
            self.released.pop_front();
        }
        out.append(&mut self.out);
        out
    }
}
