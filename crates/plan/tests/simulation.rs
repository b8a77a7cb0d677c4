//! The whole control loop in memory, crashed at random: thousands of schedules a second.
//!
//! A simulated cloud, agents and a loop that performs what `plan::reconcile` decides, each of which may crash between
//! any two steps. After the storm every run must be trained and billed exactly, every machine gone, and no machine
//! rented twice. The seed of a failing schedule is in the message.

use std::collections::{BTreeMap, VecDeque};

use domain::event::{RentIntended, Submitted};
use domain::job::{Command, Needs, Recovery};
use domain::random::Draws;
use domain::run::{AttemptEnd, RunState, Sight, Usage};
use domain::wants::Wants;
use domain::wire::{AgentCommand, AgentEvent, Entry, Start};
use domain::workload::DataFacts;
use domain::{
    AttemptId, Cause, Elapsed, Event, Finding, InstanceId, Job, Money, Node, Offer, Plan, Rate, Record, RunId,
    Timestamp, Work,
};
use plan::{Action, ObservedState, Policy, World};

#[derive(Default)]
struct Machine {
    started: i64,
    ended: Option<i64>,
    /// Moments since the agent froze.
    frozen: u64,
    agent: Agent,
}

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
    fn new(seed: u64) -> Simulation {
        let (world, machines, launches) = (World::default(), BTreeMap::new(), BTreeMap::new());
        let log = Vec::new();
        Simulation {
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

    fn facts(&self) -> ObservedState {
        let mut facts = ObservedState { now: Timestamp(self.now + self.skew), ..ObservedState::default() };
        for (id, _) in self.world.live_instances() {
            let sight = match self.machines.get(id) {
                None => Sight::Unknown,
                Some(Machine { ended: None, .. }) => Sight::Alive,
                Some(Machine { ended: Some(ended), started, .. }) => Sight::Gone(Some(usage(*started, *ended))),
            };
            facts.sights.insert(id.clone(), sight);
        }
        facts.attended = self.world.runs.keys().cloned().collect();
        if self.stormy && self.now % 7_000_000 == 0 {
            facts.attended.clear();
        }
        for (id, machine) in &self.machines {
            facts.silence.insert(id.clone(), Elapsed(machine.frozen * 60_000_000));
        }
        facts.quiet = self.world.runs.keys().map(|id| (id.clone(), Elapsed(u64::MAX))).collect();
        facts
    }

    fn settle(&mut self) -> Result<(), Crash> {
        loop {
            let seq = self.world.last_seq;
            self.disturbed = false;
            for action in plan::reconcile(&self.world, &self.facts(), &Policy::default()) {
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
            Action::Release { instance } => self.append(Event::ReleaseIntended { instance }),
            Action::Terminate { instance } => {
                self.crash_point()?;
                let now = self.now;
                if !self.stormy || chance(&mut self.draws, 70) {
                    self.machines.entry(instance).and_modify(|machine| machine.ended = machine.ended.or(Some(now)));
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
        if self.stormy && chance(&mut self.draws, 10) {
            // As the shell does: only an instance that the provider does not know was refused.
            if self.machines.contains_key(id) {
                return Ok(());
            }
            let finding = Finding::new(Cause::InstanceLost, "the provider is out of machines");
            return self.append(Event::RentFailed { instance: id.clone(), finding });
        }
        let token = self.world.instances[id].token.clone();
        let started = self.now;
        if !self.machines.contains_key(id) {
            *self.launches.entry(token).or_default() += 1;
            self.machines.insert(id.clone(), Machine { started, ..Machine::default() });
        }
        self.crash_point()?;
        self.append(Event::Launched { instance: id.clone() })
    }

    /// One call of an agent, as the loop's `hear` does it.
    fn tick(&mut self, id: &InstanceId) -> Result<(), Crash> {
        let Some(instance) = self.world.instances.get(id) else { return Ok(()) };
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
            if machine.frozen > 0 || (self.stormy && chance(&mut self.draws, 2)) {
                machine.frozen += 1;
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

fn check(seed: u64) -> u32 {
    let mut simulation = Simulation::new(seed);
    let runs = [RunId::new("a"), RunId::new("b")];
    for run in &runs {
        simulation.stormy = false;
        let _ = simulation.append(submitted(run));
    }
    simulation.stormy = true;
    for _ in 0..60 {
        simulation.moment();
    }
    simulation.stormy = false;
    for _ in 0..80 {
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
    }
    for run in &runs {
        let known = &simulation.world.runs[run];
        assert!(matches!(known.state, RunState::Done { .. }), "seed {seed}: run {run} is {:?}", known.state);
        let bill = known.bill.as_ref().unwrap_or_else(|| panic!("seed {seed}: run {run} has no bill"));
        let rate = known.plan.offer.rate;
        let metered = |id: &InstanceId| simulation.machines.get(id).map(|machine| (machine.started, machine.ended));
        let owed = known.instances.iter().filter_map(metered).map(|(started, ended)| {
            let ended = ended.unwrap_or_else(|| panic!("seed {seed}: a machine of run {run} is left running"));
            rate.cost(usage(started, ended).elapsed)
        });
        assert_eq!(bill.total, owed.sum::<Money>(), "seed {seed}: the bill of run {run}");
    }
    assert!(simulation.launches.values().all(|launches| *launches == 1), "seed {seed}: a machine was rented twice");
    assert!(simulation.log.iter().zip(1..).all(|(record, seq)| record.seq == seq), "seed {seed}: the log has a gap");
    assert_eq!(World::replay(&simulation.log).unwrap(), simulation.world, "seed {seed}: replay");
    simulation.crashes
}

#[test]
fn no_crash_leaks_a_machine_or_loses_a_run() {
    let schedules = 5_000;
    let crashes: u32 = (0..schedules).map(check).sum();
    assert!(crashes > 5_000, "the storm was a breeze: {crashes} crashes in {schedules} schedules");
}
