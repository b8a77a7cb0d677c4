//! What the API takes and gives, as values.

use std::collections::BTreeMap;

use domain::{Elapsed, InstanceId, Money, Plan, RunId, Timestamp};
use plan::{Run, World};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::state::ListedRun;

/// A job to plan or to submit.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitRequest {
    /// The text of the job file.
    pub job: String,
    /// A folder of the server's machine, from which relative paths in the job are taken.
    pub folder: String,
    /// What the job file is called in messages and reports.
    #[serde(default = "file_name")]
    pub file: String,
    /// Environment variables of the job, in place of those in the file.
    #[serde(default)]
    pub envs: BTreeMap<String, String>,
    /// Values of the job's secrets.
    #[serde(default)]
    pub secrets: BTreeMap<String, String>,
}

fn file_name() -> String {
    "job.yaml".to_owned()
}

/// A run that was submitted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SubmittedRun {
    /// Its name.
    pub run: RunId,
    /// Whether this request has submitted it; false when an earlier one with the same `Idempotency-Key` had.
    pub is_new: bool,
    /// What it will take.
    pub plan: Plan,
}

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(super) struct RunSummary {
    /// Its name.
    pub run: String,
    /// One word for where it stands.
    pub state: String,
    /// Attempts that were started.
    pub attempts: u64,
    /// Micro-dollars that it has cost so far.
    pub cost_micro_usd: i64,
    /// When it was submitted, in microseconds since 1970.
    pub submitted: i64,
    /// Whether the cost is final.
    pub is_billed: bool,
    /// More of it, where that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<RunDetails>,
}

/// More of a run in a list.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(super) struct RunDetails {
    /// Where it stands, with what belongs to it.
    pub state: serde_json::Value,
    /// The newest step that is known of.
    pub step: Option<u64>,
}

/// What a run to go on with may have changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ResumeRequest {
    /// New budget for the whole run, such as `$20`.
    pub budget: Option<String>,
    /// New deadline, counted from the submission, such as `12h`.
    pub deadline: Option<String>,
    /// Resume although the data has changed since the checkpoint.
    pub accept_data_change: bool,
}

impl RunSummary {
    pub(super) fn of(listed: ListedRun, cost_micro_usd: i64, details: Option<RunDetails>) -> RunSummary {
        RunSummary {
            run: listed.run.to_string(),
            state: listed.state,
            attempts: listed.attempts,
            cost_micro_usd,
            submitted: listed.submitted.0,
            is_billed: listed.billed_micro_usd.is_some(),
            details,
        }
    }
}

/// What a run has cost until now: its bill, or what its machines have been rented for by the clock.
pub(super) fn spent(world: &World, run: &Run, now: Timestamp) -> Money {
    let live = run.instances.iter().filter_map(|id| Some((id, world.instances.get(id)?)));
    let meters: BTreeMap<InstanceId, Elapsed> =
        live.filter_map(|(id, instance)| Some((id.clone(), now.since(instance.started?)))).collect();
    plan::spent(world, run, &meters)
}
