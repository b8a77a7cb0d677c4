//! When a piece is needed next: looked up in the order of the epochs, which can be computed backwards too.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::order::{Cursor, Order};

/// The next use of what is never needed again.
pub const NEVER: u64 = u64::MAX;

/// What is known of the reads to come. Time is counted in samples.
pub trait Future: Send + Sync {
    /// The time of the read that is being served.
    fn now(&self) -> u64;
    /// The time at which a piece is read next, after now; [`NEVER`] if it is not.
    fn next_use(&self, piece: u64) -> u64;
}

/// The future of a training run: epoch after epoch, each in its own order. Piece `p` holds the samples
/// `p × samples … (p + 1) × samples`.
#[derive(Debug)]
pub struct Epochs {
    order: Order,
    count: u64,
    samples: u64,
    epochs: u64,
    now: AtomicU64,
}

impl Epochs {
    /// Of `count` samples in this order, `samples` of them a piece, for so many epochs.
    pub fn new(order: Order, count: u64, samples: u64, epochs: u64) -> Epochs {
        Epochs { order, count: count.max(1), samples: samples.max(1), epochs, now: AtomicU64::new(0) }
    }

    /// Says where training is.
    pub fn advance(&self, cursor: Cursor) {
        self.now.store(cursor.epoch * self.count + cursor.pos, Ordering::Relaxed);
    }
}

impl Future for Epochs {
    fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn next_use(&self, piece: u64) -> u64 {
        let now = self.now();
        let (epoch, pos) = (now / self.count, now % self.count);
        let samples = piece * self.samples..((piece + 1) * self.samples).min(self.count);
        let in_epoch = |epoch: u64, after: Option<u64>| {
            let positions = samples.clone().map(|sample| self.order.position(epoch, sample));
            let later = positions.filter(|position| after.is_none_or(|after| *position > after));
            later.min().map(|position| epoch * self.count + position)
        };
        let this = if epoch < self.epochs { in_epoch(epoch, Some(pos)) } else { None };
        let next = || if epoch + 1 < self.epochs { in_epoch(epoch + 1, None) } else { None };
        this.or_else(next).unwrap_or(NEVER)
    }
}
