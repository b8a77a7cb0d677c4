//! A loop that is away for long costs no measurement: what an agent's memory has no space for is read back from its disk. Hundreds
//! of drawn schedules of reports, calls whose request or reply is lost, a loop that refuses measurements, and slow reads.

use std::collections::BTreeSet;

use control::{QueueMemory, SpoolRange, Supervisor, SupervisorInput, SupervisorOutput, is_decision};
use domain::random::Draws;
use domain::rank::Report;
use domain::wire::{AgentCommand, AgentEvent, Entry, Heartbeat, HeartbeatReply, Start};
use domain::{AttemptId, Duration, Elapsed, Fence, InstanceId, Job, RunId, Timestamp};

const SECOND: u64 = 1_000_000;

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    RequestLost,
    ReplyLost,
    /// The loop has no space for measurements.
    Refused,
    Taken,
}

/// An agent, its disk, and its loop.
struct World {
    draws: Draws,
    now: u64,
    agent: Supervisor,
    /// Everything that it has recorded.
    recorded: Vec<Entry>,
    /// The measurements on its disk.
    disk: Vec<Entry>,
    /// How many measurements the disk has space for.
    space: usize,
    call: Option<Heartbeat>,
    read: Option<SpoolRange>,
    /// What the loop has, by number.
    stored: BTreeSet<u64>,
    decided: BTreeSet<u64>,
    /// How many dropped measurements the loop has heard of.
    dropped: u64,
    /// The agent knows that measurements up to here are stored.
    acknowledged: u64,
}

fn attempt() -> AttemptId {
    AttemptId::new("a-a1")
}

fn is_measurement(entry: &Entry) -> bool {
    matches!(entry.event, AgentEvent::Reported { .. })
}

impl World {
    /// An agent with so much memory whose attempt has started.
    fn new(seed: u64, memory: QueueMemory, space: usize) -> World {
        let agent = Supervisor::new(InstanceId::new("a-i1"), Timestamp(0), Elapsed(60 * SECOND)).with_memory(memory);
        let mut world = World {
            draws: Draws::new(seed),
            now: 0,
            agent,
            recorded: Vec::new(),
            disk: Vec::new(),
            space,
            call: None,
            read: None,
            stored: BTreeSet::new(),
            decided: BTreeSet::new(),
            dropped: 0,
            acknowledged: 0,
        };
        world.step(SupervisorInput::Timer);
        assert!(world.call.take().is_some());
        let job = Job::parse("name: job\nrun: 'true'\n", "job.yaml").unwrap().job;
        let start = AgentCommand::Start(Box::new(Start {
            run: RunId::new("a"),
            attempt: attempt(),
            fence: Fence(1),
            job,
            job_hash: String::new(),
            threads: 1,
            accept_data_change: false,
            member: None,
            folder: String::new(),
        }));
        world.step(SupervisorInput::Answered(Some(Box::new(reply(0, 0, vec![start])))));
        world
    }

    fn step(&mut self, input: SupervisorInput) {
        for output in self.agent.step(input, Elapsed(self.now)) {
            match output {
                SupervisorOutput::Write(entry) => {
                    if is_measurement(&entry) {
                        self.disk.push(entry.clone());
                        if self.disk.len() > self.space {
                            self.disk.remove(0);
                        }
                    }
                    self.recorded.push(entry);
                }
                SupervisorOutput::Forget { before } => self.disk.retain(|entry| entry.seq >= before),
                SupervisorOutput::ReadBack(range) => {
                    assert!(self.read.is_none(), "one range at a time");
                    self.read = Some(range);
                }
                SupervisorOutput::Call(heartbeat) => {
                    assert!(self.call.is_none(), "one call at a time");
                    self.call = Some(heartbeat);
                }
                SupervisorOutput::Begin(_) => {}
                SupervisorOutput::Go { .. } | SupervisorOutput::End { .. } | SupervisorOutput::Leave(_) => {
                    panic!("nothing ends here: {output:?}");
                }
            }
        }
    }

