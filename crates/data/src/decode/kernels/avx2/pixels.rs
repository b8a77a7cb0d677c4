//! Bytes of pixels put in other places, 64 at a time, on a processor with AVX-512 and its byte permutations (VBMI).
//!
//! Steps that do not divide a row's length overlap at its end, so each function says from which length on it works.

use std::arch::x86_64::*;

/// Pixels at a time: three registers come in, and three go out.
pub(super) const STEP: usize = 64;
/// Bytes of whole pixels in one register.
const WHOLE: usize = 63;

/// Which byte becomes each byte of a result: the two first sources in one table, and the third where `of_third` has a
/// bit.
struct Picks {
    of_two: [u8; STEP],
    third: [u8; STEP],
    of_third: u64,
}

const APART: [Picks; 3] = [picks(0, true, false), picks(1, true, false), picks(2, true, false)];
const APART_MIRRORED: [Picks; 3] = [picks(0, true, true), picks(1, true, true), picks(2, true, true)];
const TOGETHER: [Picks; 3] = [picks(0, false, false), picks(1, false, false), picks(2, false, false)];
const TOGETHER_MIRRORED: [Picks; 3] = [picks(0, false, true), picks(1, false, true), picks(2, false, true)];

/// The bytes of a register but the first are 21 pixels, which come out the last one first.
const TURNED: [u8; STEP] = turned_places();

const fn turned_places() -> [u8; STEP] {
    let mut places = [0; STEP];
    let mut at = 0;
    while at < WHOLE {
        places[at] = (1 + WHOLE - 3 * (at / 3 + 1) + at % 3) as u8;
        at += 1;
    }
    places
}

/// Those of one of three results: of a channel where pixels are taken `apart`, else of a third of the pixels.
const fn picks(result: usize, apart: bool, mirrored: bool) -> Picks {
    let mut picks = Picks { of_two: [0; STEP], third: [0; STEP], of_third: 0 };
    let mut place = 0;
    while place < STEP {
        // What lies at this place: which source has it, and where.
        let (source, at) = if apart {
            let pixel = if mirrored { STEP - 1 - place } else { place };
            let byte = 3 * pixel + result;
            (byte / STEP, byte % STEP)
        } else {
            let byte = result * STEP + place;
            (byte % 3, if mirrored { STEP - 1 - byte / 3 } else { byte / 3 })
        };
        if source == 2 {
            picks.third[place] = at as u8;
            picks.of_third |= 1 << place;
        } else {
            picks.of_two[place] = (source * STEP + at) as u8;
        }
        place += 1;
    }
    picks
}

/// The same in registers.
#[derive(Clone, Copy)]
struct Picked(__m512i, __m512i, u64);

impl Picked {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn of(all: &[Picks; 3]) -> [Picked; 3] {
        let mut picked = [Picked(_mm512_setzero_si512(), _mm512_setzero_si512(), 0); 3];
        for (picked, picks) in picked.iter_mut().zip(all) {
            // SAFETY: each table has 64 bytes.
            let load = |table: &[u8; STEP]| unsafe { _mm512_loadu_si512(table.as_ptr().cast()) };
            *picked = Picked(load(&picks.of_two), load(&picks.third), picks.of_third);
        }
        picked
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn from(self, [a, b, c]: [__m512i; 3]) -> __m512i {
        let two = _mm512_permutex2var_epi8(a, self.0, b);
        _mm512_mask_permutexvar_epi8(two, self.2, self.1, c)
    }
}

/// See [`crate::decode::kernels::Kernels::apart`]; for 64 pixels or more.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn apart(pixels: &[[u8; 3]], mirrored: bool, mut rows: [&mut [u8]; 3]) {
    let length = pixels.len();
    assert!(length >= STEP && rows.iter().all(|row| row.len() == length), "rows of another length");
    let picked = Picked::of(if mirrored { &APART_MIRRORED } else { &APART });
    let mut next = 0;
    while next < length {
        let at = next.min(length - STEP);
        // SAFETY: 64 pixels, of 192 bytes, from `at` on lie in `pixels`.
        let parts = unsafe {
            let from: *const __m512i = pixels.as_ptr().add(at).cast();
            [_mm512_loadu_si512(from), _mm512_loadu_si512(from.add(1)), _mm512_loadu_si512(from.add(2))]
        };
        let to = if mirrored { length - STEP - at } else { at };
        for (row, picked) in rows.iter_mut().zip(picked) {
            // SAFETY: 64 bytes from `to` on lie in a row, which is as long as there are pixels.
            unsafe { _mm512_storeu_si512(row.as_mut_ptr().add(to).cast(), picked.from(parts)) };
        }
        next += STEP;
    }
}

/// See [`crate::decode::kernels::Kernels::together`]; for 64 pixels or more.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn together(rows: [&[u8]; 3], mirrored: bool, pixels: &mut [[u8; 3]]) {
    let length = pixels.len();
    assert!(length >= STEP && rows.iter().all(|row| row.len() == length), "rows of another length");
    let picked = Picked::of(if mirrored { &TOGETHER_MIRRORED } else { &TOGETHER });
    let mut next = 0;
    while next < length {
        let at = next.min(length - STEP);
        let from = if mirrored { length - STEP - at } else { at };
        // SAFETY: 64 bytes from `from` on lie in each row, and 64 pixels, of 192 bytes, from `at` on lie in `pixels`.
        unsafe {
            let mut parts = [_mm512_setzero_si512(); 3];
            for (part, row) in parts.iter_mut().zip(rows) {
                *part = _mm512_loadu_si512(row.as_ptr().add(from).cast());
            }
            let to: *mut __m512i = pixels.as_mut_ptr().add(at).cast();
            for (place, picked) in picked.into_iter().enumerate() {
                _mm512_storeu_si512(to.add(place), picked.from(parts));
            }
        }
        next += STEP;
    }
}

/// See [`crate::decode::kernels::Kernels::turned`]; leaves out the last pixels of the output, fewer than 22, whose number it
/// returns.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) fn turned(pixels: &[[u8; 3]], output: &mut [[u8; 3]]) -> usize {
    let length = 3 * pixels.len();
    assert!(pixels.len() == output.len(), "an output of another length");
    // SAFETY: 64 bytes lie there.
    let places = unsafe { _mm512_loadu_si512(TURNED.as_ptr().cast()) };
    let mut at = 0;
    while at + STEP <= length {
        // SAFETY: 64 bytes from `at` on lie in the output, and as many from `length - 64 - at` on in the input. The last
        // byte that is stored belongs to the next step, or to the pixels that are left.
        unsafe {
            let from: *const __m512i = pixels.as_ptr().cast::<u8>().add(length - STEP - at).cast();
            let to: *mut __m512i = output.as_mut_ptr().cast::<u8>().add(at).cast();
            _mm512_storeu_si512(to, _mm512_permutexvar_epi8(places, _mm512_loadu_si512(from)));
        }
        at += WHOLE;
    }
    pixels.len() - at / 3
}
