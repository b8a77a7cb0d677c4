//! An agent's queue and its spool on a disk: in drawn interleavings of reports, calls, reads and the agent's death nothing is lost.

use std::collections::BTreeSet;
use std::fs;

use control::{EntryQueue, QueueMemory, is_decision};
use domain::AttemptId;
use domain::random::Draws;
use domain::rank::Report;
use domain::wire::{AgentEvent, Entry};
use node::{Folder, Spool, SpoolLimits};

use super::*;

/// Files so short that there are many.
const LIMITS: SpoolLimits = SpoolLimits { file: 3_000, all: u64::MAX };

struct World {
    draws: Draws,
    memory: QueueMemory,
    queue: EntryQueue,
    spool: Spool,
    folder: Folder,
    _temporary: tempfile::TempDir,
    /// What is under way.
    read: Option<SpoolRead>,
    measured: BTreeSet<u64>,
    stored: BTreeSet<u64>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut draws = Draws::new(seed);
        let memory = QueueMemory { entries: 5 + draws.below(60) as usize, bytes: 2_000 + draws.below(20_000) as usize };
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::new(temporary.path());
        let (queue, spool) = (EntryQueue::with_memory(memory), Spool::with_limits(&folder, LIMITS).unwrap());
        let (measured, stored) = (BTreeSet::new(), BTreeSet::new());
        World { draws, memory, queue, spool, folder, _temporary: temporary, read: None, measured, stored }
    }

    fn write(&mut self, entry: &Entry) {
        self.spool.write(entry, is_decision(&entry.event)).unwrap();
        if matches!(entry.event, AgentEvent::Reported { .. }) {
            self.measured.insert(entry.seq);
        }
        let used = self.queue.memory();
        // One may be longer than all bytes.
        assert!(used.entries <= self.memory.entries && used.bytes <= self.memory.bytes + 500, "{used:?}");
    }

    fn report(&mut self) {
        for _ in 0..self.draws.below(9) {
            let event = match self.draws.below(40) {
                0 => AgentEvent::Idle,
                1 => AgentEvent::Reported { rank: 0, report: Report::Trained },
                _ => {
                    let text = "a".repeat(self.draws.below(300) as usize);
                    AgentEvent::Reported { rank: 0, report: Report::Note { text } }
                }
            };
            let entry = self.queue.push(&AttemptId::new("a-a1"), event);
            self.write(&entry);
        }
    }

    /// The loop takes a call, refuses its measurements, or its answer is lost.
    fn call(&mut self, (refuses, is_lost): (bool, bool)) {
        let sent = self.queue.send(50);
        let last = sent.last().map_or(0, |entry| entry.seq);
        if !refuses {
            let measured = sent.iter().filter(|entry| matches!(entry.event, AgentEvent::Reported { .. }));
            self.stored.extend(measured.map(|entry| entry.seq));
        }
        if is_lost {
            return;
        }
        let note = self.queue.acknowledge(last, if refuses { 0 } else { last });
        assert_eq!(note, None, "nothing is dropped");
        if self.queue.is_decided() {
            self.spool.forget(self.queue.oldest()).unwrap();
        }
    }

    /// Asks for what is to be read back, or takes in what was asked for earlier.
    fn read(&mut self) {
        match self.read.take() {
            Some(read) => {
                let SpoolPart { through, entries } = patiently(&read, Duration::ZERO);
                assert_eq!(self.queue.restore(through, entries), None, "nothing is dropped");
            }
            None => self.read = self.queue.read_back().map(|range| self.spool.find(range.entries, range.bytes)),
        }
    }

    fn live(&mut self) {
        for _ in 0..8 {
            let (loses, refuses) = (self.draws.below(3) == 0, self.draws.below(5) == 0);
            for _ in 0..self.draws.below(60) {
                match self.draws.below(6) {
                    0..3 => self.report(),
                    3 => self.read(),
                    _ => {
                        let is_lost = loses || self.draws.below(5) == 0;
                        self.call((refuses || loses, is_lost));
                    }
                }
            }
        }
    }
}

#[test]
fn a_loop_that_comes_back_hears_of_every_measurement() {
    for seed in 0..60 {
        let mut world = World::new(seed);
        world.live();
        for _ in 0..10_000 {
            world.read();
            world.call((false, false));
        }
        assert!(world.queue.is_empty(), "seed {seed}");
        assert_eq!(world.stored, world.measured, "seed {seed}");
        let files = fs::read_dir(world.folder.measurements()).unwrap().count();
        assert!(files <= 1, "seed {seed}: what is acknowledged takes space in {files} files");
    }
}

#[test]
fn what_an_agent_that_dies_has_not_sent_is_read_from_its_disk() {
    for seed in 100..160 {
        let mut world = World::new(seed);
        world.live();
        let World { spool, folder, measured, mut stored, _temporary, .. } = world;
        drop(spool);
        let left = folder.unacknowledged().unwrap();
        assert!(left.windows(2).all(|pair| pair[0].seq < pair[1].seq), "seed {seed}: each once, and in order");
        stored.extend(left.iter().filter(|entry| measured.contains(&entry.seq)).map(|entry| entry.seq));
        assert_eq!(stored, measured, "seed {seed}");
    }
}

#[test]
fn what_was_read_wakes_the_agent_and_what_cannot_be_read_does_too() {
    let mut world = World::new(0);
    for _ in 0..40 {
        let event = AgentEvent::Reported { rank: 0, report: Report::Note { text: "a".repeat(100) } };
        let entry = world.queue.push(&AttemptId::new("a-a1"), event);
        world.write(&entry);
    }
    let (events, inbox) = mpsc::channel();
    let reader = SpoolReader::start(events);
    reader.read(world.spool.find(1..=40, usize::MAX));
    let Ok(Wakeup::ReadBack(part)) = inbox.recv() else { panic!("it was read") };
    assert!(part.through == 40 && part.entries.iter().map(|entry| entry.seq).eq(1..=40), "{part:?}");
    // A folder cannot be read like a file.
    let first = world.folder.measurements().join("1.jsonl");
    fs::remove_file(&first).unwrap();
    fs::create_dir(&first).unwrap();
    let part = patiently(&world.spool.find(1..=40, usize::MAX), Duration::ZERO);
    let begins = part.entries[0].seq;
    assert!(begins > 1 && part.through == 40 && part.entries.iter().map(|entry| entry.seq).eq(begins..=40), "{part:?}");
}
