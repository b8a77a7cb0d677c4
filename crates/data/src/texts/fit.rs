//! Which documents share a row: best fit, the longest first.
//!
//! A document that is longer than a row is cut into whole ones and a rest; each begins with the token that the one
//! before ended with, as that is the last to be guessed there and the first to be given here. Each piece then goes where
//! it leaves the least room (Ding et al., "Fewer Truncations Improve Language Modeling", 2024), so hardly a token is cut
//! off or padded.

use std::collections::BTreeMap;

/// A piece of a document in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DocumentSlice {
    pub document: u32,
    /// Tokens of the document before it.
    pub from: u32,
    pub tokens: u32,
}

/// The pieces of each row of at most `length + 1` tokens, for documents of so many tokens; one of a single token has
/// nothing to guess and is left out.
pub(crate) fn best_fit(documents: &[u32], length: u32) -> Vec<Vec<DocumentSlice>> {
    let mut by_length: BTreeMap<u32, Vec<DocumentSlice>> = BTreeMap::new();
    for (tokens, document) in documents.iter().zip(0_u32..) {
        for from in (0..tokens.saturating_sub(1)).step_by(length as usize) {
            let tokens = (tokens - from).min(length + 1);
            by_length.entry(tokens).or_default().push(DocumentSlice { document, from, tokens });
        }
    }
    let mut rows: Vec<Vec<DocumentSlice>> = Vec::new();
    // Rows with room left, by how much.
    let mut room: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for piece in by_length.into_values().rev().flatten() {
        let tightest = room.range(piece.tokens..).next().map(|(left, _)| *left);
        let (row, left) = match tightest {
            Some(left) => {
                let open = room.get_mut(&left).and_then(Vec::pop);
                if room.get(&left).is_some_and(Vec::is_empty) {
                    room.remove(&left);
                }
                (open.unwrap_or(rows.len()), left)
            }
            None => (rows.len(), length + 1),
        };
        if row == rows.len() {
            rows.push(Vec::new());
        }
        rows[row].push(piece);
        if left > piece.tokens {
            room.entry(left - piece.tokens).or_default().push(row);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pieces_go_where_they_leave_the_least_room() {
        let piece = |document, from, tokens| DocumentSlice { document, from, tokens };
        let found = best_fit(&[3, 25, 4, 6, 7, 1, 0], 9);
        let wanted = [
            vec![piece(1, 0, 10)],
            vec![piece(1, 9, 10)],
            vec![piece(1, 18, 7)],
            vec![piece(4, 0, 7), piece(0, 0, 3)],
            vec![piece(3, 0, 6), piece(2, 0, 4)],
        ];
        assert_eq!(found, wanted);
    }

    proptest! {
        #[test]
        fn every_token_is_guessed_once(documents in prop::collection::vec(0_u32..500, 1..300), length in 1_u32..200) {
            let rows = best_fit(&documents, length);
            let mut guessed: Vec<Vec<bool>> = documents.iter().map(|tokens| vec![false; *tokens as usize]).collect();
            for row in &rows {
                prop_assert!(row.iter().map(|piece| piece.tokens).sum::<u32>() <= length + 1);
                for DocumentSlice { document, from, tokens } in row {
                    for at in from + 1..from + tokens {
                        prop_assert!(!std::mem::replace(&mut guessed[*document as usize][at as usize], true));
                    }
                }
            }
            for guessed in guessed.iter().filter(|guessed| !guessed.is_empty()) {
                prop_assert!(guessed[1..].iter().all(|guessed| *guessed));
            }
            // Two rows that both are less than half full would have been one.
            let half = |row: &&Vec<DocumentSlice>| 2 * row.iter().map(|piece| piece.tokens).sum::<u32>() <= length + 1;
            prop_assert!(rows.iter().filter(half).count() <= 1);
        }
    }
}
