#![allow(unsafe_code)]
//! The kernels in AVX2 instructions, after libjpeg-turbo's and Pillow-SIMD's way of using them.
//!
//! An [`Avx2`] exists only on a processor that has AVX2 and BMI2, which makes its methods sound to call; `wide` is set in
//! it only where there is AVX-512 with VBMI too, on which the soundness of `pixels`, `halves` and `wide` rests. Loads and stores go through slices whose bounds are checked before.

use std::arch::x86_64::*;

mod halves;
mod pixels;
mod places;
mod states;
mod sums;
mod wide;

use super::constants::*;
use super::{Block, Halves, Kernels, LANES, Plain, SLOTS, STATES, Shown, Taps, Target, Work, moved};

/// The proof that this processor has AVX2 and the bit instructions that come with it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2 {
    /// Whether it has AVX-512 too, with permutations of bytes (VBMI).
    wide: bool,
}

impl Avx2 {
    /// The proof, where it can be given.
    pub fn detect() -> Option<Avx2> {
        let found = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("fma");
        let wide = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vbmi");
        found.then_some(Avx2 { wide })
    }

    /// The same without AVX-512, so that tests reach both.
    #[cfg(test)]
    pub fn narrow(self) -> Avx2 {
        Avx2 { wide: false }
    }

