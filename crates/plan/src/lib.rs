//! Every decision, as a pure function.
//!
//! No I/O, no clock, no randomness that is not passed in, never async; ties break by lowest id; the same inputs give
//! the same bytes. [`World`] is the state derived from the event log; [`reconcile`] decides what to do about it;
//! `orders` computes an agent's orders; [`bill`] the bill; [`sweep`] the next trial.

pub mod estimate;
pub mod local;
pub mod measured;
pub mod model;
pub mod money;
pub mod orders;
pub mod reconcile;
pub mod resume;
pub mod search;
pub mod spot;
pub mod sweep;
pub mod utilisation;
pub mod verdict;
pub mod world;

pub use orders::{hazard_of, hear, job_of_attempt, orders, run_of_report, saving_of};
pub use reconcile::{
    Action, Decision, LaunchDoubt, ObservedMachine, ObservedState, Policy, RetryBudget, Scope, SubmitTrial, budget_of,
    decide, expires, first_answer, heartbeat, is_limited, is_lost, lease, members, offers, price_cap, reached,
    reconcile, reconcile_scope, retry_budget, run_due, sweep_due, wind_down,
};
pub use resume::Resumption;
pub use verdict::{StepTimes, Straggler, straggler_found};
pub use world::{
    AttemptState, Goodput, Illegal, Instance, LastDueRun, Measured, Member, NamedWork, PipelineDecision,
    PipelineRecord, PipelineResumption, PipelineState, Run, RunAttempt, RunOrSweep, ScheduleDecision, ScheduleRecord,
    StepTotals, SweepRecord, SweepState, World, bill, goodput, kept_steps, spent,
};