    /// The ranks report something.
    fn report(&mut self) {
        let count = 1 + self.draws.below(8);
        let events = (0..count).map(|_| match self.draws.below(20) {
            0 => AgentEvent::Idle,
            // Which is a decision too, and may be stored as that although it is gone as a measurement.
            1 if self.space == usize::MAX => reported(Report::Trained),
            _ => reported(Report::Note { text: "a".repeat(self.draws.below(300) as usize) }),
        });
        let events = events.collect();
        self.step(SupervisorInput::Happened { attempt: attempt(), events });
    }

    /// The call under way is over.
    fn answer(&mut self, fate: Fate) {
        let Some(heartbeat) = self.call.take() else { return };
        if fate == Fate::RequestLost {
            return self.step(SupervisorInput::Answered(None));
        }
        let sent = &heartbeat.entries;
        assert!(sent.windows(2).all(|pair| pair[0].seq < pair[1].seq), "in order");
        for entry in sent {
            if is_decision(&entry.event) {
                self.decided.insert(entry.seq);
            }
            if is_measurement(entry) && fate != Fate::Refused {
                self.store(entry);
            }
        }
        if fate == Fate::ReplyLost {
            return self.step(SupervisorInput::Answered(None));
        }
        let last = sent.last().map_or(0, |entry| entry.seq);
        let measured = if fate == Fate::Refused { 0 } else { last };
        let kept = sent.iter().filter(|entry| measured > 0 && is_measurement(entry) && !is_decision(&entry.event));
        self.acknowledged = kept.map(|entry| entry.seq).max().unwrap_or(0).max(self.acknowledged);
        self.step(SupervisorInput::Answered(Some(Box::new(reply(last, measured, Vec::new())))));
    }

    /// The loop stores a measurement. One that is a decision too may come early as that.
    fn store(&mut self, entry: &Entry) {
        let is_plain = |seq: &u64| !is_decision(&self.recorded[*seq as usize - 1].event);
        let newest = self.stored.iter().rev().copied().find(is_plain).unwrap_or(0);
        assert_eq!(entry, &self.recorded[entry.seq as usize - 1], "it came back as it was");
        if is_decision(&entry.event) {
            self.stored.insert(entry.seq);
            return;
        }
        assert!(entry.seq > self.acknowledged, "{} was acknowledged", entry.seq);
        assert!(entry.seq > newest || self.stored.contains(&entry.seq), "{} comes after {newest}", entry.seq);
        let is_new = self.stored.insert(entry.seq);
        if let (true, AgentEvent::Reported { report: Report::Note { text }, .. }) = (is_new, &entry.event) {
            let told = text.split_once(" measurements were dropped").map(|(count, _)| count.parse::<u64>().unwrap());
            self.dropped += told.unwrap_or(0);
        }
    }

    /// The disk has read what was asked for, or the first part of it: so many entries at most.
    fn read(&mut self, most: usize) {
        let Some(range) = self.read.take() else { return };
        let (mut through, mut bytes, mut entries) = (*range.entries.end(), 0, Vec::new());
        for entry in self.disk.iter().filter(|entry| range.entries.contains(&entry.seq)) {
            bytes += serde_json::to_vec(entry).unwrap().len();
            if (bytes > range.bytes || entries.len() == most) && !entries.is_empty() {
                through = entry.seq - 1;
                break;
            }
            entries.push(entry.clone());
        }
        self.step(SupervisorInput::ReadBack { through, entries });
    }

    fn wait(&mut self, longest: u64) {
        self.now += self.draws.below(longest);
        self.step(SupervisorInput::Timer);
    }

    /// Lets things happen; the loop is away, refuses measurements or answers, by turns.
    fn live(&mut self, turns: u64) {
        for _ in 0..turns {
            let (loses, refuses) = (self.draws.below(3) == 0, self.draws.below(5) == 0);
            for _ in 0..self.draws.below(60) {
                let fate = match self.draws.below(5) {
                    _ if loses => Fate::RequestLost,
                    0 => Fate::ReplyLost,
                    _ if refuses => Fate::Refused,
                    _ => Fate::Taken,
                };
                match self.draws.below(8) {
                    0..4 => self.report(),
                    4 => {
                        let most = 1 + self.draws.below(20) as usize;
                        self.read(most);
                    }
                    5 => self.wait(SECOND),
                    _ => self.answer(fate),
                }
            }
        }
    }

