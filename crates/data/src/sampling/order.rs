//! The order of the samples: a permutation that is computed, not stored.
//!
//! A Feistel network permutes the smallest power of four that covers the samples, and cycle walking (Black and Rogaway,
//! "Ciphers with Arbitrary Finite Domains", 2002) stays in range: a result that is not a sample goes through the
//! network again. Any position of any epoch costs the same few nanoseconds and no memory, so the state of the loader is
//! one [`Cursor`], and resuming in mid-epoch is a lookup of the next position.

use domain::random::GOLDEN;

use super::random::{Draws, Purpose, key};

/// The position of training in its data: the complete state of the loader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cursor {
    /// The epoch, from 0.
    pub epoch: u64,
    /// Samples of this epoch that were consumed; below the number of training samples.
    pub pos: u64,
}

impl Cursor {
    /// Before the first sample.
    pub const START: Cursor = Cursor { epoch: 0, pos: 0 };
}

/// A permutation of `0..n` for every epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleOrder {
    n: u64,
    seed: u64,
}

/// Below this, six rounds mix too few bits, and the order is a Fisher–Yates shuffle.
const SMALL: u64 = 64;
const ROUNDS: u32 = 6;

impl SampleOrder {
    /// The orders of `n` samples under `seed`; `n` is at most 2⁶².
    pub fn new(n: u64, seed: u64) -> SampleOrder {
        assert!(n <= 1 << 62, "a data set of {n} samples");
        SampleOrder { n, seed }
    }

    /// The sample at position `pos` of `epoch`; `pos` must be below `n`.
    pub fn at(&self, epoch: u64, pos: u64) -> u64 {
        assert!(pos < self.n, "position {pos} of {} samples", self.n);
        permute(pos, self.n, key(Purpose::Order, self.seed, &[epoch]))
    }
}

impl SampleOrder {
    /// The position of `sample` in `epoch`: [`SampleOrder::at`], backwards.
    pub fn position(&self, epoch: u64, sample: u64) -> u64 {
        assert!(sample < self.n, "sample {sample} of {}", self.n);
        let key = key(Purpose::Order, self.seed, &[epoch]);
        if self.n >= SMALL {
            return walked(sample, self.n, key, Direction::Inverse);
        }
        (0..self.n).find(|pos| shuffled(*pos, self.n, key) == sample).unwrap_or_default()
    }
}

/// The image of `i` under the permutation of `0..n` that `key` names.
pub(crate) fn permute(i: u64, n: u64, key: u64) -> u64 {
    if n < SMALL { shuffled(i, n, key) } else { walked(i, n, key, Direction::Forward) }
}

/// In which direction the Feistel network is applied.
#[derive(Debug, Clone, Copy)]
enum Direction {
    Forward,
    /// The same rounds, the last one first.
    Inverse,
}

fn walked(i: u64, n: u64, key: u64, direction: Direction) -> u64 {
    let bits = u64::BITS - (n - 1).leading_zeros();
    let half = bits.div_ceil(2);
    let mask = (1 << half) - 1;
    let mut x = i;
    loop {
        let (mut left, mut right) = (x >> half, x & mask);
        for round in 0..ROUNDS {
            let round = match direction {
                Direction::Forward => round,
                Direction::Inverse => ROUNDS - 1 - round,
            };
            let turned = key.rotate_left(11 * round) ^ u64::from(round).wrapping_mul(GOLDEN);
            (left, right) = match direction {
                Direction::Forward => (right, left ^ (scatter(right ^ turned) & mask)),
                Direction::Inverse => (right ^ (scatter(left ^ turned) & mask), left),
            };
        }
        x = left << half | right;
        if x < n {
            return x;
        }
    }
}

/// The round function: two rounds of xor-shift and multiplication, of which the high bits are used.
fn scatter(mut z: u64) -> u64 {
    const ODD: u64 = 0xD6E8_FEB8_6659_FD93;
    z = (z ^ (z >> 32)).wrapping_mul(ODD);
    z = (z ^ (z >> 32)).wrapping_mul(ODD);
    z >> 29
}

