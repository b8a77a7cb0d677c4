//! Which ends of an attempt are tried again, and how often, by their cause.
//!
//! Failures are counted since the run last came forward: since an attempt resumed from a later step than the one before,
//! or, for a program that reports no steps, since an attempt has worked for an hour. The counts follow from the event log.

use domain::job::Recovery;
use domain::run::RunState;
use domain::{Cause, Work};

use crate::world::Run;

/// How often the same cause is met again without progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryBudget {
    /// It is the same at the next attempt, so the user must change something.
    Never,
    /// So many times in succession.
    Times(u32),
    /// For as long as budget and deadline allow.
    Unlimited,
    /// By the job's own rules for the exit codes of its program.
    ByExitCode,
}

/// How often attempts that end by this cause are repeated without progress.
pub fn retry_budget(cause: Cause, recovery: &Recovery) -> RetryBudget {
    let usual = match cause {
        Cause::Killed | Cause::RankLost | Cause::InstanceLost | Cause::Fenced => recovery.restarts,
        // A disk or a mount that does not come back.
        Cause::Unreadable => recovery.restarts.min(8),
        // Standing still at the same place again is a fault of the program.
        Cause::Hang => recovery.restarts.min(5),
        Cause::NoCapacity => return RetryBudget::Unlimited,
        Cause::ExitCode => return RetryBudget::ByExitCode,
        Cause::Data | Cause::Job | Cause::NotFinite | Cause::OutOfMemory | Cause::DiskFull | Cause::ReadOnly => {
            return RetryBudget::Never;
        }
        Cause::Library | Cause::Setup | Cause::Internal => return RetryBudget::Never,
    };
    RetryBudget::Times(recovery.by_cause.get(&cause).copied().unwrap_or(usual))
}

/// Into how many micro-batches a run divides its steps after memory ran out: twice as many, where its job allows that and
/// each has a sample still.
pub(super) fn more_micro_batches(run: &Run) -> Option<u32> {
    let is_out_of_memory =
        matches!(&run.state, RunState::Recovering { finding, .. } if finding.cause == Cause::OutOfMemory);
    let Work::Train(train) = &run.job.work else { return None };
    if !is_out_of_memory || !run.recovery().halve_micro_batch {
        return None;
    }
    let ranks = train.processes.max(1).saturating_mul(run.job.nodes()) / train.parallel.tensor.max(1);
    let doubled = train.accumulate.max(1).checked_mul(2)?;
    (ranks.max(1).saturating_mul(doubled) <= train.batch).then_some(doubled)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table in `docs/control.md` says what is done.
    #[test]
    fn the_documented_table_is_the_one_that_decides() {
        let document = include_str!("../../../../docs/control.md");
        for cause in Cause::ALL {
            let name = serde_json::to_value(cause).unwrap();
            let budget = match retry_budget(cause, &Recovery::default()) {
                RetryBudget::Never => "never".to_owned(),
                RetryBudget::Times(times) => format!("{times} times"),
                RetryBudget::Unlimited => "until budget or deadline".to_owned(),
                RetryBudget::ByExitCode => "by `job_recovery`".to_owned(),
            };
            let row = format!("| `{}` | {budget} |", name.as_str().unwrap());
            assert!(document.contains(&row), "docs/control.md has no row `{row}`");
        }
    }
}
