//! Packs documents into rows by best fit decreasing.
//!
//! A document that is longer than a row is split into full rows and a remainder. Each slice begins with the last token
//! of the slice before it, because that token was only a target there and is an input here. Each slice then goes into
//! the row where it leaves the least free space (Ding et al., "Fewer Truncations Improve Language Modeling", 2024), so
//! hardly any token is truncated or padded.

use std::collections::BTreeMap;

/// A slice of a document in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DocumentSlice {
    pub document: u32,
    /// Tokens of the document before it.
    pub from: u32,
    pub tokens: u32,
}

/// Returns the slices of each row of at most `length + 1` tokens, for documents of the given lengths. A document of
/// a single token has no target and is skipped.
pub(crate) fn best_fit(documents: &[u32], length: u32) -> Vec<Vec<DocumentSlice>> {
    let mut by_length: BTreeMap<u32, Vec<DocumentSlice>> = BTreeMap::new();
    for (tokens, document) in documents.iter().zip(0_u32..) {
        for from in (0..tokens.saturating_sub(1)).step_by(length as usize) {
            let tokens = (tokens - from).min(length + 1);
            by_length.entry(tokens).or_default().push(DocumentSlice { document, from, tokens });
        }
    }
    let mut rows: Vec<Vec<DocumentSlice>> = Vec::new();
    // Rows with free space, by the number of free tokens.
    let mut free: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for slice in by_length.into_values().rev().flatten() {
        let tightest = free.range(slice.tokens..).next().map(|(space, _)| *space);
        let (row, space) = match tightest {
            Some(space) => {
                let open = free.get_mut(&space).and_then(Vec::pop);
                if free.get(&space).is_some_and(Vec::is_empty) {
                    free.remove(&space);
                }
                (open.unwrap_or(rows.len()), space)
            }
            None => (rows.len(), length + 1),
        };
        if row == rows.len() {
            rows.push(Vec::new());
        }
        rows[row].push(slice);
        if space > slice.tokens {
            free.entry(space - slice.tokens).or_default().push(row);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn slices_go_where_they_leave_the_least_free_space() {
        let slice = |document, from, tokens| DocumentSlice { document, from, tokens };
        let found = best_fit(&[3, 25, 4, 6, 7, 1, 0], 9);
        let expected = [
            vec![slice(1, 0, 10)],
            vec![slice(1, 9, 10)],
            vec![slice(1, 18, 7)],
            vec![slice(4, 0, 7), slice(0, 0, 3)],
            vec![slice(3, 0, 6), slice(2, 0, 4)],
        ];
        assert_eq!(found, expected);
    }

    proptest! {
        #[test]
        fn every_token_is_a_target_once(documents in prop::collection::vec(0_u32..500, 1..300), length in 1_u32..200) {
            let rows = best_fit(&documents, length);
            let mut predicted: Vec<Vec<bool>> = documents.iter().map(|tokens| vec![false; *tokens as usize]).collect();
            for row in &rows {
                prop_assert!(row.iter().map(|slice| slice.tokens).sum::<u32>() <= length + 1);
                for DocumentSlice { document, from, tokens } in row {
                    for at in from + 1..from + tokens {
                        prop_assert!(!std::mem::replace(&mut predicted[*document as usize][at as usize], true));
                    }
                }
            }
            for predicted in predicted.iter().filter(|predicted| !predicted.is_empty()) {
                prop_assert!(predicted[1..].iter().all(|predicted| *predicted));
            }
            // Two rows that are both less than half full would have been merged.
            let half = |row: &&Vec<DocumentSlice>| 2 * row.iter().map(|slice| slice.tokens).sum::<u32>() <= length + 1;
            prop_assert!(rows.iter().filter(half).count() <= 1);
        }
    }
}
