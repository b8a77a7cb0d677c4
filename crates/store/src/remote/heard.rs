//! When a store was last heard.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// When bytes of any body came last, for all remotes that share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastHeard(Arc<Mutex<Option<Instant>>>);

impl LastHeard {
    /// Bytes have come now.
    pub fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// When that was; `None` if nothing has come yet.
    pub fn at(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
