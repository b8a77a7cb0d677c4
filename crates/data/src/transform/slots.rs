#![allow(unsafe_code)]
//! The memory of one batch, which several threads fill concurrently.
//!
//! A sample is written at its final address, without a lock and without a copy. That is sound because one counter
//! assigns each slot to one [`Claim`] only, and because the values can be read only from a [`Filled`] batch, which
//! exists only when no claim does.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory of numbers, aligned for any of them and for vector instructions; reached through pointers only.
#[derive(Clone, Copy)]
#[allow(dead_code)]
#[repr(align(64))]
struct Line([u8; LINE]);

const LINE: usize = 64;

/// Data type of the values of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BatchDtype {
    /// Normalised, 32 bits.
    #[default]
    F32,
    /// Normalised, rounded to bfloat16.
    Bf16,
    /// Bytes as they are in the image; the device normalises.
    U8,
}

impl BatchDtype {
    /// Bytes of one value.
    pub fn bytes(self) -> usize {
        match self {
            BatchDtype::F32 => 4,
            BatchDtype::Bf16 => 2,
            BatchDtype::U8 => 1,
        }
    }
}

/// The values of one sample, to be written.
#[derive(Debug)]
pub(crate) enum Values<'a> {
    F32(&'a mut [f32]),
    Bf16(&'a mut [u16]),
    U8(&'a mut [u8]),
}

/// A batch that is being filled.
pub(crate) struct Open {
    images: Box<[UnsafeCell<Line>]>,
    labels: Box<[UnsafeCell<i64>]>,
    numbers: BatchDtype,
    /// Values of one sample.
    sample: usize,
    /// Samples of this batch; the capacity may be larger.
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

/// A complete batch without writers.
pub(crate) struct Filled(Open);

impl Open {
    /// Allocates memory for `room` samples of `sample` values each, opened for `len` of them.
    pub fn new(room: usize, sample: usize, len: usize, numbers: BatchDtype) -> Arc<Open> {
        assert!(len <= room, "a batch of {len} samples in memory for {room}");
        let lines = (room * sample * numbers.bytes()).div_ceil(LINE);
        let images = (0..lines).map(|_| UnsafeCell::new(Line([0; LINE]))).collect();
        let labels = (0..room).map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Open { images, labels, numbers, sample, len, claimed: AtomicUsize::new(0) })
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
    pub fn slot(&mut self, slot: usize) -> (Values<'_>, &mut i64) {
        assert!(self.slots.contains(&slot), "slot {slot} is not among {:?}", self.slots);
        let Open { images, labels, numbers, sample, .. } = &*self.batch;
        let start = slot * sample * numbers.bytes();
        assert!(start + sample * numbers.bytes() <= images.len() * LINE, "a slot outside the batch");
        // SAFETY: the slot belongs to this claim alone (`claimed` only grows while claims exist, as `Filled::open` takes
        // the batch by value), the claim is borrowed mutably for as long as the references live, the values lie in the
        // memory as was just checked, are reached through its own pointer and aligned (a line is, and a slot starts a
        // whole number of values after it), and any bytes are numbers of each kind.
        unsafe {
            let first = UnsafeCell::raw_get(images.as_ptr()).cast::<u8>().add(start);
            let values = match numbers {
                BatchDtype::F32 => Values::F32(std::slice::from_raw_parts_mut(first.cast(), *sample)),
                BatchDtype::Bf16 => Values::Bf16(std::slice::from_raw_parts_mut(first.cast(), *sample)),
                BatchDtype::U8 => Values::U8(std::slice::from_raw_parts_mut(first, *sample)),
            };
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

    /// All values, sample by sample; empty for another data type.
    pub fn images(&self) -> &[f32] {
        match self.0.numbers {
            // SAFETY: as for `bytes`; a line is aligned for any number, and any bytes are one.
            BatchDtype::F32 => unsafe {
                std::slice::from_raw_parts(self.0.images.as_ptr().cast(), self.0.len * self.0.sample)
            },
            BatchDtype::Bf16 | BatchDtype::U8 => &[],
        }
    }

    /// The memory of all values.
    pub fn bytes(&self) -> &[u8] {
        let bytes = self.0.len * self.0.sample * self.0.numbers.bytes();
        assert!(bytes <= self.0.images.len() * LINE, "a batch larger than its memory");
        // SAFETY: a filled batch is owned and has no claims, so nothing writes while this reference lives.
        unsafe { std::slice::from_raw_parts(self.0.images.as_ptr().cast(), bytes) }
    }

    /// All values, to be changed.
    pub fn values_mut(&mut self) -> Values<'_> {
        let Open { images, numbers, sample, len, .. } = &mut self.0;
        let values = *len * *sample;
        assert!(values * numbers.bytes() <= images.len() * LINE, "a batch larger than its memory");
        let first = images.as_mut_ptr();
        // SAFETY: as for `bytes`; the batch is borrowed mutably, so nothing else reaches the memory meanwhile.
        unsafe {
            match numbers {
                BatchDtype::F32 => Values::F32(std::slice::from_raw_parts_mut(first.cast(), values)),
                BatchDtype::Bf16 => Values::Bf16(std::slice::from_raw_parts_mut(first.cast(), values)),
                BatchDtype::U8 => Values::U8(std::slice::from_raw_parts_mut(first.cast(), values)),
            }
        }
    }

    /// Leaves only the first `len` samples.
    pub fn truncate(&mut self, len: usize) {
        self.0.len = self.0.len.min(len);
    }

    /// Data type of the values.
    pub fn numbers(&self) -> BatchDtype {
        self.0.numbers
    }

    /// All labels.
    pub fn labels(&self) -> &[i64] {
        let labels = &self.0.labels[..self.0.len];
        // SAFETY: as for `bytes`.
        unsafe { std::slice::from_raw_parts(labels.as_ptr().cast(), labels.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_is_given_out_once() {
        let mut batch = Open::new(100, 3, 97, BatchDtype::F32);
        for len in [97, 10, 100] {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        while let Some(mut claim) = batch.claim(7) {
                            for slot in claim.slots() {
                                let (values, label) = claim.slot(slot);
                                let Values::F32(values) = values else { panic!("other numbers") };
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
    fn numbers_lie_one_after_another() {
        for numbers in [BatchDtype::F32, BatchDtype::Bf16, BatchDtype::U8] {
            let batch = Open::new(5, 3, 5, numbers);
            let mut claim = batch.claim(5).unwrap();
            for slot in claim.slots() {
                match claim.slot(slot).0 {
                    Values::F32(values) => values.fill(f32::from_bits(0x0101_0101 * slot as u32)),
                    Values::Bf16(values) => values.fill(0x0101 * slot as u16),
                    Values::U8(values) => values.fill(slot as u8),
                }
            }
            drop(claim);
            let filled = batch.close().unwrap_or_else(|_| panic!("a claim is left"));
            let wanted = (0..5).flat_map(|slot| vec![slot; 3 * numbers.bytes()]);
            assert!(filled.bytes().iter().copied().eq(wanted), "{numbers:?}");
        }
    }

    #[test]
    fn a_batch_is_not_read_while_it_is_written() {
        let batch = Open::new(2, 1, 2, BatchDtype::F32);
        let claim = batch.claim(1).unwrap();
        let batch = batch.close().err().expect("it has a claim");
        drop(claim);
        assert_eq!(batch.close().unwrap_or_else(|_| panic!("a claim is left")).images(), [0.0, 0.0]);
    }

    #[test]
    #[should_panic(expected = "slot 1 is not among 0..1")]
    fn another_claims_slot_is_refused() {
        Open::new(2, 1, 2, BatchDtype::F32).claim(1).unwrap().slot(1);
    }
}
