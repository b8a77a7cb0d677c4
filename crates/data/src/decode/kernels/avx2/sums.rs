//! Weighted sums of pixels: along a row, and of several rows.

use std::arch::x86_64::*;

use crate::decode::kernels::{Kernels, Plain, Taps};

/// Sums of one output: taps 0, 1 (4, 5, …) in the lower half, 2, 3 (6, 7, …) in the upper.
///
/// # Safety
/// `each` pixels must be readable at `input`, and twice as many bytes of weights at `weights`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn gathered(input: *const [u8; 4], weights: *const i16, each: usize) -> __m256i {
    // From four pixels to pairs of one channel each, widened.
    let spread = _mm256_setr_epi8(
        0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1, 8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1,
        15, -1,
    );
    // The weights of a pair go to all four channels of its half.
    let mut sum = _mm256_setzero_si256();
    let mut tap = 0;
    while tap < each {
        // SAFETY: four pixels and four weights from `tap` on are readable, as the caller promises.
        let (pixels, weights) = unsafe {
            let pixels = _mm256_broadcastsi128_si256(_mm_loadu_si128(input.add(tap).cast()));
            let weights = _mm_loadl_epi64(weights.add(tap).cast());
            (pixels, weights)
        };
        let low = _mm_shuffle_epi32::<0b00_00_00_00>(weights);
        let high = _mm_shuffle_epi32::<0b01_01_01_01>(weights);
        let product = _mm256_madd_epi16(_mm256_shuffle_epi8(pixels, spread), _mm256_set_m128i(high, low));
        sum = _mm256_add_epi32(sum, product);
        tap += 4;
    }
    sum
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn across(taps: &Taps<'_>, input: &[[u8; 4]], output: &mut [[u8; 4]]) {
    let Taps { first, weights, each, precision } = *taps;
    let outputs = first.len().min(output.len());
    assert!(each.is_multiple_of(4) && weights.len() >= outputs * each, "weights for fewer outputs");
    let shift = _mm_cvtsi32_si128(precision as i32);
    let half = _mm256_set1_epi32(1 << (precision - 1));
    let mut at = 0;
    while at + 4 <= outputs {
        let mut sums = [half; 4];
        for (place, sum) in sums.iter_mut().enumerate() {
            let from = first[at + place] as usize;
            assert!(from + each <= input.len(), "an output beyond its input");
            // SAFETY: both were just checked.
            *sum = unsafe { gathered(input.as_ptr().add(from), weights.as_ptr().add((at + place) * each), each) };
        }
        let join = |a: __m256i, b: __m256i| {
            let low = _mm256_permute2x128_si256::<0x20>(a, b);
            let high = _mm256_permute2x128_si256::<0x31>(a, b);
            _mm256_sra_epi32(_mm256_add_epi32(_mm256_add_epi32(low, high), half), shift)
        };
        let packed = _mm256_packs_epi32(join(sums[0], sums[2]), join(sums[1], sums[3]));
        let packed = _mm256_packus_epi16(packed, packed);
        let four = _mm_unpacklo_epi64(_mm256_castsi256_si128(packed), _mm256_extracti128_si256::<1>(packed));
        // SAFETY: four pixels from `at` on lie in `output`.
        unsafe { _mm_storeu_si128(output.as_mut_ptr().add(at).cast(), four) };
        at += 4;
    }
    let rest = Taps { first: &first[at..outputs], weights: &weights[at * each..], ..*taps };
    Plain.across(&rest, input, &mut output[at..outputs]);
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn down(rows: &[&[[u8; 4]]], weights: &[i16], precision: u32, output: &mut [[u8; 4]]) {
    const STEP: usize = 8;
    assert!(rows.len().is_multiple_of(2) && rows.len() == weights.len(), "rows and weights come in pairs");
    assert!(rows.iter().all(|row| row.len() >= output.len()), "a row that is too short");
    let shift = _mm_cvtsi32_si128(precision as i32);
    let half = _mm256_set1_epi32(1 << (precision - 1));
    let zero = _mm256_setzero_si256();
    let whole = output.len() / STEP * STEP;
    let mut at = 0;
    while at < whole {
        let mut sums = [half; 4];
        for (rows, weights) in rows.chunks_exact(2).zip(weights.chunks_exact(2)) {
            let factors = super::pairs(i32::from(weights[0]), i32::from(weights[1]));
            // SAFETY: eight pixels from `at` on lie in every row.
            let (a, b) = unsafe {
                let load = |row: &[[u8; 4]]| _mm256_loadu_si256(row.as_ptr().add(at).cast());
                (load(rows[0]), load(rows[1]))
            };
            let (low, high) = (_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b));
            let parts = [
                _mm256_unpacklo_epi8(low, zero),
                _mm256_unpackhi_epi8(low, zero),
                _mm256_unpacklo_epi8(high, zero),
                _mm256_unpackhi_epi8(high, zero),
            ];
            for (sum, part) in sums.iter_mut().zip(parts) {
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(part, factors));
            }
        }
        let done = |sum: __m256i| _mm256_sra_epi32(sum, shift);
        let packed = _mm256_packus_epi16(
            _mm256_packs_epi32(done(sums[0]), done(sums[1])),
            _mm256_packs_epi32(done(sums[2]), done(sums[3])),
        );
        // SAFETY: eight pixels from `at` on lie in `output`.
        unsafe { _mm256_storeu_si256(output.as_mut_ptr().add(at).cast(), packed) };
        at += STEP;
    }
    if whole < output.len() {
        let mut rest: Vec<&[[u8; 4]]> = Vec::with_capacity(rows.len());
        rest.extend(rows.iter().map(|row| &row[whole..]));
        Plain.down(&rest, weights, precision, &mut output[whole..]);
    }
}
