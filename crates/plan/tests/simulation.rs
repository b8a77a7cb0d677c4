//! The whole control loop in memory, crashed at random: thousands of schedules a second.
//!
//! A simulated cloud, agents and a loop that performs what `plan::reconcile` decides, each of which may crash between
//! any two steps. The cloud loses requests and replies, lists a machine only some time after it was rented, and takes
//! its time to boot one. After the storm every run must be trained and billed exactly, every machine gone, and no
//! machine rented twice. The seed of a failing schedule is in the message.
//!
//! Each rule that this rests on can be broken on purpose ([`Rule`]), and the simulation must find it.

use std::collections::{BTreeMap, VecDeque};

use domain::event::{RentIntended, Submitted};
use domain::job::{Command, Needs, Recovery};
use domain::random::Draws;
use domain::run::{AttemptEnd, InstanceState, ProviderTraits, RunState, Sight, Usage};
use domain::wants::Wants;
use domain::wire::{AgentCommand, AgentEvent, Entry, Start};
use domain::workload::DataFacts;
use domain::{
    AttemptId, Cause, Elapsed, Event, Finding, InstanceId, Job, Money, Node, Offer, Plan, Rate, Record, RunId,
    Timestamp, Work,
};
use plan::{Action, LaunchDoubt, ObservedState, Policy, World};

#[derive(Default)]
struct Machine {
    started: i64,
    /// When the cloud lists it.
    listed: i64,
    /// When its agent calls for the first time.
    boots: i64,
    ended: Option<i64>,
    /// Whether the agent says nothing any more.
    is_frozen: bool,
    agent: Agent,
}

/// A rule that a simulation may do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// A launch in doubt is asked for again, with the same token, and is no refusal.
    DoubtIsNoRefusal,
    /// What the cloud does not list is gone only after the time that it may take to list it.
    MissingIsNotGone,
    /// A machine is given its time to boot.
    BootingIsNotSilence,
}

/// What the cloud promises, in microseconds: it lists a machine within this time, and boots it within the other.
const LISTED_WITHIN: u64 = 10_000_000;
const BOOTS_WITHIN: u64 = 40_000_000;

/// An agent that has spoken is given up after so long.
const SILENCE: u64 = 20_000_000;

#[derive(Default)]
struct Agent {
    attempt: Option<(AttemptId, u32)>,
    known: Vec<AttemptId>,
    words: VecDeque<Entry>,
    seq: u64,
}

struct Simulation {
    draws: Draws,
    /// A clock that never goes back: what machines are metered by.
    now: i64,
    /// What the wall clock is wrong by; it is set back and forth while the storm lasts.
    skew: i64,
    /// What is on disk.
    log: Vec<Record>,
    /// What the loop remembers; gone with a crash.
    world: World,
    machines: BTreeMap<InstanceId, Machine>,
    launches: BTreeMap<String, u32>,
    stormy: bool,
    broken: Option<Rule>,
    /// What the loop remembers of time, gone with a crash: when each agent was heard or first waited for, since when an
    /// instance is missing, and launches in doubt.
    heard: BTreeMap<InstanceId, i64>,
    missing: BTreeMap<InstanceId, i64>,
    in_doubt: BTreeMap<InstanceId, (u32, i64)>,
    /// What must not happen, and did.
    violation: Option<String>,
    /// Whether somebody has appended since the loop last decided.
    disturbed: bool,
    crashes: u32,
}

/// The loop died before it did the next thing.
struct Crash;

const STEPS: u32 = 6;

fn chance(draws: &mut Draws, percent: u64) -> bool {
    draws.below(100) < percent
}

impl Simulation {
    fn new(seed: u64, broken: Option<Rule>) -> Simulation {
        let (world, machines, launches) = (World::default(), BTreeMap::new(), BTreeMap::new());
        let log = Vec::new();
        Simulation {
            broken,
            heard: BTreeMap::new(),
            missing: BTreeMap::new(),
            in_doubt: BTreeMap::new(),
            violation: None,
            draws: Draws::new(seed),
            now: 0,
            skew: 0,
            log,
            world,
            machines,
            launches,
            stormy: true,
            disturbed: false,
            crashes: 0,
        }
    }

    fn crash_point(&mut self) -> Result<(), Crash> {
        if self.stormy && chance(&mut self.draws, 5) { Err(Crash) } else { Ok(()) }
    }

