//! Everything that is known: runs, instances, attempts, sweeps and schedules, each with its state.

mod attempts;
mod bill;
mod goodput;
mod lifecycle;
mod members;
mod open;
mod pipelines;
mod rented;
mod residence;
mod resumed;
mod schedules;
mod taken;

use std::collections::{BTreeMap, BTreeSet};

use domain::job::Recovery;
use domain::rank::Ready;
use domain::rental::MachineHandle;
use domain::run::{AttemptEnd, Bill, BillAdjustment, InstanceState, Keeper, RunState, StopBy, Usage};
use domain::sweep::{Known, SweepEnd, Trial};
use domain::{
    AttemptId, Cause, Elapsed, Fence, InstanceId, Job, Money, Offer, PipelineId, Plan, Rate, RunId, ScheduleId,
    SweepId, Timestamp,
};
use serde::{Deserialize, Serialize};

pub(crate) use bill::spent_on_released;
pub use bill::{bill, spent};
pub use goodput::{Goodput, StepTotals, goodput, kept_steps};
pub use lifecycle::Illegal;
pub use members::Member;
pub use pipelines::{NamedWork, PipelineDecision, PipelineRecord, PipelineResumption, PipelineState};
pub use residence::RunOrSweep;
pub use schedules::{LastDueRun, ScheduleDecision, ScheduleRecord};

/// The state of everything, according to the event log. Callers that need only unfinished work drop the rest
/// ([`World::evict_settled`]) and restore it on demand ([`World::merge`]).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct World {
    /// Number of the last event that is in here.
    pub last_seq: u64,
    /// Runs.
    pub runs: BTreeMap<RunId, Run>,
    /// Their instances, from the intent on.
    pub instances: BTreeMap<InstanceId, Instance>,
    /// Their attempts, from the intent on.
    pub attempts: BTreeMap<AttemptId, RunAttempt>,
    /// Sweeps.
    #[serde(default)]
    pub sweeps: BTreeMap<SweepId, SweepRecord>,
    /// Schedules that were not removed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub schedules: BTreeMap<ScheduleId, ScheduleRecord>,
    /// Pipelines that a server runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pipelines: BTreeMap<PipelineId, PipelineRecord>,
    /// Indexes, derived from the rest ([`World::find_open`]).
    #[serde(skip)]
    pub(crate) index: open::Index,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The job.
    pub job: Job,
    /// The agreed plan.
    pub plan: Plan,
    /// SHA-256 of what defines the result.
    pub job_hash: String,
    /// The job file as the user named it.
    pub file: String,
    /// When it was submitted.
    pub submitted: Timestamp,
    /// Number of its first event: earlier runs go first.
    pub order: u64,
    /// Where it stands.
    pub state: RunState,
    /// The newest attempt's report when it was ready.
    pub ready: Option<Ready>,
    /// Its instances, oldest first.
    pub instances: Vec<InstanceId>,
    /// Its attempts, oldest first.
    pub attempts: Vec<AttemptId>,
    /// Restarts since it last came forward.
    pub restarts: u32,
    /// The same by their causes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<Cause, u32>,
    /// Restarts after the user's program failed.
    pub error_restarts: u32,
    /// Number of consecutive attempts to rent without capacity.
    #[serde(default)]
    pub waits: u32,
    /// Whether the budget's alert was given.
    pub alerted: bool,
    /// When it ended or stopped.
    pub ended: Option<Timestamp>,
    /// The final bill.
    pub bill: Option<Bill>,
    /// What its provider has billed beyond that, or less, as accepted by the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adjustments: Vec<BillAdjustment>,
    /// Its sweep and trial number, if it is a trial.
    #[serde(default)]
    pub trial: Option<Trial>,
    /// Who has asked for it, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What a trial came to, each time that it ended with a model, oldest first.
    #[serde(default)]
    pub results: Vec<Measured>,
    /// Attempts that it had when it was last told to go on: what they came to is settled.
    #[serde(default)]
    pub settled: usize,
    /// Whether the user accepts that its data has changed since its checkpoint: until it is resumed the next time, or has
    /// resumed from a checkpoint of the changed data.
    #[serde(default)]
    pub accept_data_change: bool,
    /// Who keeps it going.
    #[serde(default)]
    pub keeper: Keeper,
    /// Since when enough of its machines are up for an attempt on fewer than it could use, and none was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub able_since: Option<Timestamp>,
    /// Whether an attempt has come to its ranks or its program: then its set-up has worked once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_ready: bool,
}