    /// Does the work, compiled for this processor.
    pub fn run<W: Work>(self, work: W) -> W::Output {
        // SAFETY: `self` proves that the processor has these features.
        unsafe { within(self, work) }
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,fma")]
fn within<W: Work>(avx2: Avx2, work: W) -> W::Output {
    work.run(avx2)
}

impl Kernels for Avx2 {
    #[inline(always)]
    fn inverse(self, blocks: [&Block; 2], steps: [&[i16; 64]; 2], samples: &mut [u8], targets: [Target; 2]) {
        for Target { at, stride } in targets {
            let last = stride.checked_mul(7).and_then(|rows| rows.checked_add(8)).and_then(|all| all.checked_add(at));
            assert!(last.is_some_and(|last| last <= samples.len()), "a block outside its plane");
        }
        let samples = samples.as_mut_ptr();
        // SAFETY: the features are there, and eight rows of eight bytes, `stride` apart, lie in `samples` at each target.
        unsafe {
            inverse(blocks, steps, targets.map(|target| samples.add(target.at)), targets.map(|target| target.stride))
        }
    }

    #[inline(always)]
    fn gather(self, bytes: &[u8], offsets: &[u32; 64], at: usize, pairs: usize, blocks: &mut [Block; LANES]) {
        let most = offsets.iter().fold(0, |most, offset| most.max(*offset)) as usize;
        let last = at.checked_add(LANES).and_then(|last| last.checked_add(most));
        assert!(last.is_some_and(|last| last <= bytes.len()), "planes that are too short");
        // SAFETY: the features are there, and eight bytes at `at` of each plane lie in `bytes`.
        unsafe { gather(bytes.as_ptr().add(at), offsets, pairs, blocks) }
    }

    #[inline(always)]
    fn symbols(self, slots: &[u32; SLOTS], states: &mut [u32; STATES], words: &mut &[u8], symbols: &mut [u8]) -> bool {
        // SAFETY: the features are there.
        unsafe { states::symbols(slots, states, words, symbols) }
    }

    #[inline(always)]
    fn colour(self, y: &[u8], cb: &[u8], cr: &[u8], pixels: &mut [[u8; 4]]) {
        // SAFETY: the features are there.
        unsafe { colour(y, cb, cr, pixels) }
    }

    #[inline(always)]
    fn across(self, taps: &Taps<'_>, input: &[[u8; 4]], output: &mut [[u8; 4]]) {
        // SAFETY: the features are there.
        unsafe { sums::across(taps, input, output) }
    }

    #[inline(always)]
    fn down(self, rows: &[&[[u8; 4]]], weights: &[i16], precision: u32, output: &mut [[u8; 4]]) {
        // SAFETY: the features are there.
        unsafe { sums::down(rows, weights, precision, output) }
    }

    #[inline(always)]
    fn apart(self, pixels: &[[u8; 3]], mirrored: bool, rows: [&mut [u8]; 3]) {
        // SAFETY: the features are there.
        unsafe {
            match self.wide && pixels.len() >= pixels::STEP {
                true => pixels::apart(pixels, mirrored, rows),
                false => places::apart(pixels, mirrored, rows),
            }
        }
    }

    #[inline(always)]
    fn together(self, rows: [&[u8]; 3], mirrored: bool, pixels: &mut [[u8; 3]]) {
        // SAFETY: the features are there.
        unsafe {
            match self.wide && pixels.len() >= pixels::STEP {
                true => pixels::together(rows, mirrored, pixels),
                false => places::together(rows, mirrored, pixels),
            }
        }
    }

    #[inline(always)]
    fn mirrored(self, bytes: &[u8], output: &mut [u8]) {
        // SAFETY: the features are there.
        unsafe { places::mirrored(bytes, output) }
    }

    #[inline(always)]
    fn turned(self, pixels: &[[u8; 3]], output: &mut [[u8; 3]]) {
        let length = pixels.len();
        // SAFETY: the features are there.
        let left = if self.wide { unsafe { pixels::turned(pixels, output) } } else { length };
        // SAFETY: as above.
        unsafe { places::turned(&pixels[..left], &mut output[length - left..]) }
    }

    #[inline(always)]
    fn halves(self, table: &Halves, bytes: &[u8], output: &mut [u16]) {
        match self.wide && bytes.len() >= halves::STEP {
            // SAFETY: the features are there.
            true => unsafe { halves::found(table, bytes, output) },
            false => table.computed(bytes, output),
        }
    }

    #[inline(always)]
    fn halves_in_turn(self, tables: &[Halves; 3], bytes: &[u8], output: &mut [u16]) {
        match self.wide && bytes.len() >= halves::STEP {
            // SAFETY: the features are there.
            true => unsafe { halves::found_in_turn(tables, bytes, output) },
            false => Halves::computed_in_turn(tables, bytes, output),
        }
    }

    #[inline(always)]
    fn soon(self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            // SAFETY: nothing is read, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().wrapping_add(at).cast()) };
            at += 64;
        }
    }

    #[inline(always)]
    fn moved(self, shown: &Shown, plane: &[u8], output: &mut [u8]) {
        match wide::Plan::of(self.wide, shown, plane, output.len()) {
            // SAFETY: there is a plan only where the features are.
            Some(plan) => unsafe { wide::moved(&plan, output) },
            None => moved::moved(self, shown, plane, output),
        }
    }

    #[inline(always)]
    fn moved_halves(self, shown: &Shown, plane: &[u8], table: &Halves, output: &mut [u16]) {
        match wide::Plan::of(self.wide, shown, plane, output.len()) {
            // SAFETY: as above.
            Some(plan) => unsafe { wide::moved_halves(&plan, table, output) },
            None => moved::moved_halves(self, shown, plane, table, output),
        }
    }
}

/// A vector of pairs (a, b), for `_mm256_madd_epi16`.
#[inline]
#[target_feature(enable = "avx2")]
fn pairs(a: i32, b: i32) -> __m256i {
    _mm256_set1_epi32((b << 16) | (a & 0xFFFF))
}

/// Sums of products of two interleaved rows with pairs of factors: the lower and the upper four of eight columns.
#[inline]
#[target_feature(enable = "avx2")]
fn product(low: __m256i, high: __m256i, a: i32, b: i32) -> [__m256i; 2] {
    let factors = pairs(a, b);
    [_mm256_madd_epi16(low, factors), _mm256_madd_epi16(high, factors)]
}

#[inline]
#[target_feature(enable = "avx2")]
fn add(a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
    [_mm256_add_epi32(a[0], b[0]), _mm256_add_epi32(a[1], b[1])]
}

/// The sum and the difference, rounded, shifted and narrowed.
#[inline]
#[target_feature(enable = "avx2")]
fn butterfly<const DESCALE: i32>(even: [__m256i; 2], odd: [__m256i; 2]) -> (__m256i, __m256i) {
    let half = _mm256_set1_epi32(1 << (DESCALE - 1));
    let (low, high) = (_mm256_add_epi32(even[0], half), _mm256_add_epi32(even[1], half));
    let sum = _mm256_packs_epi32(
        _mm256_srai_epi32::<DESCALE>(_mm256_add_epi32(low, odd[0])),
        _mm256_srai_epi32::<DESCALE>(_mm256_add_epi32(high, odd[1])),
    );
    let difference = _mm256_packs_epi32(
        _mm256_srai_epi32::<DESCALE>(_mm256_sub_epi32(low, odd[0])),
        _mm256_srai_epi32::<DESCALE>(_mm256_sub_epi32(high, odd[1])),
    );
    (sum, difference)
}

/// One direction of the transform over rows of eight columns, one block in each half of a register.
#[inline]
#[target_feature(enable = "avx2")]
fn pass<const DESCALE: i32>(v: [__m256i; 8]) -> [__m256i; 8] {
    let interleave = |a: __m256i, b: __m256i| (_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b));
    let (low, high) = interleave(v[2], v[6]);
    let tmp3 = product(low, high, F_0_541 + F_0_765, F_0_541);
    let tmp2 = product(low, high, F_0_541, F_0_541 - F_1_847);
    let (low, high) = interleave(v[0], v[4]);
    let tmp0 = product(low, high, 1 << 13, 1 << 13);
    let tmp1 = product(low, high, 1 << 13, -(1 << 13));
    let minus = |a: [__m256i; 2], b: [__m256i; 2]| [_mm256_sub_epi32(a[0], b[0]), _mm256_sub_epi32(a[1], b[1])];
    let (tmp10, tmp13) = (add(tmp0, tmp3), minus(tmp0, tmp3));
    let (tmp11, tmp12) = (add(tmp1, tmp2), minus(tmp1, tmp2));