    /// As `State::append` does it: what others have appended is read first, and may forbid what was decided.
    fn append(&mut self, event: Event) -> Result<(), Crash> {
        self.crash_point()?;
        self.disturbed |= self.stormy && chance(&mut self.draws, 3) && self.user();
        let record = Record { seq: self.world.last_seq + 1, at: Timestamp(self.now + self.skew), event };
        match self.world.apply(&record) {
            Ok(()) => self.log.push(record),
            Err(illegal) if !self.disturbed => panic!("{illegal}: {record:?}"),
            // Decided on what does not hold any more: the loop decides again, as after a crash.
            Err(_) => return Err(Crash),
        }
        self.crash_point()
    }

    /// Somebody stops or resumes a run from another process; says whether that was possible.
    fn user(&mut self) -> bool {
        let runs: Vec<RunId> = self.world.runs.keys().cloned().collect();
        let run = runs[self.draws.below(runs.len() as u64) as usize].clone();
        let event = match &self.world.runs[&run].state {
            RunState::Stopped { .. } => {
                Event::ResumeRequested { run, budget: None, deadline: None, epochs: None, accept_data_change: false }
            }
            RunState::Done { .. } | RunState::Stopping { .. } => return false,
            _ => Event::StopRequested { run, by: domain::run::StopBy::User },
        };
        let record = Record { seq: self.world.last_seq + 1, at: Timestamp(self.now + self.skew), event };
        self.world.apply(&record).unwrap();
        self.log.push(record);
        true
    }

    fn sight(&self, id: &InstanceId) -> Sight {
        match self.machines.get(id) {
            None => Sight::Unknown,
            Some(machine) if self.now < machine.listed => Sight::Unknown,
            Some(Machine { ended: None, .. }) => Sight::Alive,
            Some(Machine { ended: Some(ended), started, .. }) => Sight::Gone(Some(usage(*started, *ended))),
        }
    }

    fn facts(&mut self) -> ObservedState {
        let mut facts = ObservedState { now: Timestamp(self.now + self.skew), ..ObservedState::default() };
        let since = |at: i64| Elapsed((self.now - at) as u64);
        for (id, _) in self.world.live_instances() {
            let sight = self.sight(id);
            facts.sights.insert(id.clone(), sight);
            match sight {
                Sight::Unknown => {
                    let at = *self.missing.entry(id.clone()).or_insert(self.now);
                    facts.missing.insert(id.clone(), since(at));
                }
                Sight::Alive | Sight::Gone(_) => drop(self.missing.remove(id)),
            }
            let heard = *self.heard.entry(id.clone()).or_insert(self.now);
            facts.silence.insert(id.clone(), since(heard));
            if let Some((requests, at)) = self.in_doubt.get(id) {
                facts.in_doubt.insert(id.clone(), LaunchDoubt { requests: *requests, since: since(*at) });
            }
        }
        let promised = |rule, micros| Elapsed(if self.broken == Some(rule) { 0 } else { micros });
        let visible_within = promised(Rule::MissingIsNotGone, LISTED_WITHIN);
        let boots_within = promised(Rule::BootingIsNotSilence, BOOTS_WITHIN);
        facts.traits.insert("sim".into(), ProviderTraits { visible_within, boots_within });
        facts.attended = self.world.runs.keys().cloned().collect();
        if self.stormy && self.now % 7_000_000 == 0 {
            facts.attended.clear();
        }
        facts.quiet = self.world.runs.keys().map(|id| (id.clone(), Elapsed(u64::MAX))).collect();
        facts
    }

    fn settle(&mut self) -> Result<(), Crash> {
        loop {
            let seq = self.world.last_seq;
            self.disturbed = false;
            let policy = Policy { silence: Elapsed(SILENCE), ..Policy::default() };
            let facts = self.facts();
            for action in plan::reconcile(&self.world, &facts, &policy) {
                self.perform(action)?;
            }
            if self.world.last_seq == seq {
                return Ok(());
            }
        }
    }