/// The result of a trial after some epochs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Epochs.
    pub epochs: u32,
    /// The sweep's metric; `None` if it was not measured, or is not finite.
    pub value: Option<f64>,
    /// Whether its accuracy met `stop.accuracy`, so that more epochs would have no effect.
    #[serde(default)]
    pub is_enough: bool,
}

/// A sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepRecord {
    /// The job, with the first values.
    pub job: Job,
    /// The search space and method.
    pub search: domain::Sweep,
    /// The plan of the first trial; all are rented from its offer.
    pub plan: Plan,
    /// Known properties of the data.
    pub known: Known,
    /// SHA-256 of what defines the result.
    pub job_hash: String,
    /// The job file as the user named it.
    pub file: String,
    /// Who has asked for it and for its trials, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// When it was submitted.
    pub submitted: Timestamp,
    /// Number of its first event.
    pub order: u64,
    /// Where it stands.
    pub state: SweepState,
    /// Its trials, by number from 1.
    pub trials: Vec<RunId>,
    /// Trials that were stopped together with the sweep, and resume when it does.
    pub paused: BTreeSet<RunId>,
    /// Trials that have read other data than the rest, and are not compared with it.
    #[serde(default)]
    pub set_aside: BTreeSet<RunId>,
    /// Number of failed trials when it was last resumed.
    pub forgiven: u32,
    /// Whether the budget's alert was given.
    pub alerted: bool,
    /// When it ended or stopped.
    pub ended: Option<Timestamp>,
    /// Its final cost, once known, with adjustments to the provider's bill.
    pub total: Option<Money>,
    /// Whether the user accepts that the data of its trials has changed, until it is resumed the next time.
    #[serde(default)]
    pub accept_data_change: bool,
}

/// Where a sweep stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum SweepState {
    /// Trials are tried.
    Running,
    /// Told to stop; its trials save their state.
    Stopping {
        /// By whom.
        by: StopBy,
    },
    /// At its end, or stopped before it.
    Ended {
        /// The outcome. Nested, because its tag has a different name.
        how: SweepEnd,
    },
}

impl SweepState {
    /// Whether nothing more will happen unless the user resumes it.
    pub fn is_final(&self) -> bool {
        match self {
            SweepState::Running | SweepState::Stopping { .. } => false,
            SweepState::Ended { .. } => true,
        }
    }

    /// The state's name, as on the command line.
    pub fn word(&self) -> &'static str {
        match self {
            SweepState::Running => "running",
            SweepState::Stopping { .. } => "stopping",
            SweepState::Ended { how: SweepEnd::Done { .. } } => "done",
            SweepState::Ended { how: SweepEnd::Stopped { .. } } => "stopped",
            SweepState::Ended { how: SweepEnd::Failed { .. } } => "failed",
        }
    }
}

/// A rented machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// For whom.
    pub run: RunId,
    /// The same token rents the same machine.
    pub token: String,
    /// The rented offer.
    pub offer: Offer,
    /// Reserved money.
    pub reserved: Money,
    /// When it was intended.
    pub intended: Timestamp,
    /// The provider's name of it, once known.
    #[serde(default)]
    pub handle: Option<MachineHandle>,
    /// The account of its provider in which it was rented, where there are such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Usage of other machines that the same request has rented.
    #[serde(default)]
    pub doubles: BTreeMap<MachineHandle, Usage>,
    /// Whether its provider has confirmed that it was rented.
    #[serde(default)]
    pub is_accepted: bool,
    /// Whether its provider has refused to rent it: then nothing that was asked for with it was rented either.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_refused: bool,
    /// When its rent began.
    pub started: Option<Timestamp>,
    /// About when its provider reclaims it, if announced, or since when another is to take its place because it is slow: no
    /// new work is started on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<Timestamp>,
    /// Whether it was given back because of how others turned out that were asked for at the same time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost_race: bool,
    /// The first machine of the request that has rented it; `None` if it was asked for alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<InstanceId>,
    /// Which life of an agent looks after it; 0 where that was not told.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub incarnation: u64,
    /// The name under which it was rented for another run, whose machine this run has taken over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<InstanceId>,
    /// The part of its rent that runs before this one pay for.
    #[serde(default, skip_serializing_if = "is_no_time")]
    pub before: Elapsed,
    /// Where it stands.
    pub state: InstanceState,
}

