//! `job_recovery`: what is tried again, and how often.

use std::collections::BTreeMap;

use super::super::keys::{CauseRestarts, ExitCodes, JobRecovery};
use crate::finding::Cause;
use crate::job::Recovery;

pub(super) fn recovery(keys: Option<JobRecovery>) -> Recovery {
    let usual = Recovery::default();
    match keys {
        None => usual,
        Some(JobRecovery::Word(_)) => Recovery { restarts: 0, ..usual },
        Some(JobRecovery::Rules(rules)) => Recovery {
            restarts_on_errors: rules.max_restarts_on_errors.unwrap_or(usual.restarts_on_errors),
            exit_codes: match rules.recover_on_exit_codes {
                None => usual.exit_codes,
                Some(ExitCodes::One(code)) => vec![code],
                Some(ExitCodes::Many(codes)) => codes,
            },
            by_cause: rules.max_restarts.map(by_cause).unwrap_or_default(),
            halve_micro_batch: rules.halve_micro_batch.unwrap_or_default(),
            replace_stragglers: rules.replace_stragglers.unwrap_or_default(),
            ..usual
        },
    }
}

fn by_cause(keys: CauseRestarts) -> BTreeMap<Cause, u32> {
    let causes = [
        (Cause::Killed, keys.killed),
        (Cause::RankLost, keys.rank_lost),
        (Cause::Hang, keys.hang),
        (Cause::InstanceLost, keys.instance_lost),
        (Cause::Unreadable, keys.unreadable),
    ];
    causes.into_iter().filter_map(|(cause, restarts)| Some((cause, restarts?))).collect()
}
