//! What an agent and the control loop say to each other: JSON over HTTP, on a Unix socket here and TLS elsewhere.
//!
//! The agent calls. Each [`Tick`] carries what the loop has not acknowledged yet, and renews the lease; the reply says
//! what is wanted. Both sides repeat themselves until the other has answered, so a lost message costs time only.

use serde::{Deserialize, Serialize};

use crate::id::{AttemptId, Fence, InstanceId, RunId};
use crate::job::Job;
use crate::rank::Report;
use crate::run::AttemptEnd;
use crate::time::{Elapsed, Timestamp};
use crate::units::Duration;

/// The version of these messages.
pub const SCHEMA: u32 = 1;

/// An agent's call, `POST /v1/tick`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tick {
    /// Version of the message.
    pub schema: u32,
    /// Who calls.
    pub instance: InstanceId,
    /// Start of the rent on the machine's wall clock.
    pub started: Timestamp,
    /// Rent so far, on a clock that never goes back.
    pub elapsed: Elapsed,
    /// What has not been acknowledged yet, oldest first.
    pub entries: Vec<Entry>,
}

/// One thing an agent has to say, kept in its spool until it is acknowledged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// From 1, without gaps, for one instance.
    pub seq: u64,
    /// Which attempt it is about.
    pub attempt: AttemptId,
    /// What happened.
    pub word: Word,
}

/// What an agent has to say of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "word", rename_all = "snake_case")]
pub enum Word {
    /// Its ranks were started.
    Started,
    /// A rank reported.
    Reported {
        /// Which rank.
        rank: u32,
        /// What it said. Nested, for its tag has a name of its own.
        report: Report,
    },
    /// All its ranks have ended.
    Ended {
        /// How.
        end: AttemptEnd,
    },
}

/// The loop's reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Orders {
    /// Entries up to this one are durable here.
    pub acknowledged: u64,
    /// The agent may go on without an answer for so long.
    pub lease: Duration,
    /// When to call again.
    pub next: Duration,
    /// What is wanted; repeated until done.
    pub orders: Vec<Order>,
}

/// What the loop wants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Order {
    /// Start this attempt, unless it was started already.
    Start(Box<Start>),
    /// Save, then end the attempt.
    Stop {
        /// Which.
        attempt: AttemptId,
    },
    /// End everything and leave.
    Leave,
}

/// An attempt to start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// For which run.
    pub run: RunId,
    /// Its name.
    pub attempt: AttemptId,
    /// Its number, which everything it writes carries.
    pub fence: Fence,
    /// What it works at.
    pub job: Job,
    /// SHA-256 of what defines the result.
    pub job_hash: String,
    /// Threads a rank.
    pub threads: u32,
    /// Whether a checkpoint is resumed although the data has changed since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accept_data_change: bool,
    /// Folder of the run on the node: checkpoints, logs, export.
    pub folder: String,
}
