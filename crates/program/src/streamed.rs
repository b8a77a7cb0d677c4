#![allow(unsafe_code)]
//! A copy past the processor's caches. A state is larger than they are, and nobody reads its copy soon: what the program works
//! on stays in them, and memory that is overwritten whole is not read first.

/// Copies `from` to `to`, which is as long.
pub(crate) fn copy(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len(), "a copy is as long as what it is of");
    #[cfg(target_arch = "x86_64")]
    if to.len() >= SHORT && is_x86_feature_detected!("avx") {
        // SAFETY: the processor has the feature.
        unsafe { avx::copy(from, to) };
        return;
    }
    to.copy_from_slice(from);
}

/// Fewer bytes than this are few in any cache.
#[cfg(target_arch = "x86_64")]
const SHORT: usize = 4096;

#[cfg(target_arch = "x86_64")]
mod avx {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};

    /// A cache line, which a pair of stores fills.
    const LINE: usize = 64;

    #[target_feature(enable = "avx")]
    pub(super) fn copy(from: &[u8], to: &mut [u8]) {
        let first = to.as_ptr().align_offset(LINE).min(to.len());
        let (from_first, from) = from.split_at(first);
        let (to_first, to) = to.split_at_mut(first);
        to_first.copy_from_slice(from_first);
        let (from_lines, from_last) = from.as_chunks::<LINE>();
        let (to_lines, to_last) = to.as_chunks_mut::<LINE>();
        for (from, to) in from_lines.iter().zip(to_lines) {
            let (from, to): (*const __m256i, *mut __m256i) = (from.as_ptr().cast(), to.as_mut_ptr().cast());
            // SAFETY: both have the 64 bytes of two vectors, and those of `to` begin at a multiple of 64.
            unsafe {
                let (low, high) = (_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1)));
                _mm256_stream_si256(to, low);
                _mm256_stream_si256(to.add(1), high);
            }
        }
        // Streaming stores are not ordered by the locks of the thread that reads the copy. Nothing above can return early.
        _mm_sfence();
        to_last.copy_from_slice(from_last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives_wherever_it_begins() {
        let from: Vec<u8> = (0..3 * SHORT + 100).map(|at| (at * 7 % 251) as u8).collect();
        for (begin, length) in [(0, 0), (1, 63), (3, SHORT - 1), (0, SHORT), (5, SHORT + 1), (63, 3 * SHORT + 37)] {
            for shift in [0, 1, 31, 64] {
                let mut to = vec![0; shift + length + 1];
                copy(&from[begin..begin + length], &mut to[shift..shift + length]);
                assert_eq!(to[shift..shift + length], from[begin..begin + length], "{begin}, {length}, {shift}");
                assert!(to[..shift].iter().chain(&to[shift + length..]).all(|byte| *byte == 0), "{begin}, {length}");
            }
        }
    }
}
