//! What the agent has to report and the loop has not acknowledged yet: in memory to be sent, on disk for the events whose
//! loss would cost work.
//!
//! Decisions and measurements are two streams that the loop acknowledges by themselves, so measurements that it cannot
//! keep never hold back the end of an attempt. They share one numbering. Decisions wait for as long as it takes; of
//! measurements only the newest do, and a note tells how many were dropped.
//!
//! The file is append-only while a decision in it is unacknowledged, and emptied when nothing is. The provider reads it
//! back with [`Folder::unacknowledged`] when the agent is gone.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};

use domain::AttemptId;
use domain::rank::Report;
use domain::wire::{AgentEvent, Entry};

use crate::folder::{Folder, found};

/// The file is emptied only when it is larger than this, so that its end is a readable trace.
const KEEP: u64 = 1 << 20;

/// The file is emptied above this though measurements in it were not acknowledged.
const LARGEST: u64 = 64 << 20;

/// Measurements that wait at most, about 20 MB of memory; older ones are dropped.
const MOST: usize = 50_000;

/// Measurements of a call while the loop cannot keep them: enough to find out when it can again.
const PROBE: usize = 1;

/// The events that wait to be acknowledged.
#[derive(Debug)]
pub struct Spool {
    file: BufWriter<File>,
    written: u64,
    last: u64,
    /// Events whose loss would cost work, oldest first.
    decisions: VecDeque<Entry>,
    /// Reports of which the loop keeps the measurement, oldest first. Some are decisions too.
    measurements: VecDeque<Entry>,
    /// The newest measurement of those that were all sent.
    offered: u64,
    /// Whether the loop could not keep the measurements of the last call.
    is_refused: bool,
    /// Measurements dropped since the last note of it.
    dropped: u64,
    urgent: bool,
}

impl Folder {
    /// Reads what the agent has said or wanted to say, oldest first: all that was not acknowledged, and some that was.
    /// Empty when no agent ever lived here.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn unacknowledged(&self) -> io::Result<Vec<Entry>> {
        let text = found(fs::read(self.spool()))?.unwrap_or_default();
        // A crash may have torn a line; what was promised to be durable stands whole in another.
        Ok(text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }
}

impl Spool {
    /// Begins an empty spool in the folder of an instance.
    pub fn create(folder: &Folder) -> io::Result<Spool> {
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(folder.spool())?;
        // A synced event is of no use in a file whose name is lost.
        File::open(folder.path())?.sync_all()?;
        Ok(Spool {
            file: BufWriter::new(file),
            written: 0,
            last: 0,
            decisions: VecDeque::new(),
            measurements: VecDeque::new(),
            offered: 0,
            is_refused: false,
            dropped: 0,
            urgent: false,
        })
    }

    /// Adds an event. One that matters is durable when this returns; a full disk does not keep it from being sent.
    pub fn push(&mut self, attempt: &AttemptId, event: AgentEvent) {
        let matters = matters(&event);
        let is_measurement = matches!(event, AgentEvent::Reported { .. });
        self.last += 1;
        let entry = Entry { seq: self.last, attempt: attempt.clone(), event };
        // The memory holds it whatever the disk says, and an event that is not sent would be the greater loss.
        let _ = self.write(&entry, matters);
        if is_measurement {
            self.measurements.push_back(entry.clone());
            while self.measurements.len() > MOST {
                self.measurements.pop_front();
                self.dropped += 1;
            }
        }
        if matters {
            self.decisions.push_back(entry);
        }
        self.urgent |= matters;
    }

    /// Forgets the decisions up to `decided` and, of the measurements that were sent, those up to `measured`.
    pub fn acknowledge(&mut self, decided: u64, measured: u64) {
        while self.decisions.front().is_some_and(|entry| entry.seq <= decided) {
            self.decisions.pop_front();
        }
        let offered = self.offered;
        self.is_refused = self.measurements.front().is_some_and(|entry| measured < entry.seq && entry.seq <= offered);
        let kept = measured.min(offered);
        while self.measurements.front().is_some_and(|entry| entry.seq <= kept) {
            if let Some(entry) = self.measurements.pop_front() {
                self.tell_dropped(&entry.attempt);
            }
        }
        let is_idle = self.is_empty() && self.written > KEEP;
        if is_idle || (self.decisions.is_empty() && self.written > LARGEST) {
            let _ = self.empty();
        }
    }

    /// Measurements are kept again: says once how many were dropped meanwhile.
    fn tell_dropped(&mut self, attempt: &AttemptId) {
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            let text = format!("{dropped} measurements were dropped: the control loop could not keep them");
            self.push(attempt, AgentEvent::Reported { rank: 0, report: Report::Note { text } });
        }
    }

    /// What is to be sent now, in order: the oldest decisions, and as many of the oldest measurements as `count` leaves.
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

    /// Whether only measurements wait, and the loop cannot keep them now.
    pub fn is_refused(&self) -> bool {
        self.is_refused && self.decisions.is_empty()
    }

    /// Whether an event that matters has not been sent yet.
    pub fn is_urgent(&self) -> bool {
        self.urgent
    }

    fn write(&mut self, entry: &Entry, durable: bool) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.written += line.len() as u64;
        if durable {
            self.file.flush()?;
            self.file.get_ref().sync_data()?;
        }
        Ok(())
    }

    fn empty(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.written = 0;
        Ok(())
    }
}

