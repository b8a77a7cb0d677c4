//! When a run that has failed is not tried again.

use domain::run::AttemptEnd;
use domain::{AttemptId, Cause, Elapsed, Finding, Timestamp, Work};

use super::retry::{RetryBudget, more_micro_batches, retry_budget};
use crate::world::{AttemptState, Run, World};

/// Why a run is not tried again, if it is not.
pub fn given_up(world: &World, run: &Run, finding: &Finding, exit_code: Option<i32>) -> Option<Finding> {
    let recovery = run.recovery();
    if let Some(code) = exit_code {
        let always = u8::try_from(code).is_ok_and(|code| recovery.exit_codes.contains(&code));
        let again = always || run.error_restarts <= recovery.restarts_on_errors;
        return if again { None } else { Some(finding.clone()) };
    }
    let count = run.failures.get(&finding.cause).copied().unwrap_or(0);
    let most = match retry_budget(finding.cause, recovery) {
        RetryBudget::Unlimited => return None,
        RetryBudget::Times(most) if count <= most => return killed_again(world, run, finding),
        RetryBudget::Times(most) => most,
        RetryBudget::Never if finding.cause == Cause::OutOfMemory && more_micro_batches(run).is_some() => return None,
        // The same commands worked before, so it is what they ask for that fails, such as an index of packages.
        RetryBudget::Never
            if finding.cause == Cause::Setup && run.was_ready && count <= recovery.restarts.min(SETUPS) =>
        {
            return None;
        }
        RetryBudget::Never | RetryBudget::ByExitCode => return Some(finding.clone()),
    };
    let message = format!("{}; {most} restarts brought no progress", finding.message);
    Some(Finding { message, ..finding.clone() })
}

/// So often a set-up that has worked in the same run is tried again without progress.
const SETUPS: u32 = 8;

/// So many times in succession, within so long, a program is killed before its run is given up.
const KILLS: usize = 3;
const KILLED_WITHIN: Elapsed = Elapsed(600_000_000);

/// Why a program that something kills again and again, typically for want of memory, is not tried again.
fn killed_again(world: &World, run: &Run, finding: &Finding) -> Option<Finding> {
    if !matches!(run.job.work, Work::Command(_)) || finding.cause != Cause::Killed {
        return None;
    }
    let killed = |id: &AttemptId| match &world.attempts.get(id)?.state {
        AttemptState::Ended { end: AttemptEnd::Failed { finding, .. }, at } if finding.cause == Cause::Killed => {
            Some(*at)
        }
        _ => None,
    };
    let unsettled = run.attempts.get(run.settled..)?;
    let newest: Option<Vec<Timestamp>> = unsettled.iter().rev().take(KILLS).map(killed).collect();
    let newest = newest.filter(|newest| newest.len() == KILLS)?;
    let within = newest.first()?.since(*newest.last()?);
    if within > KILLED_WITHIN {
        return None;
    }
    // The first line says what happened; a program's last lines may follow.
    let (first, rest) =
        finding.message.split_once('\n').map_or((finding.message.as_str(), ""), |(first, rest)| (first, rest));
    let seconds = within.0.div_ceil(1_000_000);
    let message = format!("{KILLS} times in {seconds} s, {first}{}{rest}", if rest.is_empty() { "" } else { "\n" });
    Some(Finding { message, ..finding.clone() })
}
