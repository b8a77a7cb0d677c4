//! Progress of a transfer, for observation from another thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts bytes while they move.
#[derive(Debug, Default)]
pub struct Meter {
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
        let [total, done, sent, received, read] = [&self.total, &self.done, &self.sent, &self.received, &self.read]
            .map(|count| count.load(Ordering::Relaxed));
        Reading { total, done, sent, received, read }
    }

    pub(crate) fn expect(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The remaining expected bytes will not arrive, and something else is expected next.
    pub(crate) fn begin_again(&self) {
        self.total.store(self.done.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    pub(crate) fn moved(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn looked_through(&self, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::Relaxed);
    }
}
