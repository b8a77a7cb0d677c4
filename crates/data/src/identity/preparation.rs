//! How far the work before the first batch has come: what the threads that do it have counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Units of work that are done: samples read, decoded, measured or tokenised. Who waits sees that it grows.
#[derive(Debug, Clone, Default)]
pub struct Preparation(Arc<AtomicU64>);

impl Preparation {
    /// Counts more of them.
    pub(crate) fn advance(&self, units: usize) {
        self.0.fetch_add(units as u64, Ordering::Relaxed);
    }

    /// All so far.
    pub fn done(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
