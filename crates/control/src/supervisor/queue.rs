//! An agent's reports that the loop has not acknowledged yet.
//!
//! Decisions and measurements are two streams that the loop acknowledges independently, so measurements that it cannot
//! store never hold back the end of an attempt. They share one numbering. Decisions are queued in memory indefinitely;
//! measurements in memory and in the spool (`backlog`), and a note reports how many the spool has dropped. A call
//! carries what the loop takes at once: a program chooses how long its notes are.

use std::collections::VecDeque;

use domain::AttemptId;
use domain::rank::Report;
use domain::wire::{AgentEvent, Entry, HEARTBEAT_MAX};

use super::backlog::{Backlog, QueueMemory, QueuedEntry, SpoolRange};

/// Entries in one call.
pub(super) const BATCH: usize = 2000;

/// Bytes of the entries of a call: well below what the loop takes, and one entry at least. A call of fewer entries has as many
/// times fewer.
const SEND_BYTES: usize = HEARTBEAT_MAX / 4;

/// Measurements per call while the loop cannot store them: enough to notice when it can again.
const PROBE: usize = 1;

/// The events that wait to be acknowledged.
#[derive(Debug, Default)]
pub struct EntryQueue {
    last: u64,
    /// Events whose loss would cost work, oldest first.
    decisions: VecDeque<QueuedEntry>,
    /// Reports of which the loop keeps the measurement. Some are decisions too.
    measurements: Backlog,
    /// The newest measurement of those that were all sent.
    offered: u64,
    /// Whether the loop failed to store the measurements of the last call.
    is_refused: bool,
    /// The attempt that reported last.
    attempt: Option<AttemptId>,
    urgent: bool,
}

impl EntryQueue {
    /// An empty queue with so much memory for measurements.
    pub fn with_memory(memory: QueueMemory) -> EntryQueue {
        EntryQueue { measurements: Backlog::with_limit(memory), ..EntryQueue::default() }
    }

    /// Adds an event, and returns it as it is to be written down.
    pub fn push(&mut self, attempt: &AttemptId, event: AgentEvent) -> Entry {
        let is_decision = is_decision(&event);
        let is_measurement = matches!(event, AgentEvent::Reported { .. });
        self.last += 1;
        let entry = Entry { seq: self.last, attempt: attempt.clone(), event };
        let queued = QueuedEntry::new(entry.clone());
        if is_decision {
            self.decisions.push_back(queued.clone());
        }
        match is_measurement {
            true => self.measurements.push(queued),
            false => self.measurements.pass(entry.seq),
        }
        if self.attempt.as_ref() != Some(attempt) {
            self.attempt = Some(attempt.clone());
        }
        self.urgent |= is_decision;
        entry
    }

    /// Drops the decisions up to `decided` and, of the measurements that were sent, those up to `measured`. Returns a
    /// note about dropped measurements once they are stored again, and memory has all that wait.
    pub fn acknowledge(&mut self, decided: u64, measured: u64) -> Option<Entry> {
        while self.decisions.front().is_some_and(|queued| queued.entry.seq <= decided) {
            self.decisions.pop_front();
        }
        let offered = self.offered;
        self.is_refused = self.measurements.first().is_some_and(|seq| measured < seq && seq <= offered);
        let kept = measured.min(offered);
        let mut note = None;
        while self.measurements.first().is_some_and(|seq| seq <= kept) {
            let popped = self.measurements.pop();
            // While some are only in the spool, more may turn out to be dropped, and the note itself.
            if let Some(entry) = popped.filter(|_| !self.measurements.is_spilled()) {
                note = self.note_dropped(&entry.attempt).or(note);
            }
        }
        note
    }

    /// What is to be read back from the spool now, if anything; then [`EntryQueue::restore`] is called with it, once.
    pub fn read_back(&mut self) -> Option<SpoolRange> {
        self.measurements.read_back()
    }

    /// Takes in what was read back: all that the spool has of the range up to entry `through`, oldest first. Returns a note
    /// about dropped measurements if no measurement waits with whose acknowledgement there would be one.
    pub fn restore(&mut self, through: u64, entries: Vec<Entry>) -> Option<Entry> {
        self.measurements.restore(through, entries);
        let attempt = self.attempt.clone().filter(|_| self.measurements.is_empty())?;
        self.note_dropped(&attempt)
    }

    fn note_dropped(&mut self, attempt: &AttemptId) -> Option<Entry> {
        let dropped = self.measurements.take_dropped();
        let text = format!(
            "{dropped} measurements were dropped: while they waited for the control loop, the disk could not hold them"
        );
        (dropped > 0).then(|| self.push(attempt, AgentEvent::Reported { rank: 0, report: Report::Note { text } }))
    }

