//! The control loop: one loop over one closed [`Wake`], so that everything that can wake it is in one place to read.
//!
//! Each turn reads what other processes have appended, hears what an agent has said, gathers what providers see, and
//! performs what `plan::reconcile` decides, until there is nothing left to do. Starting is the same as recovering:
//! there is no state but the log.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use cloud::Provider;
use domain::run::{InstanceState, Sight};
use domain::wire::{AgentCommand, Entry, Heartbeat, HeartbeatReply, SCHEMA, Start};
use domain::{AttemptId, Elapsed, Event, InstanceId, RunId};
use plan::{Action, LaunchDoubt, ObservedState, Policy, Run, World};

use crate::clock;
use crate::error::Error;
use crate::home::Home;
use crate::perform;
use crate::series::Series;
use crate::state::State;

/// Everything that can wake the loop.
#[derive(Debug)]
pub enum Wake {
    /// An agent called, and waits for the answer.
    Heartbeat(Box<Heartbeat>, tokio::sync::oneshot::Sender<HeartbeatReply>),
    /// The user pressed Ctrl-C, or the process was asked to end.
    Interrupt,
}

/// Why the loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// What it was there for is done.
    Done,
    /// It was interrupted; agents go on until their lease is over.
    Interrupted,
}

/// How often the world is looked at when nothing wakes the loop.
const LOOK: Duration = Duration::from_millis(20);

/// When an agent shall call again, while nothing is wanted of it. A call costs both sides about 0.2 ms.
const NEXT: domain::Duration = domain::Duration::from_micros(200_000);

/// When it shall call again while it waits for its first order.
const NEXT_IDLE: domain::Duration = domain::Duration::from_micros(20_000);

/// A turn that took longer was not a turn: the machine slept.
const TURN: Elapsed = Elapsed(1_000_000);

/// How long an agent may go on without an answer before it ends its ranks.
pub const LEASE: domain::Duration = domain::Duration::from_secs(60);

/// What of an agent's entries is durable.
struct Noted {
    /// All that they decide.
    decided: bool,
    /// All that they measured.
    measured: bool,
}

/// The control loop and what it works with.
pub struct Control<'a> {
    /// The log.
    pub state: State,
    /// Where measurements go.
    pub series: Series,
    /// Where it all stands.
    pub home: &'a Home,
    /// Who rents.
    pub providers: &'a [Box<dyn Provider>],
    /// What it may do.
    pub policy: Policy,
    meters: BTreeMap<InstanceId, Elapsed>,
    silence: BTreeMap<InstanceId, Elapsed>,
    awake: Elapsed,
    alone: BTreeMap<RunId, Elapsed>,
    sights: BTreeMap<InstanceId, Sight>,
    changed: BTreeMap<RunId, (u64, Elapsed)>,
    /// Since when an instance is missing in what its provider lists.
    missing: BTreeMap<InstanceId, Elapsed>,
    /// How often a launch that is in doubt was asked for, and when last.
    in_doubt: BTreeMap<InstanceId, (u32, Elapsed)>,
}

