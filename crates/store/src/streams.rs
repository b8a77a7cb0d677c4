//! How many requests of a transfer are under way.
//!
//! One at first, and one more for each part that went through, up to the limit. On a slow network a part is then
//! finished soon, so that a transfer that is killed again and again gets on; on a fast one all streams are used within a
//! moment. A kill loses the parts under way: at most one more than have gone through, and at most as many as streams.

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

    /// Waits for a stream.
    ///
    /// # Errors
    /// [`Error::Internal`]; never, as long as the streams are there.
    pub async fn take(&self) -> Result<SemaphorePermit<'_>, Error> {
        self.permits.acquire().await.map_err(|error| Error::Internal(error.to_string()))
    }

    /// A part went through.
    pub fn widen(&self) {
        if self.held_back.get() > 0 {
            self.held_back.set(self.held_back.get() - 1);
            self.permits.add_permits(1);
        }
    }
}
