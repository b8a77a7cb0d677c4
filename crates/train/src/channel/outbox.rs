//! Queued reports: many steps in one write, other reports at once.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use domain::rank::Report;

use super::lock;

/// Step reports are delayed by this time, to be combined into one write, since each write wakes the agent. Other reports are
/// written at once. The agent passes steps on five times a second, so nobody sees them much later.
const BATCH: Duration = Duration::from_millis(100);

/// Step reports queued for an agent that does not read; about 20 MB as text. More are counted and dropped.
pub(super) const STEPS_HELD: usize = 100_000;

/// Reports on their way from many threads to the one that writes.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: Mutex<Waiting>,
    filled: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    reports: Vec<Report>,
    /// How many of them are step reports.
    steps: usize,
    /// Step reports dropped since the last write.
    omitted: u64,
    /// When the first of them came.
    since: Option<Instant>,
    /// Something in it is more than a step report.
    urgent: bool,
    closed: bool,
}

impl Outbox {
    /// Queues a report, without waiting for a write.
    pub fn put(&self, report: Report) {
        let mut waiting = lock(&self.waiting);
        let is_first = waiting.reports.is_empty();
        match report {
            Report::Step(_) if waiting.steps >= STEPS_HELD => {
                waiting.omitted += 1;
                return;
            }
            Report::Step(_) => waiting.steps += 1,
            Report::Hello { .. } | Report::Ready(_) | Report::Evaluated(_) | Report::Metrics(_) => {
                waiting.urgent = true
            }
            Report::Preparing { .. } | Report::Checkpointed(_) | Report::Note { .. } | Report::Exported(_) => {
                waiting.urgent = true
            }
            Report::Devices { .. } | Report::Result(_) | Report::Pausing { .. } => waiting.urgent = true,
            Report::Trained | Report::Stopped { .. } | Report::Failed(_) => waiting.urgent = true,
        }
        waiting.since.get_or_insert_with(Instant::now);
        waiting.reports.push(report);
        // The writer waits for the time of the first one anyway.
        if is_first || waiting.urgent {
            self.filled.notify_one();
        }
    }

    /// Lets [`Outbox::next_batch`] return `None` once the queue is empty.
    pub fn close(&self) {
        lock(&self.waiting).closed = true;
        self.filled.notify_one();
    }

    /// Waits for reports to write; returns them with the number of dropped steps, or `None` at the end.
    pub fn next_batch(&self) -> Option<(Vec<Report>, u64)> {
        let mut waiting = lock(&self.waiting);
        loop {
            let due = waiting.urgent || waiting.closed;
            let waited = waiting.since.map(|since| since.elapsed());
            waiting = match waited {
                None if waiting.closed => return None,
                None => self.filled.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(waited) if !due && waited < BATCH => {
                    let left = BATCH - waited;
                    self.filled.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0
                }
                Some(_) => {
                    let closed = waiting.closed;
                    let batch = std::mem::replace(&mut *waiting, Waiting { closed, ..Waiting::default() });
                    return Some((batch.reports, batch.omitted));
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::rank::{Fetching, Step};

    use super::*;

    fn step(step: u64) -> Report {
        let (epoch, loss, lr, samples, step_us, data) = (0, 1.0, 0.1, 8, 5000, Fetching::default());
        Report::Step(Step { step, epoch, loss, lr, samples, step_us, data_wait_us: 0, checkpoint_us: 0, data })
    }

    #[test]
    fn steps_are_batched_and_nothing_else_is() {
        let (outbox, begun) = (Outbox::default(), Instant::now());
        let steps: Vec<Report> = (1..=3).map(step).collect();
        steps.iter().cloned().for_each(|step| outbox.put(step));
        assert_eq!(outbox.next_batch(), Some((steps, 0)), "one write for all of them");
        assert!(begun.elapsed() >= BATCH);
        let note = Report::Note { text: "saved".to_owned() };
        outbox.put(step(4));
        outbox.put(note.clone());
        assert_eq!(outbox.next_batch(), Some((vec![step(4), note], 0)), "what came before goes with it");
        outbox.close();
        assert_eq!(outbox.next_batch(), None);
    }
}
