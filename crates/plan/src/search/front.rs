//! The front of cost against time: what no other beats in one without losing in the other.

use std::cmp::Ordering;

/// Indices of the points that no other point dominates, the fastest first. Of equal points the first is kept.
///
/// A point dominates another when it is no slower and no dearer, and better in one of the two.
pub fn front(points: &[(u64, i64)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_unstable_by(|one, other| match points[*one].cmp(&points[*other]) {
        Ordering::Equal => one.cmp(other),
        unequal => unequal,
    });
    let mut front: Vec<usize> = Vec::new();
    for index in order {
        // Sorted by time, a point is on the front when it is cheaper than all before it.
        if front.last().is_none_or(|last| points[index].1 < points[*last].1) {
            front.push(index);
        }
    }
    front
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dominates(one: (u64, i64), other: (u64, i64)) -> bool {
        one != other && one.0 <= other.0 && one.1 <= other.1
    }

    proptest! {
        /// Against the definition, point by point.
        #[test]
        fn the_front_is_what_nothing_dominates(points in proptest::collection::vec((0u64..30, 0i64..30), 0..60)) {
            let is_first = |index: usize| !points[..index].contains(&points[index]);
            let mut expected: Vec<usize> = (0..points.len())
                .filter(|index| is_first(*index) && !points.iter().any(|other| dominates(*other, points[*index])))
                .collect();
            expected.sort_by_key(|index| points[*index]);
            prop_assert_eq!(front(&points), expected);
        }
    }
}