    let (low, high) = interleave(_mm256_add_epi16(v[7], v[3]), _mm256_add_epi16(v[5], v[1]));
    let turned3 = product(low, high, F_1_175 - F_1_961, F_1_175);
    let turned4 = product(low, high, F_1_175, F_1_175 - F_0_390);
    let (low, high) = interleave(v[7], v[1]);
    let tmp0 = add(product(low, high, F_0_298 - F_0_899, -F_0_899), turned3);
    let tmp3 = add(product(low, high, -F_0_899, F_1_501 - F_0_899), turned4);
    let (low, high) = interleave(v[5], v[3]);
    let tmp1 = add(product(low, high, F_2_053 - F_2_562, -F_2_562), turned4);
    let tmp2 = add(product(low, high, -F_2_562, F_3_072 - F_2_562), turned3);

    let (v0, v7) = butterfly::<DESCALE>(tmp10, tmp3);
    let (v1, v6) = butterfly::<DESCALE>(tmp11, tmp2);
    let (v2, v5) = butterfly::<DESCALE>(tmp12, tmp1);
    let (v3, v4) = butterfly::<DESCALE>(tmp13, tmp0);
    [v0, v1, v2, v3, v4, v5, v6, v7]
}

/// Rows to columns, in each half of the registers.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose(v: [__m256i; 8]) -> [__m256i; 8] {
    let (a0, a1) = (_mm256_unpacklo_epi16(v[0], v[1]), _mm256_unpackhi_epi16(v[0], v[1]));
    let (a2, a3) = (_mm256_unpacklo_epi16(v[2], v[3]), _mm256_unpackhi_epi16(v[2], v[3]));
    let (a4, a5) = (_mm256_unpacklo_epi16(v[4], v[5]), _mm256_unpackhi_epi16(v[4], v[5]));
    let (a6, a7) = (_mm256_unpacklo_epi16(v[6], v[7]), _mm256_unpackhi_epi16(v[6], v[7]));
    let (b0, b1) = (_mm256_unpacklo_epi32(a0, a2), _mm256_unpackhi_epi32(a0, a2));
    let (b2, b3) = (_mm256_unpacklo_epi32(a1, a3), _mm256_unpackhi_epi32(a1, a3));
    let (b4, b5) = (_mm256_unpacklo_epi32(a4, a6), _mm256_unpackhi_epi32(a4, a6));
    let (b6, b7) = (_mm256_unpacklo_epi32(a5, a7), _mm256_unpackhi_epi32(a5, a7));
    let join = |a: __m256i, b: __m256i| (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    let ((c0, c1), (c2, c3)) = (join(b0, b4), join(b1, b5));
    let ((c4, c5), (c6, c7)) = (join(b2, b6), join(b3, b7));
    [c0, c1, c2, c3, c4, c5, c6, c7]
}

