//! Decides when a rank without reports counts as hung.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

use control::StopReason;
use domain::Elapsed;
use domain::rank::{Ready, Report};
use domain::wire::AgentEvent;

use super::verdict::Role;
use super::{Attempt, Ending, Stage, Working};
use crate::event::{AttemptEvent, Wakeup};
use crate::{stacks, tools};

/// Number of steps whose median is the pace.
const RECENT: usize = 31;

/// Silence of so many median steps is a hang.
const STEPS: u32 = 20;

/// So long before ranks are killed that have not noticed the loss of others, their stacks are written down.
const LOOKED_AT: Duration = Duration::from_secs(5);

/// An evaluation may take so many times what as many training steps take.
const EVALUATION: f64 = 3.0;

/// The observed pace of a rank. Times are since the agent's start.
#[derive(Debug)]
pub struct Watchdog {
    last: Duration,
    before_ready: Duration,
    least: Duration,
    ready: Option<Shape>,
    recent: VecDeque<Duration>,
    is_between_epochs: bool,
}

#[derive(Debug)]
struct Shape {
    steps_per_epoch: u64,
    /// Training steps that see as many samples as the largest evaluation.
    evaluation: f64,
}

impl Watchdog {
    /// A rank that was started `now`, has `before_ready` until its first step, and at least `least` between steps.
    pub fn new(now: Duration, before_ready: Duration, least: Duration) -> Watchdog {
        let recent = VecDeque::with_capacity(RECENT);
        Watchdog { last: now, before_ready, least, ready: None, recent, is_between_epochs: false }
    }

    /// Takes in a report.
    pub fn hear(&mut self, report: &Report, now: Duration) {
        match report {
            Report::Ready(ready) => {
                self.ready = Some(shape(ready));
                // A resumed rank may begin with the evaluation that its predecessor did not get to.
                self.is_between_epochs = ready.step > 0;
            }
            Report::Step(step) => {
                if self.recent.len() == RECENT {
                    self.recent.pop_front();
                }
                self.recent.push_back(Duration::from_micros(step.step_us));
                let per_epoch = self.ready.as_ref().map_or(0, |shape| shape.steps_per_epoch);
                self.is_between_epochs = per_epoch > 0 && step.step.is_multiple_of(per_epoch);
            }
            Report::Evaluated(_) | Report::Metrics(_) | Report::Checkpointed(_) | Report::Exported(_) => {}
            Report::Preparing { .. } | Report::Result(_) => {}
            Report::Hello { .. } | Report::Trained | Report::Stopped { .. } | Report::Failed(_) => {}
            // A note can come from a thread that lives while training hangs.
            Report::Note { .. } => return,
            // Nor does it come from the rank what its devices do.
            Report::Devices { .. } => return,
        }
        self.last = now;
    }

    /// Notes that the rank waits for data that is being fetched, which ends by itself: with the data, or with an error.
    pub fn waits(&mut self, now: Duration) {
        self.last = now;
    }

    /// When the rank is killed as hanging, unless it reports before then.
    pub fn hangs_at(&self) -> Duration {
        self.last + self.limit()
    }

    /// Time since the last report.
    pub fn silence(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last)
    }

    fn limit(&self) -> Duration {
        let Some(shape) = &self.ready else { return self.before_ready };
        let mut sorted: Vec<Duration> = self.recent.iter().copied().collect();
        sorted.sort_unstable();
        let median = sorted.get(sorted.len() / 2).copied().unwrap_or(self.before_ready / STEPS);
        let evaluation = if self.is_between_epochs { shape.evaluation * EVALUATION } else { 0.0 };
        let steps = f64::from(STEPS) + evaluation;
        self.least.max(Duration::try_from_secs_f64(median.as_secs_f64() * steps).unwrap_or(Duration::MAX / 4))
    }
}

