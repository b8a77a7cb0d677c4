//! Goodput: the productive share of a run's time, and the overheads.
//!
//! Events divide the time between a run's submission and its end into phases. Within an attempt that makes steps, the
//! measurements of its steps divide it further, and the remainder is classified by how the attempt ended. So the parts
//! always sum to the total.

use std::collections::BTreeMap;
use std::fmt;

use domain::event::RunEnd;
use domain::rank::Step;
use domain::run::AttemptEnd;
use domain::{AttemptId, Elapsed, Event, Record, Timestamp};

/// The time of an attempt's steps, in microseconds, and when they began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepTotals {
    /// From the end of the step before to the end of each.
    pub step_us: u64,
    /// Part of `step_us`: waiting for data.
    pub data_wait_us: u64,
    /// Part of `step_us`: taking snapshots and waiting for the checkpoint writer.
    pub checkpoint_us: u64,
    /// When the first of them began, as far as it is known: when it was heard of, without its own time.
    pub began: Option<Timestamp>,
    /// Since when all ranks have ended and what they have written was only sent, where that took long.
    pub ended: Option<Timestamp>,
}

impl StepTotals {
    /// Notes that one was heard of `at` a time; the first counts.
    pub fn begin(&mut self, step: &Step, at: Timestamp) {
        let took = i64::try_from(step.step_us).unwrap_or(i64::MAX);
        self.began.get_or_insert(Timestamp(at.0.saturating_sub(took)));
    }

    /// Adds one step.
    pub fn add(&mut self, step: &Step) {
        self.step_us += step.step_us;
        self.data_wait_us += step.data_wait_us;
        self.checkpoint_us += step.checkpoint_us;
    }
}

/// How the time of a run was spent; the parts sum to [`Goodput::wall`]. Time in which the run was stopped is excluded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Goodput {
    /// Steps that were not lost, evaluations, and the export of the model. For the user's own program that
    /// reports no steps, all the time between its start and its end.
    pub productive: Elapsed,
    /// From the machine's launch to the first step: booting, fetching, preparing data, loading the model.
    pub start_up: Elapsed,
    /// Steps that waited for data.
    pub data_wait: Elapsed,
    /// Snapshots, waiting for the checkpoint writer, saving when it was told to stop, and sending what was written once all
    /// ranks have ended.
    pub checkpoint: Elapsed,
    /// From the last step before a failure to the first step after it, while there was a machine.
    pub recovery: Elapsed,
    /// Steps after the checkpoint that the next attempt resumed from, all of which were made again.
    pub lost: Elapsed,
    /// No machine was free, or a request to the provider was pending.
    pub waiting: Elapsed,
}

impl Goodput {
    /// The sum of all parts.
    pub fn wall(&self) -> Elapsed {
        Elapsed(self.parts().iter().map(|(_, part)| part.0).sum())
    }

