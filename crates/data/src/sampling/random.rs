//! Keys of the loader's random draws: (purpose, seed, epoch, sample), so that the draws are the same for any number of
//! threads and after any interruption.

pub(crate) use domain::random::Draws;
use domain::random::{self, GOLDEN, mix};

/// The purpose of a key; two purposes never share draws.
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
    /// The tokens of a row that are masked in one epoch.
    Mask = 5,
    /// Generated drawings in an image.
    Shapes = 6,
    /// How the images of one batch are mixed.
    Mix = 7,
    /// Which sample comes at a position, where samples are drawn with replacement.
    Sample = 8,
}

/// A key from a purpose, the job's seed and what else distinguishes the draws.
pub(crate) fn key(purpose: Purpose, seed: u64, rest: &[u64]) -> u64 {
    random::key(mix(mix(purpose as u64 ^ GOLDEN) ^ seed), rest.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

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