    fn perform(&mut self, action: Action) -> Result<(), Crash> {
        match action {
            Action::Rent { run, instance, offer, reserve } => {
                let token = format!("token of {instance}");
                let intent = RentIntended { run, instance: instance.clone(), token, offer, reserved: reserve };
                self.append(Event::RentIntended(Box::new(intent)))?;
                self.launch(&instance)
            }
            Action::Launch { instance } => self.launch(&instance),
            Action::Start { run, attempt, fence, instance } => {
                self.append(Event::AttemptIntended { run, attempt, fence, instance })
            }
            Action::FailAttempt { attempt, finding } => {
                self.append(Event::AttemptEnded { attempt, end: AttemptEnd::Failed { finding, exit_code: None } })
            }
            Action::End { run, end } => self.append(Event::Ended { run, end }),
            Action::Stop { run, by } => self.append(Event::StopRequested { run, by }),
            Action::Alert { run, spent } => self.append(Event::BudgetAlert { run, spent }),
            Action::Release { instance } => {
                self.note_given_up(&instance);
                self.append(Event::ReleaseIntended { instance })
            }
            Action::Terminate { instance } => {
                self.crash_point()?;
                let now = self.now;
                if !self.stormy || chance(&mut self.draws, 70) {
                    // What the cloud does not list yet it cannot end.
                    self.machines.entry(instance).and_modify(|machine| {
                        machine.ended = machine.ended.or((now >= machine.listed).then_some(now));
                    });
                }
                Ok(())
            }
            Action::RecordRelease { instance, usage } => self.append(Event::Released { instance, usage }),
            Action::Bill { run, bill } => self.append(Event::Billed { run, bill }),
            Action::SubmitTrial(_) | Action::Resume { .. } | Action::StopSweep { .. } => panic!("there is no sweep"),
            Action::AlertSweep { .. } | Action::EndSweep { .. } => panic!("there is no sweep"),
        }
    }

    fn launch(&mut self, id: &InstanceId) -> Result<(), Crash> {
        self.crash_point()?;
        self.missing.remove(id);
        let is_rented = self.machines.contains_key(id);
        if self.stormy && !is_rented && chance(&mut self.draws, 10) {
            return self.refused(id);
        }
        if self.stormy && chance(&mut self.draws, 10) {
            return self.in_doubt(id); // The request was lost.
        }
        let token = self.world.instances[id].token.clone();
        if !is_rented {
            *self.launches.entry(token).or_default() += 1;
            let listed = self.now + self.draws.below(LISTED_WITHIN) as i64;
            // A machine whose agent is known before the provider lists it is as real as any.
            let boots = self.now + self.draws.below(BOOTS_WITHIN * 3 / 4) as i64;
            let machine = Machine { started: self.now, listed, boots, ..Machine::default() };
            self.machines.insert(id.clone(), machine);
        }
        if self.stormy && chance(&mut self.draws, 10) {
            return self.in_doubt(id); // The reply was.
        }
        self.crash_point()?;
        self.in_doubt.remove(id);
        self.append(Event::Launched { instance: id.clone() })
    }

    fn refused(&mut self, id: &InstanceId) -> Result<(), Crash> {
        let finding = Finding::new(Cause::InstanceLost, "the provider is out of machines");
        self.append(Event::RentFailed { instance: id.clone(), finding })
    }

    fn in_doubt(&mut self, id: &InstanceId) -> Result<(), Crash> {
        if self.broken == Some(Rule::DoubtIsNoRefusal) && self.sight(id) == Sight::Unknown {
            return self.refused(id);
        }
        let doubt = self.in_doubt.entry(id.clone()).or_insert((0, self.now));
        *doubt = (doubt.0 + 1, self.now);
        Ok(())
    }

    /// A release without need: of a machine that boots in time, for a run that goes on.
    fn note_given_up(&mut self, id: &InstanceId) {
        let (instance, machine) = (&self.world.instances[id], self.machines.get(id));
        let run = &self.world.runs[&instance.run];
        let goes_on = !run.state.is_final() && !matches!(run.state, RunState::Stopping { .. });
        let boots = machine.is_some_and(|machine| {
            machine.ended.is_none() && !machine.is_frozen && self.now < machine.started + BOOTS_WITHIN as i64
        });
        if goes_on && boots && instance.state == InstanceState::Launching {
            self.violation = Some(format!("{id} was given up while it booted"));
        }
    }

