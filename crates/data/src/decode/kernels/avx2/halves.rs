//! Bytes that become bfloat16, looked up 64 at a time on a processor with AVX-512 and its byte permutations (VBMI).

use std::arch::x86_64::*;

use crate::decode::kernels::Halves;

/// Bytes at a time.
pub(super) const STEP: usize = 64;

/// See [`crate::decode::kernels::Kernels::halves`]; for 64 bytes or more.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn found(table: &Halves, bytes: &[u8], output: &mut [u16]) {
    let length = bytes.len();
    assert!(length >= STEP && output.len() == length, "an output of another length");
    let (low, high) = (Lookup::of(&table.bytes[0]), Lookup::of(&table.bytes[1]));
    let places = interleaved(false);
    let mut next = 0;
    while next < length {
        let at = next.min(length - STEP);
        // SAFETY: 64 bytes from `at` on lie in the input, and as many values in the output.
        unsafe {
            let bytes = _mm512_permutexvar_epi8(places, _mm512_loadu_si512(bytes.as_ptr().add(at).cast()));
            store(output.as_mut_ptr().add(at), low.find(bytes), high.find(bytes));
        }
        next += STEP;
    }
}

/// See [`crate::decode::kernels::Kernels::halves_in_turn`]; for 64 bytes or more.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn found_in_turn(tables: &[Halves; 3], bytes: &[u8], output: &mut [u16]) {
    let length = bytes.len();
    assert!(length >= STEP && output.len() == length, "an output of another length");
    let [a, b, c] = tables;
    let low = [Lookup::of(&a.bytes[0]), Lookup::of(&b.bytes[0]), Lookup::of(&c.bytes[0])];
    let high = [Lookup::of(&a.bytes[1]), Lookup::of(&b.bytes[1]), Lookup::of(&c.bytes[1])];
    let places = interleaved(false);
    let mut next = 0;
    while next < length {
        let at = next.min(length - STEP);
        let [second, third] = SHOWN[at % 3];
        // SAFETY: 64 bytes from `at` on lie in the input, and as many values in the output.
        unsafe {
            let bytes = _mm512_permutexvar_epi8(places, _mm512_loadu_si512(bytes.as_ptr().add(at).cast()));
            let low = chosen(&low, bytes, second, third);
            let high = chosen(&high, bytes, second, third);
            store(output.as_mut_ptr().add(at), low, high);
        }
        next += STEP;
    }
}

/// What the table of each byte's channel has for it.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn chosen(tables: &[Lookup; 3], bytes: __m512i, second: u64, third: u64) -> __m512i {
    let two = _mm512_mask_blend_epi8(second, tables[0].find(bytes), tables[1].find(bytes));
    _mm512_mask_blend_epi8(third, two, tables[2].find(bytes))
}

/// Where each of 64 bytes goes first, so that their numbers come in order: the lower eight bytes of each of four parts
/// are interleaved first, then the upper eight. `mirrored`, the last byte is the first.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn interleaved(mirrored: bool) -> __m512i {
    let places = if mirrored { &MIRRORED } else { &INTERLEAVED };
    // SAFETY: 64 bytes lie there.
    unsafe { _mm512_loadu_si512(places.as_ptr().cast()) }
}

const INTERLEAVED: [u8; STEP] = places(false);
const MIRRORED: [u8; STEP] = places(true);
/// Which of the interleaved bytes are of the second and of the third channel, where the first of 64 is of each channel.
const SHOWN: [[u64; 2]; 3] = shown();

const fn places(mirrored: bool) -> [u8; STEP] {
    let mut places = [0; STEP];
    let mut place = 0;
    while place < STEP {
        let (eight, within) = (place / 8, place % 8);
        let source = (eight / 2 + 4 * (eight % 2)) * 8 + within;
        places[place] = (if mirrored { STEP - 1 - source } else { source }) as u8;
        place += 1;
    }
    places
}

const fn shown() -> [[u64; 2]; 3] {
    let mut shown = [[0; 2]; 3];
    let mut at = 0;
    while at < 3 * STEP {
        let (first, place) = (at / STEP, at % STEP);
        let channel = (first + INTERLEAVED[place] as usize) % 3;
        if channel > 0 {
            shown[first][channel - 1] |= 1 << place;
        }
        at += 1;
    }
    shown
}

/// Stores 64 values, of which these are the lower and the upper bytes.
///
/// # Safety
/// So many values must be writable there.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) unsafe fn store(into: *mut u16, low: __m512i, high: __m512i) {
    let into: *mut __m512i = into.cast();
    // SAFETY: as the caller promises.
    unsafe {
        _mm512_storeu_si512(into, _mm512_unpacklo_epi8(low, high));
        _mm512_storeu_si512(into.add(1), _mm512_unpackhi_epi8(low, high));
    }
}

/// A table of 256 bytes.
#[derive(Clone, Copy)]
pub(super) struct Lookup(__m512i, __m512i, __m512i, __m512i);

impl Lookup {
    /// Loads a table of 256 bytes into four registers.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    pub fn of(bytes: &[u8; 256]) -> Lookup {
        let at: *const __m512i = bytes.as_ptr().cast();
        // SAFETY: four times 64 bytes lie in the table.
        unsafe {
            Lookup(
                _mm512_loadu_si512(at),
                _mm512_loadu_si512(at.add(1)),
                _mm512_loadu_si512(at.add(2)),
                _mm512_loadu_si512(at.add(3)),
            )
        }
    }

    /// What stands there for each of 64 bytes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    pub fn find(self, bytes: __m512i) -> __m512i {
        let below = _mm512_permutex2var_epi8(self.0, bytes, self.1);
        let above = _mm512_permutex2var_epi8(self.2, bytes, self.3);
        _mm512_mask_blend_epi8(_mm512_movepi8_mask(bytes), below, above)
    }
}
