//! Events. The event log is the source of truth; every other table is a view that can be rebuilt from it.
//!
//! An intent and its outcome are two events, so that a crash between them leaves a trace. Metrics, heartbeats and log
//! lines are not events. The log is a stable format: every later version reads what this one wrote.

use serde::{Deserialize, Serialize};

use crate::finding::Finding;
use crate::id::{AttemptId, Fence, InstanceId, PipelineId, RunId, ScheduleId, SweepId};
use crate::job::{Budget, Job};
use crate::money::Money;
use crate::offer::Offer;
use crate::pipeline::PipelineEnd;
use crate::plan::Plan;
use crate::rank::Ready;
use crate::rental::MachineHandle;
use crate::run::{AttemptEnd, Bill, BillAdjustment, Keeper, Outcome, StopBy, Usage};
use crate::schedule::{JobSchedule, ScheduleChange, ScheduledWork, SkipReason};
use crate::sweep::{Known, Setting, SweepEnd, Trial};
use crate::time::{Elapsed, Timestamp};
use crate::units::{Bytes, Duration};
use crate::wire::NodeAddress;

/// One event, with its position in the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// From 1, without gaps.
    pub seq: u64,
    /// When it was written, for people; order is by `seq`.
    pub at: Timestamp,
    /// The event.
    pub event: Event,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A run was submitted.
    Submitted(Box<Submitted>),
    /// A user, a limit or a signal requests that the run stops.
    StopRequested { run: RunId, by: StopBy },
    /// The user resumes a stopped or failed run.
    ResumeRequested {
        /// Which.
        run: RunId,
        /// A new total budget of the run, from its submission on; `None` keeps the old one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget: Option<Money>,
        /// A new deadline, from its submission on; none keeps the old one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Duration>,
        /// Epochs after which it ends this time, for a run that has ended after fewer than all; `None` keeps the
        /// setting.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        epochs: Option<u32>,
        /// Whether the run continues although its data has changed since its checkpoint.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        accept_data_change: bool,
        /// Keys of `train:` that have other values from here on.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        set: Vec<Setting>,
    },
    /// A machine will be rented, with this token; money is reserved.
    RentIntended(Box<RentIntended>),
    /// A run takes over the machine of one that has ended, instead of renting another.
    MachineTaken(Box<MachineTaken>),
    /// The provider has accepted the request. It comes later, with the handle, where the machine's agent was heard first or
    /// a listing shows what the provider had not named.
    Launched {
        /// Our name of the machine.
        instance: InstanceId,
        /// The provider's name of the machine; `None` if it was not reported, or by earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        handle: Option<MachineHandle>,
        /// The account of the cloud in which it was rented, such as a project; `None` where there are none, and in logs of
        /// versions that did not write it down.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        account: Option<String>,
    },
    /// When a machine was prepared, another one of its pool or run could not send it all files that it has, or was not asked
    /// because it had just failed for yet another one.
    PeerCopyFailed {
        /// The machine that was prepared.
        instance: InstanceId,
        /// The name of the other one: of a node, or the instance of a machine of a cloud.
        peer: String,
        /// Why not.
        why: String,
        /// What the loop's machine sent instead, as it is when it is not compressed; 0 if others had the rest.
        sent: Bytes,
    },
    /// The provider has refused it, or could not be reached; nothing is rented.
    RentFailed { instance: InstanceId, finding: Finding },
    /// The agent on the machine has spoken for the first time.
    AgentUp {
        /// Which machine.
        instance: InstanceId,
        /// When its rent began, on its wall clock.
        started: Timestamp,
        /// Which life of an agent this is; 0 from agents of earlier versions.
        #[serde(default, skip_serializing_if = "crate::wire::is_zero")]
        incarnation: u64,
    },
    /// The provider has said on the machine that it takes it back, and about when.
    ReclaimNoticed { instance: InstanceId, at: Timestamp },
    /// An attempt will be started.
    AttemptIntended {
        /// Of which run.
        run: RunId,
        /// Its name.
        attempt: AttemptId,
        /// Its number.
        fence: Fence,
        /// The machine of node rank 0.
        instance: InstanceId,
        /// The machines of node ranks 1 and up; empty for an attempt on one machine.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        others: Vec<InstanceId>,
    },
    /// One machine of an attempt on several has all that its ranks need, and can be reached at this address.
    MemberPrepared { attempt: AttemptId, instance: InstanceId, address: NodeAddress },
    /// The ranks on one machine of an attempt on several have ended.
    MemberEnded { attempt: AttemptId, instance: InstanceId, end: AttemptEnd },
    /// Data and model are ready; steps are being made. `None` for the user's own program.
    AttemptReady { attempt: AttemptId, ready: Option<Ready> },
    /// The ranks of an attempt save and end, because the next one can have more machines.
    AttemptResizing { attempt: AttemptId },
    /// A machine makes its steps slower than the others of its attempt, one after the other.
    StragglerFound {
        /// The attempt.
        attempt: AttemptId,
        /// Which machine.
        instance: InstanceId,
        /// Its median step.
        step: Duration,
        /// The median step of all machines.
        median: Duration,
        /// Whether another machine takes its place: then the ranks save and end, and no new work is started on it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_replaced: bool,
    },
    /// Memory ran out: from now on a step is divided into so many micro-batches.
    MicroBatchHalved { run: RunId, accumulate: u32 },
    /// From now on somebody else keeps the run going.
    KeeperChanged { run: RunId, keeper: Keeper },
    /// An attempt has ended.
    AttemptEnded { attempt: AttemptId, end: AttemptEnd },
    /// The budget's alert was reached.
    BudgetAlert { run: RunId, spent: Money },
    /// The run is at its end, or stopped.
    Ended { run: RunId, end: RunEnd },
    /// The provider will be asked to end a machine.
    ReleaseIntended {
        /// Which.
        instance: InstanceId,
        /// Whether it was asked for at the same time as others and another one was had first.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        lost_race: bool,
    },
    /// A second machine that the provider rented for the same request is gone; it is billed too. Only a provider that
    /// knows no tokens can rent twice.
    DoubleEnded {
        /// The instance of the request.
        instance: InstanceId,
        /// The provider's name of it.
        handle: MachineHandle,
        /// Its usage.
        usage: Usage,
    },
    /// The provider has confirmed that it is gone, and metered it.
    Released { instance: InstanceId, usage: Usage },
    /// All machines are released; the bill is final.
    Billed { run: RunId, bill: Bill },
    /// The provider's bill differs from the run's, and the user has accepted it.
    BillAdjusted {
        /// Which run; it is billed.
        run: RunId,
        /// The files of the provider's bill as the user named them.
        source: String,
        /// The sum of its adjustments before: another one in between is refused.
        #[serde(with = "crate::money::signed")]
        before: Money,
        /// What is added.
        adjustments: Vec<BillAdjustment>,
    },
    /// A sweep was submitted; its trials are subsequent runs.
    SweepSubmitted(Box<SweepSubmitted>),
    /// A user, a limit or a signal requests that the sweep stops, with all of its trials.
    SweepStopRequested { sweep: SweepId, by: StopBy },
    /// The user resumes a stopped or failed sweep.
    SweepResumeRequested {
        /// Which.
        sweep: SweepId,
        /// A new total budget of the sweep; `None` keeps the old one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget: Option<Money>,
        /// A new deadline, from its submission on; none keeps the old one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Duration>,
        /// Whether its trials continue although their data has changed since their checkpoints.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        accept_data_change: bool,
    },
    /// A trial that is a user's program has succeeded, with this value of the metric that its sweep compares.
    TrialMeasured {
        /// Which.
        run: RunId,
        /// Its last value; none where that, or the loss of its last step, is not finite.
        value: Option<f64>,
    },
    /// The alert of the sweep's budget was reached.
    SweepBudgetAlert { sweep: SweepId, spent: Money },
    /// The sweep is at its end, or stopped; all of its trials are billed.
    SweepEnded {
        /// Which.
        sweep: SweepId,
        /// How.
        end: SweepEnd,
        /// Its cost: the sum of its trials' bills.
        total: Money,
    },
    /// A pipeline was submitted; its tasks are subsequent runs.
    PipelineSubmitted(Box<PipelineSubmitted>),
    /// The run of the next task was submitted. It comes after its submission, which the name of the run makes unique.
    PipelineAdvanced { pipeline: PipelineId, run: RunId },
    /// A user requests that a pipeline stops, with the task that runs.
    PipelineStopRequested { pipeline: PipelineId },
    /// A user requests that a pipeline continues, once the run of its newest task was resumed where it has not succeeded.
    PipelineResumeRequested { pipeline: PipelineId },
    /// A pipeline is at its end.
    PipelineEnded { pipeline: PipelineId, end: PipelineEnd },
    /// A job is run at due times from now on.
    ScheduleAdded(Box<ScheduleAdded>),
    /// The user pauses, resumes or removes a schedule.
    ScheduleChanged { schedule: ScheduleId, change: ScheduleChange },
    /// The run of a due time was submitted, or the sweep or pipeline of this name. It comes after its submission, which the
    /// name makes unique.
    ScheduleFired { schedule: ScheduleId, due: Timestamp, run: RunId },
    /// Due times have no run: all of them up to this one.
    ScheduleSkipped {
        /// Of which schedule.
        schedule: ScheduleId,
        /// The last of them.
        due: Timestamp,
        /// How many.
        count: u32,
        /// Why.
        why: SkipReason,
    },
}