/// When ranks are killed that are to be at `kill_at`, where their stacks are written down by `until` at the latest.
fn after_stacks(kill_at: Duration, until: Option<Duration>) -> Duration {
    let longest = stacks::WITHIN.saturating_sub(LOOKED_AT);
    until.map_or(kill_at, |until| kill_at.max(until.saturating_sub(longest)))
}

fn shape(ready: &Ready) -> Shape {
    let [training, validation, test] = ready.samples;
    let largest = validation.max(test) as f64;
    let evaluation = largest / training.max(1) as f64 * ready.steps_per_epoch as f64;
    Shape { steps_per_epoch: ready.steps_per_epoch, evaluation }
}

impl Attempt {
    /// Ends a rank that has been silent for too long, unless it waits for data that is being fetched.
    pub(super) fn end_hanging(&mut self, now: Duration) {
        let is_recorded = self.stacks_until.is_some_and(|until| now >= until);
        match (self.silence(now), is_recorded) {
            (Some(silence), true) => self.end(StopReason::Hang(Elapsed::from_std(silence)), None, now),
            (Some(_), false) if self.stacks_until.is_none() => self.record_stacks(now),
            (Some(_), false) | (None, false) => {}
            // It has reported in the meantime, and continues.
            (None, true) if self.ending.is_none() => self.stacks_until = None,
            (None, true) => {}
        }
    }

    /// For how long the process has been silent, if that is too long.
    fn silence(&mut self, now: Duration) -> Option<Duration> {
        let (Stage::Running { role, .. }, None) = (&self.stage, &self.ending) else { return None };
        match &mut self.work {
            Working::Command { link: Some(link), .. } if *role == Role::Program => {
                (now >= link.hangs_at()).then(|| link.silence(now))
            }
            Working::Command { .. } => None,
            Working::Train { watchdog, .. } => {
                // Rank 0 reports the steps of all.
                if now < watchdog.hangs_at() || self.start.member.is_some_and(|place| place.rank > 0) {
                    return None;
                }
                if self.served.as_ref().is_some_and(|serving| serving.served.silence().is_some()) {
                    watchdog.waits(now);
                    return None;
                }
                Some(watchdog.silence(now))
            }
        }
    }

    /// Writes down what the threads of ranks stand at that are about to be killed because those of another machine have failed:
    /// ranks that work notice that by themselves, and end sooner.
    pub(super) fn record_silent(&mut self, now: Duration) {
        let is_running = matches!(self.stage, Stage::Running { .. });
        let is_due =
            self.ending.as_ref().is_some_and(|ending| ending.why == StopReason::NodeLost && now >= self.ends_at());
        if is_running && is_due && self.stacks_until.is_none() {
            self.record_stacks(now);
        }
    }

    /// When something is due next of ranks that were asked to end.
    pub(super) fn ends_at(&self) -> Duration {
        let Some(ending) = &self.ending else { return Duration::MAX };
        let is_to_look = ending.why == StopReason::NodeLost && self.stacks_until.is_none();
        if is_to_look { ending.kill_at.saturating_sub(LOOKED_AT) } else { self.kills_at(ending) }
    }

    /// When ranks that were asked to end are killed: where their stacks are being written down, not before that, unless it
    /// takes too long.
    pub(super) fn kills_at(&self, ending: &Ending) -> Duration {
        after_stacks(ending.kill_at, self.stacks_until)
    }

    /// Writes down what its threads stand at, before it is ended.
    fn record_stacks(&mut self, now: Duration) {
        self.stacks_until = Some(now + stacks::WITHIN);
        let (attempt, path) = (self.start.attempt.clone(), self.stacks());
        let (secrets, events) = (self.start.job.secret_values(), self.tools.events.clone());
        let owner = self.tools.owner.clone();
        std::thread::spawn(move || {
            // Without them it is ended all the same.
            let _ = stacks::record(&tools::tags(&owner, &attempt), &secrets, &path);
            let _ = events.send(Wakeup::Attempt(attempt, AttemptEvent::StacksRecorded));
        });
    }

