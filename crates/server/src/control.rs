//! The shell around [`control::Controller`]: it has the clock, the log, the socket and the threads, and makes no
//! decisions.
//!
//! Each turn collects inputs (heartbeats, answers of providers, events of other processes, changes in which work is
//! waited for), passes them to the controller, appends the resulting events in one synced transaction, and only then
//! makes calls and sends replies. Starting is the same as recovering: the log is the only state. While the disk has no
//! space for an event, nothing is decided, and only queries are answered ([`space`]).

mod calls;
mod orders;
mod space;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use ::control::{CallId, Controller, ControllerInput, ControllerOutput, Now, OperationNote, ReplyId, WatchedWork};
use cloud::Provider;
use domain::rental::{LaunchDetails, ProviderAnswer};
use domain::run::Keeper;
use domain::wire::{Heartbeat, HeartbeatReply};
use domain::{Elapsed, Event, Record};
use plan::{Illegal, Policy, World};

use crate::clock;
use crate::error::Error;
use crate::home::{Home, StoredKind};
use crate::series::Series;
use crate::state::{Commit, Foreign, Recalled, State};
use calls::ProviderCalls;

/// Everything that can wake the loop.
#[derive(Debug)]
pub enum Wake {
    /// An agent called, and waits for the answer.
    Heartbeat(Box<Heartbeat>, tokio::sync::oneshot::Sender<HeartbeatReply>),
    /// A provider has answered a call.
    Answered(CallId, ProviderAnswer, LaunchDetails),
    /// A user requests an event, and waits until it is durable.
    Request(Box<Event>, tokio::sync::oneshot::Sender<Result<u64, Illegal>>),
    /// A query of the world.
    Question(Question),
    /// The user pressed Ctrl-C, or the process was told to end.
    Interrupt,
}

/// A closure that reads the world between two decisions.
pub struct Question(Box<dyn FnOnce(&World) + Send>);

impl Question {
    /// Creates a query that sends its own answer.
    pub fn new(ask: impl FnOnce(&World) + Send + 'static) -> Question {
        Question(Box::new(ask))
    }
}

impl std::fmt::Debug for Question {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Question")
    }
}

/// Why the loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Its work is done.
    Done,
    /// It was interrupted; agents continue until their lease is over.
    Interrupted,
}

/// Polling interval for events and locks of other processes, which do not wake the loop.
const LOOK: Duration = Duration::from_millis(20);

/// Interval of audits, which check everything although nothing is due.
const AUDIT: Duration = Duration::from_secs(60);

/// How long an agent may continue without an answer before it ends its ranks.
pub const LEASE: domain::Duration = domain::Duration::from_secs(60);

/// The control loop and its environment.
pub struct Control<'a> {
    /// The log. Its world is the controller's while the loop runs.
    pub state: State,
    /// Where measurements and operation notes go.
    pub series: Series,
    /// Where it all stands.
    pub home: &'a Home,
    /// Its policy.
    pub policy: Policy,
    /// Whether this process waits for every run, and not only those that some process waits for.
    pub keeps_all: bool,
    /// What its start could not write for want of disk space: it decides nothing, and is done once there is some.
    pub lacked: Option<String>,
    providers: &'a [Arc<dyn Provider>],
}

/// The loop while it runs.
struct Running<'a, 'b> {
    control: &'b mut Control<'a>,
    controller: Controller,
    calls: ProviderCalls,
    waiting: BTreeMap<ReplyId, Waiting>,
    users: BTreeMap<ReplyId, tokio::sync::oneshot::Sender<Result<u64, Illegal>>>,
    last_reply: u64,
    watched: WatchedWork,
    wake: Elapsed,
    audit: Instant,
    /// When it is tried again whether the log can be written, while the disk is full.
    stalled: Option<Instant>,
    /// When the log of operations was last asked to take what is refused for want of space.
    noted: Instant,
}

/// An agent that waits for a reply.
struct Waiting {
    heartbeat: Box<Heartbeat>,
    reply: tokio::sync::oneshot::Sender<HeartbeatReply>,
}

impl<'a> Control<'a> {
    /// A loop over a home's state.
    pub fn new(state: State, series: Series, home: &'a Home, providers: &'a [Arc<dyn Provider>]) -> Control<'a> {
        Control { state, series, home, policy: Policy::default(), keeps_all: false, lacked: None, providers }
    }

    /// Runs until `done` returns an outcome, or until it is interrupted. `sender` is the other end of `inbox`.
    ///
    /// # Errors
    /// [`Error`] if the state can no longer be written for another reason than a full disk: no decisions are possible then,
    /// and agents end by their lease.
    pub fn run(
        &mut self,
        sender: &Sender<Wake>,
        inbox: &Receiver<Wake>,
        done: impl Fn(&World) -> bool,
    ) -> Result<Left, Error> {
        let stalled = self.begin()?;
        let traits = self.providers.iter().map(|provider| (provider.name().to_owned(), provider.traits()));
        let controller =
            Controller::new(self.state.take_world(), self.home.owner(), traits, self.policy.clone(), now());
        let calls = ProviderCalls::new(self.providers, sender.clone());
        let mut running = Running {
            control: self,
            controller,
            calls,
            waiting: BTreeMap::new(),
            users: BTreeMap::new(),
            last_reply: 0,
            watched: WatchedWork::default(),
            wake: Elapsed(0),
            audit: Instant::now(),
            stalled,
            noted: Instant::now(),
        };
        let left = running.run(inbox, done);
        let world = running.controller.into_world();
        self.state.put_world(world);
        left
    }
}

