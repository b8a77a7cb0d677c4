//! The Pareto front of cost and time: plans that no other beats in one without being worse in the other.

/// The Pareto front: indices of the points that no other point dominates, fastest first. Of equal points the first is
/// kept.
///
/// A point dominates another if it is neither slower nor more expensive, and better in one of the two.
pub fn front(points: &[(u64, i64)]) -> Vec<usize> {
    // Sorted by time, and so falling in cost. Few points stay, so each is looked up among few.
    let mut front: Vec<usize> = Vec::new();
    for (index, (time, cost)) in points.iter().enumerate() {
        let slower = front.partition_point(|other| points[*other].0 <= *time);
        let last = slower.checked_sub(1).map(|last| points[front[last]]);
        if last.is_some_and(|(_, least)| least <= *cost) {
            continue;
        }
        let first = if last.is_some_and(|(as_fast, _)| as_fast == *time) { slower - 1 } else { slower };
        let beaten = front[first..].partition_point(|other| points[*other].1 >= *cost);
        front.splice(first..first + beaten, [index]);
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
