//! Moves channels 64 bytes at a time, on processors that have AVX-512 with VBMI.
//!
//! A register is loaded without the bytes beyond the image, reversed if it is mirrored, and stored at its final
//! position; the last one of a row overlaps the one before. All stores are of full registers: masked loads and stores
//! took about twice as long. There are 256 byte values, so the number that each maps to is looked up and not computed:
//! one instruction looks up 64 bytes in a table of 128.

use std::arch::x86_64::*;

use super::halves::{Lookup, interleaved, store};
use crate::decode::kernels::{Halves, Shown};

/// Bytes of a register.
const STEP: usize = 64;
/// Registers of the longest row.
const MOST: usize = 16;
/// Prefetch distance in bytes: a page, because the processor's own prefetcher stays within one.
const AHEAD: usize = 4096;

/// The plan for each row.
pub(super) struct Plan<'a> {
    shown: &'a Shown,
    plane: &'a [u8],
    /// For each register, where it is stored in a row, where its bytes begin in the row that is shown, and which of them
    /// there are.
    parts: [(usize, isize, u64); MOST],
    count: usize,
}

impl<'a> Plan<'a> {
    /// The plan for a channel and an output of the given number of values; `None` if the instructions are missing or do
    /// not pay.
    #[inline]
    pub fn of(is_there: bool, shown: &'a Shown, plane: &'a [u8], output: usize) -> Option<Plan<'a>> {
        let Shown { width, columns, from_column, mirrored, rows, from_row } = shown;
        if !is_there || !(STEP..=STEP * MOST).contains(width) || shown.is_empty() {
            return None;
        }
        assert!(columns.end <= *width && shown.input_columns().end <= *width, "columns outside the channel");
        assert!((from_row + rows.len()) * width <= plane.len() && rows.end * width <= output, "rows outside it");
        let count = width.div_ceil(STEP);
        let mut parts = [(0, 0, 0); MOST];
        for (number, part) in parts.iter_mut().take(count).enumerate() {
            let at = (number * STEP).min(width - STEP);
            let (first, last) = (columns.start.clamp(at, at + STEP) - at, columns.end.clamp(at, at + STEP) - at);
            let present = match last - first {
                0 => 0,
                count => u64::MAX >> (STEP - count) << first,
            };
            *part = match mirrored {
                false => (at, at as isize - columns.start as isize + *from_column as isize, present),
                true => {
                    let from = (from_column + columns.end) as isize - (at + STEP) as isize;
                    (at, from, present.reverse_bits())
                }
            };
        }
        Some(Plan { shown, plane, parts, count })
    }

    /// Loads 64 bytes of a row, zeros where the image has none.
    ///
    /// # Safety
    /// `row` must be the beginning of a row that is shown, and `from` and `present` those of a part.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    unsafe fn load(row: *const u8, from: isize, present: u64) -> __m512i {
        let bytes = row.wrapping_offset(from);
        _mm_prefetch::<_MM_HINT_T0>(bytes.wrapping_add(AHEAD).cast());
        // SAFETY: the bytes that are present lie in the row, and others are not touched.
        unsafe {
            match present {
                u64::MAX => _mm512_loadu_si512(bytes.cast()),
                present => _mm512_maskz_loadu_epi8(present, bytes.cast()),
            }
        }
    }
}

/// Moves bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn moved(plan: &Plan<'_>, output: &mut [u8]) {
    let Shown { width, mirrored, rows, from_row, .. } = plan.shown;
    output[..rows.start * width].fill(0);
    output[rows.end * width..].fill(0);
    let mut turned = [0; STEP];
    for (place, turned) in turned.iter_mut().enumerate() {
        *turned = (STEP - 1 - place) as u8;
    }
    // SAFETY: 64 bytes lie there.
    let turned = unsafe { _mm512_loadu_si512(turned.as_ptr().cast()) };
    let inputs = plan.plane[from_row * width..].chunks_exact(*width);
    for (row, into) in inputs.zip(output[rows.start * width..].chunks_exact_mut(*width)).take(rows.len()) {
        for (at, from, present) in &plan.parts[..plan.count] {
            // SAFETY: `row` is one that is shown, and 64 bytes from `at` on lie in a row, as the plan saw to.
            unsafe {
                let bytes = Plan::load(row.as_ptr(), *from, *present);
                let bytes = if *mirrored { _mm512_permutexvar_epi8(turned, bytes) } else { bytes };
                _mm512_storeu_si512(into.as_mut_ptr().add(*at).cast(), bytes);
            }
        }
    }
}

/// Moves bytes and makes numbers of them.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn moved_halves(plan: &Plan<'_>, table: &Halves, output: &mut [u16]) {
    let Shown { width, mirrored, rows, from_row, .. } = plan.shown;
    output[..rows.start * width].fill(table.of_zero());
    output[rows.end * width..].fill(table.of_zero());
    let (low, high) = (Lookup::of(&table.bytes[0]), Lookup::of(&table.bytes[1]));
    let places = interleaved(*mirrored);
    let inputs = plan.plane[from_row * width..].chunks_exact(*width);
    for (row, into) in inputs.zip(output[rows.start * width..].chunks_exact_mut(*width)).take(rows.len()) {
        for (at, from, present) in &plan.parts[..plan.count] {
            // SAFETY: `row` is one that is shown, and 64 values from `at` on lie in a row, as the plan saw to.
            unsafe {
                let bytes = _mm512_permutexvar_epi8(places, Plan::load(row.as_ptr(), *from, *present));
                store(into.as_mut_ptr().add(*at), low.find(bytes), high.find(bytes));
            }
        }
    }
}
