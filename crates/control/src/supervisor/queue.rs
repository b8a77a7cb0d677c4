//! An agent's reports that the loop has not acknowledged yet.
//!
//! Decisions and measurements are two streams that the loop acknowledges independently, so measurements that it cannot
//! store never hold back the end of an attempt. They share one numbering. Decisions are queued indefinitely; of
//! measurements only the newest are, and a note reports how many were dropped. A call carries what the loop takes at once: a
//! program chooses how long its notes are.

use std::collections::VecDeque;

use domain::AttemptId;
use domain::rank::Report;
use domain::wire::{AgentEvent, Entry, HEARTBEAT_MAX};

/// Maximum number of queued measurements, about 20 MB of memory; older ones are dropped.
const MOST: usize = 50_000;

/// Bytes of queued measurements, at most, as they are sent; older ones are dropped.
const MOST_BYTES: usize = 64 << 20;

/// Bytes of the entries of a call: well below what the loop takes, and one entry at least.
const SEND_BYTES: usize = HEARTBEAT_MAX / 4;

/// Measurements per call while the loop cannot store them: enough to notice when it can again.
const PROBE: usize = 1;

/// The events that wait to be acknowledged.
#[derive(Debug, Default)]
pub struct EntryQueue {
    last: u64,
    /// Events whose loss would cost work, oldest first.
    decisions: VecDeque<QueuedEntry>,
    /// Reports of which the loop keeps the measurement, oldest first. Some are decisions too.
    measurements: VecDeque<QueuedEntry>,
    /// Bytes of those.
    measured_bytes: usize,
    /// The newest measurement of those that were all sent.
    offered: u64,
    /// Whether the loop failed to store the measurements of the last call.
    is_refused: bool,
    /// Measurements dropped since the last note of it.
    dropped: u64,
    urgent: bool,
}

/// An entry, and how long it is in a call.
#[derive(Debug, Clone)]
struct QueuedEntry {
    entry: Entry,
    bytes: usize,
}

impl EntryQueue {
    /// Adds an event, and returns it as it is to be written down.
    pub fn push(&mut self, attempt: &AttemptId, event: AgentEvent) -> Entry {
        let is_decision = is_decision(&event);
        let is_measurement = matches!(event, AgentEvent::Reported { .. });
        self.last += 1;
        let entry = Entry { seq: self.last, attempt: attempt.clone(), event };
        let queued = QueuedEntry { bytes: json_length(&entry), entry: entry.clone() };
        if is_decision {
            self.decisions.push_back(queued.clone());
        }
        if is_measurement {
            self.measured_bytes += queued.bytes;
            self.measurements.push_back(queued);
            while self.measurements.len() > MOST || self.measured_bytes > MOST_BYTES && self.measurements.len() > 1 {
                self.take_measurement();
                self.dropped += 1;
            }
        }
        self.urgent |= is_decision;
        entry
    }

    /// Drops the decisions up to `decided` and, of the measurements that were sent, those up to `measured`. Returns a
    /// note about dropped measurements once they are stored again.
    pub fn acknowledge(&mut self, decided: u64, measured: u64) -> Option<Entry> {
        while self.decisions.front().is_some_and(|queued| queued.entry.seq <= decided) {
            self.decisions.pop_front();
        }
        let offered = self.offered;
        let first = self.measurements.front().map(|queued| queued.entry.seq);
        self.is_refused = first.is_some_and(|seq| measured < seq && seq <= offered);
        let kept = measured.min(offered);
        let mut note = None;
        while self.measurements.front().is_some_and(|queued| queued.entry.seq <= kept) {
            if let Some(entry) = self.take_measurement() {
                note = self.tell_dropped(&entry.attempt).or(note);
            }
        }
        note
    }

    /// Takes the oldest measurement out.
    fn take_measurement(&mut self) -> Option<Entry> {
        let QueuedEntry { entry, bytes } = self.measurements.pop_front()?;
        self.measured_bytes -= bytes;
        Some(entry)
    }

    fn tell_dropped(&mut self, attempt: &AttemptId) -> Option<Entry> {
        let dropped = std::mem::take(&mut self.dropped);
        let text = format!("{dropped} measurements were dropped: the control loop could not keep them");
        (dropped > 0).then(|| self.push(attempt, AgentEvent::Reported { rank: 0, report: Report::Note { text } }))
    }

