//! Assigns the samples of a batch to ranks.
//!
//! A batch is divided into consecutive ranges whose lengths differ by at most one sample, longer ones first. So a batch
//! is the same set of samples for any number of ranks, and a run may resume with another number at any step.

use std::ops::Range;

/// One rank's share of each batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankShare {
    rank: u64,
    world: u64,
    /// Whether a rank that would have no sample of a batch has its last one, as another rank has.
    is_padded: bool,
}

impl RankShare {
    /// The complete batch.
    pub const ALL: RankShare = RankShare { rank: 0, world: 1, is_padded: false };

    /// The share of `rank` out of `world`; `None` if there is no such rank.
    pub fn new(rank: u32, world: u32) -> Option<RankShare> {
        (rank < world).then_some(RankShare { rank: u64::from(rank), world: u64::from(world), is_padded: false })
    }

    /// The same, but never empty: of a batch with fewer samples than ranks, those without one get the last one again. For
    /// programs that communicate in each step and cannot compute anything of no samples.
    pub fn padded(self) -> RankShare {
        RankShare { is_padded: true, ..self }
    }

    /// The positions in a batch of `len` samples that belong to this rank.
    pub fn of(self, len: u64) -> Range<u64> {
        if self.is_padded && self.rank >= len {
            return len.saturating_sub(1)..len;
        }
        let (each, longer) = (len / self.world, len % self.world);
        let start = |rank: u64| rank * each + rank.min(longer);
        start(self.rank)..start(self.rank + 1)
    }

    /// The most samples of a batch of `len` or fewer that are this rank's.
    pub fn most(self, len: u64) -> u64 {
        let ours = self.of(len);
        ours.end - ours.start
    }
}

impl Default for RankShare {
    fn default() -> RankShare {
        RankShare::ALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_a_batch_in_order_and_even() {
        for world in 1..=9 {
            for len in 0..40 {
                let shares: Vec<Range<u64>> =
                    (0..world).map(|rank| RankShare::new(rank, world).unwrap().of(len)).collect();
                assert!(shares.iter().cloned().flatten().eq(0..len), "{shares:?}");
                let lengths: Vec<u64> = shares.iter().map(|share| share.end - share.start).collect();
                assert!(lengths.is_sorted_by(|a, b| a >= b) && lengths[0] - lengths[world as usize - 1] <= 1);
                for rank in 0..world {
                    let share = RankShare::new(rank, world).unwrap();
                    assert!((0..=len).all(|shorter| share.of(shorter).count() as u64 <= share.most(len)));
                }
            }
        }
        for len in 1..10 {
            let share = |rank| RankShare::new(rank, 4).unwrap();
            let all: Vec<Range<u64>> = (0..4).map(|rank| share(rank).padded().of(len)).collect();
            assert!(all.iter().all(|share| !share.is_empty() && share.end <= len), "{all:?}");
            assert!((0..4).filter(|rank| u64::from(*rank) < len).all(|rank| all[rank as usize] == share(rank).of(len)));
            assert_eq!(share(3).padded().most(len), share(3).of(len).count().max(1) as u64);
        }
        assert_eq!(RankShare::new(1, 4).unwrap().padded().of(0), 0..0);
        assert_eq!((RankShare::new(3, 3), RankShare::new(0, 0)), (None, None));
    }
}
