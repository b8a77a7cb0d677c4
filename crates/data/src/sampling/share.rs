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
}

impl RankShare {
    /// The complete batch.
    pub const ALL: RankShare = RankShare { rank: 0, world: 1 };

    /// The share of `rank` out of `world`; `None` if there is no such rank.
    pub fn new(rank: u32, world: u32) -> Option<RankShare> {
        (rank < world).then_some(RankShare { rank: u64::from(rank), world: u64::from(world) })
    }

    /// The positions in a batch of `len` samples that belong to this rank.
    pub fn of(self, len: u64) -> Range<u64> {
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
        assert_eq!((RankShare::new(3, 3), RankShare::new(0, 0)), (None, None));
    }
}
