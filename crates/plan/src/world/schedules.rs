//! Schedules: a fold over their events, and what is to be done about one now.
//!
//! A due time is settled by one event, that its run was submitted or that it has none, and none is settled twice. The name
//! of the run follows from the due time ([`ScheduleId::run`]): a server that was killed after it had submitted the run, and
//! before it had written that down, finds the run again. What is called a run here is a sweep or a pipeline where the schedule
//! submits those ([`ScheduleRecord::named`]).

use domain::event::ScheduleAdded;
use domain::run::RunState;
use domain::schedule::{
    CatchUpPolicy, DueSpan, DueTimes, JobSchedule, OverlapPolicy, ScheduleChange, ScheduledWork, SkipReason,
};
use domain::{Event, PipelineId, Record, RunId, ScheduleId, SweepId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{NamedWork, PipelineRecord, PipelineState, Run, SweepRecord, SweepState, World};

/// A job that is run at due times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleRecord {
    /// Its `schedule:`.
    pub times: JobSchedule,
    /// What it submits.
    #[serde(default, skip_serializing_if = "ScheduledWork::is_run")]
    pub work: ScheduledWork,
    /// The job file with its overrides, sealed.
    pub request: String,
    /// The job file as the user named it.
    pub file: String,
    /// Who has asked for it, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// When it was added.
    pub added: Timestamp,
    /// Since when it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Timestamp>,
    /// Up to when due times are settled: the last of them, or when it was added or resumed.
    pub settled: Timestamp,
    /// The due time of the newest run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_due: Option<Timestamp>,
    /// Its newest runs, oldest first, at most [`MOST_RUNS`].
    #[serde(default)]
    pub runs: Vec<RunId>,
    /// Number of runs that were submitted.
    #[serde(default)]
    pub fired: u64,
    /// Number of due times without a run.
    #[serde(default)]
    pub skipped: u64,
    /// Why the newest of them has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_skip: Option<(Timestamp, SkipReason)>,
}

/// Runs of a schedule that are known by name. Older ones are found by the prefix of their names.
pub const MOST_RUNS: usize = 20;

/// A due time that is at most so old is on time, in microseconds: a server that was restarted meanwhile missed nothing.
const ON_TIME: i64 = 300_000_000;

/// The newest run of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastDueRun {
    /// Its name.
    pub run: RunId,
    /// When it was submitted.
    pub submitted: Timestamp,
    /// When it ended, if it has.
    pub ended: Option<Timestamp>,
    /// Whether it was told to stop.
    pub is_stopping: bool,
}

/// What is to be done about a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleDecision {
    /// Nothing before this due time; `None` if it is paused.
    Wait {
        /// When the next run is due.
        until: Option<Timestamp>,
    },
    /// Nothing before this run has ended.
    WaitFor {
        /// The run.
        run: RunId,
    },
    /// The run of this due time is to be submitted.
    Submit {
        /// The due time.
        due: Timestamp,
    },
    /// Due times have no run.
    Skip {
        /// The last of them.
        due: Timestamp,
        /// How many.
        count: u32,
        /// Why.
        why: SkipReason,
    },
    /// This run makes way for the next one.
    Stop {
        /// The run.
        run: RunId,
    },
}

impl LastDueRun {
    /// A run as it stands.
    pub fn of_run(id: &RunId, run: &Run, now: Timestamp) -> LastDueRun {
        LastDueRun {
            run: id.clone(),
            submitted: run.submitted,
            ended: run.state.is_final().then(|| run.ended.unwrap_or(now)),
            is_stopping: matches!(run.state, RunState::Stopping { .. }),
        }
    }

    /// A sweep as it stands.
    pub fn of_sweep(id: &RunId, sweep: &SweepRecord, now: Timestamp) -> LastDueRun {
        LastDueRun {
            run: id.clone(),
            submitted: sweep.submitted,
            ended: sweep.state.is_final().then(|| sweep.ended.unwrap_or(now)),
            is_stopping: matches!(sweep.state, SweepState::Stopping { .. }),
        }
    }

    /// A pipeline as it stands.
    pub fn of_pipeline(id: &RunId, pipeline: &PipelineRecord, now: Timestamp) -> LastDueRun {
        let has_ended = matches!(pipeline.state, PipelineState::Ended { .. });
        LastDueRun {
            run: id.clone(),
            submitted: pipeline.submitted,
            ended: has_ended.then(|| pipeline.ended.unwrap_or(now)),
            is_stopping: pipeline.state == PipelineState::Stopping,
        }
    }
}

impl ScheduleRecord {
    /// What a name stands for that a due time has given.
    pub fn named(&self, name: &RunId) -> NamedWork {
        match self.work {
            ScheduledWork::Run => NamedWork::Run(name.clone()),
            ScheduledWork::Sweep => NamedWork::Sweep(SweepId::new(name.as_str())),
            ScheduledWork::Pipeline => NamedWork::Pipeline(PipelineId::new(name.as_str())),
        }
    }