    /// One call of an agent, as the loop's `hear` does it.
    fn tick(&mut self, id: &InstanceId) -> Result<(), Crash> {
        let Some(instance) = self.world.instances.get(id) else { return Ok(()) };
        self.heard.insert(id.clone(), self.now);
        let silent =
            matches!(instance.state, domain::run::InstanceState::Intended | domain::run::InstanceState::Launching);
        let started = Timestamp(self.machines[id].started);
        if silent {
            self.append(Event::AgentUp { instance: id.clone(), started })?;
        }
        let words: Vec<Entry> = self.machines[id].agent.words.iter().cloned().collect();
        for entry in &words {
            if let Some(event) = plan::hear(&self.world, entry) {
                self.append(event)?;
            }
        }
        self.settle()?;
        let start = |run_id: &RunId, run: &plan::Run, attempt: &AttemptId| Start {
            run: run_id.clone(),
            attempt: attempt.clone(),
            fence: domain::Fence(1),
            job: run.job.clone(),
            job_hash: String::new(),
            threads: 1,
            accept_data_change: false,
            folder: String::new(),
        };
        let orders = plan::orders(&self.world, id, start);
        self.crash_point()?;
        if self.stormy && chance(&mut self.draws, 10) {
            return Ok(());
        }
        let now = self.now;
        let Some(machine) = self.machines.get_mut(id) else { return Ok(()) };
        machine.agent.words.retain(|entry| !words.contains(entry));
        for order in orders {
            match order {
                AgentCommand::Start(start) => machine.agent.start(start.attempt),
                AgentCommand::Stop { attempt } => machine.agent.end(attempt, AttemptEnd::Stopped { step: None }),
                AgentCommand::Leave => machine.ended = machine.ended.or(Some(now)),
            }
        }
        Ok(())
    }

    /// One moment of the world: machines and ranks may die, agents work and call.
    fn moment(&mut self) {
        self.now += 1_000_000;
        if self.stormy && chance(&mut self.draws, 5) {
            self.skew = self.draws.bits() as i64 % 7_200_000_000;
        }
        let alive: Vec<InstanceId> =
            self.machines.iter().filter(|(_, machine)| machine.ended.is_none()).map(|(id, _)| id.clone()).collect();
        let result = self.settle();
        self.survive(result);
        for id in alive {
            if self.stormy && chance(&mut self.draws, 4) {
                self.machines.get_mut(&id).unwrap().ended = Some(self.now);
                continue;
            }
            let machine = self.machines.get_mut(&id).unwrap();
            machine.is_frozen |= self.stormy && chance(&mut self.draws, 2);
            if machine.is_frozen || self.now < machine.boots {
                continue;
            }
            let rank_dies = self.stormy && chance(&mut self.draws, 8);
            self.machines.get_mut(&id).unwrap().agent.work(rank_dies);
            let result = self.tick(&id);
            self.survive(result);
        }
    }

    /// A crashed loop starts again from what is on disk.
    fn survive(&mut self, result: Result<(), Crash>) {
        if result.is_err() {
            self.crashes += 1;
            self.heard.clear();
            self.missing.clear();
            self.in_doubt.clear();
            self.world = World::replay(&self.log).unwrap();
        }
    }
}

impl Agent {
    fn say(&mut self, attempt: AttemptId, event: AgentEvent) {
        self.seq += 1;
        self.words.push_back(Entry { seq: self.seq, attempt, event });
    }

    fn start(&mut self, attempt: AttemptId) {
        if !self.known.contains(&attempt) {
            self.known.push(attempt.clone());
            self.attempt = Some((attempt.clone(), 0));
            self.say(attempt, AgentEvent::Started);
        }
    }

    fn end(&mut self, attempt: AttemptId, end: AttemptEnd) {
        let running = self.attempt.as_ref().is_some_and(|(running, _)| *running == attempt);
        if running || !self.known.contains(&attempt) {
            self.known.push(attempt.clone());
            self.attempt = None;
            self.say(attempt, AgentEvent::Ended { end });
        }
    }

    fn work(&mut self, dies: bool) {
        let Some((attempt, steps)) = &mut self.attempt else { return };
        *steps += 1;
        let (attempt, done) = (attempt.clone(), *steps >= STEPS);
        if dies {
            let finding = Finding::new(Cause::Killed, "rank 0 was ended by signal 9");
            self.end(attempt, AttemptEnd::Failed { finding, exit_code: None });
        } else if done {
            self.end(attempt, AttemptEnd::Succeeded);
        }
    }
}

fn usage(started: i64, ended: i64) -> Usage {
    Usage { started: Timestamp(started), elapsed: Elapsed((ended - started) as u64) }
}