/// A pipeline whose tasks a server runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PipelineSubmitted {
    /// Its name.
    pub pipeline: PipelineId,
    /// The names of its tasks, in their order.
    pub tasks: Vec<String>,
    /// The most that all tasks may cost together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Its file with its overrides, from which each task is planned when it is due: sealed, because it may hold secrets.
    pub request: String,
    /// The file as the user named it.
    pub file: String,
    /// Who has asked for it, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Runs of an earlier pipeline of the same schedule, in the order of its tasks: each task starts with what the run of the
    /// same task has written. Empty without `warm_start`, and for the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_runs: Vec<RunId>,
}

/// A job that is run at due times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleAdded {
    /// Its name.
    pub schedule: ScheduleId,
    /// Its `schedule:`.
    pub times: JobSchedule,
    /// What it submits.
    #[serde(default, skip_serializing_if = "ScheduledWork::is_run")]
    pub work: ScheduledWork,
    /// The job file with its overrides, as it is planned anew for each run: sealed, because it may hold secrets.
    pub request: String,
    /// The file as the user named it.
    pub file: String,
    /// Who has asked for it, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// The submission of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Submitted {
    /// Its name.
    pub run: RunId,
    /// The job.
    pub job: Job,
    /// The plan that was agreed to.
    pub plan: Plan,
    /// SHA-256 of what defines the result, in hexadecimal.
    pub job_hash: String,
    /// The file as the user named it.
    pub file: String,
    /// Its sweep and trial number, if it is a trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
    /// Who has asked for it: a user of this machine, or the name of a token; none where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// The submission of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepSubmitted {
    /// Its name.
    pub sweep: SweepId,
    /// The job, with its `sweep`.
    pub job: Job,
    /// The plan of the first trial; all are rented from its offer.
    pub plan: Plan,
    /// Known properties of the data, from which each trial is planned.
    pub known: Known,
    /// SHA-256 of what defines the result, in hexadecimal.
    pub job_hash: String,
    /// The file as the user named it.
    pub file: String,
    /// Who has asked for it and for its trials, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// A machine will be rented.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RentIntended {
    /// For whom.
    pub run: RunId,
    /// Its name with us.
    pub instance: InstanceId,
    /// Sent with every request for it, so that asking twice rents one.
    pub token: String,
    /// The offer to rent.
    pub offer: Offer,
    /// The remainder of the run's budget or planned cost, reserved for it.
    pub reserved: Money,
    /// Machines that the same request rents with it: all or none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<InstanceId>,
}

