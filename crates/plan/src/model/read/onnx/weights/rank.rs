//! How many rows of a matrix are independent, seen at a part of it.

use super::super::file::Stored;

/// Rows and columns that are looked at, and the share of a row that counts as nothing.
const LOOKED_AT: usize = 48;
const NOTHING: f64 = 1e-4;
/// A product of fewer rows than this share of what was looked at is one with a narrow layer.
const NARROW: usize = 8;

/// Returns the rank of a matrix of single-precision numbers where it is far less than its sides; none where it is not, and
/// where the values are not at hand.
pub(super) fn rank(stored: &Stored) -> Option<u64> {
    let columns = usize::try_from(*stored.dims.last()?).ok().filter(|columns| *columns > 0)?;
    let (4, raw) = stored.words()? else { return None };
    let rows = raw.len() / 4 / columns;
    let (high, wide) = (rows.min(LOOKED_AT), columns.min(LOOKED_AT));
    let value = |row: usize, column: usize| {
        // Spread over the whole matrix, and never in steps: rows of a table of distances repeat.
        let place = |at: usize, side: usize| (at * at * 7919 + at * 104_729) % side;
        let (row, column) = (place(row, rows), place(column, columns));
        let word = raw.get((row * columns + column) * 4..)?.first_chunk::<4>()?;
        Some(f64::from(f32::from_le_bytes(*word)))
    };
    let mut matrix = Vec::with_capacity(high);
    for row in 0..high {
        matrix.push((0..wide).map(|column| value(row, column)).collect::<Option<Vec<f64>>>()?);
    }
    let largest = |rows: &[Vec<f64>]| rows.iter().flatten().fold(0.0f64, |most, value| most.max(value.abs()));
    let nothing = largest(&matrix) * NOTHING;
    let mut found = 0;
    while found < matrix.len() {
        let rest = (found..matrix.len()).flat_map(|row| (0..wide).map(move |column| (row, column)));
        let (row, column) = rest.max_by(|one, other| {
            let size = |at: &(usize, usize)| matrix[at.0][at.1].abs();
            size(one).total_cmp(&size(other))
        })?;
        if matrix[row][column].abs() <= nothing {
            break;
        }
        matrix.swap(found, row);
        let pivot = matrix[found].clone();
        for other in &mut matrix[found + 1..] {
            let factor = other[column] / pivot[column];
            other.iter_mut().zip(&pivot).for_each(|(value, pivot)| *value -= factor * pivot);
        }
        found += 1;
    }
    (found > 0 && found * NARROW <= high.min(wide)).then_some(found as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_with_few_constants_has_as_many_independent_rows() {
        let check = |value: &dyn Fn(usize, usize) -> f64, expected: Option<u64>| {
            let all = (0..60 * 70).map(|at| value(at / 70, at % 70) as f32);
            let raw: Vec<u8> = all.flat_map(f32::to_le_bytes).collect();
            assert_eq!(rank(&Stored::floats(&[1, 60, 70], &raw)), expected);
        };
        let weight = |input: usize, column: usize| ((input * 70 + column) as f64 * 1.7).sin();
        check(&|row, column| row as f64 * weight(0, column) + (row as f64).cos() * weight(1, column), Some(2));
        check(&|row, column| ((row * row + 3 * column) as f64 * 1.7 * (column + 1) as f64).sin(), None);
        check(&|_, _| 0.0, None);
    }
}