    /// The entries to send, in order: the oldest decisions, and as many of the oldest measurements as `count` and their length
    /// allow.
    pub fn send(&mut self, count: usize) -> Vec<Entry> {
        self.urgent = false;
        let most = SEND_BYTES / BATCH * count.min(BATCH);
        let (decisions, bytes) = fitting(&self.decisions, count, (most, true));
        // The answer acknowledges all decisions before the last entry, so nothing is sent behind one that is left out.
        let room = if decisions == self.decisions.len() { count - decisions } else { 0 };
        let room = if self.is_refused { room.min(PROBE) } else { room };
        let (measurements, _) = fitting(self.measurements.held(), room, (bytes, decisions == 0));
        let measured = self.measurements.held().iter().take(measurements);
        self.offered = measured.clone().next_back().map_or(0, |queued| queued.entry.seq);
        let all = self.decisions.iter().take(decisions).chain(measured);
        let mut entries: Vec<Entry> = all.map(|queued| queued.entry.clone()).collect();
        entries.sort_by_key(|entry| entry.seq);
        entries.dedup_by_key(|entry| entry.seq);
        entries
    }

    /// Whether everything was acknowledged.
    pub fn is_empty(&self) -> bool {
        self.decisions.is_empty() && self.measurements.is_empty()
    }

    /// Whether every decision was acknowledged.
    pub fn is_decided(&self) -> bool {
        self.decisions.is_empty()
    }

    /// Whether a call would carry something: not while the rest is being read back.
    pub fn can_send(&self) -> bool {
        !self.decisions.is_empty() || self.ready() > 0
    }

    /// The number before which every entry was acknowledged or dropped.
    pub fn oldest(&self) -> u64 {
        let decision = self.decisions.front().map(|queued| queued.entry.seq);
        decision.into_iter().chain(self.measurements.oldest()).min().unwrap_or(self.last + 1)
    }

    /// How many measurements the next calls can carry before more are read back.
    pub fn ready(&self) -> usize {
        self.measurements.held().len()
    }

    /// Memory that measurements take now.
    pub fn memory(&self) -> QueueMemory {
        self.measurements.memory()
    }

    /// Whether only measurements wait, and the loop cannot keep them now.
    pub fn is_refused(&self) -> bool {
        self.is_refused && self.decisions.is_empty()
    }

    /// Whether a decision has not been sent yet.
    pub fn is_urgent(&self) -> bool {
        self.urgent
    }
}

/// How many of the first entries are sent, at most `count`, within so many bytes, and how many bytes are left. One that is longer
/// is sent where it `may_be_alone`.
fn fitting(queue: &VecDeque<QueuedEntry>, count: usize, (bytes, may_be_alone): (usize, bool)) -> (usize, usize) {
    let (mut number, mut left) = (0, bytes);
    for queued in queue.iter().take(count) {
        let is_alone = may_be_alone && number == 0;
        if queued.bytes > left && !is_alone {
            break;
        }
        left = left.saturating_sub(queued.bytes);
        number += 1;
    }
    (number, left)
}

/// Whether losing the event would cost work; measurements would not.
pub fn is_decision(event: &AgentEvent) -> bool {
    match event {
        AgentEvent::Prepared { .. } | AgentEvent::Started | AgentEvent::Idle | AgentEvent::Ended { .. } => true,
        AgentEvent::Reported { report, .. } => match report {
            Report::Ready(_) | Report::Result(_) | Report::Exported(_) | Report::Trained => true,
            Report::Stopped { .. } | Report::Failed(_) | Report::Checkpointed(_) => true,
            Report::Hello { .. } | Report::Preparing { .. } | Report::Step(_) | Report::Evaluated(_) => false,
            Report::Metrics(_) | Report::Devices { .. } | Report::Note { .. } | Report::Pausing { .. } => false,
        },
        // An agent sends only events that it knows.
        AgentEvent::Unknown => false,
    }
}

#[cfg(test)]
mod tests {
    use domain::run::AttemptEnd;
    use domain::{Cause, Finding};

    use super::*;

    fn note(text: &str) -> AgentEvent {
        AgentEvent::Reported { rank: 0, report: Report::Note { text: text.to_owned() } }
    }

    fn numbers(entries: &[Entry]) -> Vec<u64> {
        entries.iter().map(|entry| entry.seq).collect()
    }