/// A run takes over a machine that is rented and whose agent is up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineTaken {
    /// Which run takes it.
    pub run: RunId,
    /// The machine's name for this run.
    pub instance: InstanceId,
    /// The name under which it was rented: its provider and its agent know no other.
    pub machine: InstanceId,
    pub token: String,
    /// The offer that it was rented by.
    pub offer: Offer,
    /// The remainder of the run's budget or planned cost, reserved for it.
    pub reserved: Money,
    /// The provider's name of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<MachineHandle>,
    /// The account of the cloud in which it was rented; `None` where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// When it was intended to be rented.
    pub intended: Timestamp,
    /// When its rent began, on its agent's wall clock.
    pub started: Timestamp,
    /// Which life of an agent looks after it.
    #[serde(default, skip_serializing_if = "crate::wire::is_zero")]
    pub incarnation: u64,
    /// Rent that runs before this one pay for, counted from the machine's start.
    pub before: Elapsed,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum RunEnd {
    /// At its end.
    Done {
        /// The outcome. Nested, because its tag has a different name.
        outcome: Outcome,
    },
    /// Stopped before it.
    Stopped {
        /// By whom.
        by: StopBy,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::BilledKind;

    #[test]
    fn what_a_provider_billed_less_is_read_again() {
        let adjustment = |micros: i64| BillAdjustment {
            instance: InstanceId::new("r-i1"),
            kind: BilledKind::Machine,
            at: Timestamp(0),
            amount: Money::from_micros(micros),
        };
        let event = Event::BillAdjusted {
            run: RunId::new("r"),
            source: "bill.csv".into(),
            before: Money::from_micros(-250_000),
            adjustments: vec![adjustment(-1), adjustment(0), adjustment(1_500_000)],
        };
        let text = serde_json::to_string(&event).unwrap();
        assert!(text.contains("\"-$0.25\"") && text.contains("\"-$0.000001\""), "{text}");
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
        assert!(serde_json::from_str::<Event>(&text.replace("-$0.25", "--$0.25")).is_err());
    }
}
