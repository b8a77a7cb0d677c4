//! Identifiers. Each kind is a type of its own, so that they are never mixed up. Their text is shared, because decisions
//! copy them all the time.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// A run: one job, from its submission to its bill, such as `digits-0193f2a1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct RunId(Arc<str>);

/// A sweep: one search, from its submission to the bills of all of its trials, such as `digits-0193f2a1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct SweepId(Arc<str>);

/// A schedule: runs of one job at due times, such as `nightly-0193f2a1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct ScheduleId(Arc<str>);

/// A pipeline that a server runs, such as `night-0193f2a1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct PipelineId(Arc<str>);

/// A rented machine: the run's name and a number, such as `digits-0193f2a1-i1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct InstanceId(Arc<str>);

/// One try at a run's work on given instances, such as `digits-0193f2a1-a2`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct AttemptId(Arc<str>);

macro_rules! names {
    ($($name:ident)*) => {$(
        impl $name {
            /// Wraps a name that was made or read elsewhere.
            pub fn new(text: impl Into<String>) -> $name {
                let text: String = text.into();
                $name(text.into())
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> $name {
                $name(text.into())
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.as_str().to_owned()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

names!(RunId SweepId ScheduleId PipelineId InstanceId AttemptId);

/// Number of an attempt within its run, from 1. What an attempt writes carries it, and a folder refuses a lower number
/// than the highest it has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(pub u64);

impl SweepId {
    /// The run that is the sweep's `number`th trial, from 1.
    pub fn trial(&self, number: u32) -> RunId {
        RunId::new(format!("{self}-t{number}"))
    }
}

impl ScheduleId {
    /// The run of the schedule that is due at this time, such as `nightly-0193f2a1-20261127t0200`, in UTC: the same name
    /// however often it is asked for, so that a due time has one run.
    pub fn run(&self, due: Timestamp) -> RunId {
        let seconds = due.0.div_euclid(1_000_000);
        let time = jiff::Timestamp::from_second(seconds).map(|time| time.strftime("%Y%m%dt%H%M").to_string());
        RunId::new(format!("{self}-{}", time.unwrap_or_else(|_| seconds.to_string())))
    }
}

impl PipelineId {
    /// The run of the pipeline's `number`th task, from 1: the same name however often it is asked for.
    pub fn task(&self, number: usize) -> RunId {
        RunId::new(format!("{self}-task{number}"))
    }
}

impl InstanceId {
    /// The instance of the same run that is numbered so much higher; `None` for a name that has no number.
    pub fn following(&self, more: u64) -> Option<InstanceId> {
        let (run, number) = self.0.rsplit_once("-i")?;
        let number = number.parse::<u64>().ok()?.checked_add(more)?;
        Some(RunId::new(run).instance(number))
    }
}

impl RunId {
    /// The run's `number`th instance, from 1.
    pub fn instance(&self, number: u64) -> InstanceId {
        InstanceId::new(format!("{self}-i{number}"))
    }

    /// The attempt with this fence.
    pub fn attempt(&self, fence: Fence) -> AttemptId {
        AttemptId::new(format!("{self}-a{}", fence.0))
    }
}