    /// Each part with its name, the productive one first and then the largest.
    pub fn parts(&self) -> [(&'static str, Elapsed); 7] {
        let mut parts = [
            ("productive", self.productive),
            ("start-up", self.start_up),
            ("waiting for data", self.data_wait),
            ("checkpoints", self.checkpoint),
            ("recovery", self.recovery),
            ("lost work", self.lost),
            ("waiting for a machine", self.waiting),
        ];
        parts[1..].sort_by_key(|(_, part)| std::cmp::Reverse(*part));
        parts
    }

    /// The productive share of the time; `None` before any has passed.
    pub fn share(&self) -> Option<f64> {
        let wall = self.wall().0;
        (wall > 0).then(|| self.productive.0 as f64 / wall as f64)
    }
}

impl fmt::Display for Goodput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wall = self.wall().0.max(1) as f64;
        let shares = self.parts().map(|(name, part)| (name, 100.0 * part.0 as f64 / wall));
        for (place, (name, share)) in
            shares.into_iter().enumerate().filter(|(at, (_, share))| *at == 0 || *share >= 0.05)
        {
            write!(f, "{}{share:.1} % {name}", if place == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// For each attempt that a later one followed, the last of its steps that was not made again.
pub fn kept_steps(records: &[Record]) -> BTreeMap<AttemptId, u64> {
    let mut kept: BTreeMap<AttemptId, u64> = BTreeMap::new();
    let mut begun: Vec<&AttemptId> = Vec::new();
    for record in records {
        let Event::AttemptReady { attempt, ready } = &record.event else { continue };
        if let Some(ready) = ready {
            for earlier in &begun {
                let last = kept.entry((*earlier).clone()).or_insert(ready.step);
                *last = ready.step.min(*last);
            }
        }
        begun.push(attempt);
    }
    kept
}

/// Where a run is.
enum Phase<'a> {
    Waiting,
    Preparing,
    Training {
        attempt: &'a AttemptId,
        /// It was started and prepares itself: a user's program.
        is_program: bool,
    },
    /// The model stands, or the state is saved, and nothing was decided yet.
    Ending,
    Stopped,
}

/// How the time of a run was spent until its end, or until `now`. `records` are the run's events in order; `steps`
/// returns the time of each attempt's steps, and `lost` that of the steps after those of [`kept_steps`].
pub fn goodput(
    records: &[Record],
    steps: &BTreeMap<AttemptId, StepTotals>,
    lost: &BTreeMap<AttemptId, StepTotals>,
    now: Timestamp,
) -> Goodput {
    let mut sum = Goodput::default();
    let (mut phase, mut since, mut has_trained) = (Phase::Stopped, now, false);
    for record in records {
        let next = match (&record.event, &phase) {
            (Event::Submitted(_) | Event::ResumeRequested { .. }, Phase::Stopped) => Phase::Waiting,
            (Event::RentIntended(_), Phase::Preparing | Phase::Ending) => Phase::Waiting,
            (Event::Launched { .. } | Event::MachineTaken(_), Phase::Waiting)
            | (Event::AttemptIntended { .. }, Phase::Waiting | Phase::Ending) => Phase::Preparing,
            (Event::AttemptReady { attempt, ready }, _) => Phase::Training { attempt, is_program: ready.is_none() },
            (Event::AttemptEnded { end: AttemptEnd::Failed { .. }, .. }, _) => Phase::Preparing,
            (Event::AttemptEnded { .. }, _) => Phase::Ending,
            (Event::Ended { end: RunEnd::Done { .. } | RunEnd::Stopped { .. }, .. }, _) => Phase::Stopped,
            _ => continue,
        };
        let end = if let Event::AttemptEnded { end, .. } = &record.event { Some(end) } else { None };
        sum.pass(&phase, Passed { since, until: record.at, has_trained, end }, (steps, lost));
        // What was stopped starts anew when it is resumed; nothing has to be made good.
        has_trained = !matches!(next, Phase::Stopped) && (has_trained || matches!(phase, Phase::Training { .. }));
        (phase, since) = (next, record.at);
    }
    sum.pass(&phase, Passed { since, until: now, has_trained, end: None }, (steps, lost));
    sum
}

/// A time that was spent in one phase.
struct Passed<'a> {
    since: Timestamp,
    until: Timestamp,
    /// Another attempt has trained before.
    has_trained: bool,
    /// How the attempt ended then, if it did.
    end: Option<&'a AttemptEnd>,
}

/// The steps of each attempt in numbers.
type TotalsByAttempt = BTreeMap<AttemptId, StepTotals>;

impl Goodput {
    /// Adds the time of a phase.
    fn pass(&mut self, phase: &Phase, passed: Passed, (steps, lost): (&TotalsByAttempt, &TotalsByAttempt)) {
        let Phase::Training { attempt, is_program } = phase else {
            return self.add(phase, passed.until.since(passed.since), passed.has_trained);
        };
        let totals = |all: &TotalsByAttempt| all.get(*attempt).copied().unwrap_or_default();
        let steps = totals(steps);
        let began = steps.began.filter(|_| *is_program);
        let before = began.map_or(Elapsed(0), |began| began.since(passed.since));
        self.train(&passed, before, steps, totals(lost));
    }

    fn add(&mut self, phase: &Phase, time: Elapsed, has_trained: bool) {
        let part = match phase {
            Phase::Waiting => &mut self.waiting,
            Phase::Preparing if has_trained => &mut self.recovery,
            Phase::Preparing => &mut self.start_up,
            Phase::Training { .. } | Phase::Ending => &mut self.productive,
            Phase::Stopped => return,
        };
        part.0 += time.0;
    }

    /// Divides the time of an attempt that made steps, the first of them after `before`. Clocks may differ slightly: no part
    /// exceeds the remainder.
    fn train(&mut self, passed: &Passed, before: Elapsed, steps: StepTotals, lost: StepTotals) {
        let mut left = passed.until.since(passed.since).0;
        let mut take = |wanted: u64| {
            let taken = wanted.min(left);
            left -= taken;
            taken
        };
        // When all ranks had ended, nothing was productive.
        self.checkpoint.0 += take(steps.ended.map_or(0, |ended| passed.until.since(ended).0));
        let kept = |all: u64, lost: u64| all.saturating_sub(lost);
        let is_measured = steps.step_us > 0;
        self.lost.0 += take(lost.step_us);
        let wait = take(kept(steps.data_wait_us, lost.data_wait_us));
        let saving = take(kept(steps.checkpoint_us, lost.checkpoint_us));
        self.productive.0 += take(kept(steps.step_us, lost.step_us).saturating_sub(wait + saving));
        self.data_wait.0 += wait;
        self.checkpoint.0 += saving;
        let before = Elapsed(take(before.0));
        self.add(&Phase::Preparing, before, passed.has_trained);
        // After the last step.
        match passed.end {
            Some(AttemptEnd::Failed { .. }) if is_measured => self.recovery.0 += left,
            Some(AttemptEnd::Stopped { .. }) if is_measured => self.checkpoint.0 += left,
            Some(_) | None => self.productive.0 += left,
        }
    }
}
