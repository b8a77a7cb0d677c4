//! The states of the entropy decoder, eight at a time; `plain` defines the results.

use std::arch::x86_64::*;

use crate::decode::kernels::plain::turn_of;
use crate::decode::kernels::{SLOT_BITS, SLOTS, STATES};

/// States in a register.
const EIGHT: usize = 8;
/// Registers of states.
const REGISTERS: usize = STATES / EIGHT;
/// The bytes of words that one turn of all states may take, and what is read past them.
const MOST: usize = 2 * STATES + 2 * EIGHT;

/// For each set of states that take a word, which word each of them takes.
const TAKEN: [u64; 256] = {
    let (mut taken, mut set) = ([0; 256], 0);
    while set < 256 {
        let (mut next, mut state) = (0, 0);
        while state < EIGHT {
            if set >> state & 1 == 1 {
                taken[set] |= next << (8 * state);
                next += 1;
            }
            state += 1;
        }
        set += 1;
    }
    taken
};

/// The bytes of words that each set of states takes. (Of a plain count the compiler makes a vector of four, and waits.)
const BYTES: [u8; 256] = {
    let (mut bytes, mut set) = ([0; 256], 0);
    while set < 256 {
        bytes[set] = 2 * (set as u8).count_ones() as u8;
        set += 1;
    }
    bytes
};

#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,fma")]
pub(super) fn symbols(slots: &[u32; SLOTS], states: &mut [u32; STATES], words: &mut &[u8], symbols: &mut [u8]) -> bool {
    // SAFETY: the states are so many registers.
    let mut all: [__m256i; REGISTERS] =
        std::array::from_fn(|at| unsafe { _mm256_loadu_si256(states.as_ptr().add(at * EIGHT).cast()) });
    let (turns, mut rest) = symbols.as_chunks_mut::<STATES>();
    let mut turns = turns.iter_mut();
    let mut here = *words;
    while here.len() >= MOST
        && let Some(turn) = turns.next()
    {
        let mut found = [_mm256_setzero_si256(); REGISTERS];
        for (states, found) in all.iter_mut().zip(&mut found) {
            // SAFETY: a register takes 16 bytes at most, and all of them leave as many.
            (*states, *found) = unsafe { eight(slots, *states, &mut here) };
        }
        for (four, bytes) in found.as_chunks::<4>().0.iter().zip(turn.as_chunks_mut::<32>().0) {
            let low = _mm256_packus_epi32(four[0], four[1]);
            let high = _mm256_packus_epi32(four[2], four[3]);
            let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            let found = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order);
            // SAFETY: there are 32 bytes.
            unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), found) };
        }
    }
    let mut lone = 0;
    if here.len() >= MOST {
        // All whole turns are done; of the last one as many registers as are full.
        while rest.len() >= EIGHT {
            // SAFETY: as above.
            let (next, found) = unsafe { eight(slots, all[lone], &mut here) };
            all[lone] = next;
            let low = _mm256_packus_epi32(found, found);
            let bytes = _mm256_packus_epi16(low, low);
            let order = _mm256_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4);
            let bytes = _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(bytes, order));
            let (done, others) = rest.split_at_mut(EIGHT);
            // SAFETY: there are eight bytes.
            unsafe { _mm_storel_epi64(done.as_mut_ptr().cast(), bytes) };
            rest = others;
            lone += 1;
        }
    }
    for (at, eight) in all.into_iter().enumerate() {
        // SAFETY: as when they were loaded.
        unsafe { _mm256_storeu_si256(states.as_mut_ptr().add(at * EIGHT).cast(), eight) };
    }
    *words = here;
    turns.all(|turn| turn_of(slots, states, words, turn)) && turn_of(slots, &mut states[lone * EIGHT..], words, rest)
}

/// The next states and the symbols of eight states.
///
/// # Safety
/// There must be 16 bytes of words.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,fma")]
unsafe fn eight(slots: &[u32; SLOTS], states: __m256i, words: &mut &[u8]) -> (__m256i, __m256i) {
    let mask = _mm256_set1_epi32((1 << SLOT_BITS) - 1);
    // SAFETY: places are masked to be below the length, and 16 bytes of words are there.
    let (slot, next) = unsafe {
        let slot = _mm256_i32gather_epi32::<4>(slots.as_ptr().cast(), _mm256_and_si256(states, mask));
        (slot, _mm256_cvtepu16_epi32(_mm_loadu_si128(words.as_ptr().cast())))
    };
    let symbols = _mm256_and_si256(slot, _mm256_set1_epi32(255));
    let count = _mm256_and_si256(_mm256_srli_epi32::<8>(slot), mask);
    let above = _mm256_srli_epi32::<{ SLOT_BITS as i32 }>(states);
    let offset = _mm256_srli_epi32::<{ 8 + SLOT_BITS as i32 }>(slot);
    let states = _mm256_add_epi32(_mm256_mullo_epi32(count, above), offset);
    let small = _mm256_cmpeq_epi32(_mm256_srli_epi32::<16>(states), _mm256_setzero_si256());
    let set = _mm256_movemask_ps(_mm256_castsi256_ps(small)) as usize;
    let order = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(TAKEN[set & 255] as i64));
    let taken = _mm256_permutevar8x32_epi32(next, order);
    let grown = _mm256_or_si256(_mm256_slli_epi32::<16>(states), taken);
    *words = &words[usize::from(BYTES[set & 255])..];
    (_mm256_blendv_epi8(states, grown, small), symbols)
}
