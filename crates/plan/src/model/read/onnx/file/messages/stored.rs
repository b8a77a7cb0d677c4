//! What a stored tensor's numbers are.

use super::{MOST_VALUES, Stored};

impl<'a> Stored<'a> {
    /// Single-precision numbers that stand in a file.
    #[cfg(test)]
    pub fn floats(dims: &[u64], raw: &'a [u8]) -> Stored<'a> {
        Stored { dims: dims.to_vec(), kind: 1, raw, ..Stored::default() }
    }

    pub(super) fn push(&mut self, value: f64) {
        if self.numbers.len() < MOST_VALUES {
            self.numbers.push(value);
        }
    }

    /// The product of its dimensions.
    pub fn elements(&self) -> u64 {
        self.dims.iter().fold(1, |product: u64, side| product.saturating_mul(*side))
    }

    /// Whether its values can be trained.
    pub fn is_float(&self) -> bool {
        matches!(self.kind, 1 | 10 | 11 | 16..=20)
    }

    /// Whether its values are whole numbers that a weight in few bits is stored as: 4, 8 or, for biases, 32.
    pub fn is_in_few_bits(&self) -> bool {
        matches!(self.kind, 2 | 3 | 6 | 21 | 22)
    }

    /// Its values as they stand in the file, one after the other; none where they stand beside it.
    pub fn words(&self) -> Option<(usize, &'a [u8])> {
        let count = usize::try_from(self.elements()).ok().filter(|count| *count > 0)?;
        let width = self.raw.len() / count;
        (width > 0 && width * count == self.raw.len()).then_some((width, self.raw))
    }

    /// Its values, where there are few and they are numbers.
    pub fn values(&self) -> Option<Vec<f64>> {
        let count = usize::try_from(self.elements()).ok().filter(|count| *count <= MOST_VALUES)?;
        if !self.numbers.is_empty() {
            return Some(self.numbers.clone()).filter(|numbers| numbers.len() == count);
        }
        let words = |width: usize| self.raw.chunks_exact(width).take(count);
        let values: Vec<f64> = match self.kind {
            1 => words(4)
                .filter_map(|word| word.try_into().ok())
                .map(|word| f64::from(f32::from_le_bytes(word)))
                .collect(),
            2 | 9 => words(1).map(|word| f64::from(word[0])).collect(),
            6 => words(4)
                .filter_map(|word| word.try_into().ok())
                .map(|word| f64::from(i32::from_le_bytes(word)))
                .collect(),
            7 => words(8).filter_map(|word| word.try_into().ok()).map(|word| i64::from_le_bytes(word) as f64).collect(),
            11 => words(8).filter_map(|word| word.try_into().ok()).map(f64::from_le_bytes).collect(),
            _ => return None,
        };
        Some(values).filter(|values| values.len() == count)
    }
}
