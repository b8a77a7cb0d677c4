//! Where a run, its instances and its attempts stand. Each state carries its data; `plan::lifecycle` holds the moves.

use serde::{Deserialize, Serialize};

use crate::finding::Finding;
use crate::id::{AttemptId, InstanceId};
use crate::money::{Money, Rate};
use crate::rank::Exported;
use crate::time::{Elapsed, Timestamp};

/// Where a run stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RunState {
    /// Waiting for a place.
    Queued,
    /// A machine is being rented.
    Renting { instance: InstanceId },
    /// An attempt opens data and model.
    Staging { attempt: AttemptId },
    /// An attempt makes steps.
    Running { attempt: AttemptId },
    /// The last attempt or rent ended without result; another one follows, unless this cause forbids it.
    Recovering { finding: Finding, exit_code: Option<i32> },
    /// Told to stop; the state is being saved.
    Stopping { by: StopBy },
    /// Stopped before its end; it can be resumed.
    Stopped { by: StopBy },
    /// At its end.
    Done { outcome: Outcome },
}

/// Who stopped a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopBy {
    /// `gradus stop`.
    User,
    /// The budget was reached.
    Budget,
    /// The deadline passed.
    Deadline,
    /// Its program was idle for `idle_timeout`.
    Idle,
}

/// Who keeps a run going.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keeper {
    /// The commands that wait for it.
    #[default]
    Foreground,
    /// `gradus serve`.
    Server,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The model stands.
    Trained { model: Exported },
    /// The user's program ended with code 0.
    Succeeded,
    /// It cannot go on.
    Failed { finding: Finding },
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum AttemptEnd {
    /// All epochs are done and the model stands.
    Trained { model: Exported },
    /// The user's program ended with code 0.
    Succeeded,
    /// It followed an order to stop; its state is durable.
    Stopped { step: Option<u64> },
    /// It ended otherwise; `exit_code` only where the user's program ended by itself with it.
    Failed { finding: Finding, exit_code: Option<i32> },
}

/// Where an instance stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum InstanceState {
    /// Written down; the provider may or may not have been asked.
    Intended,
    /// The provider was asked; the agent has not spoken.
    Launching,
    /// The agent speaks.
    Up,
    /// The provider is being asked to end it.
    Releasing,
    /// The provider has proved that it is gone.
    Released { usage: Usage },
}

/// What was used of an instance, as the provider metered it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Start of the rent on the wall clock.
    pub started: Timestamp,
    /// Length of the rent, as it is billed: by the rule of the provider.
    pub elapsed: Elapsed,
}

/// What a run cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bill {
    /// One line an instance.
    pub lines: Vec<BillLine>,
    /// Their sum.
    pub total: Money,
    /// How much of it is beyond the run's budget: what its provider has billed after all that was kept back was spent.
    #[serde(default, skip_serializing_if = "Money::is_zero")]
    pub adjustment: Money,
}

/// What one instance cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BillLine {
    /// Which.
    pub instance: InstanceId,
    /// The provider's name of the machine.
    pub kind: String,
    /// What was used.
    pub usage: Usage,
    /// Price at the time of the rent.
    pub rate: Rate,
    /// Usage at that price.
    pub amount: Money,
    /// Whether it lost a race: it was rented together with another one that was had first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub race: bool,
}

/// How much more, or less, a provider's bill has for a machine than a run's: an amount beside the lines of the run's bill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BillAdjustment {
    /// For which machine.
    pub instance: InstanceId,
    /// For what.
    pub kind: BilledKind,
    /// The time that it counts under: the first day of UTC of the provider's lines.
    pub at: Timestamp,
    /// What is added; negative where the provider billed less.
    #[serde(with = "crate::money::signed")]
    pub amount: Money,
}

/// What a line of a provider's bill is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BilledKind {
    /// The rent of a machine.
    Machine,
    /// Volumes.
    Disk,
    /// Snapshots and images.
    Snapshot,
    /// Bytes, addresses and gateways.
    Traffic,
    /// Anything else.
    Other,
}

impl BilledKind {
    /// Its word in tables and JSON.
    pub fn word(self) -> &'static str {
        match self {
            BilledKind::Machine => "machine",
            BilledKind::Disk => "disk",
            BilledKind::Snapshot => "snapshot",
            BilledKind::Traffic => "traffic",
            BilledKind::Other => "other",
        }
    }

    /// The kind of a word.
    pub fn of_word(word: &str) -> Option<BilledKind> {
        let all = [BilledKind::Machine, BilledKind::Disk, BilledKind::Snapshot, BilledKind::Traffic, BilledKind::Other];
        all.into_iter().find(|kind| kind.word() == word)
    }
}

impl RunState {
    /// The words of all states, in the order of a run.
    pub const WORDS: [&'static str; 10] = [
        "queued",
        "renting",
        "staging",
        "running",
        "recovering",
        "stopping",
        "stopped",
        "trained",
        "succeeded",
        "failed",
    ];

    /// Whether nothing more will happen unless the user asks.
    pub fn is_final(&self) -> bool {
        match self {
            RunState::Stopped { .. } | RunState::Done { .. } => true,
            RunState::Queued | RunState::Renting { .. } | RunState::Staging { .. } | RunState::Running { .. } => false,
            RunState::Recovering { .. } | RunState::Stopping { .. } => false,
        }
    }

    /// The state's word, as the command line and the API spell it.
    pub fn word(&self) -> &'static str {
        match self {
            RunState::Queued => "queued",
            RunState::Renting { .. } => "renting",
            RunState::Staging { .. } => "staging",
            RunState::Running { .. } => "running",
            RunState::Recovering { .. } => "recovering",
            RunState::Stopping { .. } => "stopping",
            RunState::Stopped { .. } => "stopped",
            RunState::Done { outcome: Outcome::Trained { .. } } => "trained",
            RunState::Done { outcome: Outcome::Succeeded } => "succeeded",
            RunState::Done { outcome: Outcome::Failed { .. } } => "failed",
        }
    }
}

/// What a provider sees of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sight {
    /// It never took the request.
    Unknown,
    /// It runs, and costs money.
    Alive,
    /// It is gone, by the provider's own proof, and was metered; no usage when it never began.
    Gone(Option<Usage>),
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_state_has_its_word_in_the_list() {
        let finding = json!({ "cause": "job", "message": "wrong", "hint": null });
        let states = [
            json!({ "state": "queued" }),
            json!({ "state": "renting", "instance": "i" }),
            json!({ "state": "staging", "attempt": "a" }),
            json!({ "state": "running", "attempt": "a" }),
            json!({ "state": "recovering", "finding": finding, "exit_code": null }),
            json!({ "state": "stopping", "by": "user" }),
            json!({ "state": "stopped", "by": "user" }),
            json!({ "state": "done", "outcome": { "outcome": "succeeded" } }),
            json!({ "state": "done", "outcome": { "outcome": "failed", "finding": finding } }),
        ];
        let word = |state| serde_json::from_value::<RunState>(state).unwrap().word();
        let mut words = states.map(word).to_vec();
        words.insert(7, "trained");
        assert_eq!(words, RunState::WORDS);
    }
}