/// Whether losing the event would cost work; measurements would not.
fn matters(event: &AgentEvent) -> bool {
    match event {
        AgentEvent::Started | AgentEvent::Ended { .. } => true,
        AgentEvent::Reported { report, .. } => match report {
            Report::Ready(_) | Report::Exported(_) | Report::Trained => true,
            Report::Stopped { .. } | Report::Failed(_) | Report::Checkpointed(_) => true,
            Report::Hello { .. } | Report::Preparing { .. } | Report::Step(_) | Report::Evaluated(_) => false,
            Report::Note { .. } => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_wait_in_order_until_acknowledged_and_the_file_does_not_grow_for_ever() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::new(temporary.path());
        let attempt = AttemptId::new("digits-1-a1");
        let note = |text: &str| AgentEvent::Reported { rank: 0, report: Report::Note { text: text.repeat(1000) } };
        let mut spool = Spool::create(&folder).unwrap();
        assert!(spool.is_empty() && !spool.is_urgent());
        for text in ["a", "b", "c"] {
            spool.push(&attempt, note(text));
        }
        assert!(!spool.is_urgent());
        spool.push(&attempt, AgentEvent::Started);
        assert!(spool.is_urgent());
        assert_eq!(folder.unacknowledged().unwrap(), spool.send(10), "what matters is on disk, with all before it");
        assert!(!spool.is_urgent());

        let seqs = |spool: &mut Spool, count| spool.send(count).iter().map(|entry| entry.seq).collect::<Vec<_>>();
        assert_eq!(seqs(&mut spool, 3), [1, 2, 4]);
        spool.acknowledge(2, 2);
        assert_eq!(seqs(&mut spool, 9), [3, 4]);
        spool.acknowledge(1, 1);
        assert_eq!(seqs(&mut spool, 9), [3, 4]);
        spool.acknowledge(3, 3);

        for _ in 0..2000 {
            spool.push(&attempt, note("d"));
        }
        assert_eq!(seqs(&mut spool, 2000).last(), Some(&2003));
        spool.acknowledge(2003, 2003);
        assert_eq!(seqs(&mut spool, 9), [2004]);
        spool.acknowledge(u64::MAX, u64::MAX);
        spool.push(&attempt, AgentEvent::Started);
        assert_eq!(seqs(&mut spool, 9), [2005], "numbers go on without gaps");
        assert_eq!(std::fs::read_to_string(folder.spool()).unwrap().lines().count(), 1);
    }

    #[test]
    fn an_end_is_sent_however_many_measurements_nobody_keeps() {
        let temporary = tempfile::tempdir().unwrap();
        let attempt = AttemptId::new("digits-1-a1");
        let mut spool = Spool::create(&Folder::new(temporary.path())).unwrap();
        let note = |text: &str| AgentEvent::Reported { rank: 0, report: Report::Note { text: text.to_owned() } };
        let end = AgentEvent::Ended { end: domain::run::AttemptEnd::Succeeded };
        spool.push(&attempt, AgentEvent::Started);
        for _ in 0..MOST + 10 {
            spool.push(&attempt, note("a"));
        }
        spool.push(&attempt, end.clone());
        let sent = spool.send(2000);
        assert_eq!((sent.len(), &sent[0].event, &sent[1999].event), (2000, &AgentEvent::Started, &end));
        spool.acknowledge(sent[1999].seq, 0);
        assert!(spool.is_refused() && !spool.is_empty());
        let probe = spool.send(2000);
        assert_eq!(probe.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [12], "the ten oldest were dropped");
        spool.acknowledge(12, 12);
        assert!(!spool.is_refused());
        // All that is left is sent once the loop keeps it, and a note tells what is missing.
        let mut texts = Vec::new();
        while !spool.is_empty() {
            let sent = spool.send(2000);
            let last = sent.last().unwrap().seq;
            texts.extend(sent.into_iter().filter(|entry| entry.event != note("a")).map(|entry| entry.event));
            spool.acknowledge(last, last);
        }
        assert_eq!(texts, [note("10 measurements were dropped: the control loop could not keep them")]);
    }

    #[test]
    fn a_word_that_nobody_has_taken_stays_on_disk_however_long_the_file_is() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::new(temporary.path());
        let attempt = AttemptId::new("digits-1-a1");
        let mut spool = Spool::create(&folder).unwrap();
        let note = AgentEvent::Reported { rank: 0, report: Report::Note { text: "a".repeat(1 << 20) } };
        let end = AgentEvent::Ended { end: domain::run::AttemptEnd::Succeeded };
        spool.push(&attempt, note.clone());
        spool.push(&attempt, note);
        spool.push(&attempt, end.clone());
        spool.send(2);
        spool.acknowledge(2, 2);
        let last = Entry { seq: 3, attempt: attempt.clone(), event: end };
        assert_eq!(folder.unacknowledged().unwrap().pop(), Some(last.clone()));
        drop(spool);
        assert_eq!(folder.unacknowledged().unwrap().pop(), Some(last));
    }

    #[test]
    fn spooled_events_survive_a_torn_line() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::new(temporary.path());
        assert_eq!(folder.unacknowledged().unwrap(), []);
        let entry = |seq| Entry { seq, attempt: AttemptId::new("digits-1-a1"), event: AgentEvent::Started };
        let line = |seq| serde_json::to_string(&entry(seq)).unwrap() + "\n";
        let whole = line(1) + &line(2);
        for length in 0..line(3).len() - 1 {
            fs::write(folder.spool(), whole.clone() + &line(3)[..length]).unwrap();
            assert_eq!(folder.unacknowledged().unwrap(), [entry(1), entry(2)], "torn after {length} bytes");
        }
        fs::write(folder.spool(), whole + &line(3)).unwrap();
        assert_eq!(folder.unacknowledged().unwrap(), [entry(1), entry(2), entry(3)]);
    }
}
