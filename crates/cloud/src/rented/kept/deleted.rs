//! Stopped machines that were deleted at their cloud, such as in its console: their disks cost nothing any more.

use std::io;
use std::sync::{PoisonError, TryLockError};

use domain::{InstanceId, Timestamp};

use super::restart::place_of;
use super::{KeptMachine, KeptState};
use crate::rented::look::MISSED;
use crate::rented::{CloudApi, CloudFailure, CloudMachine, Rented};

impl<C: CloudApi> Rented<C> {
    /// Forgets stopped machines that complete lists of their account have lacked for long, and that the cloud says it has not: a
    /// machine without the tags of its owner is not listed either, and its disk is paid for.
    pub(in crate::rented) fn forget_deleted(
        &self,
        api: &C,
        (account, listed): (Option<&str>, &[CloudMachine]),
        now: Timestamp,
    ) {
        // What cannot be read is looked at again.
        let Ok(kept) = self.kept.all() else { return };
        let stopped = kept.iter().filter(|kept| kept.stopped().is_some() && kept.account.as_deref() == account);
        for (kept, since) in self.lacking(stopped, listed, now) {
            if let Err(CloudFailure::NotFound(_)) = api.power(&place_of(kept)) {
                // What is being asked of it comes first, and what cannot be written is tried again.
                let _ = self.forget_stopped(kept, since);
            }
        }
    }

    /// Those that lists lack for long enough to ask for each by itself, and since when. Each is asked for once in that time.
    fn lacking<'a>(
        &self,
        stopped: impl Iterator<Item = &'a KeptMachine>,
        listed: &[CloudMachine],
        now: Timestamp,
    ) -> Vec<(&'a KeptMachine, Timestamp)> {
        let mut lacked = self.lacked.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        for kept in stopped {
            if listed.iter().any(|machine| machine.handle == kept.handle && !machine.is_gone()) {
                lacked.remove(&kept.handle);
                continue;
            }
            let since = *lacked.entry(kept.handle.clone()).or_insert(now);
            if now.since(since) >= MISSED {
                lacked.remove(&kept.handle);
                found.push((kept, since));
            }
        }
        found
    }

    /// Forgets a machine that is as it was read; its disk was paid for until `at`.
    fn forget_stopped(&self, kept: &KeptMachine, at: Timestamp) -> io::Result<()> {
        let asking = self.asking_of(&InstanceId::new(kept.handle.as_str()));
        let _one_at_a_time = match asking.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        let is_same = self.kept.read(&kept.handle)?.as_ref() == Some(kept);
        if !is_same {
            return Ok(());
        }
        match kept.state {
            // What it has cost until then is counted already.
            KeptState::Stopped { since } | KeptState::Starting { since } => self.kept.forget(kept, at.max(since)),
            KeptState::Accepted { .. } | KeptState::Started => self.kept.forget(kept, at),
        }
    }
}