    /// Sends and acknowledges everything; the numbers of the entries of each call, none of which is too long.
    fn calls(queue: &mut EntryQueue) -> Vec<Vec<u64>> {
        let mut calls = Vec::new();
        while !queue.is_empty() {
            let sent = queue.send(2000);
            assert!(serde_json::to_vec(&sent).unwrap().len() < HEARTBEAT_MAX / 2);
            let last = sent.last().unwrap().seq;
            calls.push(sent.iter().map(|entry| entry.seq).collect());
            queue.acknowledge(last, last);
        }
        calls
    }

    #[test]
    fn no_call_is_longer_than_the_loop_takes_however_long_notes_are() {
        let attempt = AttemptId::new("digits-1-a1");
        let mut queue = EntryQueue::default();
        let note = |bytes: usize| note(&"a".repeat(bytes));
        for _ in 0..3 {
            queue.push(&attempt, note(SEND_BYTES / 2 - 1000));
        }
        queue.push(&attempt, note(SEND_BYTES));
        assert_eq!(calls(&mut queue), [vec![1, 2], vec![3], vec![4]], "the longest is sent alone");
        // Of those that the loop cannot keep, memory has only so much.
        let most = QueueMemory::default().bytes;
        for _ in 0..4 {
            queue.push(&attempt, note(most / 2));
        }
        let memory = queue.memory();
        assert!(memory.entries == 1 && memory.bytes <= most, "{memory:?}");
    }

    #[test]
    fn a_decision_that_is_too_long_for_a_call_is_not_acknowledged_with_it() {
        let attempt = AttemptId::new("digits-1-a1");
        let mut queue = EntryQueue::default();
        for _ in 0..2 {
            let finding = Finding::new(Cause::ExitCode, "a".repeat(SEND_BYTES / 3 * 2));
            queue.push(&attempt, AgentEvent::Ended { end: AttemptEnd::Failed { finding, exit_code: None } });
        }
        queue.push(&attempt, note("a"));
        assert_eq!(calls(&mut queue), [vec![1], vec![2, 3]]);
    }

    #[test]
    fn an_end_is_sent_however_many_measurements_nobody_keeps() {
        let attempt = AttemptId::new("digits-1-a1");
        let mut queue = EntryQueue::with_memory(QueueMemory { entries: 100, bytes: 1 << 20 });
        let end = AgentEvent::Ended { end: AttemptEnd::Succeeded };
        let mut spool = vec![queue.push(&attempt, AgentEvent::Started)];
        spool.extend((0..110).map(|_| queue.push(&attempt, note("a"))));
        spool.push(queue.push(&attempt, end.clone()));
        let sent = queue.send(2000);
        assert_eq!((sent.len(), &sent[0].event, &sent[101].event), (102, &AgentEvent::Started, &end));
        queue.acknowledge(112, 0);
        assert!(queue.is_refused() && !queue.is_empty() && queue.is_decided());
        assert_eq!(numbers(&queue.send(2000)), [2], "one is enough to notice that they are stored again");
        assert_eq!(queue.acknowledge(2, 2), None);
        assert!(!queue.is_refused());
        assert_eq!(queue.read_back(), None, "memory has no space yet");
        // All remaining ones are sent once the loop stores them, and nothing was dropped.
        let mut heard = vec![2];
        while !queue.is_empty() {
            if let Some(SpoolRange { entries, .. }) = queue.read_back() {
                let read = spool.iter().filter(|entry| entries.contains(&entry.seq)).cloned().collect();
                assert_eq!(queue.restore(*entries.end(), read), None);
            }
            let sent = numbers(&queue.send(2000));
            assert_eq!(queue.acknowledge(*sent.last().unwrap(), *sent.last().unwrap()), None);
            heard.extend(sent);
        }
        assert_eq!(heard, (2..=111).collect::<Vec<u64>>());
        assert_eq!(queue.oldest(), 113);
    }