    /// They are written down, or cannot be.
    pub(super) fn stacks_recorded(&mut self, now: Duration) -> Vec<AgentEvent> {
        self.stacks_until = self.stacks_until.map(|until| until.min(now));
        Vec::new()
    }

    /// The path of the stack traces of a hang: next to the logs of the attempt, a file for each machine.
    pub(super) fn stacks(&self) -> PathBuf {
        let node = self.start.member.map_or(0, |place| place.rank);
        let node = if node > 0 { format!("-node-{node}") } else { String::new() };
        Path::new(&self.start.folder).join("logs").join(format!("{}{node}-stacks.txt", self.start.attempt))
    }
}

#[cfg(test)]
mod tests {
    use domain::rank::{Fetching, Step};

    use super::*;

    #[test]
    fn ranks_are_killed_once_their_stacks_are_written_down_and_not_much_later() {
        let seconds = Duration::from_secs;
        assert_eq!(after_stacks(seconds(11), None), seconds(11));
        // They are being written since 10 s, and are written at 12 s.
        assert_eq!(after_stacks(seconds(11), Some(seconds(10) + stacks::WITHIN)), seconds(15));
        assert_eq!(after_stacks(seconds(11), Some(seconds(12))), seconds(11));
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn ready(samples: [u64; 3]) -> Report {
        let ready = Ready {
            step: 0,
            steps: 100,
            steps_per_epoch: 10,
            samples,
            classes: vec![],
            parameters: 1,
            passed_over: vec![],
            sample: None,
            data: None,
        };
        Report::Ready(ready)
    }

    fn step(step: u64, seconds: u64) -> Report {
        let step_us = seconds * 1_000_000;
        Report::Step(Step {
            step,
            epoch: 0,
            loss: 1.0,
            lr: 0.1,
            samples: 8,
            step_us,
            data_wait_us: 0,
            checkpoint_us: 0,
            data: Fetching::default(),
        })
    }

    /// The limit in seconds after these reports.
    fn check(reports: &[Report], expected: u64) {
        let mut watchdog = Watchdog::new(SECOND, SECOND * 600, SECOND * 60);
        for report in reports {
            watchdog.hear(report, SECOND * 5);
        }
        let from = if reports.is_empty() { SECOND } else { SECOND * 5 };
        assert_eq!(watchdog.hangs_at(), from + SECOND * expected as u32, "after {reports:?}");
    }

    #[test]
    fn the_limit_follows_the_pace() {
        check(&[], 600);
        check(&[ready([80, 10, 10])], 600);
        check(&[ready([80, 10, 10]), step(1, 1)], 60);
        check(&[ready([80, 10, 10]), step(1, 5)], 100);
        check(&[ready([80, 10, 10]), step(1, 500), step(2, 5), step(3, 5)], 100);
        // After an epoch's last step comes an evaluation of twice as many samples as an epoch: as long as 20 steps.
        check(&[ready([80, 160, 10]), step(9, 5), step(10, 5)], 5 * (20 + 3 * 20));
        check(&[ready([80, 160, 10]), step(10, 5), step(11, 5)], 100);
    }

    /// Ten hours of preparation in which something is always done, then silence.
    #[test]
    fn preparation_is_a_sign_of_life_while_it_goes_on() {
        let mut watchdog = Watchdog::new(SECOND, SECOND * 600, SECOND * 60);
        for minute in 1..=600 {
            let now = SECOND * 60 * minute;
            assert!(watchdog.hangs_at() > now);
            watchdog.hear(&Report::Preparing { done: u64::from(minute) }, now);
        }
        assert_eq!(watchdog.hangs_at(), SECOND * (36_000 + 600));
    }

    #[test]
    fn a_note_is_no_sign_of_life() {
        let mut watchdog = Watchdog::new(SECOND, SECOND * 600, SECOND * 60);
        watchdog.hear(&Report::Note { text: "still here".into() }, SECOND * 300);
        assert_eq!(watchdog.hangs_at(), SECOND * 601);
        assert_eq!(watchdog.silence(SECOND * 300), SECOND * 299);
    }
}