/// # Safety
/// Eight rows of eight bytes, `strides` apart, must be writable at each of `rows`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn inverse(blocks: [&Block; 2], steps: [&[i16; 64]; 2], rows: [*mut u8; 2], strides: [usize; 2]) {
    let mut v = [_mm256_setzero_si256(); 8];
    for (row, v) in v.iter_mut().enumerate() {
        // SAFETY: eight values from `row * 8` on lie in arrays of 64 and 128, and the loads ask for no alignment.
        let (values, step) = unsafe {
            let load = |from: *const i16| _mm_loadu_si128(from.add(row * 8).cast());
            (
                _mm256_set_m128i(load(blocks[1].as_ptr()), load(blocks[0].as_ptr())),
                _mm256_set_m128i(load(steps[1].as_ptr()), load(steps[0].as_ptr())),
            )
        };
        *v = _mm256_mullo_epi16(values, step);
    }
    // After the second pass each register is a column.
    let v = pass::<SECOND>(transpose(pass::<FIRST>(v)));
    let pack = |a: __m256i, b: __m256i| _mm256_packs_epi16(a, b);
    let bytes = |a: __m256i, b: __m256i| (_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b));
    let (c01, c23) = bytes(pack(v[0], v[2]), pack(v[1], v[3]));
    let (c45, c67) = bytes(pack(v[4], v[6]), pack(v[5], v[7]));
    let (low0, high0) = (_mm256_unpacklo_epi16(c01, c23), _mm256_unpackhi_epi16(c01, c23));
    let (low1, high1) = (_mm256_unpacklo_epi16(c45, c67), _mm256_unpackhi_epi16(c45, c67));
    let centre = _mm256_set1_epi8(-128);
    let done = [
        _mm256_unpacklo_epi32(low0, low1),
        _mm256_unpackhi_epi32(low0, low1),
        _mm256_unpacklo_epi32(high0, high1),
        _mm256_unpackhi_epi32(high0, high1),
    ];
    for (pair, two) in done.into_iter().enumerate() {
        let two = _mm256_add_epi8(two, centre);
        for (half, rows, stride) in [
            (_mm256_castsi256_si128(two), rows[0], strides[0]),
            (_mm256_extracti128_si256::<1>(two), rows[1], strides[1]),
        ] {
            // SAFETY: rows `2 * pair` and the next of eight are writable, as the caller promises.
            unsafe {
                _mm_storel_epi64(rows.add(2 * pair * stride).cast(), half);
                _mm_storel_epi64(rows.add((2 * pair + 1) * stride).cast(), _mm_unpackhi_epi64(half, half));
            }
        }
    }
}

