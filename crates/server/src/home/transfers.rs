//! What all transfers of files of a home share, whichever way agents and clients call: one part of a run or blob at a time, no
//! change of the attempt that may write while another one's file gets its name, and how much disk space all of them take.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The transfers of a home; clones of it share them.
#[derive(Debug, Default)]
pub struct Transfers {
    locks: Mutex<BTreeMap<String, Arc<TransferLocks>>>,
    /// Bytes that files of runs and blobs take, when they were last summed up, with what was received since.
    used: Mutex<Option<(Instant, u64)>>,
}

/// The locks of one run, or one blob.
#[derive(Debug, Default)]
pub struct TransferLocks {
    parts: Mutex<()>,
    fence: Mutex<()>,
}

impl Transfers {
    /// The locks of a run or blob: the same for all that have them at the same time.
    pub(crate) fn of(&self, name: &str) -> Arc<TransferLocks> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, locks| Arc::strong_count(locks) > 1);
        locks.entry(name.to_owned()).or_default().clone()
    }

    /// How much is used.
    pub(crate) fn used(&self) -> MutexGuard<'_, Option<(Instant, u64)>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TransferLocks {
    /// Held while a part is received, and while a file is hashed, which takes as long as reading it.
    pub(crate) fn part(&self) -> MutexGuard<'_, ()> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held for moments: the attempt that may write is not replaced meanwhile.
    pub(crate) fn fence(&self) -> MutexGuard<'_, ()> {
        self.fence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_does_not_wait_for_the_files_of_another() {
        let transfers = Transfers::default();
        let (one, other) = (transfers.of("a"), transfers.of("b"));
        assert!(Arc::ptr_eq(&one, &transfers.of("a")) && !Arc::ptr_eq(&one, &other));
        drop((one, other));
        transfers.of("c");
        assert_eq!(transfers.locks.lock().unwrap().len(), 1, "what nobody has is forgotten");
    }
}
