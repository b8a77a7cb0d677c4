//! Bytes put in other places: pixels into rows of one channel each, rows into pixels, and the last one first.

use std::arch::x86_64::*;

use crate::decode::kernels::{Kernels, Plain};

/// Pixels at a time: three registers of sixteen bytes come in, and three go out.
const STEP: usize = 16;
/// For each result, which byte of each of the three sources becomes which byte of it.
type Masks = [[[u8; STEP]; 3]; 3];

const APART: Masks = apart_masks(false);
const APART_MIRRORED: Masks = apart_masks(true);
const TOGETHER: Masks = together_masks(false);
const TOGETHER_MIRRORED: Masks = together_masks(true);

/// Leaves a zero in its place.
const NOTHING: u8 = 0x80;

const fn apart_masks(mirrored: bool) -> Masks {
    let mut masks = [[[NOTHING; STEP]; 3]; 3];
    let mut at = 0;
    while at < 3 * STEP {
        let (pixel, channel) = (at / 3, at % 3);
        let place = if mirrored { STEP - 1 - pixel } else { pixel };
        masks[channel][at / STEP][place] = (at % STEP) as u8;
        at += 1;
    }
    masks
}

const fn together_masks(mirrored: bool) -> Masks {
    let mut masks = [[[NOTHING; STEP]; 3]; 3];
    let mut at = 0;
    while at < 3 * STEP {
        let (pixel, channel) = (at / 3, at % 3);
        let place = if mirrored { STEP - 1 - pixel } else { pixel };
        masks[at / STEP][channel][at % STEP] = place as u8;
        at += 1;
    }
    masks
}

// Arrays here are filled by loops: a closure that is handed to another function is not compiled into it where that
// function is for any processor, and then each register takes a call.
#[inline]
#[target_feature(enable = "avx2")]
fn loaded(masks: &Masks) -> [[__m128i; 3]; 3] {
    let mut found = [[_mm_setzero_si128(); 3]; 3];
    for (found, masks) in found.iter_mut().zip(masks) {
        for (found, mask) in found.iter_mut().zip(masks) {
            // SAFETY: each mask has sixteen bytes.
            *found = unsafe { _mm_loadu_si128(mask.as_ptr().cast()) };
        }
    }
    found
}

/// Bytes of three registers, as a result's masks say.
#[inline]
#[target_feature(enable = "avx2")]
fn picked(parts: [__m128i; 3], [a, b, c]: [__m128i; 3]) -> __m128i {
    let two = _mm_or_si128(_mm_shuffle_epi8(parts[0], a), _mm_shuffle_epi8(parts[1], b));
    _mm_or_si128(two, _mm_shuffle_epi8(parts[2], c))
}

