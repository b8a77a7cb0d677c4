//! `schedule:` of a job file: at which times the job is run again and again, and what it names of them.

mod due;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

pub use due::{DueSpan, DueTimes};

/// Runs of the job at due times, kept by `gradus serve` once it was added with `gradus schedules add`. `budget` and `deadline` apply to each run. A job with `sweep` is a sweep at each due time, and a file whose first document has this key a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobSchedule {
    /// When a run is due, as five fields of cron: minute, hour, day of month, month, day of week, such as `0 3 * * *` for 3:00 every day.
    pub cron: String,
    /// Time zone of `cron`, by its IANA name, such as `Europe/Berlin`. A time that a change to summer time leaves out is due as much later; one that occurs twice is due once, unless the hour is `*`.
    #[serde(default = "utc")]
    pub timezone: String,
    /// Which due times are made up for that passed while no server was running.
    #[serde(default)]
    pub catch_up: CatchUpPolicy,
    /// What happens at a due time while the run before has not ended.
    #[serde(default)]
    pub overlap: OverlapPolicy,
    /// Whether a run starts with what the newest run that succeeded has written: the weights of its model (`train.weights`), or for a `run` program its `outputs`, mounted as `last-outputs` in the working folder. The first run starts as the job file says. In a pipeline, each task starts with what the same task has written in the newest pipeline that succeeded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warm_start: bool,
    /// With `warm_start` of a `train` job: whether a run is trained only on samples that were not in the data of the run it starts from. Samples of validation and test stay so, and new ones join them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub new_data: bool,
}

/// Which due times are made up for that passed while no server was running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CatchUpPolicy {
    /// None.
    None,
    /// The latest of them.
    #[default]
    Latest,
    /// All, one after the other, the oldest first.
    All,
}

/// What happens at a due time while the run before has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OverlapPolicy {
    /// The due time is skipped.
    #[default]
    Skip,
    /// The new run waits until the one before has ended; of several that wait, `catch_up` names which are run.
    Queue,
    /// The run before saves a checkpoint and stops; then the new one starts.
    Replace,
}

fn utc() -> String {
    "UTC".to_owned()
}

impl JobSchedule {
    /// One with these times, in UTC unless another zone is given, and the usual policies.
    pub fn at(cron: String, timezone: Option<String>) -> JobSchedule {
        JobSchedule {
            cron,
            timezone: timezone.unwrap_or_else(utc),
            catch_up: CatchUpPolicy::default(),
            overlap: OverlapPolicy::default(),
            warm_start: false,
            new_data: false,
        }
    }
}

/// What a schedule submits at each due time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduledWork {
    /// A run.
    #[default]
    Run,
    /// A sweep.
    Sweep,
    /// A pipeline.
    Pipeline,
}

impl ScheduledWork {
    /// Its word: `run`, `sweep` or `pipeline`.
    pub fn word(self) -> &'static str {
        match self {
            ScheduledWork::Run => "run",
            ScheduledWork::Sweep => "sweep",
            ScheduledWork::Pipeline => "pipeline",
        }
    }

    /// Whether it is what schedules of every version submit.
    pub fn is_run(&self) -> bool {
        *self == ScheduledWork::Run
    }
}

/// A change of a schedule by its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleChange {
    /// No run is submitted until it is resumed.
    Pause,
    /// Due times count again, from now on.
    Resume,
    /// It is gone; its runs stay.
    Remove,
}

/// Why a due time has no run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum SkipReason {
    /// It passed while no server was running, and `catch_up` does not ask for it.
    Missed,
    /// The run before had not ended.
    Overlap,
    /// The job could not be planned, or was not admitted.
    Refused {
        /// Why.
        message: String,
    },
}

/// A due time of a schedule, as the run that is submitted for it knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueRun {
    /// The due time in the zone of the schedule, as [`DueTimes::local`] has it.
    pub due: String,
    /// The due time before; the time when the schedule was added, for the first.
    pub previous: String,
}

/// What job files write for the time of a run, with what they mean.
const PLACEHOLDERS: [&str; 4] =
    ["${schedule.due}", "${schedule.date}", "${schedule.previous_due}", "${schedule.previous_date}"];

impl DueRun {
    /// A run that is due now: its due time is now, and the one before as long ago as it is until the next but one.
    pub fn now(times: &DueTimes, now: Timestamp) -> DueRun {
        let next = times.next(now).unwrap_or(now);
        let period = times.next(next).unwrap_or(next).since(next);
        let previous = Timestamp(now.0.saturating_sub(i64::try_from(period.0).unwrap_or_default()));
        DueRun { due: times.local(now), previous: times.local(previous) }
    }

    /// The text of a job file with its placeholders replaced.
    pub fn placed(&self, text: &str) -> String {
        let date = |time: &str| time.get(..10).unwrap_or(time).to_owned();
        let values = [self.due.clone(), date(&self.due), self.previous.clone(), date(&self.previous)];
        PLACEHOLDERS.iter().zip(values).fold(text.to_owned(), |text, (name, value)| text.replace(name, &value))
    }

    /// Whether a job file has any placeholder.
    pub fn is_named_in(text: &str) -> bool {
        PLACEHOLDERS.iter().any(|name| text.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_the_times_of_a_run() {
        let text = "{\"cron\": \"0 3 * * *\", \"timezone\": \"Europe/Berlin\"}";
        let times = serde_json::from_str::<JobSchedule>(text).unwrap().times().unwrap();
        // At 2026-11-27T02:00:00Z.
        let run = DueRun::now(&times, Timestamp(1_795_744_800_000_000));
        let text = "path: s3://logs/${schedule.previous_date}/\nenvs: {DUE: ${schedule.due}}\n";
        assert!(DueRun::is_named_in(text));
        assert_eq!(run.placed(text), "path: s3://logs/2026-11-26/\nenvs: {DUE: 2026-11-27T03:00:00+01:00}\n");
        assert!(!DueRun::is_named_in("echo ${schedule}"));
    }
}
