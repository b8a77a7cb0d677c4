//! The placement of a tensor's values: which range of it a file holds, in which order. Pure arithmetic.
//!
//! A rank stores a range of a tensor in its memory order, which is not always that of its indices: with channels-last,
//! channels are innermost. So a range records the strides that it was cut with, and a reader that needs another order
//! assembles the full tensor first.

use serde::{Deserialize, Serialize};

/// A stretch of the values of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The shape of the full tensor.
    pub shape: Vec<u64>,
    /// Values between neighbours along each dimension, in the memory that the stretch was cut from.
    pub strides: Vec<u64>,
    /// Index of the first value, in the order of that memory.
    pub from: u64,
}

impl Placement {
    /// All of a tensor, in C order.
    pub fn whole(shape: &[u64]) -> Placement {
        Placement { shape: shape.to_vec(), strides: c_strides(shape), from: 0 }
    }

    /// Number of values of the full tensor; `None` on overflow.
    pub fn count(&self) -> Option<u64> {
        self.shape.iter().try_fold(1_u64, |product, length| product.checked_mul(*length))
    }

    /// Whether the values lie in the same order as those of the other one.
    pub fn is_ordered_as(&self, other: &Placement) -> bool {
        // Along a dimension of length 1 there is no neighbour.
        let relevant = |one: &Placement| -> Vec<(u64, u64)> {
            let pairs = one.shape.iter().copied().zip(one.strides.iter().copied());
            pairs.filter(|(length, _)| *length > 1).collect()
        };
        relevant(self) == relevant(other)
    }

    /// Whether the values are contiguous in memory, without gaps or overlap.
    pub fn is_dense(&self) -> bool {
        let mut dimensions: Vec<(u64, u64)> =
            self.strides.iter().copied().zip(self.shape.iter().copied()).filter(|(_, length)| *length > 1).collect();
        dimensions.sort_unstable();
        let mut expected = Some(1_u64);
        let is_next = |(stride, length): &(u64, u64)| {
            let is_it = expected == Some(*stride);
            expected = stride.checked_mul(*length);
            is_it
        };
        self.strides.len() == self.shape.len() && (self.shape.contains(&0) || dimensions.iter().all(is_next))
    }
}

/// The strides of memory in which the last index changes fastest.
pub(crate) fn c_strides(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1; shape.len()];
    for dimension in (1..shape.len()).rev() {
        strides[dimension - 1] = strides[dimension] * shape[dimension].max(1);
    }
    strides
}

/// All values of a tensor, of `size` bytes each, in another order. Both orders are dense.
pub(crate) fn reordered(bytes: &[u8], size: usize, shape: &[u64], [from, to]: [&[u64]; 2]) -> Vec<u8> {
    let mut out = vec![0; bytes.len()];
    let mut index = vec![0; shape.len()];
    let at = |strides: &[u64], index: &[u64]| -> usize {
        let offsets = strides.iter().zip(index).map(|(stride, index)| stride * index);
        offsets.sum::<u64>() as usize * size
    };
    for _ in 0..bytes.len() / size.max(1) {
        let (source, target) = (at(from, &index), at(to, &index));
        out[target..target + size].copy_from_slice(&bytes[source..source + size]);
        for (digit, length) in index.iter_mut().zip(shape).rev() {
            *digit += 1;
            if *digit < *length {
                break;
            }
            *digit = 0;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(shape: &[u64], strides: &[u64]) -> Placement {
        Placement { shape: shape.into(), strides: strides.into(), from: 0 }
    }

    #[test]
    fn an_order_is_that_of_its_strides() {
        assert_eq!(c_strides(&[2, 3, 4]), [12, 4, 1]);
        assert!(c_strides(&[]).is_empty());
        // A kernel of 1 × 1 has the same order in both memory formats.
        assert!(place(&[8, 4, 1, 1], &[4, 1, 1, 1]).is_ordered_as(&place(&[8, 4, 1, 1], &[4, 1, 4, 4])));
        assert!(!place(&[8, 4, 3, 3], &[36, 9, 3, 1]).is_ordered_as(&place(&[8, 4, 3, 3], &[36, 1, 12, 4])));
    }

    #[test]
    fn only_an_order_without_gaps_is_dense() {
        for strides in [[6, 2, 1], [1, 4, 2], [3, 6, 1]] {
            assert!(!place(&[4, 2, 3], &strides).is_dense(), "{strides:?}");
        }
        assert!(place(&[4, 2, 3], &[6, 3, 1]).is_dense());
        assert!(place(&[4, 2, 3], &[1, 12, 4]).is_dense());
        assert!(place(&[], &[]).is_dense() && place(&[0, 7], &[7, 1]).is_dense());
        assert!(!place(&[4], &[]).is_dense() && !place(&[4], &[2]).is_dense());
        assert!(!place(&[u64::MAX, 3], &[3, 1]).is_dense() || place(&[u64::MAX, 3], &[3, 1]).count().is_none());
    }

    #[test]
    fn values_keep_their_indices_in_another_order() {
        let shape = [2, 3, 2];
        let values: Vec<u8> = (0..12).collect();
        let channels_last = [6, 1, 3];
        let other = reordered(&values, 1, &shape, [&c_strides(&shape), &channels_last]);
        assert_eq!(other, [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]);
        assert_eq!(reordered(&other, 1, &shape, [&channels_last, &c_strides(&shape)]), values);
        assert_eq!(reordered(&[7, 8], 2, &[], [&[], &[]]), [7, 8]);
    }
}
