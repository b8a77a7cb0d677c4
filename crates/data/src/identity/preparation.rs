//! Progress of the work before the first batch, counted by the threads that do it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Units of completed work: samples read, decoded, measured or tokenized. A waiting rank sees it grow.
#[derive(Debug, Clone, Default)]
pub struct Preparation(Arc<AtomicU64>);

impl Preparation {
    /// Counts more of them.
    pub(crate) fn advance(&self, units: usize) {
        self.0.fetch_add(units as u64, Ordering::Relaxed);
    }

    /// Units completed since the start.
    pub fn done(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