    /// The loop is there until it has everything.
    fn catch_up(&mut self) {
        for _ in 0..20_000 {
            let count = |is_one: fn(&Entry) -> bool| self.recorded.iter().filter(|entry| is_one(entry)).count();
            let (measurements, decisions) = (count(is_measurement), count(|entry| is_decision(&entry.event)));
            if self.stored.len() as u64 + self.dropped >= measurements as u64 && self.decided.len() == decisions {
                return;
            }
            self.read(usize::MAX);
            self.answer(Fate::Taken);
            self.now = self.now.max(self.agent.due().0.min(self.now + SECOND));
            self.step(SupervisorInput::Timer);
        }
        panic!("the loop has {} of {} measurements", self.stored.len(), self.recorded.len());
    }
}

fn reported(report: Report) -> AgentEvent {
    AgentEvent::Reported { rank: 0, report }
}

fn reply(acknowledged: u64, measured: u64, orders: Vec<AgentCommand>) -> HeartbeatReply {
    let (lease, next) = (Duration::from_secs(1_000_000), Duration::from_secs(1));
    HeartbeatReply { acknowledged, measured: Some(measured), lease, saving: None, next, orders }
}

#[test]
fn every_measurement_arrives_once_and_in_order_whatever_happens_to_calls() {
    for seed in 0..400 {
        let mut draws = Draws::new(1_000 + seed);
        let memory = QueueMemory { entries: 1 + draws.below(60) as usize, bytes: 500 + draws.below(20_000) as usize };
        let mut world = World::new(seed, memory, usize::MAX);
        world.live(10);
        world.catch_up();
        let numbers = |keeps: fn(&Entry) -> bool| -> BTreeSet<u64> {
            world.recorded.iter().filter(|entry| keeps(entry)).map(|entry| entry.seq).collect()
        };
        assert_eq!(world.stored, numbers(is_measurement), "seed {seed}");
        assert_eq!(world.decided, numbers(|entry| is_decision(&entry.event)), "seed {seed}");
        assert_eq!(world.dropped, 0, "seed {seed}");
    }
}

#[test]
fn what_the_disk_has_no_space_for_is_counted_to_the_last_measurement() {
    let mut dropped = 0;
    for seed in 0..200 {
        let memory = QueueMemory { entries: 20, bytes: 1 << 20 };
        let mut world = World::new(seed, memory, 60);
        world.live(10);
        world.catch_up();
        let measurements = world.recorded.iter().filter(|entry| is_measurement(entry)).count() as u64;
        assert_eq!(world.stored.len() as u64 + world.dropped, measurements, "seed {seed}");
        dropped += world.dropped;
    }
    assert!(dropped > 100, "{dropped}");
}

/// Twice as many as memory has: the calls follow one another, and each is full.
#[test]
fn a_backlog_is_sent_as_fast_as_the_loop_answers() {
    let mut world = World::new(0, QueueMemory::default(), usize::MAX);
    for _ in 0..1_000 {
        let events = vec![reported(Report::Note { text: "a step".to_owned() }); 110];
        world.step(SupervisorInput::Happened { attempt: attempt(), events });
        world.answer(Fate::RequestLost);
    }
    assert_eq!((world.recorded.len(), world.stored.len()), (110_000, 0));
    let mut calls = 0;
    while world.stored.len() < 110_000 {
        // An answer after 20 ms, which is sooner than the next call.
        world.now += 20_000;
        calls += u64::from(world.call.is_some());
        world.answer(Fate::Taken);
        world.read(usize::MAX);
        world.now += 10_000;
        world.step(SupervisorInput::Timer);
        assert!(calls <= 57, "2,000 at once: {} after {calls} calls", world.stored.len());
        assert!(world.now < 3 * SECOND, "one call after the other");
    }
}