    #[test]
    fn a_note_says_how_many_measurements_the_spool_no_longer_had() {
        let attempt = AttemptId::new("digits-1-a1");
        let dropped = |count: u64| {
            note(&format!(
                "{count} measurements were dropped: while they waited for the control loop, the disk could not hold them"
            ))
        };
        let range = |entries| Some(SpoolRange { entries, bytes: 1 << 17 });
        let mut queue = EntryQueue::with_memory(QueueMemory { entries: 10, bytes: 1 << 20 });
        let mut spool: Vec<Entry> = (0..13).map(|_| queue.push(&attempt, note("a"))).collect();
        spool.push(queue.push(&attempt, AgentEvent::Started));
        spool.push(queue.push(&attempt, note("a")));
        assert_eq!((queue.ready(), queue.oldest()), (10, 1));
        queue.send(2000);
        queue.acknowledge(14, 10);
        assert_eq!((queue.ready(), queue.oldest()), (0, 11));
        // Of measurements 11, 12, 13 and 15 the first two are gone, and 14 is none.
        assert_eq!(queue.read_back(), range(11..=12));
        assert_eq!(queue.read_back(), None, "one after the other");
        assert_eq!(queue.restore(12, Vec::new()), None, "there are more");
        assert_eq!(queue.read_back(), range(13..=14));
        assert_eq!(queue.restore(14, spool[12..14].to_vec()), None);
        assert_eq!(numbers(&queue.send(2000)), [13]);
        assert_eq!(queue.acknowledge(13, 13), None, "there may be more");
        assert_eq!(queue.read_back(), range(15..=15));
        let told = queue.restore(15, Vec::new()).unwrap();
        assert_eq!((told.seq, told.event), (16, dropped(3)));
        assert_eq!(numbers(&queue.send(2000)), [16]);
        // Where some are left, the note comes with the first of them.
        (17..=27).for_each(|_| drop(queue.push(&attempt, note("a"))));
        assert_eq!((queue.ready(), queue.acknowledge(16, 16)), (10, None));
        queue.send(2000);
        assert_eq!((queue.acknowledge(25, 25), queue.read_back()), (None, range(26..=27)));
        let last = Entry { seq: 27, attempt: attempt.clone(), event: note("a") };
        assert_eq!(queue.restore(27, vec![last]), None);
        queue.send(2000);
        let told = queue.acknowledge(27, 27).unwrap();
        assert_eq!((told.seq, told.event), (28, dropped(1)));
    }

    #[test]
    fn what_is_measured_while_the_last_is_read_back_stays_in_memory_and_in_order() {
        let attempt = AttemptId::new("digits-1-a1");
        let mut queue = EntryQueue::with_memory(QueueMemory { entries: 10, bytes: 1 << 20 });
        let mut spool: Vec<Entry> = (0..12).map(|_| queue.push(&attempt, note("a"))).collect();
        queue.send(2000);
        queue.acknowledge(10, 10);
        let SpoolRange { entries, .. } = queue.read_back().unwrap();
        assert_eq!(entries, 11..=12);
        spool.extend((0..7).map(|_| queue.push(&attempt, note("a"))));
        assert_eq!(queue.memory().entries, 7, "without those that are read");
        assert_eq!((queue.ready(), queue.oldest()), (0, 11));
        // One was read, and the other is asked for again.
        queue.restore(11, spool[10..11].to_vec());
        assert_eq!(numbers(&queue.send(2000)), [11]);
        assert_eq!(queue.read_back().unwrap().entries, 12..=12);
        queue.push(&attempt, note("a"));
        assert_eq!(
            queue.memory().entries,
            1,
            "beside what is read there is no space for nine more, and the spool has them"
        );
        queue.restore(12, spool[11..12].to_vec());
        assert_eq!(numbers(&queue.send(2000)), [11, 12]);
        assert_eq!(queue.read_back().unwrap().entries, 13..=14);
    }

    #[test]
    fn entries_wait_in_order_until_they_are_acknowledged() {
        let attempt = AttemptId::new("digits-1-a1");
        let mut queue = EntryQueue::default();
        assert!(queue.is_empty() && !queue.is_urgent());
        for text in ["a", "b", "c"] {
            queue.push(&attempt, note(text));
        }
        assert!(!queue.is_urgent());
        queue.push(&attempt, AgentEvent::Started);
        assert!(queue.is_urgent());
        let seqs = |queue: &mut EntryQueue, count| queue.send(count).iter().map(|entry| entry.seq).collect::<Vec<_>>();
        assert_eq!(seqs(&mut queue, 10), [1, 2, 3, 4]);
        assert!(!queue.is_urgent());
        assert_eq!(seqs(&mut queue, 3), [1, 2, 4]);
        queue.acknowledge(2, 2);
        assert_eq!(seqs(&mut queue, 9), [3, 4]);
        queue.acknowledge(1, 1);
        assert_eq!(seqs(&mut queue, 9), [3, 4]);
        queue.acknowledge(4, 3);
        assert!(queue.is_empty() && queue.is_decided());
        queue.push(&attempt, AgentEvent::Started);
        assert_eq!(seqs(&mut queue, 9), [5], "numbers go on without gaps");
    }
}
