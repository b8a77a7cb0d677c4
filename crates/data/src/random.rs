//! Randomness as a function: the n-th draw for a key, whoever asks and whenever.
//!
//! A counter-based generator keeps no state between samples, so a draw keyed by (seed, epoch, sample, operation) is
//! the same for any number of threads and after any interruption. The mixing function is the finaliser of SplitMix64
//! (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014) with the constants of
//! David Stafford's variant 13.

/// The odd number nearest to 2⁶⁴ over the golden ratio: the step of SplitMix64's counter.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// What a key is for; two purposes never share draws.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    /// Which samples are for training, validation and test.
    Split = 1,
    /// The order of the training samples in one epoch.
    Order = 2,
    /// The augmentation of one sample in one epoch.
    Augment = 3,
    /// The order in which samples are packed.
    Pack = 4,
    /// Which words of a row are masked in one epoch.
    Mask = 5,
    /// What is drawn into one picture.
    Shapes = 6,
    /// How the pictures of one batch are mixed.
    Mix = 7,
}

/// A key from a purpose, the job's seed and what else distinguishes the draws.
pub(crate) fn key(purpose: Purpose, seed: u64, rest: &[u64]) -> u64 {
    let start = mix(mix(purpose as u64 ^ GOLDEN) ^ seed);
    rest.iter().fold(start, |key, part| mix(key.wrapping_add(GOLDEN) ^ part))
}

/// The draws of one key, in sequence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draws {
    counter: u64,
}

impl Draws {
    pub(crate) fn new(key: u64) -> Draws {
        Draws { counter: key }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(GOLDEN);
        mix(self.counter)
    }

    /// A number below `bound`, by the upper half of a product (Lemire 2019); its bias is at most `bound` / 2⁶⁴.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of the reference implementation (Vigna's `splitmix64.c`) for the seed 1234567.
    #[test]
    fn draws_are_those_of_the_reference() {
        let mut draws = Draws::new(1_234_567);
        let found: Vec<u64> = (0..3).map(|_| draws.next()).collect();
        assert_eq!(found, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn bounded_draws_are_even() {
        let mut draws = Draws::new(key(Purpose::Augment, 0, &[1, 2]));
        let mut counts = [0_u32; 9];
        for _ in 0..90_000 {
            counts[draws.below(9) as usize] += 1;
        }
        // Five standard deviations of a binomial with n = 90,000 and p = 1/9 are 471.
        assert!(counts.iter().all(|&count| count.abs_diff(10_000) < 471), "{counts:?}");
    }

    #[test]
    fn every_part_of_a_key_counts() {
        let keys = [
            key(Purpose::Order, 0, &[0, 0]),
            key(Purpose::Augment, 0, &[0, 0]),
            key(Purpose::Order, 1, &[0, 0]),
            key(Purpose::Order, 0, &[1, 0]),
            key(Purpose::Order, 0, &[0, 1]),
            key(Purpose::Order, 0, &[0]),
        ];
        for (i, a) in keys.iter().enumerate() {
            assert!(keys[..i].iter().all(|b| a != b), "{keys:?}");
        }
    }
}
