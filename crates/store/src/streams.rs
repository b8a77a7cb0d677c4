//! The number of concurrent requests of a transfer.
//!
//! It starts at one and grows by one with each finished part, up to the limit. On a slow network a part then finishes
//! soon, so that a transfer that is killed repeatedly makes progress; on a fast one all streams are in use within a
//! moment. A kill loses the parts in flight: at most one more than have finished, and at most as many as there are
//! streams.

use std::cell::Cell;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::Error;

/// The streams of one transfer.
pub(crate) struct Streams {
    permits: Semaphore,
    /// Streams that are not used yet.
    held_back: Cell<usize>,
}

impl Streams {
    /// Up to `most` streams.
    pub fn new(most: usize) -> Streams {
        Streams { permits: Semaphore::new(1), held_back: Cell::new(most.saturating_sub(1)) }
    }

    /// Waits for a free stream.
    ///
    /// # Errors
    /// [`Error::Internal`]; never in practice.
    pub async fn take(&self) -> Result<SemaphorePermit<'_>, Error> {
        self.permits.acquire().await.map_err(|error| Error::Internal(error.to_string()))
    }

    /// Records that a part has finished.
    pub fn widen(&self) {
        if self.held_back.get() > 0 {
            self.held_back.set(self.held_back.get() - 1);
            self.permits.add_permits(1);
        }
    }
}