/// One try at a run's work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunAttempt {
    /// Of which run.
    pub run: RunId,
    /// Its number.
    pub fence: Fence,
    /// Where it runs; of several machines, the one of node rank 0.
    pub instance: InstanceId,
    /// Its machines by node rank; empty for a single one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
    /// When it was intended.
    pub intended: Timestamp,
    /// Whether its ranks are to save and end because the next attempt can have more machines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_resizing: bool,
    /// Its machines that were found to be slower than the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stragglers: Vec<InstanceId>,
    /// Where it stands.
    pub state: AttemptState,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_no_time(elapsed: &Elapsed) -> bool {
    elapsed.0 == 0
}

/// Where an attempt stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum AttemptState {
    /// Written down; the agent may or may not have started it.
    Intended,
    /// Making steps, from this one on.
    Ready {
        /// `None` for the user's own program.
        step: Option<u64>,
    },
    /// Over.
    Ended {
        /// How.
        end: AttemptEnd,
        /// When.
        at: Timestamp,
    },
}

impl World {
    /// The newest attempt of a run, if it has not ended.
    pub fn active_attempt<'a>(&'a self, run: &'a Run) -> Option<(&'a AttemptId, &'a RunAttempt)> {
        let id = run.attempts.last()?;
        let attempt = self.attempts.get(id)?;
        match attempt.state {
            AttemptState::Intended | AttemptState::Ready { .. } => Some((id, attempt)),
            AttemptState::Ended { .. } => None,
        }
    }

    /// How the newest attempt of a run ended, if it has.
    pub fn last_end<'a>(&'a self, run: &'a Run) -> Option<&'a AttemptEnd> {
        match &self.attempts.get(run.attempts.last()?)?.state {
            AttemptState::Intended | AttemptState::Ready { .. } => None,
            AttemptState::Ended { end, .. } => Some(end),
        }
    }

    /// The instances of a run that are not released, oldest first.
    pub fn live_instances_of<'a>(&'a self, run: &'a Run) -> impl Iterator<Item = (&'a InstanceId, &'a Instance)> {
        let known = run.instances.iter().filter_map(|id| self.instances.get_key_value(id));
        known.filter(|(_, instance)| !matches!(instance.state, InstanceState::Released { .. }))
    }

    /// The sweep that a run is a trial of.
    pub fn sweep_of(&self, run: &Run) -> Option<&SweepRecord> {
        self.sweeps.get(&run.trial.as_ref()?.sweep)
    }

    /// The trials of a sweep, by number.
    pub fn trials<'a>(&'a self, sweep: &'a SweepRecord) -> impl Iterator<Item = (&'a RunId, &'a Run)> {
        sweep.trials.iter().filter_map(|id| self.runs.get_key_value(id))
    }
}

impl Run {
    /// What its machines cost together.
    pub fn rate(&self) -> Rate {
        self.plan.rate_of(self.job.machines(), self.job.wants.on_demand)
    }

    /// The sum of its adjustments to the provider's bill.
    pub fn adjusted(&self) -> Money {
        self.adjustments.iter().map(|adjustment| adjustment.amount).sum()
    }

    /// Which ends are tried again.
    pub fn recovery(&self) -> &Recovery {
        &self.job.recovery
    }

    /// How long ago it was submitted, on the wall clock.
    pub fn age(&self, now: Timestamp) -> Elapsed {
        now.since(self.submitted)
    }
}