    /// The entries to send, in order: the oldest decisions, and as many of the oldest measurements as `count` and their length
    /// allow.
    pub fn send(&mut self, count: usize) -> Vec<Entry> {
        self.urgent = false;
        let (decisions, bytes) = fitting(&self.decisions, count, (SEND_BYTES, true));
        // The answer acknowledges all decisions before the last entry, so nothing is sent behind one that is left out.
        let room = if decisions == self.decisions.len() { count - decisions } else { 0 };
        let room = if self.is_refused { room.min(PROBE) } else { room };
        let (measurements, _) = fitting(&self.measurements, room, (bytes, decisions == 0));
        let measured = self.measurements.iter().take(measurements);
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

    /// How many measurements wait.
    pub fn measurements(&self) -> usize {
        self.measurements.len()
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

/// Bytes of an entry as it is sent.
fn json_length(entry: &Entry) -> usize {
    serde_json::to_vec(entry).map_or(0, |text| text.len())
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
        let note = |bytes: usize| {
            let report = Report::Note { text: "a".repeat(bytes) };
            AgentEvent::Reported { rank: 0, report }
        };
        for _ in 0..3 {
            queue.push(&attempt, note(SEND_BYTES / 2 - 1000));
        }
        queue.push(&attempt, note(SEND_BYTES));
        assert_eq!(calls(&mut queue), [vec![1, 2], vec![3], vec![4]], "the longest is sent alone");
        // Of those that the loop cannot keep, only so much waits.
        for _ in 0..4 {
            queue.push(&attempt, note(MOST_BYTES / 2));
        }
        assert_eq!(queue.measurements(), 1);
    }

    #[test]
    fn a_decision_that_is_too_long_for_a_call_is_not_acknowledged_with_it() {
        let attempt = AttemptId::new("digits-1-a1");
        let mut queue = EntryQueue::default();
        for _ in 0..2 {
            let finding = Finding::new(Cause::ExitCode, "a".repeat(SEND_BYTES / 3 * 2));
            queue.push(&attempt, AgentEvent::Ended { end: AttemptEnd::Failed { finding, exit_code: None } });
        }
        queue.push(&attempt, AgentEvent::Reported { rank: 0, report: Report::Note { text: "a".into() } });
        assert_eq!(calls(&mut queue), [vec![1], vec![2, 3]]);
    }

    #[test]
    fn an_end_is_sent_however_many_measurements_nobody_keeps() {
        let attempt = AttemptId::new("digits-1-a1");
        let mut queue = EntryQueue::default();
        let note = |text: &str| AgentEvent::Reported { rank: 0, report: Report::Note { text: text.to_owned() } };
        let end = AgentEvent::Ended { end: domain::run::AttemptEnd::Succeeded };
        queue.push(&attempt, AgentEvent::Started);
        for _ in 0..MOST + 10 {
            queue.push(&attempt, note("a"));
        }
        queue.push(&attempt, end.clone());
        let sent = queue.send(2000);
        assert_eq!((sent.len(), &sent[0].event, &sent[1999].event), (2000, &AgentEvent::Started, &end));
        queue.acknowledge(sent[1999].seq, 0);
        assert!(queue.is_refused() && !queue.is_empty());
        let probe = queue.send(2000);
        assert_eq!(probe.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [12], "the ten oldest were dropped");
        queue.acknowledge(12, 12);
        assert!(!queue.is_refused());
        // All remaining entries are sent once the loop stores them, and a note reports the missing ones.
        let mut texts = Vec::new();
        while !queue.is_empty() {
            let sent = queue.send(2000);
            let last = sent.last().unwrap().seq;
            texts.extend(sent.into_iter().filter(|entry| entry.event != note("a")).map(|entry| entry.event));
            queue.acknowledge(last, last);
        }
        assert_eq!(texts, [note("10 measurements were dropped: the control loop could not keep them")]);
    }

    #[test]
    fn entries_wait_in_order_until_they_are_acknowledged() {
        let attempt = AttemptId::new("digits-1-a1");
        let note = |text: &str| AgentEvent::Reported { rank: 0, report: Report::Note { text: text.to_owned() } };
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