/// The same in both halves of wider registers.
#[inline]
#[target_feature(enable = "avx2")]
fn picked_twice(parts: [__m256i; 3], [a, b, c]: [__m128i; 3]) -> __m256i {
    let (a, b, c) = (_mm256_broadcastsi128_si256(a), _mm256_broadcastsi128_si256(b), _mm256_broadcastsi128_si256(c));
    let two = _mm256_or_si256(_mm256_shuffle_epi8(parts[0], a), _mm256_shuffle_epi8(parts[1], b));
    _mm256_or_si256(two, _mm256_shuffle_epi8(parts[2], c))
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn apart(pixels: &[[u8; 3]], mirrored: bool, mut rows: [&mut [u8]; 3]) {
    let length = pixels.len();
    assert!(rows.iter().all(|row| row.len() == length), "rows of another length");
    let masks = loaded(if mirrored { &APART_MIRRORED } else { &APART });
    // Twice as many at a time first.
    let twice = length / (2 * STEP) * (2 * STEP);
    for at in (0..twice).step_by(2 * STEP) {
        // SAFETY: 32 pixels, of 96 bytes, from `at` on lie in `pixels`; the second sixteen go into the upper halves.
        let parts = unsafe {
            let from: *const __m128i = pixels.as_ptr().add(at).cast();
            let both = |place: usize| {
                let low = _mm256_castsi128_si256(_mm_loadu_si128(from.add(place)));
                _mm256_inserti128_si256::<1>(low, _mm_loadu_si128(from.add(place + 3)))
            };
            [both(0), both(1), both(2)]
        };
        let to = if mirrored { length - 2 * STEP - at } else { at };
        for (row, masks) in rows.iter_mut().zip(masks) {
            let found = picked_twice(parts, masks);
            let found = if mirrored { _mm256_permute2x128_si256::<1>(found, found) } else { found };
            // SAFETY: 32 bytes from `to` on lie in a row, which is as long as there are pixels.
            unsafe { _mm256_storeu_si256(row.as_mut_ptr().add(to).cast(), found) };
        }
    }
    let whole = length / STEP * STEP;
    for at in (twice..whole).step_by(STEP) {
        // SAFETY: sixteen pixels, of 48 bytes, from `at` on lie in `pixels`.
        let parts = unsafe {
            let from: *const __m128i = pixels.as_ptr().add(at).cast();
            [_mm_loadu_si128(from), _mm_loadu_si128(from.add(1)), _mm_loadu_si128(from.add(2))]
        };
        let to = if mirrored { length - STEP - at } else { at };
        for (row, masks) in rows.iter_mut().zip(masks) {
            // SAFETY: sixteen bytes from `to` on lie in a row, which is as long as there are pixels.
            unsafe { _mm_storeu_si128(row.as_mut_ptr().add(to).cast(), picked(parts, masks)) };
        }
    }
    let rest = if mirrored { 0..length - whole } else { whole..length };
    Plain.apart(&pixels[whole..], mirrored, rows.map(|row| &mut row[rest.clone()]));
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn together(rows: [&[u8]; 3], mirrored: bool, pixels: &mut [[u8; 3]]) {
    let length = pixels.len();
    assert!(rows.iter().all(|row| row.len() == length), "rows of another length");
    let masks = loaded(if mirrored { &TOGETHER_MIRRORED } else { &TOGETHER });
    let whole = length / STEP * STEP;
    for at in (0..whole).step_by(STEP) {
        let from = if mirrored { length - STEP - at } else { at };
        // SAFETY: sixteen bytes from `from` on lie in each row, and sixteen pixels from `at` on lie in `pixels`.
        unsafe {
            let mut parts = [_mm_setzero_si128(); 3];
            for (part, row) in parts.iter_mut().zip(rows) {
                *part = _mm_loadu_si128(row.as_ptr().add(from).cast());
            }
            let to: *mut __m128i = pixels.as_mut_ptr().add(at).cast();
            for (place, masks) in masks.into_iter().enumerate() {
                _mm_storeu_si128(to.add(place), picked(parts, masks));
            }
        }
    }
    let rest = if mirrored { 0..length - whole } else { whole..length };
    Plain.together(rows.map(|row| &row[rest.clone()]), mirrored, &mut pixels[whole..]);
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn mirrored(bytes: &[u8], output: &mut [u8]) {
    const WIDE: usize = 32;
    let length = bytes.len();
    assert!(output.len() == length, "an output of another length");
    let turn = _mm256_broadcastsi128_si256(_mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
    let whole = length / WIDE * WIDE;
    for at in (0..whole).step_by(WIDE) {
        // SAFETY: 32 bytes from `at` on lie in `bytes`, and as many before `length - at` in the output.
        unsafe {
            let found = _mm256_shuffle_epi8(_mm256_loadu_si256(bytes.as_ptr().add(at).cast()), turn);
            let found = _mm256_permute2x128_si256::<1>(found, found);
            _mm256_storeu_si256(output.as_mut_ptr().add(length - WIDE - at).cast(), found);
        }
    }
    if whole == length {
        return;
    }
    if whole == 0 {
        return Plain.mirrored(bytes, output);
    }
    // The last bytes, some of them once more, go to the front.
    // SAFETY: `length` is at least 32.
    unsafe {
        let found = _mm256_shuffle_epi8(_mm256_loadu_si256(bytes.as_ptr().add(length - WIDE).cast()), turn);
        _mm256_storeu_si256(output.as_mut_ptr().cast(), _mm256_permute2x128_si256::<1>(found, found));
    }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn turned(pixels: &[[u8; 3]], output: &mut [[u8; 3]]) {
    /// Bytes of whole pixels in one register.
    const WHOLE: usize = 15;
    let length = 3 * pixels.len();
    assert!(output.len() == pixels.len(), "an output of another length");
    // The bytes of a register but the first are five pixels.
    let turn = _mm_setr_epi8(13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, 0);
    let mut at = 0;
    while at + STEP <= length {
        // SAFETY: sixteen bytes from `at` on lie in the output, and as many from `length - 16 - at` on in the input. The
        // last byte that is stored belongs to the next step, or to the pixels that are left.
        unsafe {
            let from: *const __m128i = pixels.as_ptr().cast::<u8>().add(length - STEP - at).cast();
            let to: *mut __m128i = output.as_mut_ptr().cast::<u8>().add(at).cast();
            _mm_storeu_si128(to, _mm_shuffle_epi8(_mm_loadu_si128(from), turn));
        }
        at += WHOLE;
    }
    let done = at / 3;
    Plain.turned(&pixels[..pixels.len() - done], &mut output[done..]);
}
