//! Counter-based random numbers: the n-th draw for a key is a pure function.
//!
//! The order of samples, the trials of a search and the bands of a plan must be the same on every machine and after any
//! interruption. A counter-based generator has no state between draws, so each follows from its key alone: SplitMix64
//! (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014) with the constants of David
//! Stafford's variant 13.

/// The odd number nearest to 2⁶⁴ over the golden ratio: the step of SplitMix64's counter.
pub const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Mixes 64 bits so that each depends on all: the finaliser of SplitMix64.
#[inline]
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A key from another and what else distinguishes the draws, in this order.
pub fn key(start: u64, parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(start, |key, part| mix(key.wrapping_add(GOLDEN) ^ part))
}

/// 64 bits as a number in 0..1.
#[inline]
pub fn share(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// 64 bits as a number below `bound`, by the upper half of a product (Lemire 2019); its bias is at most `bound` / 2⁶⁴.
#[inline]
pub fn below(bits: u64, bound: u64) -> u64 {
    ((u128::from(bits) * u128::from(bound)) >> 64) as u64
}

/// The draws of one key, in sequence.
#[derive(Debug, Clone, Copy)]
pub struct Draws {
    counter: u64,
}

impl Draws {
    /// The draws of `key`.
    pub fn new(key: u64) -> Draws {
        Draws { counter: key }
    }

    /// The next 64 bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(GOLDEN);
        mix(self.counter)
    }

    /// The next number in 0..1.
    #[inline]
    pub fn share(&mut self) -> f64 {
        share(self.bits())
    }

    /// The next number below `bound`.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        below(self.bits(), bound)
    }

    /// The next `count` bytes, which do not compress.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count.div_ceil(8)).flat_map(|_| self.bits().to_le_bytes()).take(count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of the reference implementation (Vigna's `splitmix64.c`) for the seed 1234567.
    #[test]
    fn draws_are_those_of_the_reference() {
        let mut draws = Draws::new(1_234_567);
        let found: Vec<u64> = (0..3).map(|_| draws.bits()).collect();
        assert_eq!(found, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn bounded_draws_are_even() {
        let mut draws = Draws::new(key(0, [1, 2]));
        let mut counts = [0_u32; 9];
        for _ in 0..90_000 {
            counts[draws.below(9) as usize] += 1;
        }
        // Five standard deviations of a binomial with n = 90,000 and p = 1/9 are 471.
        assert!(counts.iter().all(|&count| count.abs_diff(10_000) < 471), "{counts:?}");
    }

    #[test]
    fn shares_end_before_1() {
        assert_eq!([share(0), share(1 << 63)], [0.0, 0.5]);
        assert!(share(u64::MAX) < 1.0);
    }
}