fn shuffled(i: u64, n: u64, key: u64) -> u64 {
    let mut table = [0_u8; SMALL as usize];
    let mut draws = Draws::new(key);
    for last in 0..n as usize {
        let other = draws.below(last as u64 + 1) as usize;
        table[last] = table[other];
        table[other] = last as u8;
    }
    u64::from(table[i as usize])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every sample comes exactly once in an epoch.
    #[track_caller]
    fn check(n: u64, seed: u64, epoch: u64) {
        let order = SampleOrder::new(n, seed);
        let mut seen = vec![false; n as usize];
        for pos in 0..n {
            let sample = order.at(epoch, pos);
            assert!(!std::mem::replace(&mut seen[sample as usize], true), "sample {sample} came twice, n = {n}");
            assert_eq!(order.position(epoch, sample), pos, "n = {n}");
        }
        assert!(seen.iter().all(|&seen| seen), "a sample is missing, n = {n}");
    }

    #[test]
    fn orders_are_permutations() {
        for n in (1..300).chain([1000, 1023, 1024, 1025, 50_000, 65_536, 65_537]) {
            check(n, n, 0);
        }
        check(1_281_167, 7, 89);
    }

    proptest! {
        #[test]
        fn any_order_is_a_permutation(n in 1_u64..5000, seed: u64, epoch: u64) {
            check(n, seed, epoch);
        }

        #[test]
        fn the_largest_data_sets_stay_in_range(n in 1_u64 << 40..1 << 62, seed: u64, at in 0.0..1.0_f64) {
            let pos = ((n as f64 * at) as u64).min(n - 1);
            prop_assert!(SampleOrder::new(n, seed).at(0, pos) < n);
        }
    }

    #[test]
    fn orders_look_random() {
        for (n, tolerance) in [(63_u64, 0.02), (64, 0.02), (1000, 0.01), (50_000, 0.005)] {
            let epochs = 200_000 / n;
            let (mut displacement, mut step, mut first_half) = (0.0, 0.0, 0_u64);
            for epoch in 0..epochs {
                let order = SampleOrder::new(n, 3);
                let all: Vec<u64> = (0..n).map(|pos| order.at(epoch, pos)).collect();
                let mean = |sum: u64| sum as f64 / (n * n * epochs) as f64;
                displacement += mean(all.iter().zip(0..).map(|(&sample, pos)| sample.abs_diff(pos)).sum());
                step += mean(all.windows(2).map(|pair| pair[0].abs_diff(pair[1])).sum());
                first_half += all[..n as usize / 2].iter().filter(|&&sample| sample < n / 2).count() as u64;
            }
            let half = (n / 2) as f64;
            let halves = first_half as f64 / (half * half / n as f64 * epochs as f64);
            // The mean distance of two random numbers of 0..1 is a third.
            assert!((displacement - 1.0 / 3.0).abs() < tolerance, "displacement {displacement}, n = {n}");
            assert!((step - 1.0 / 3.0).abs() < tolerance, "step {step}, n = {n}");
            assert!((halves - 1.0).abs() < 5.0 * tolerance, "halves {halves}, n = {n}");
        }
    }

    #[test]
    fn epochs_and_seeds_differ() {
        let all = |seed, epoch| (0..100).map(|pos| SampleOrder::new(100, seed).at(epoch, pos)).collect::<Vec<_>>();
        assert_eq!(all(1, 2), all(1, 2));
        assert_ne!(all(1, 2), all(1, 3));
        assert_ne!(all(1, 2), all(2, 2));
    }

    /// A changed order would make every checkpoint resume with other batches.
    #[test]
    fn the_order_is_a_promise() {
        let first = |n| (0..8).map(|pos| SampleOrder::new(n, 42).at(1, pos)).collect::<Vec<_>>();
        assert_eq!(first(10), [2, 1, 8, 3, 5, 4, 7, 0]);
        assert_eq!(first(1000), [257, 947, 136, 713, 465, 305, 85, 747]);
    }
}
