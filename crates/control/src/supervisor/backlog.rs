//! The measurements that the loop has not acknowledged yet: the oldest in memory, as many more in the spool as a disk holds.
//!
//! ```text
//! held in memory, sent next | spilled: only in the spool | newer, in memory again
//! ```
//!
//! Every measurement is written to the spool. While memory is full, newer ones are only there; they are read back in chunks, oldest
//! first, as the loop acknowledges. Those that are made while the last chunk is read stay in memory again, so reading comes to
//! an end however fast they are made. What the spool no longer has counts as dropped.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use domain::wire::{AgentEvent, Entry};

/// Memory for measurements that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueMemory {
    /// How many.
    pub entries: usize,
    /// Their bytes, as they are sent.
    pub bytes: usize,
}

impl Default for QueueMemory {
    /// About 20 MB for steps. One entry that is longer than all bytes is still held, alone.
    fn default() -> QueueMemory {
        QueueMemory { entries: 50_000, bytes: 64 << 20 }
    }
}

impl QueueMemory {
    /// What is read back at once: small enough to be asked for long before memory has nothing more to send.
    fn chunk(self) -> QueueMemory {
        QueueMemory { entries: (self.entries / 5).max(1), bytes: self.bytes / 8 }
    }
}

/// Entries to read back from the spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpoolRange {
    /// Their numbers.
    pub entries: RangeInclusive<u64>,
    /// The oldest of them are enough, up to so many bytes; one at least.
    pub bytes: usize,
}

/// An entry, and how long it is in a call.
#[derive(Debug, Clone)]
pub(super) struct QueuedEntry {
    pub entry: Entry,
    pub bytes: usize,
}

impl QueuedEntry {
    /// Measures an entry.
    pub fn new(entry: Entry) -> QueuedEntry {
        let bytes = serde_json::to_vec(&entry).map_or(0, |text| text.len());
        QueuedEntry { entry, bytes }
    }
}

/// The measurements that wait.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    limit: QueueMemory,
    /// The oldest.
    held: VecDeque<QueuedEntry>,
    spilled: Option<Spilled>,
    /// Newer than those that are spilled.
    newer: VecDeque<QueuedEntry>,
    /// Bytes of those in memory.
    bytes: usize,
    /// How many the spool did not have, and nobody has heard of it.
    dropped: u64,
}

/// Measurements that are only in the spool. The last number is one of them.
#[derive(Debug)]
struct Spilled {
    first: u64,
    last: u64,
    /// Numbers from the first one on of events that are no measurements.
    others: VecDeque<u64>,
    /// Up to which number they are being read.
    reading: Option<u64>,
}

impl Spilled {
    /// How many there are up to a number.
    fn count(&self, through: u64) -> u64 {
        let others = self.others.iter().filter(|seq| **seq <= through).count();
        (through + 1 - self.first).saturating_sub(others as u64)
    }
}

impl Backlog {
    /// None, with so much memory for those to come.
    pub fn with_limit(limit: QueueMemory) -> Backlog {
        Backlog { limit, ..Backlog::default() }
    }

    /// Adds the newest measurement.
    pub fn push(&mut self, queued: QueuedEntry) {
        let chunk = self.limit.chunk();
        let is_first = self.held.is_empty() && self.spilled.is_none();
        let is_held =
            self.spilled.is_none() && (is_first || self.fits(QueueMemory { entries: 1, bytes: queued.bytes }));
        let is_last_read = self.spilled.as_ref().is_some_and(|spilled| spilled.reading == Some(spilled.last));
        // What is being read has its place.
        let beside = QueueMemory { entries: chunk.entries + 1, bytes: chunk.bytes + queued.bytes };
        if is_held || is_last_read && self.fits(beside) {
            self.bytes += queued.bytes;
            let queue = if is_held { &mut self.held } else { &mut self.newer };
            queue.push_back(queued);
        } else {
            self.spill(queued.entry.seq);
        }
    }

    /// Counts an event that is no measurement, and has a number among theirs.
    pub fn pass(&mut self, seq: u64) {
        if let Some(spilled) = &mut self.spilled {
            spilled.others.push_back(seq);
        }
    }

    /// Leaves the newest measurement, and those before it that memory has out of turn, to the spool.
    fn spill(&mut self, seq: u64) {
        self.bytes -= self.newer.iter().map(|queued| queued.bytes).sum::<usize>();
        self.newer.clear();
        match &mut self.spilled {
            Some(spilled) => spilled.last = seq,
            None => self.spilled = Some(Spilled { first: seq, last: seq, others: VecDeque::new(), reading: None }),
        }
    }

    /// Whether memory has space for so much more.
    fn fits(&self, more: QueueMemory) -> bool {
        let used = self.memory();
        used.entries + more.entries <= self.limit.entries && used.bytes + more.bytes <= self.limit.bytes
    }

    /// What is to be read back now, if memory has space for it; one range at a time.
    pub fn read_back(&mut self) -> Option<SpoolRange> {
        let chunk = self.limit.chunk();
        let has_space = self.held.is_empty() || self.fits(chunk);
        let spilled = self.spilled.as_mut().filter(|spilled| has_space && spilled.reading.is_none())?;
        let last = spilled.last.min(spilled.first.saturating_add(chunk.entries as u64 - 1));
        spilled.reading = Some(last);
        Some(SpoolRange { entries: spilled.first..=last, bytes: chunk.bytes })
    }

    /// Takes in what was read: all that the spool has of the range that was asked for, up to entry `through`.
    pub fn restore(&mut self, through: u64, entries: Vec<Entry>) {
        let Some(spilled) = &mut self.spilled else { return };
        let Some(asked) = spilled.reading.take() else { return };
        let through = through.clamp(spilled.first, asked);
        let (mut next, mut missing) = (spilled.first, spilled.count(through));
        for entry in entries {
            let is_due = (next..=through).contains(&entry.seq);
            if is_due && matches!(entry.event, AgentEvent::Reported { .. }) {
                next = entry.seq + 1;
                missing = missing.saturating_sub(1);
                let queued = QueuedEntry::new(entry);
                self.bytes += queued.bytes;
                self.held.push_back(queued);
            }
        }
        self.dropped += missing;
        if spilled.last <= through {
            self.spilled = None;
            self.held.append(&mut self.newer);
        } else {
            spilled.first = through + 1;
            while spilled.others.front().is_some_and(|seq| *seq <= through) {
                spilled.others.pop_front();
            }
        }
    }

    /// The oldest, which are sent next.
    pub fn held(&self) -> &VecDeque<QueuedEntry> {
        &self.held
    }

    /// The number of the oldest that is held.
    pub fn first(&self) -> Option<u64> {
        self.held.front().map(|queued| queued.entry.seq)
    }

    /// The number before which there is none.
    pub fn oldest(&self) -> Option<u64> {
        self.first().or(self.spilled.as_ref().map(|spilled| spilled.first))
    }

    /// Takes the oldest out, if it is held.
    pub fn pop(&mut self) -> Option<Entry> {
        let QueuedEntry { entry, bytes } = self.held.pop_front()?;
        self.bytes -= bytes;
        Some(entry)
    }

    /// Whether some are only in the spool.
    pub fn is_spilled(&self) -> bool {
        self.spilled.is_some()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.oldest().is_none()
    }

    /// What memory has of them.
    pub fn memory(&self) -> QueueMemory {
        QueueMemory { entries: self.held.len() + self.newer.len(), bytes: self.bytes }
    }

    /// How many were dropped since this was asked last.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }
}
