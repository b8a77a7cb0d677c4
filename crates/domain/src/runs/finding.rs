//! Why an attempt ended, phrased so that the user can act on it.

use serde::{Deserialize, Serialize};

/// A cause, a message and a hint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The kind of cause, which determines recovery.
    pub cause: Cause,
    /// The operation, its target, and the reason; lower case, no full stop.
    pub message: String,
    /// The next thing to type or change.
    pub hint: Option<String>,
}

/// Kinds of cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A file of the data set is missing, unreadable or invalid.
    Data,
    /// The job does not match its data or environment, such as the number of classes.
    Job,
    /// The loss is not a number.
    NotFinite,
    /// Memory ran out.
    OutOfMemory,
    /// No space left on the disk.
    DiskFull,
    /// A folder cannot be written.
    ReadOnly,
    /// A checkpoint is there and cannot be read now, as when a disk or a mount fails.
    Unreadable,
    /// libtorch is missing, or of another version.
    Library,
    /// A newer attempt has taken over; writes of this one are refused.
    Fenced,
    /// A rank was ended by a signal.
    Killed,
    /// Another rank has ended or hangs, and this one cannot continue without it.
    RankLost,
    /// No step was reported for too long.
    Hang,
    /// The user's program ended with a code other than 0.
    ExitCode,
    /// The instance is gone.
    InstanceLost,
    /// The provider has no such machine free now.
    NoCapacity,
    /// The set-up commands failed.
    Setup,
    /// A fault of gradus itself.
    Internal,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Cause; 17] = [
        Cause::Data,
        Cause::Job,
        Cause::NotFinite,
        Cause::OutOfMemory,
        Cause::DiskFull,
        Cause::ReadOnly,
        Cause::Unreadable,
        Cause::Library,
        Cause::Fenced,
        Cause::Killed,
        Cause::RankLost,
        Cause::Hang,
        Cause::ExitCode,
        Cause::InstanceLost,
        Cause::NoCapacity,
        Cause::Setup,
        Cause::Internal,
    ];

    /// Whether another attempt may do better without the user changing anything.
    pub fn is_transient(self) -> bool {
        match self {
            Cause::Killed | Cause::RankLost | Cause::Hang | Cause::InstanceLost | Cause::Fenced => true,
            Cause::Unreadable | Cause::NoCapacity => true,
            Cause::Data | Cause::Job | Cause::NotFinite | Cause::OutOfMemory | Cause::DiskFull | Cause::ReadOnly => {
                false
            }
            Cause::Library | Cause::ExitCode | Cause::Setup | Cause::Internal => false,
        }
    }
}

impl Finding {
    /// A finding without a hint.
    pub fn new(cause: Cause, message: impl Into<String>) -> Finding {
        Finding { cause, message: message.into(), hint: None }
    }

    /// Adds a hint.
    pub fn hint(self, hint: impl Into<String>) -> Finding {
        Finding { hint: Some(hint.into()), ..self }
    }
}
