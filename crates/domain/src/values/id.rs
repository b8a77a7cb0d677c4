//! Identifiers. Each kind is a type of its own, so that they are never mixed up. Their text is shared, because decisions
//! copy them all the time, and its start is held as numbers, because they compare them even more often.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// A run: one job, from its submission to its bill, such as `digits-0193f2a1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct RunId(Name);

/// A sweep: one search, from its submission to the bills of all of its trials, such as `digits-0193f2a1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct SweepId(Name);

/// A schedule: runs of one job at due times, such as `nightly-0193f2a1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct ScheduleId(Name);

/// A pipeline that a server runs, such as `night-0193f2a1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct PipelineId(Name);

/// A rented machine: the run's name and a number, such as `digits-0193f2a1-i1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct InstanceId(Name);

/// One try at a run's work on given instances, such as `digits-0193f2a1-a2`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct AttemptId(Name);

/// The text of an identifier.
#[derive(Clone)]
struct Name(Arc<NameText>);

struct NameText {
    /// Its first bytes in big-endian order, with zeros after its end: they compare as the text does.
    start: [u64; START / 8],
    text: Box<str>,
}

/// As many bytes are held as numbers: most names are not longer.
const START: usize = 24;

impl Name {
    fn new(text: String) -> Name {
        let mut start = [0; START / 8];
        for (number, bytes) in start.iter_mut().zip(text.as_bytes().chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *number = u64::from_be_bytes(whole);
        }
        Name(Arc::new(NameText { start, text: text.into_boxed_str() }))
    }

    #[inline]
    fn text(&self) -> &str {
        &self.0.text
    }
}

impl Ord for Name {
    #[inline]
    fn cmp(&self, other: &Name) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) {
            return Ordering::Equal;
        }
        self.0.start.cmp(&other.0.start).then_with(|| self.text().cmp(other.text()))
    }
}

impl PartialOrd for Name {
    #[inline]
    fn partial_cmp(&self, other: &Name) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Name {
    #[inline]
    fn eq(&self, other: &Name) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self.text(), f)
    }
}

macro_rules! names {
    ($($name:ident)*) => {$(
        impl $name {
            /// Wraps a name that was made or read elsewhere.
            pub fn new(text: impl Into<String>) -> $name {
                $name(Name::new(text.into()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                self.0.text()
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> $name {
                $name(Name::new(text))
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.as_str().to_owned()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
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
        let (run, number) = self.as_str().rsplit_once("-i")?;
        let number = number.parse::<u64>().ok()?.checked_add(more)?;
        Some(RunId::new(run).instance(number))
    }
}

impl AttemptId {
    /// Its run, if the machine was rented for that run.
    pub fn run_on(&self, machine: &InstanceId) -> Option<RunId> {
        let (run, _) = self.as_str().rsplit_once("-a")?;
        let (rented_for, _) = machine.as_str().rsplit_once("-i")?;
        (run == rented_for).then(|| RunId::new(run))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ordered_and_equal_as_their_texts_are() {
        let long = "digits-0193f2a1-i1".repeat(2);
        let texts = [
            "",
            "\0",
            "\0\0",
            "a",
            "a\0",
            "a\0b",
            "a-i1",
            "a-i10",
            "a-i2",
            "b",
            "ü",
            "digits-0193f2a1-i1",
            "digits-0193f2a1-i10",
            "digits-0193f2a1-i2",
            "exactly-24-bytes-long-i1",
            "exactly-24-bytes-long-i1\0",
            "exactly-24-bytes-long-i10",
            &long[..24],
            &long[..35],
            &long[..],
        ];
        for one in texts {
            for other in texts {
                let (first, second) = (InstanceId::new(one), InstanceId::new(other));
                assert_eq!(first.cmp(&second), one.cmp(other), "{one:?} and {other:?}");
                assert_eq!(first == second, one == other, "{one:?} and {other:?}");
            }
        }
        let name = InstanceId::new("a-i1");
        assert_eq!((format!("{name:?}"), name.to_string()), ("InstanceId(\"a-i1\")".to_owned(), "a-i1".to_owned()));
    }
}
