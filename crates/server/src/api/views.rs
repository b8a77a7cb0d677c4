//! Request and response types of the API.

use std::collections::BTreeMap;

use domain::{Elapsed, InstanceId, Money, Plan, RunId, SweepId, Timestamp};
use plan::{Run, World};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::state::ListedRun;

/// A job to plan or to submit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitRequest {
    /// The text of the job file.
    pub job: String,
    /// A folder on the server's machine, to which relative paths in the job refer.
    #[schemars(extend("pattern" = "^/"))]
    pub folder: String,
    /// Name of the job file in messages and reports.
    #[serde(default = "file_name")]
    pub file: String,
    /// Environment variables that override those of the job file.
    #[serde(default)]
    pub envs: BTreeMap<String, String>,
    /// Values of the job's secrets.
    #[serde(default)]
    pub secrets: BTreeMap<String, String>,
}

impl SubmitRequest {
    /// The path of the job file on the server's machine.
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.folder.trim_end_matches('/'), self.file)
    }
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
    /// Its plan.
    pub plan: Plan,
    /// Warnings about its job and its plan, from the request that has submitted it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A sweep that was submitted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SubmittedSweep {
    /// Its name.
    pub sweep: SweepId,
    /// Whether this request has submitted it; false when an earlier one with the same `Idempotency-Key` had.
    pub is_new: bool,
    /// The plan of its first trial.
    pub plan: Plan,
    /// Warnings about its job and its plan, from the request that has submitted it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(super) struct RunSummary {
    /// Its name.
    pub run: String,
    /// Its state, as one word.
    pub state: String,
    /// Attempts that were started.
    pub attempts: u64,
    /// Cost up to now in micro-dollars.
    pub cost_micro_usd: i64,
    /// When it was submitted, in microseconds since 1970.
    pub submitted: i64,
    /// Whether the cost is final.
    pub is_billed: bool,
    /// The sweep that it is a trial of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep: Option<String>,
    /// Details, if requested.
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

/// A sweep in a list.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(super) struct SweepSummary {
    /// Its name.
    pub sweep: String,
    /// Where it stands, with what belongs to it.
    pub state: serde_json::Value,
    /// Its state, as one word.
    pub word: String,
    /// What trials are judged by; null where they are not compared.
    pub metric: serde_json::Value,
    /// Whether the highest or the lowest of it is best.
    pub goal: serde_json::Value,
    /// Number of trials that were submitted.
    pub trials: u64,
    /// The best trial so far.
    pub best: serde_json::Value,
    /// Cost of all trials up to now in micro-dollars.
    pub cost_micro_usd: i64,
    /// When it was submitted, in microseconds since 1970.
    pub submitted: i64,
}

/// Changes to a sweep that is resumed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SweepResumeRequest {
    /// New budget of all trials together, such as `$20`.
    pub budget: Option<String>,
    /// New deadline, counted from the submission, such as `12h`.
    pub deadline: Option<String>,
    /// Resume although the data has changed since the checkpoints.
    pub accept_data_change: bool,
}

/// Changes to a run that is resumed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ResumeRequest {
    /// New budget of the run, such as `$20`.
    pub budget: Option<String>,
    /// New deadline, counted from the submission, such as `12h`.
    pub deadline: Option<String>,
    /// Resume although the data has changed since the checkpoint.
    pub accept_data_change: bool,
    /// Keys of `train:` with other values from here on, such as `epochs=60`.
    pub set: Vec<String>,
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
            sweep: listed.sweep.map(|sweep| sweep.to_string()),
            details,
        }
    }
}

/// The cost of a run until now: its bill, or the rent of its machines by the clock.
pub(super) fn spent(world: &World, run: &Run, now: Timestamp) -> Money {
    let live = run.instances.iter().filter_map(|id| Some((id, world.instances.get(id)?)));
    let meters: BTreeMap<InstanceId, Elapsed> =
        live.filter_map(|(id, instance)| Some((id.clone(), instance.rent_by_the_clock(now)?))).collect();
    plan::spent(world, run, &meters)
}

/// The rented time of every machine that is not released, by the clock.
pub(super) fn rents(world: &World, now: Timestamp) -> BTreeMap<InstanceId, Elapsed> {
    world.live_instances().filter_map(|(id, instance)| Some((id.clone(), instance.rent_by_the_clock(now)?))).collect()
}