impl Running<'_, '_> {
    fn run(&mut self, inbox: &Receiver<Wake>, done: impl Fn(&World) -> bool) -> Result<Left, Error> {
        let mut inputs = Vec::new();
        loop {
            self.note_shortages();
            if self.is_writable() {
                if self.has_space_again() {
                    return Ok(Left::Done);
                }
                self.gather(&mut inputs)?;
                self.take(std::mem::take(&mut inputs))?;
                if done(self.controller.world()) {
                    return Ok(Left::Done);
                }
            }
            let mut wake = match inbox.recv_timeout(self.patience()) {
                Ok(wake) => Some(wake),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(Left::Interrupted),
            };
            // All pending inputs are handled together, so that one transaction holds the resulting events.
            while let Some(woken) = wake {
                match woken {
                    // Whoever asks is refused at once, and asks again.
                    Wake::Heartbeat(..) | Wake::Request(..) if self.stalled.is_some() => {}
                    Wake::Heartbeat(heartbeat, reply) => inputs.push(self.heard(heartbeat, reply)),
                    Wake::Answered(call, answer, details) => {
                        self.calls.answered(call);
                        inputs.push(ControllerInput::Answered { call, answer, details });
                    }
                    Wake::Request(event, reply) => {
                        self.last_reply += 1;
                        let from = ReplyId(self.last_reply);
                        self.users.insert(from, reply);
                        inputs.push(ControllerInput::Request { from, event });
                    }
                    Wake::Question(Question(ask)) => ask(self.controller.world()),
                    Wake::Interrupt => return Ok(Left::Interrupted),
                }
                wake = inbox.try_recv().ok();
            }
        }
    }

    /// How long until the next timer.
    fn patience(&self) -> Duration {
        if self.stalled.is_some() {
            return LOOK;
        }
        Duration::from_micros(self.wake.0.saturating_sub(clock::monotonic().0)).min(LOOK)
    }

    /// Collects inputs that do not wake the loop.
    fn gather(&mut self, inputs: &mut Vec<ControllerInput>) -> Result<(), Error> {
        if let Some(appended) = self.appended()? {
            inputs.insert(0, appended);
        }
        let watched = self.watched();
        if watched != self.watched {
            self.watched = watched.clone();
            inputs.push(ControllerInput::Watched(watched));
        }
        let providers = self.control.providers.iter();
        self.controller.set_traits(providers.map(|provider| (provider.name(), provider.traits())));
        inputs.extend(self.calls.overdue());
        if self.audit.elapsed() >= AUDIT {
            self.audit = Instant::now();
            inputs.push(ControllerInput::Audit);
        }
        inputs.push(ControllerInput::Timer);
        Ok(())
    }

    /// What some process waits for: a server for everything, others by the locks that they hold.
    fn watched(&self) -> WatchedWork {
        if self.control.keeps_all {
            return WatchedWork { all: true, keeper: Keeper::Server, ..WatchedWork::default() };
        }
        let (home, world) = (self.control.home, self.controller.world());
        let open = world.open_runs().filter(|(_, run)| !run.state.is_final());
        let sweeps = world.sweeps.iter().filter(|(_, sweep)| !sweep.state.is_final());
        WatchedWork {
            runs: open.map(|(id, _)| id).filter(|id| home.is_followed(&home.run(id))).cloned().collect(),
            sweeps: sweeps.map(|(id, _)| id).filter(|id| home.is_followed(&home.sweep(id))).cloned().collect(),
            all: false,
            keeper: Keeper::Foreground,
        }
    }

    fn heard(
        &mut self,
        heartbeat: Box<Heartbeat>,
        reply: tokio::sync::oneshot::Sender<HeartbeatReply>,
    ) -> ControllerInput {
        self.last_reply += 1;
        let from = ReplyId(self.last_reply);
        self.waiting.insert(from, Waiting { heartbeat: heartbeat.clone(), reply });
        ControllerInput::Heartbeat { from, heartbeat }
    }

