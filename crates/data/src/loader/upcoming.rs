//! Which samples each batch holds, from where training stands.

use crate::Cursor;
use crate::sampling::share::RankShare;

/// Which samples a batch holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchPlan {
    pub from: Cursor,
    /// Our samples of it.
    pub len: u64,
    /// Whether its images are mixed with each other.
    pub mixes: bool,
    /// Slots to fill: our samples, and the one that the first of them is mixed with if that is another rank's.
    pub slots: u64,
    /// Where the batch of all ranks begins.
    pub start: u64,
    /// All its samples.
    pub all: u64,
    pub after: Cursor,
}

/// The batch plans from a cursor onwards. Starting at any cursor costs the same, because nothing is stored per sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct Upcoming {
    pub at: Cursor,
    pub epochs: u64,
    pub samples: u64,
    /// Samples of a full batch, those of all ranks.
    pub batch: u64,
    pub share: RankShare,
    pub mixes: bool,
}

impl Iterator for Upcoming {
    type Item = BatchPlan;

    fn next(&mut self) -> Option<BatchPlan> {
        if self.at.epoch >= self.epochs || self.samples == 0 {
            return None;
        }
        let from = self.at;
        let all = self.batch.min(self.samples - from.pos);
        let after = match from.pos + all {
            pos if pos < self.samples => Cursor { pos, ..from },
            _ => Cursor { epoch: from.epoch + 1, pos: 0 },
        };
        self.at = after;
        let ours = self.share.of(all);
        let (start, len) = (from.pos, ours.end - ours.start);
        let from = Cursor { pos: start + ours.start, ..from };
        let slots = len + u64::from(self.mixes && (1..all).contains(&len));
        let mixes = self.mixes && len > 0;
        Some(BatchPlan { from, len, mixes, slots, start, all, after })
    }
}

impl BatchPlan {
    /// The position in the epoch of a slot: this rank's samples from the first on, then the sample before them that
    /// pads the batch.
    pub fn position(&self, slot: u64) -> u64 {
        match slot < self.len {
            true => self.from.pos + slot,
            false if self.from.pos > self.start => self.from.pos - 1,
            false => self.start + self.all - 1,
        }
    }
}

impl super::Batch {
    /// The position in the epoch of the first sample of this rank.
    pub fn first(&self) -> u64 {
        self.plan.from.pos
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::SampleOrder;

    /// A data set that no test could hold.
    const SAMPLES: u64 = 100_000_000;

    /// The state from which a loader computes its next batch is a few numbers that can be copied, so resuming at any
    /// cursor reads no list of samples.
    fn is_a_few_numbers<T: Copy>() {
        assert!(size_of::<T>() <= 72, "{} bytes", size_of::<T>());
    }

    proptest! {
        #[test]
        fn resuming_costs_nothing_a_sample(
            epoch in 0_u64..1000,
            at in 0_u64..SAMPLES,
            batch in 1_u64..10_000,
            world in 1_u32..=8,
            seed: u64,
        ) {
            is_a_few_numbers::<Upcoming>();
            is_a_few_numbers::<SampleOrder>();
            let order = SampleOrder::new(SAMPLES, seed);
            let from = Cursor { epoch, pos: at / batch * batch };
            let mut covered = from.pos;
            for rank in 0..world {
                let share = RankShare::new(rank, world).unwrap();
                let (epochs, mixes) = (u64::MAX, false);
                let mut upcoming = Upcoming { at: from, epochs, samples: SAMPLES, batch, share, mixes };
                let plan = upcoming.next().unwrap();
                prop_assert_eq!((plan.from.pos, plan.from.epoch), (covered, epoch));
                covered += plan.len;
                let positions = (plan.from.pos..covered).step_by(1 + plan.len as usize / 7);
                for pos in positions {
                    prop_assert_eq!(order.position(epoch, order.at(epoch, pos)), pos);
                }
                let end = from.pos + plan.all;
                let ended = end == SAMPLES;
                let after = if ended { Cursor { epoch: epoch + 1, pos: 0 } } else { Cursor { epoch, pos: end } };
                prop_assert_eq!((plan.after, upcoming.at), (after, after));
            }
            prop_assert_eq!(covered, (from.pos + batch).min(SAMPLES));
        }
    }
}
