#![allow(unsafe_code)]
//! The memory of one batch, which several threads fill at once.
//!
//! A sample is written at its final address, without a lock and without a copy. That is sound because slots are given
//! out by one counter, each to one [`Claim`] only, and because the values can be read only from a [`Filled`] batch,
//! which exists only when no claim does.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A batch that is being filled.
pub(crate) struct Open {
    images: Box<[UnsafeCell<f32>]>,
    labels: Box<[UnsafeCell<i64>]>,
    /// Values of one sample.
    sample: usize,
    /// Samples of this batch; there may be room for more.
    len: usize,
    /// Slots given out since the batch was opened.
    claimed: AtomicUsize,
}

// SAFETY: a cell is reached through a shared reference only in `Claim::slot`, and no two claims hold the same slot.
unsafe impl Sync for Open {}

/// The right to write some slots of a batch.
pub(crate) struct Claim {
    batch: Arc<Open>,
    slots: Range<usize>,
}

/// A batch that is complete, and that nobody writes to.
pub(crate) struct Filled(Open);

impl Open {
    /// Memory for `room` samples of `sample` values each, opened for `len` of them.
    pub fn new(room: usize, sample: usize, len: usize) -> Arc<Open> {
        assert!(len <= room, "a batch of {len} samples in memory for {room}");
        let images = (0..room * sample).map(|_| UnsafeCell::new(0.0)).collect();
        let labels = (0..room).map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Open { images, labels, sample, len, claimed: AtomicUsize::new(0) })
    }

    /// Gives out up to `most` slots; `None` when all are given out.
    pub fn claim(self: &Arc<Open>, most: usize) -> Option<Claim> {
        let next = |claimed| (claimed < self.len && most > 0).then(|| self.len.min(claimed + most));
        let start = self.claimed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        Some(Claim { batch: Arc::clone(self), slots: start..self.len.min(start + most) })
    }

    /// The batch for reading, once every claim is dropped; before that it comes back as it is.
    pub fn close(self: Arc<Open>) -> Result<Filled, Arc<Open>> {
        Arc::try_unwrap(self).map(Filled)
    }
}

impl Claim {
    /// The slots that may be written.
    pub fn slots(&self) -> Range<usize> {
        self.slots.clone()
    }

    /// Values and label of one slot.
    pub fn slot(&mut self, slot: usize) -> (&mut [f32], &mut i64) {
        assert!(self.slots.contains(&slot), "slot {slot} is not among {:?}", self.slots);
        let (images, labels) = (&self.batch.images, &self.batch.labels);
        let values = &images[slot * self.batch.sample..][..self.batch.sample];
        // SAFETY: the slot belongs to this claim alone (`claimed` only grows while claims exist, as `Filled::open` takes
        // the batch by value), the claim is borrowed mutably for as long as the references live, and a slice of
        // `UnsafeCell<f32>` has the layout of a slice of `f32` and is reached through its own pointer.
        unsafe {
            let values = std::slice::from_raw_parts_mut(UnsafeCell::raw_get(values.as_ptr()), values.len());
            (values, &mut *labels[slot].get())
        }
    }
}

impl Filled {
    /// The same memory, opened for another batch of `len` samples.
    pub fn open(self, len: usize) -> Arc<Open> {
        let Filled(mut batch) = self;
        assert!(len <= batch.labels.len(), "a batch of {len} samples in memory for {}", batch.labels.len());
        batch.len = len;
        batch.claimed = AtomicUsize::new(0);
        Arc::new(batch)
    }

    /// All values, sample by sample.
    pub fn images(&self) -> &[f32] {
        let values = &self.0.images[..self.0.len * self.0.sample];
        // SAFETY: a filled batch is owned and has no claims, so nothing writes while this reference lives.
        unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), values.len()) }
    }

    /// All labels.
    pub fn labels(&self) -> &[i64] {
        let labels = &self.0.labels[..self.0.len];
        // SAFETY: as for `images`.
        unsafe { std::slice::from_raw_parts(labels.as_ptr().cast(), labels.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_is_given_out_once() {
        let mut batch = Open::new(100, 3, 97);
        for len in [97, 10, 100] {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        while let Some(mut claim) = batch.claim(7) {
                            for slot in claim.slots() {
                                let (values, label) = claim.slot(slot);
                                values.fill(slot as f32);
                                *label = slot as i64;
                            }
                        }
                    });
                }
            });
            let filled = batch.close().unwrap_or_else(|_| panic!("a claim is left"));
            assert!(filled.labels().iter().copied().eq(0..filled.labels().len() as i64));
            assert!(filled.images().chunks(3).enumerate().all(|(slot, values)| values == [slot as f32; 3]));
            batch = filled.open(len);
        }
    }

    #[test]
    fn a_batch_is_not_read_while_it_is_written() {
        let batch = Open::new(2, 1, 2);
        let claim = batch.claim(1).unwrap();
        let batch = batch.close().err().expect("it has a claim");
        drop(claim);
        assert_eq!(batch.close().unwrap_or_else(|_| panic!("a claim is left")).images(), [0.0, 0.0]);
    }

    #[test]
    #[should_panic(expected = "slot 1 is not among 0..1")]
    fn another_claims_slot_is_refused() {
        Open::new(2, 1, 2).claim(1).unwrap().slot(1);
    }
}