fn submitted(run: &RunId) -> Event {
    let rate = Rate::from_micros_per_hour(1_234_567);
    let offer =
        Offer { provider: "sim".into(), kind: "m1".into(), node: Node::default(), rate, price_source: "test".into() };
    let (share, memory, time, cost) = (None, None, None, None);
    let plan = Plan { offer, share, memory, time, cost, reserve: Money::default(), assumptions: vec![] };
    let job = Job {
        name: "job".into(),
        work: Work::Command(Command { workdir: None, setup: None, run: "true".into() }),
        envs: BTreeMap::new(),
        secrets: BTreeMap::new(),
        needs: Needs::default(),
        budget: None,
        deadline: None,
        recovery: Recovery { restarts: 1_000, ..Recovery::default() },
        wants: Wants::default(),
        workload: None,
        data: DataFacts::default(),
        sweep: None,
    };
    Event::Submitted(Box::new(Submitted {
        run: run.clone(),
        job,
        plan,
        job_hash: String::new(),
        file: "job.yaml".into(),
        trial: None,
    }))
}

/// Moments of the storm, and of the quiet after it, in which all that was begun comes to its end.
const STORM: u32 = 60;
const QUIET: u32 = 240;

/// Runs one schedule; returns its crashes, or what went wrong.
fn check(seed: u64, broken: Option<Rule>) -> Result<u32, String> {
    let mut simulation = Simulation::new(seed, broken);
    let runs = [RunId::new("a"), RunId::new("b")];
    for run in &runs {
        simulation.stormy = false;
        let _ = simulation.append(submitted(run));
    }
    simulation.stormy = true;
    (0..STORM).for_each(|_| simulation.moment());
    simulation.stormy = false;
    for _ in 0..QUIET {
        simulation.moment();
        for run in &runs {
            if matches!(simulation.world.runs[run].state, RunState::Stopped { .. }) {
                let resume = Event::ResumeRequested {
                    run: run.clone(),
                    budget: None,
                    deadline: None,
                    epochs: None,
                    accept_data_change: false,
                };
                let _ = simulation.append(resume);
            }
        }
        if simulation.world.runs.values().all(|run| run.bill.is_some()) {
            break;
        }
    }
    runs.iter().try_for_each(|run| settled(&simulation, run))?;
    let ensure = |holds: bool, why: &str| if holds { Ok(()) } else { Err(why.to_owned()) };
    let last = LISTED_WITHIN as i64 + simulation.now;
    ensure(simulation.machines.values().all(|machine| machine.ended.is_some_and(|at| at < last)), "a machine leaks")?;
    ensure(simulation.launches.values().all(|launches| *launches == 1), "a machine was rented twice")?;
    ensure(simulation.log.iter().zip(1..).all(|(record, seq)| record.seq == seq), "the log has a gap")?;
    ensure(World::replay(&simulation.log).is_ok_and(|world| world == simulation.world), "replay differs")?;
    match simulation.violation {
        Some(violation) => Err(violation),
        None => Ok(simulation.crashes),
    }
}

/// Whether a run is done, and billed to the microdollar.
fn settled(simulation: &Simulation, run: &RunId) -> Result<(), String> {
    let known = &simulation.world.runs[run];
    if !matches!(known.state, RunState::Done { .. }) {
        return Err(format!("run {run} is {:?}", known.state));
    }
    let Some(bill) = &known.bill else { return Err(format!("run {run} has no bill")) };
    let mut owed = Money::default();
    for machine in known.instances.iter().filter_map(|id| simulation.machines.get(id)) {
        let Some(ended) = machine.ended else { return Err(format!("a machine of run {run} is left running")) };
        owed = owed + known.plan.offer.rate.cost(usage(machine.started, ended).elapsed);
    }
    if bill.total != owed {
        return Err(format!("run {run} is billed {} and owes {owed}", bill.total));
    }
    Ok(())
}

#[test]
fn no_crash_leaks_a_machine_or_loses_a_run() {
    let schedules = 3_000;
    let crash = |seed| check(seed, None).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    let crashes: u32 = (0..schedules).map(crash).sum();
    assert!(crashes > 3_000, "the storm was a breeze: {crashes} crashes in {schedules} schedules");
}

#[test]
fn each_rule_is_needed() {
    for rule in [Rule::DoubtIsNoRefusal, Rule::MissingIsNotGone, Rule::BootingIsNotSilence] {
        let schedules = 400;
        let found: Vec<String> = (0..schedules).filter_map(|seed| check(seed, Some(rule)).err()).collect();
        println!("without {rule:?}: {} of {schedules} schedules fail, such as: {:?}", found.len(), found.first());
        assert!(!found.is_empty(), "nothing finds that {rule:?} is broken");
    }
}
