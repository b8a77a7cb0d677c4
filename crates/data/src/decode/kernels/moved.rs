//! A channel that is moved, and perhaps mirrored, for any kernels.

use std::ops::Range;

use super::{Halves, Kernels};

/// The visible part of a channel after a crop or shift.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    pub width: usize,
    /// Output columns that show the source.
    pub columns: Range<usize>,
    /// The smallest source column that is shown.
    pub from_column: usize,
    /// Whether the last of those comes first.
    pub mirrored: bool,
    /// Rows that show something.
    pub rows: Range<usize>,
    /// The row that the first of them shows.
    pub from_row: usize,
}

impl Shown {
    /// Whether nothing is visible.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty() || self.rows.is_empty()
    }

    /// The columns of the input that are shown.
    pub fn input_columns(&self) -> Range<usize> {
        self.from_column..self.from_column + self.columns.len()
    }
}

/// Moves bytes. The visible part is one contiguous range of input and output, apart from the overlap at the ends of
/// rows; so it is copied in one operation unless it is mirrored, and the overlap is overwritten.
#[inline(always)]
pub(super) fn moved(kernels: impl Kernels, shown: &Shown, plane: &[u8], output: &mut [u8]) {
    let Shown { width, columns, mirrored, rows, from_row, .. } = shown;
    let width = *width;
    if shown.is_empty() {
        return output.fill(0);
    }
    let begin = rows.start * width + columns.start;
    let end = (rows.end - 1) * width + columns.end;
    output[..begin].fill(0);
    output[end..].fill(0);
    let inputs = &plane[from_row * width..];
    if *mirrored {
        let lines = inputs.chunks_exact(width).zip(output[rows.start * width..].chunks_exact_mut(width));
        for (input, row) in lines.take(rows.len()) {
            kernels.mirrored(&input[shown.input_columns()], &mut row[columns.clone()]);
        }
    } else {
        output[begin..end].copy_from_slice(&inputs[shown.from_column..][..end - begin]);
    }
    // The gap between the visible parts of consecutive rows.
    let gap = width - columns.len();
    if gap > 0 {
        for between in output[begin + columns.len()..end].chunks_mut(width) {
            clear(&mut between[..gap]);
        }
    }
}

/// Moves bytes and makes numbers of them.
#[inline(always)]
pub(super) fn moved_halves(kernels: impl Kernels, shown: &Shown, plane: &[u8], table: &Halves, output: &mut [u16]) {
    let mut near = vec![0; output.len()];
    kernels.moved(shown, plane, &mut near);
    table.computed(&near, output);
}

/// Zeros, mostly a few: a call of `memset` would cost more than they do.
#[inline(always)]
fn clear(bytes: &mut [u8]) {
    match bytes.len() {
        0 => {}
        1 => ends::<1>(bytes),
        2..4 => ends::<2>(bytes),
        4..8 => ends::<4>(bytes),
        8..16 => ends::<8>(bytes),
        16..=32 => ends::<16>(bytes),
        _ => bytes.fill(0),
    }
}

/// Clears the first and the last `N` bytes, which may be some of the same.
#[inline(always)]
fn ends<const N: usize>(bytes: &mut [u8]) {
    if let Some(first) = bytes.first_chunk_mut::<N>() {
        *first = [0; N];
    }
    if let Some(last) = bytes.last_chunk_mut::<N>() {
        *last = [0; N];
    }
}