    /// What is to be done now. `last` is the newest run, if any.
    pub fn decide(&self, times: &DueTimes, last: Option<&LastDueRun>, now: Timestamp) -> ScheduleDecision {
        if self.paused.is_some() {
            return ScheduleDecision::Wait { until: None };
        }
        let Some(span) = times.between(self.settled, now) else {
            return ScheduleDecision::Wait { until: times.next(self.settled) };
        };
        match last.filter(|last| last.ended.is_none()) {
            Some(open) => self.beside(&span, open),
            None => self.caught_up(&span, last, now),
        }
    }

    /// What due times mean while a run is open.
    fn beside(&self, span: &DueSpan, open: &LastDueRun) -> ScheduleDecision {
        let run = open.run.clone();
        // What was due before the open run is made up for after it.
        let is_backlog = self.times.catch_up == CatchUpPolicy::All && span.first < open.submitted;
        match self.times.overlap {
            OverlapPolicy::Skip if !is_backlog => {
                ScheduleDecision::Skip { due: span.last, count: span.count, why: SkipReason::Overlap }
            }
            OverlapPolicy::Replace if !is_backlog && !open.is_stopping => ScheduleDecision::Stop { run },
            OverlapPolicy::Skip | OverlapPolicy::Queue | OverlapPolicy::Replace => ScheduleDecision::WaitFor { run },
        }
    }

    /// Which of the due times that have passed is run.
    fn caught_up(&self, span: &DueSpan, last: Option<&LastDueRun>, now: Timestamp) -> ScheduleDecision {
        let missed = |due, count| ScheduleDecision::Skip { due, count, why: SkipReason::Missed };
        let has_waited = self.times.overlap != OverlapPolicy::Skip
            && last.is_some_and(|last| last.ended.is_some_and(|ended| (last.submitted..=ended).contains(&span.last)));
        let is_on_time = now.0.saturating_sub(span.last.0) <= ON_TIME;
        match (self.times.catch_up, span.before_last) {
            (CatchUpPolicy::All, _) => ScheduleDecision::Submit { due: span.first },
            (CatchUpPolicy::None, _) if !is_on_time && !has_waited => missed(span.last, span.count),
            (CatchUpPolicy::None | CatchUpPolicy::Latest, Some(before)) => missed(before, span.count - 1),
            (CatchUpPolicy::None | CatchUpPolicy::Latest, None) => ScheduleDecision::Submit { due: span.last },
        }
    }
}

impl World {
    /// Moves the world by one event of a schedule; other events change nothing here.
    pub(super) fn follow_schedule(&mut self, record: &Record) -> Result<(), String> {
        match &record.event {
            Event::ScheduleAdded(added) => self.schedule_added(record.at, added),
            Event::ScheduleChanged { schedule: id, change: ScheduleChange::Remove } => {
                self.schedules.remove(id).map(|_| ()).ok_or_else(|| unknown(id))
            }
            Event::ScheduleChanged { schedule, change } => {
                let known = self.schedule_mut(schedule)?;
                match (change, known.paused) {
                    (ScheduleChange::Resume, Some(_)) => {
                        known.paused = None;
                        // What was due meanwhile is not made up for: that was the wish.
                        known.settled = known.settled.max(record.at);
                    }
                    (ScheduleChange::Pause, None) => known.paused = Some(record.at),
                    (ScheduleChange::Pause | ScheduleChange::Resume | ScheduleChange::Remove, _) => {}
                }
                Ok(())
            }
            Event::ScheduleFired { schedule, due, run } => {
                let known = self.unsettled(schedule, *due)?;
                (known.settled, known.last_due) = (*due, Some(*due));
                known.fired += 1;
                known.runs.push(run.clone());
                let old = known.runs.len().saturating_sub(MOST_RUNS);
                known.runs.drain(..old);
                Ok(())
            }
            Event::ScheduleSkipped { schedule, due, count, why } => {
                let known = self.unsettled(schedule, *due)?;
                known.settled = *due;
                known.skipped += u64::from(*count);
                known.last_skip = Some((*due, why.clone()));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn schedule_added(&mut self, at: Timestamp, added: &ScheduleAdded) -> Result<(), String> {
        if self.schedules.contains_key(&added.schedule) {
            return Err(format!("schedule `{}` was added before", added.schedule));
        }
        let record = ScheduleRecord {
            times: added.times.clone(),
            work: added.work,
            request: added.request.clone(),
            file: added.file.clone(),
            user: added.user.clone(),
            added: at,
            paused: None,
            settled: at,
            last_due: None,
            runs: Vec::new(),
            fired: 0,
            skipped: 0,
            last_skip: None,
        };
        self.schedules.insert(added.schedule.clone(), record);
        Ok(())
    }

    fn schedule_mut(&mut self, id: &ScheduleId) -> Result<&mut ScheduleRecord, String> {
        self.schedules.get_mut(id).ok_or_else(|| unknown(id))
    }

    /// A schedule of which this due time is not settled yet.
    fn unsettled(&mut self, id: &ScheduleId, due: Timestamp) -> Result<&mut ScheduleRecord, String> {
        let known = self.schedule_mut(id)?;
        if due <= known.settled {
            return Err(format!("due times of schedule `{id}` are settled beyond {}", due.0));
        }
        Ok(known)
    }
}

fn unknown(id: &ScheduleId) -> String {
    format!("schedule `{id}` is unknown, or was removed")
}