impl<'a> Control<'a> {
    /// A loop over a home's state.
    pub fn new(state: State, series: Series, home: &'a Home, providers: &'a [Box<dyn Provider>]) -> Control<'a> {
        let policy = Policy::default();
        let (meters, silence) = (BTreeMap::new(), BTreeMap::new());
        let (sights, changed) = (BTreeMap::new(), BTreeMap::new());
        Control {
            state,
            series,
            home,
            providers,
            policy,
            meters,
            silence,
            awake: clock::monotonic(),
            alone: BTreeMap::new(),
            sights,
            changed,
            missing: BTreeMap::new(),
            in_doubt: BTreeMap::new(),
        }
    }

    /// Runs until `done` says so, or until it is interrupted.
    ///
    /// # Errors
    /// [`Error`] when the state can no longer be kept: nothing can be decided then, and agents end by their lease.
    pub fn run(&mut self, inbox: &Receiver<Wake>, done: impl Fn(&World) -> bool) -> Result<Left, Error> {
        loop {
            self.state.refresh()?;
            self.settle()?;
            if done(self.state.world()) {
                return Ok(Left::Done);
            }
            match inbox.recv_timeout(LOOK) {
                Ok(Wake::Heartbeat(heartbeat, reply)) => {
                    let orders = self.hear(&heartbeat)?;
                    // An agent that did not wait for the answer will call again.
                    let _ = reply.send(orders);
                }
                Ok(Wake::Interrupt) | Err(RecvTimeoutError::Disconnected) => return Ok(Left::Interrupted),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Takes in what an agent says, and answers what is wanted of it.
    fn hear(&mut self, heartbeat: &Heartbeat) -> Result<HeartbeatReply, Error> {
        self.state.refresh()?;
        let id = &heartbeat.instance;
        let Some(instance) = self.state.world().instances.get(id).filter(|_| heartbeat.schema <= SCHEMA) else {
            return Ok(answer(heartbeat, vec![AgentCommand::Leave]));
        };
        let run = instance.run.clone();
        self.meters.insert(id.clone(), heartbeat.elapsed);
        self.silence.insert(id.clone(), Elapsed(0));
        let silent = match instance.state {
            InstanceState::Intended | InstanceState::Launching => true,
            InstanceState::Up | InstanceState::Releasing | InstanceState::Released { .. } => false,
        };
        if silent {
            self.state.append(vec![Event::AgentUp { instance: id.clone(), started: heartbeat.started }])?;
        }
        let noted = self.note(&run, id, &heartbeat.entries)?;
        self.settle()?;
        let start = |run_id: &RunId, run: &Run, attempt: &AttemptId| self.start(run_id, run, attempt);
        let orders = plan::orders(self.state.world(), id, start);
        let answer = HeartbeatReply { lease: self.lease(&run), ..answer(heartbeat, orders) };
        let all = answer.acknowledged;
        let up_to = |is_kept: bool| if is_kept { all } else { 0 };
        Ok(HeartbeatReply { acknowledged: up_to(noted.decided), measured: Some(up_to(noted.measured)), ..answer })
    }

    /// Whether some process waits for a run, or for the sweep that it is a trial of.
    fn is_watched(&self, id: &RunId) -> bool {
        let trial = self.state.world().runs.get(id).and_then(|run| run.trial.as_ref());
        self.home.is_watched(&self.home.run(id))
            || trial.is_some_and(|trial| self.home.is_watched(&self.home.sweep(&trial.sweep)))
    }

    /// The lease runs out for a run that nobody attends to, as if there were no loop: what somebody else's loop serves
    /// must not cost money for ever.
    fn lease(&mut self, run: &RunId) -> domain::Duration {
        if self.is_watched(run) {
            self.alone.remove(run);
            return LEASE;
        }
        let since = self.alone.entry(run.clone()).or_insert_with(clock::monotonic);
        let alone = clock::monotonic().0.saturating_sub(since.0);
        domain::Duration::from_micros(LEASE.micros().saturating_sub(alone))
    }

    /// Keeps what an agent measured and writes what it decided.
    ///
    /// Nothing is decided from measurements: where they cannot be kept the agent holds them for a while, and the run goes
    /// on to its end.
    fn note(&mut self, run: &RunId, id: &InstanceId, entries: &[Entry]) -> Result<Noted, Error> {
        let measured = self.series.keep(clock::now(), run, id, entries).is_ok();
        let mut decided = true;
        for entry in entries {
            let Some(event) = plan::hear(self.state.world(), entry) else { continue };
            match self.state.append(vec![event]) {
                // Another process has appended since; the agent will say it again.
                Err(Error::Illegal(_)) => decided = false,
                result => result.map(|_| ())?,
            }
        }
        Ok(Noted { decided, measured })
    }

    /// Hears what the agent of an instance that is gone wrote down while no loop listened: the work may be done.
    fn hear_last_words(&mut self) -> Result<(), Error> {
        let gone = |id: &&InstanceId| matches!(self.sights.get(*id), Some(Sight::Gone(_)));
        let gone: Vec<InstanceId> =
            self.state.world().live_instances().map(|(id, _)| id).filter(gone).cloned().collect();
        for id in gone {
            let Some(instance) = self.state.world().instances.get(&id) else { continue };
            let run = instance.run.clone();
            let provider = self.providers.iter().find(|provider| provider.name() == instance.offer.provider);
            if let Some(Ok(entries)) = provider.map(|provider| provider.last_words(&id)) {
                self.note(&run, &id, &entries)?;
            }
        }
        Ok(())
    }

    fn start(&self, run_id: &RunId, run: &Run, attempt: &AttemptId) -> Start {
        let fence = self.state.world().attempts.get(attempt).map_or(domain::Fence(0), |attempt| attempt.fence);
        let mut job = run.job.clone();
        self.state.key().unseal_job(&mut job);
        Start {
            run: run_id.clone(),
            attempt: attempt.clone(),
            fence,
            job,
            job_hash: run.job_hash.clone(),
            threads: run.plan.share.map_or(run.plan.offer.node.cores, |share| share.threads),
            accept_data_change: run.accept_data_change,
            folder: self.home.run(run_id).to_string_lossy().into_owned(),
        }
    }

    /// Asks the providers what they see of each instance that is not released. One that cannot be asked says nothing.
    fn look(&mut self) {
        self.sights.clear();
        let now = clock::monotonic();
        for (id, instance) in self.state.world().live_instances() {
            let provider = self.providers.iter().find(|provider| provider.name() == instance.offer.provider);
            let Some(Ok(sight)) = provider.map(|provider| provider.sight(id)) else { continue };
            self.sights.insert(id.clone(), sight);
            match sight {
                Sight::Unknown => {
                    self.missing.entry(id.clone()).or_insert(now);
                }
                Sight::Alive | Sight::Gone(_) => {
                    self.missing.remove(id);
                }
            }
        }
        // One of a provider that could not be asked is not known to be missing all the time.
        self.missing.retain(|id, _| self.sights.contains_key(id));
    }

    /// Notes whether a launch that was asked for is in doubt.
    fn note_launch(&mut self, id: &InstanceId) {
        let instance = self.state.world().instances.get(id);
        if instance.is_some_and(|instance| matches!(instance.state, InstanceState::Intended)) {
            let now = clock::monotonic();
            let doubt = self.in_doubt.entry(id.clone()).or_insert((0, now));
            *doubt = (doubt.0 + 1, now);
        } else {
            self.in_doubt.remove(id);
        }
    }

    /// Performs what is decided until nothing more changes. Each pass looks anew, for the last one may have rented.
    fn settle(&mut self) -> Result<(), Error> {
        loop {
            let seq = self.state.world().last_seq;
            self.look();
            self.hear_last_words()?;
            let facts = self.facts();
            for action in plan::reconcile(self.state.world(), &facts, &self.policy) {
                let launched = match &action {
                    Action::Rent { instance, .. } | Action::Launch { instance } => Some(instance.clone()),
                    _ => None,
                };
                // Before the request: another process may append while it is out, and its outcome is then not noted.
                if let Some(instance) = &launched {
                    self.missing.remove(instance);
                }
                match perform::perform(&mut self.state, self.home, self.providers, action) {
                    // Another process has appended since: what was decided may not hold any more.
                    Err(Error::Illegal(_)) => break,
                    result => result?,
                }
                if let Some(instance) = launched {
                    self.note_launch(&instance);
                }
            }
            if self.state.world().last_seq == seq {
                return Ok(());
            }
        }
    }

    fn facts(&mut self) -> ObservedState {
        let world = self.state.world();
        let monotonic = clock::monotonic();
        let unfinished = world.runs.iter().filter(|(_, run)| !run.state.is_final());
        let mut facts = ObservedState { now: clock::now(), ..ObservedState::default() };
        for (id, run) in unfinished {
            if self.is_watched(id) {
                facts.attended.insert(id.clone());
            }
            let marks = u64::from(run.restarts) + u64::from(run.error_restarts) + run.attempts.len() as u64;
            let since = self.changed.entry(id.clone()).or_insert((marks, monotonic));
            if since.0 != marks {
                *since = (marks, monotonic);
            }
            facts.quiet.insert(id.clone(), Elapsed(monotonic.0.saturating_sub(since.1.0)));
        }
        let unfinished = world.sweeps.iter().filter(|(_, sweep)| !sweep.state.is_final());
        let attended = unfinished.filter(|(id, _)| self.home.is_watched(&self.home.sweep(id)));
        facts.attended_sweeps = attended.map(|(id, _)| id.clone()).collect();
        // Time in which this loop was suspended, or not running, does not count as an agent's silence.
        let turn = monotonic.0.saturating_sub(self.awake.0).min(TURN.0);
        self.awake = monotonic;
        for (id, _) in world.live_instances() {
            let silence = self.silence.entry(id.clone()).or_default();
            silence.0 += turn;
            facts.silence.insert(id.clone(), *silence);
        }
        let since = |at: &Elapsed| Elapsed(monotonic.0.saturating_sub(at.0));
        facts.missing = self.missing.iter().map(|(id, at)| (id.clone(), since(at))).collect();
        let doubt = |(requests, at): &(u32, Elapsed)| LaunchDoubt { requests: *requests, since: since(at) };
        facts.in_doubt = self.in_doubt.iter().map(|(id, asked)| (id.clone(), doubt(asked))).collect();
        let traits = self.providers.iter().map(|provider| (provider.name().to_owned(), provider.traits()));
        facts.traits = traits.collect();
        facts.sights = self.sights.clone();
        facts.meters = self.meters.clone();
        facts
    }
}

fn answer(heartbeat: &Heartbeat, orders: Vec<AgentCommand>) -> HeartbeatReply {
    let acknowledged = heartbeat.entries.last().map_or(0, |entry| entry.seq);
    let next = if orders.is_empty() { NEXT_IDLE } else { NEXT };
    HeartbeatReply { acknowledged, measured: Some(acknowledged), lease: LEASE, next, orders }
}
