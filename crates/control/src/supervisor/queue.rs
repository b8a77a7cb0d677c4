//! An agent's reports that the loop has not acknowledged yet.
//!
//! Decisions and measurements are two streams that the loop acknowledges independently, so measurements that it cannot
//! store never hold back the end of an attempt. They share one numbering. Decisions are queued indefinitely; of
//! measurements only the newest are, and a note reports how many were dropped.

use std::collections::VecDeque;

use domain::AttemptId;
use domain::rank::Report;
use domain::wire::{AgentEvent, Entry};

/// Maximum number of queued measurements, about 20 MB of memory; older ones are dropped.
const MOST: usize = 50_000;

/// Measurements per call while the loop cannot store them: enough to notice when it can again.
const PROBE: usize = 1;

/// The events that wait to be acknowledged.
#[derive(Debug, Default)]
pub struct EntryQueue {
    last: u64,
    /// Events whose loss would cost work, oldest first.
    decisions: VecDeque<Entry>,
    /// Reports of which the loop keeps the measurement, oldest first. Some are decisions too.
    measurements: VecDeque<Entry>,
    /// The newest measurement of those that were all sent.
    offered: u64,
    /// Whether the loop failed to store the measurements of the last call.
    is_refused: bool,
    /// Measurements dropped since the last note of it.
    dropped: u64,
    urgent: bool,
}

impl EntryQueue {
    /// Adds an event, and returns it as it is to be written down.
    pub fn push(&mut self, attempt: &AttemptId, event: AgentEvent) -> Entry {
        let is_decision = is_decision(&event);
        let is_measurement = matches!(event, AgentEvent::Reported { .. });
        self.last += 1;
        let entry = Entry { seq: self.last, attempt: attempt.clone(), event };
        if is_measurement {
            self.measurements.push_back(entry.clone());
            while self.measurements.len() > MOST {
                self.measurements.pop_front();
                self.dropped += 1;
            }
        }
        if is_decision {
            self.decisions.push_back(entry.clone());
        }
        self.urgent |= is_decision;
        entry
    }

    /// Drops the decisions up to `decided` and, of the measurements that were sent, those up to `measured`. Returns a
    /// note about dropped measurements once they are stored again.
    pub fn acknowledge(&mut self, decided: u64, measured: u64) -> Option<Entry> {
        while self.decisions.front().is_some_and(|entry| entry.seq <= decided) {
            self.decisions.pop_front();
        }
        let offered = self.offered;
        self.is_refused = self.measurements.front().is_some_and(|entry| measured < entry.seq && entry.seq <= offered);
        let kept = measured.min(offered);
        let mut note = None;
        while self.measurements.front().is_some_and(|entry| entry.seq <= kept) {
            if let Some(entry) = self.measurements.pop_front() {
                note = self.tell_dropped(&entry.attempt).or(note);
            }
        }
        note
    }

    fn tell_dropped(&mut self, attempt: &AttemptId) -> Option<Entry> {
        let dropped = std::mem::take(&mut self.dropped);
        let text = format!("{dropped} measurements were dropped: the control loop could not keep them");
        (dropped > 0).then(|| self.push(attempt, AgentEvent::Reported { rank: 0, report: Report::Note { text } }))
    }

    /// The entries to send, in order: the oldest decisions, and as many of the oldest measurements as `count` allows.
    pub fn send(&mut self, count: usize) -> Vec<Entry> {
        self.urgent = false;
        let decisions = self.decisions.iter().take(count);
        let room = count - decisions.len();
        let room = if self.is_refused { room.min(PROBE) } else { room };
        let measurements = self.measurements.iter().take(room);
        self.offered = measurements.clone().next_back().map_or(0, |entry| entry.seq);
        let mut entries: Vec<Entry> = decisions.chain(measurements).cloned().collect();
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
    use super::*;

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
