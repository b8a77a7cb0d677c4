//! Splits samples into training, validation and test.
//!
//! The position of a sample in a permutation drawn by the seed decides its part, so every sample is in exactly one
//! part, and the sizes are exact.

use super::order::permute;
use super::random::{Purpose, key};
use crate::Error;

/// One of the three parts that the samples are divided into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Used to fit the weights.
    Train,
    /// Used to select the best model.
    Validation,
    /// Used once, at the end.
    Test,
}

impl Part {
    /// The name, as used for folders.
    pub fn word(self) -> &'static str {
        match self {
            Part::Train => "train",
            Part::Validation => "validation",
            Part::Test => "test",
        }
    }
}

/// The samples of training, validation and test, each list in ascending order.
pub(crate) type Parts = [Vec<u32>; 3];

/// Divides `n` samples by shares of training, validation and test, drawn by `seed`.
pub(crate) fn by_shares(n: usize, shares: [f64; 3], seed: u64) -> Result<Parts, Error> {
    let counts = checked(n, shares)?;
    let drawn = key(Purpose::Split, seed, &[]);
    let mut parts = counts.map(Vec::with_capacity);
    for sample in 0..n {
        let position = permute(sample as u64, n as u64, drawn) as usize;
        parts[part_at(position, counts) as usize].push(sample as u32);
    }
    Ok(parts)
}

/// Splits samples in their order: the first for training, the last for test.
pub(crate) fn in_order(n: usize, shares: [f64; 3]) -> Result<Parts, Error> {
    let counts = checked(n, shares)?;
    let mut parts = counts.map(Vec::with_capacity);
    for sample in 0..n {
        parts[part_at(sample, counts) as usize].push(sample as u32);
    }
    Ok(parts)
}

/// The part at a position, given the sizes of training and validation.
fn part_at(position: usize, [training, validation, _]: [usize; 3]) -> Part {
    if position < training {
        Part::Train
    } else if position < training + validation {
        Part::Validation
    } else {
        Part::Test
    }
}

/// Computes the size of each part; a part with a share must not be empty.
fn checked(n: usize, shares: [f64; 3]) -> Result<[usize; 3], Error> {
    let valid =
        shares.iter().all(|share| (0.0..=1.0).contains(share)) && (shares.iter().sum::<f64>() - 1.0).abs() < 1e-6;
    if !valid {
        let why = format!("the shares {shares:?} are not three numbers from 0 to 1 that add up to 1");
        return Err(Error::Split { why, hint: "write for example `split: [0.7, 0.2, 0.1]`".into() });
    }
    let counts = counts(n, shares);
    for ((count, share), name) in counts.iter().zip(shares).zip(["training", "validation", "test"]) {
        if *count == 0 && (share > 0.0 || name == "training") {
            let why = format!("a share of {share} of {n} images gives none for {name}");
            return Err(Error::Split { why, hint: "give more images, or a larger share".into() });
        }
    }
    Ok(counts)
}

/// Divides samples as their folders say; without validation folder a tenth of training is drawn for it.
pub(crate) fn by_homes(homes: &[Part], seed: u64) -> Result<Parts, Error> {
    let mut parts: Parts = Default::default();
    for (home, sample) in homes.iter().zip(0..) {
        parts[*home as usize].push(sample);
    }
    let [train, validation, test] = &mut parts;
    if test.is_empty() {
        return Err(Error::Split {
            why: "there is no `test` folder".into(),
            hint: "add one, or split at random: leave out `split: folders` in the job".into(),
        });
    }
    if validation.is_empty() && train.len() > 1 {
        let n = train.len() as u64;
        let drawn = key(Purpose::Split, seed, &[]);
        let tenth = ((n + 5) / 10).max(1);
        let mut index = 0..n;
        let is_drawn = |_: &u32| index.next().is_some_and(|index| permute(index, n, drawn) < tenth);
        (*validation, *train) = std::mem::take(train).into_iter().partition(is_drawn);
    }
    if train.is_empty() || validation.is_empty() {
        return Err(Error::Split {
            why: "the folder `train` has too few images".into(),
            hint: "give at least two, or a folder `val`".into(),
        });
    }
    Ok(parts)
}

/// The number of samples in each part, by the method of largest remainders (Hamilton); ties go to the earlier part.
fn counts(n: usize, shares: [f64; 3]) -> [usize; 3] {
    let quotas = shares.map(|share| share * n as f64);
    let mut counts = quotas.map(|quota| quota.floor() as usize);
    let mut by_remainder = [0, 1, 2];
    by_remainder.sort_by(|&a, &b| quotas[b].fract().total_cmp(&quotas[a].fract()));
    for part in by_remainder.into_iter().take(n.saturating_sub(counts.iter().sum())) {
        counts[part] += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn counts_are_exact() {
        let default = [0.7, 0.2, 0.1];
        let check = |n, shares, expected: [usize; 3]| {
            assert_eq!(counts(n, shares), expected);
            assert_eq!(by_shares(n, shares, 1).unwrap().map(|part| part.len()), expected);
        };
        check(1797, default, [1258, 359, 180]);
        check(10, default, [7, 2, 1]);
        check(100, [0.29, 0.29, 0.42], [29, 29, 42]);
        check(12_000, default, [8400, 2400, 1200]);
        check(7, [1.0, 0.0, 0.0], [7, 0, 0]);
    }

    proptest! {
        #[test]
        fn every_sample_is_in_one_part(n in 20_usize..3000, seed: u64) {
            let parts = by_shares(n, [0.7, 0.2, 0.1], seed).unwrap();
            let mut all = parts.concat();
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(0..n as u32));
            prop_assert!(parts.iter().all(|part| part.is_sorted()));
        }

        #[test]
        fn folders_keep_their_images(homes in prop::collection::vec(0_u8..2, 20..200), seed: u64) {
            let homes: Vec<Part> = homes.iter().map(|home| if *home == 0 { Part::Train } else { Part::Test }).collect();
            let trained = homes.iter().filter(|home| **home == Part::Train).count();
            prop_assume!(trained > 1 && trained < homes.len());
            let [train, validation, test] = by_homes(&homes, seed).unwrap();
            prop_assert_eq!(validation.len(), ((trained + 5) / 10).max(1));
            prop_assert!(train.iter().chain(&validation).all(|sample| homes[*sample as usize] == Part::Train));
            prop_assert!(test.iter().all(|sample| homes[*sample as usize] == Part::Test));
            prop_assert_eq!(train.len() + validation.len() + test.len(), homes.len());
        }
    }

    #[test]
    fn the_seed_decides() {
        let parts = |seed| by_shares(500, [0.7, 0.2, 0.1], seed).unwrap();
        assert_eq!(parts(1), parts(1));
        assert_ne!(parts(1), parts(2));
    }

    #[test]
    fn impossible_splits_are_refused() {
        let check = |result: Result<Parts, Error>, expected: &str| {
            let error = result.unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            assert!(error.hint().is_some());
        };
        check(by_shares(10, [0.7, 0.2, 0.2], 0), "add up to 1");
        check(by_shares(10, [f64::NAN, 0.5, 0.5], 0), "add up to 1");
        check(by_shares(10, [1.5, -0.5, 0.0], 0), "add up to 1");
        check(by_shares(10, [0.0, 0.5, 0.5], 0), "none for training");
        check(by_shares(3, [0.7, 0.2, 0.1], 0), "none for test");
        check(by_homes(&[Part::Train, Part::Train], 0), "no `test` folder");
        check(by_homes(&[Part::Train, Part::Test], 0), "too few");
        check(by_homes(&[Part::Validation, Part::Test], 0), "too few");
    }
}
