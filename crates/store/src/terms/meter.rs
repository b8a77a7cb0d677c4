//! Progress of a transfer, for observation from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts bytes while they move. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Meter(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    total: AtomicU64,
    done: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    read: AtomicU64,
}

/// A reading of a [`Meter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading {
    /// Bytes of data to move in this transfer; 0 until that is known.
    pub total: u64,
    /// Of these, moved.
    pub done: u64,
    /// Bytes sent over the network, after compression, excluding failed attempts.
    pub sent: u64,
    /// Bytes that came in.
    pub received: u64,
    /// Bytes of local files that were looked through.
    pub read: u64,
}

impl Meter {
    /// The current reading.
    pub fn read(&self) -> Reading {
        let Counts { total, done, sent, received, read } = &*self.0;
        let [total, done, sent, received, read] =
            [total, done, sent, received, read].map(|count| count.load(Ordering::Relaxed));
        Reading { total, done, sent, received, read }
    }

    pub(crate) fn expect(&self, bytes: u64) {
        self.0.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The remaining expected bytes will not arrive, and something else is expected next.
    pub(crate) fn begin_again(&self) {
        self.0.total.store(self.0.done.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    pub(crate) fn moved(&self, bytes: u64) {
        self.0.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// They move again.
    pub(crate) fn moves_again(&self, bytes: u64) {
        self.0.done.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn sent(&self, bytes: u64) {
        self.0.sent.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn received(&self, bytes: u64) {
        self.0.received.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn looked_through(&self, bytes: u64) {
        self.0.read.fetch_add(bytes, Ordering::Relaxed);
    }
}
