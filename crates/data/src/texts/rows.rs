//! Where the rows of a text data set are in its tokens.

use std::ops::Range;

use super::store::{TokenStore, TokenWriter};
use crate::sampling::split::Parts;
use crate::{Error, Part};

/// Rows of tokens, divided into training, validation and test.
#[derive(Debug)]
pub(super) struct TokenRows {
    store: TokenStore,
    layout: RowLayout,
    /// For each column of tokens, positions at which a document begins that must not be predicted from the previous
    /// one, in ascending order.
    borders: Vec<Vec<u64>>,
}

/// How tokens are divided into rows.
#[derive(Debug)]
enum RowLayout {
    /// Rows follow each other in column 0, and column 1 holds the end of each; they belong to these parts.
    Ended(Parts),
    /// Columns 0, 1 and 2 are the streams of training, validation and test, in rows of so many tokens and the one after.
    Streams { length: u64, counts: [u64; 3] },
}

/// The column of the rows that [`TokenRows::ended`] has, and that of their ends.
pub(super) const ROWS: [usize; 2] = [0, 1];
/// Columns of the streams of [`TokenRows::streams`].
pub(super) const STREAMS: usize = 3;

/// A row: the column that it is in, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowSpan {
    column: usize,
    places: Range<u64>,
}

impl TokenRows {
    /// No rows.
    pub fn none() -> Result<TokenRows, Error> {
        TokenRows::ended(TokenWriter::in_memory(2, 1).finish()?, Parts::default(), Vec::new())
    }

    /// Rows whose ends are in a separate column.
    pub fn ended(store: TokenStore, parts: Parts, borders: Vec<u64>) -> Result<TokenRows, Error> {
        Ok(TokenRows { store, layout: RowLayout::Ended(parts), borders: vec![borders] })
    }

    /// Three streams divided into rows of `length` tokens. With `apart`, attention is limited to a document if the
    /// store has document ends.
    pub fn streams(store: TokenStore, length: u32, apart: bool) -> Result<TokenRows, Error> {
        let length = u64::from(length.max(1));
        let counts = [0, 1, 2].map(|column| store.tokens(column).saturating_sub(1).div_ceil(length));
        let mut borders = vec![Vec::new(); STREAMS];
        for (column, borders) in borders.iter_mut().enumerate().filter(|_| apart && store.columns() == 2 * STREAMS) {
            let ends = store.ends(column + STREAMS);
            // Where one ends, the next begins.
            *borders = store.read_ends(column + STREAMS, 0..ends.saturating_sub(1))?;
        }
        Ok(TokenRows { store, layout: RowLayout::Streams { length, counts }, borders })
    }

    /// Rows of a part.
    pub fn count(&self, part: Part) -> u64 {
        match &self.layout {
            RowLayout::Ended(parts) => parts[part as usize].len() as u64,
            RowLayout::Streams { counts, .. } => counts[part as usize],
        }
    }

    /// The number of the row at this index of a part, in the order of the data.
    pub fn number(&self, part: Part, index: u64) -> u32 {
        match &self.layout {
            RowLayout::Ended(parts) => parts[part as usize][index as usize],
            RowLayout::Streams { counts, .. } => (counts[..part as usize].iter().sum::<u64>() + index) as u32,
        }
    }

    /// Where a row is.
    pub fn span(&self, row: u32) -> Result<RowSpan, Error> {
        let row = u64::from(row);
        match &self.layout {
            RowLayout::Ended(_) => {
                let [column, ends] = ROWS;
                let found = self.store.read_ends(ends, row.saturating_sub(1)..row + 1)?;
                let places = match (row, &found[..]) {
                    (0, [end]) => 0..*end,
                    (_, [start, end]) => *start..*end,
                    (_, _) => return Err(Error::Internal(format!("there is no row {row}"))),
                };
                Ok(RowSpan { column, places })
            }
            RowLayout::Streams { length, counts } => {
                let (mut column, mut index) = (0, row);
                while column + 1 < STREAMS && index >= counts[column] {
                    index -= counts[column];
                    column += 1;
                }
                let start = index * length;
                Ok(RowSpan { column, places: start..(start + length + 1).min(self.store.tokens(column)) })
            }
        }
    }

    /// The tokens of a row.
    pub fn tokens(&self, RowSpan { column, places }: &RowSpan) -> Result<Vec<u32>, Error> {
        let mut tokens = Vec::new();
        self.store.read(*column, places.clone(), &mut tokens)?;
        Ok(tokens)
    }

    /// Where in a row documents begin, but for the one that it begins with.
    pub fn borders(&self, RowSpan { column, places }: &RowSpan) -> impl Iterator<Item = usize> {
        let (from, to) = (places.start, places.end);
        let borders = &self.borders[*column];
        let first = borders.partition_point(|border| *border <= from);
        borders[first..].iter().take_while(move |border| **border < to).map(move |border| (border - from) as usize)
    }
}