    /// Passes inputs to the controller and carries out its outputs: first all events in one transaction, then the rest.
    fn take(&mut self, mut inputs: Vec<ControllerInput>) -> Result<(), Error> {
        while !inputs.is_empty() {
            let (mut records, mut others) = (Vec::new(), Vec::new());
            let mut outputs = Vec::new();
            for input in inputs.drain(..) {
                if let Some(event) = self.asks_for(&input) {
                    outputs.extend(self.recall(&event, records.is_empty())?);
                }
                outputs.extend(self.controller.step(input, now())?);
                for output in outputs.drain(..) {
                    match output {
                        ControllerOutput::Append(more) => records.extend(more),
                        other => others.push(other),
                    }
                }
            }
            inputs.extend(self.commit(&records)?);
            others.into_iter().for_each(|output| self.perform(output));
            if self.stalled.is_some() {
                // Who waits for an event that was not written is refused.
                self.waiting.clear();
                self.users.clear();
                return Ok(());
            }
        }
        Ok(())
    }

    /// Events appended by other processes.
    fn appended(&self) -> Result<Option<ControllerInput>, Error> {
        let foreign = self.control.state.foreign(self.controller.world())?;
        Ok(foreign
            .map(|Foreign { records, recalled }| ControllerInput::Appended { records, recalled: Box::new(recalled) }))
    }

    /// Restores the subject of an event that has left the controller's memory. It is restored as it is on disk, so the
    /// controller must be at the same event; if it is ahead with uncommitted events, the commit will fail.
    fn recall(&mut self, event: &Event, is_committed: bool) -> Result<Vec<ControllerOutput>, Error> {
        let mut outputs = Vec::new();
        loop {
            let recalled = self.control.state.recall_for(self.controller.world(), event)?;
            let input = match recalled {
                Recalled::Part(part) => ControllerInput::Recalled(part),
                Recalled::Behind if is_committed => match self.appended()? {
                    Some(appended) => appended,
                    None => continue,
                },
                Recalled::Unknown | Recalled::Behind => return Ok(outputs),
            };
            let is_part = matches!(input, ControllerInput::Recalled(_));
            outputs.extend(self.controller.step(input, now())?);
            if is_part {
                return Ok(outputs);
            }
        }
    }

    /// An event about work that an input may concern and the controller does not have in memory.
    fn asks_for(&self, input: &ControllerInput) -> Option<Event> {
        let world = self.controller.world();
        match input {
            ControllerInput::Heartbeat { heartbeat, .. } => {
                let instance = &heartbeat.instance;
                let is_known = world.holder(instance).is_some() || world.instances.contains_key(instance);
                // Its release concerns it, as any event would.
                (!is_known).then(|| Event::ReleaseIntended { instance: instance.clone(), lost_race: false })
            }
            ControllerInput::Request { event, .. } => {
                let is_held = world.work_of(event).is_some_and(|work| world.holds(&work));
                (!is_held).then(|| (**event).clone())
            }
            _ => None,
        }
    }

    /// Appends events; returns the input that reports the result to the controller.
    fn commit(&mut self, records: &[Record]) -> Result<Option<ControllerInput>, Error> {
        let Some(last) = records.last() else { return Ok(None) };
        let committed = self.control.state.commit(records, self.controller.world());
        if let Some(error) = committed.as_ref().err().filter(|error| self.lacks_space(error)) {
            let why = error.with_cause();
            // Nothing of it was written: what is on the disk holds, as after a start.
            self.controller.restart(self.control.state.reload()?);
            self.stall(&why);
            return Ok(None);
        }
        match committed? {
            Commit::Done => {
                self.control.home.space().accepted(&StoredKind::Events, "", clock::now());
                for record in records {
                    if let Event::ResumeRequested { run, .. } = &record.event {
                        self.control.home.unmark_reported(&self.control.home.run(run));
                    }
                }
                Ok(Some(ControllerInput::Durable { seq: last.seq }))
            }
            // Another process was faster: the decisions may no longer hold.
            Commit::Overtaken => {
                self.controller.restart(self.control.state.reload()?);
                // Replies that depended on it are dropped; their agents are told so at once, and call again.
                self.waiting.clear();
                self.users.clear();
                Ok(Some(ControllerInput::Timer))
            }
        }
    }

    fn perform(&mut self, output: ControllerOutput) {
        match output {
            ControllerOutput::Call { id, provider, call } => self.calls.start(id, &provider, call),
            ControllerOutput::Reply(reply) => self.reply(*reply),
            ControllerOutput::Keep { run, instance, entries } => {
                // Measurements do not influence decisions; those of a machine that is gone are stored if possible.
                self.keep(&run, &instance, &entries);
            }
            ControllerOutput::Note(note) => self.note(&note),
            ControllerOutput::WakeAt(at) => self.wake = at,
            ControllerOutput::Taken { to, result } => {
                // A user who has disconnected needs no answer.
                let _ = self.users.remove(&to).map(|user| user.send(result));
            }
            // Those events were appended above.
            ControllerOutput::Append(_) => {}
        }
    }

    fn note(&mut self, note: &OperationNote) {
        // A failure of the operations log is no reason to stop operating.
        let _ = self.control.series.note(clock::now(), note);
    }
}

fn now() -> Now {
    Now { monotonic: clock::monotonic(), wall: clock::now() }
}