/// # Safety
/// Eight bytes must be readable at each of `offsets` after `bytes`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn gather(bytes: *const u8, offsets: &[u32; 64], pairs: usize, blocks: &mut [Block; LANES]) {
    let (one, zero) = (_mm256_set1_epi16(1), _mm256_setzero_si256());
    // Two rows of coefficients at a time, one in each half of the registers.
    for row in [0, 2, 4, 6].into_iter().take(pairs) {
        let mut v = [zero; 8];
        for (column, v) in v.iter_mut().enumerate() {
            // SAFETY: `k` is below 64, as the caller promises for `bytes`.
            let (low, high) = unsafe {
                let load = |k: usize| _mm_loadl_epi64(bytes.add(offsets[k] as usize).cast());
                (load(row * 8 + column), load(row * 8 + 8 + column))
            };
            let wide = _mm256_set_m128i(_mm_cvtepu8_epi16(high), _mm_cvtepu8_epi16(low));
            let sign = _mm256_sub_epi16(zero, _mm256_and_si256(wide, one));
            *v = _mm256_xor_si256(_mm256_srli_epi16::<1>(wide), sign);
        }
        for (block, both) in blocks.iter_mut().zip(transpose(v)) {
            // SAFETY: sixteen coefficients from `row * 8` on, at most 48, lie in a block.
            unsafe { _mm256_storeu_si256(block.as_mut_ptr().add(row * 8).cast(), both) };
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn colour(y: &[u8], cb: &[u8], cr: &[u8], pixels: &mut [[u8; 4]]) {
    const STEP: usize = 16;
    let length = pixels.len().min(y.len()).min(cb.len()).min(cr.len());
    let whole = length / STEP * STEP;
    let centre = _mm256_set1_epi16(128);
    let half = _mm256_set1_epi32(32_768);
    let one = _mm256_set1_epi16(1);
    let mut at = 0;
    while at < whole {
        // SAFETY: `at + 16` is at most the length of each slice.
        let [y, cb, cr] = unsafe {
            let load = |from: &[u8]| _mm256_cvtepu8_epi16(_mm_loadu_si128(from.as_ptr().add(at).cast()));
            [load(y), load(cb), load(cr)]
        };
        let (cb, cr) = (_mm256_sub_epi16(cb, centre), _mm256_sub_epi16(cr, centre));
        // 1.402 = 1 + 0.402 and 1.772 = 2 - 0.228; a doubled factor, halved with rounding, is exact.
        let rounded = |value: __m256i, factor: i16| {
            let product = _mm256_mulhi_epi16(_mm256_add_epi16(value, value), _mm256_set1_epi16(factor));
            _mm256_srai_epi16::<1>(_mm256_add_epi16(product, one))
        };
        let red = _mm256_add_epi16(_mm256_add_epi16(rounded(cr, 26_345), cr), y);
        let blue = _mm256_add_epi16(_mm256_add_epi16(rounded(cb, -14_942), _mm256_add_epi16(cb, cb)), y);
        // -0.714136 = 0.285864 - 1, to fit a 16-bit factor.
        let factors = pairs(-22_554, 65_536 - 46_802);
        let green = |both: __m256i| _mm256_srai_epi32::<16>(_mm256_add_epi32(_mm256_madd_epi16(both, factors), half));
        let green = _mm256_packs_epi32(green(_mm256_unpacklo_epi16(cb, cr)), green(_mm256_unpackhi_epi16(cb, cr)));
        let green = _mm256_add_epi16(_mm256_sub_epi16(green, cr), y);
        // In each half: eight of red and blue, eight of green and 255.
        let red_blue = _mm256_packus_epi16(red, blue);
        let green_full = _mm256_packus_epi16(green, _mm256_set1_epi16(255));
        let red_green = _mm256_unpacklo_epi8(red_blue, green_full);
        let blue_full = _mm256_unpackhi_epi8(red_blue, green_full);
        let (low, high) = (_mm256_unpacklo_epi16(red_green, blue_full), _mm256_unpackhi_epi16(red_green, blue_full));
        // SAFETY: sixteen pixels from `at` on lie in `pixels`.
        unsafe {
            let out: *mut __m256i = pixels.as_mut_ptr().add(at).cast();
            _mm256_storeu_si256(out, _mm256_permute2x128_si256::<0x20>(low, high));
            _mm256_storeu_si256(out.add(1), _mm256_permute2x128_si256::<0x31>(low, high));
        }
        at += STEP;
    }
    Plain.colour(&y[whole..length], &cb[whole..length], &cr[whole..length], &mut pixels[whole..length]);
}
