//! The portable kernels, which define the results.
//!
//! Sums wrap and narrow where the vector instructions do, which no undamaged image reaches, so both implementations
//! return the same bytes for any input.

use super::constants::*;
use super::{Block, Halves, Kernels, LANES, SLOT_BITS, SLOTS, STATES, Shown, Taps, Target, moved};

/// Plain code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plain;

impl Kernels for Plain {
    #[inline(always)]
    fn inverse(self, blocks: [&Block; 2], steps: [&[i16; 64]; 2], samples: &mut [u8], targets: [Target; 2]) {
        for ((block, steps), target) in blocks.into_iter().zip(steps).zip(targets) {
            let values: [i16; 64] = std::array::from_fn(|at| block[at].wrapping_mul(steps[at]));
            let mut between = [0_i16; 64];
            for column in 0..8 {
                let line = pass(std::array::from_fn(|row| values[row * 8 + column]), FIRST);
                for (row, value) in line.into_iter().enumerate() {
                    between[row * 8 + column] = value;
                }
            }
            for row in 0..8 {
                let line = pass(std::array::from_fn(|column| between[row * 8 + column]), SECOND);
                let row = &mut samples[target.at + row * target.stride..][..8];
                for (sample, value) in row.iter_mut().zip(line) {
                    *sample = (value.clamp(-128, 127) + 128) as u8;
                }
            }
        }
    }

    #[inline(always)]
    fn gather(self, bytes: &[u8], offsets: &[u32; 64], at: usize, pairs: usize, blocks: &mut [Block; LANES]) {
        for k in 0..16 * pairs {
            let plane = &bytes[offsets[k] as usize + at..][..LANES];
            for (block, byte) in blocks.iter_mut().zip(plane) {
                block[k] = i16::from(byte >> 1) ^ -i16::from(byte & 1);
            }
        }
    }

    #[inline(always)]
    fn symbols(self, slots: &[u32; SLOTS], states: &mut [u32; STATES], words: &mut &[u8], symbols: &mut [u8]) -> bool {
        symbols.chunks_mut(STATES).all(|turn| turn_of(slots, states, words, turn))
    }

    #[inline(always)]
    fn colour(self, y: &[u8], cb: &[u8], cr: &[u8], pixels: &mut [[u8; 4]]) {
        for (((y, cb), cr), pixel) in y.iter().zip(cb).zip(cr).zip(pixels) {
            let (y, cb, cr) = (i32::from(*y), i32::from(*cb) - 128, i32::from(*cr) - 128);
            // libjpeg's tables: 1.402, 0.344136, 0.714136 and 1.772, times 2¹⁶.
            let red = y + ((91_881 * cr + 32_768) >> 16);
            let green = y + ((-22_554 * cb - 46_802 * cr + 32_768) >> 16);
            let blue = y + ((116_130 * cb + 32_768) >> 16);
            *pixel = [red.clamp(0, 255) as u8, green.clamp(0, 255) as u8, blue.clamp(0, 255) as u8, 255];
        }
    }

    #[inline(always)]
    fn across(self, taps: &Taps<'_>, input: &[[u8; 4]], output: &mut [[u8; 4]]) {
        let weights = taps.weights.chunks_exact(taps.each);
        for ((first, weights), pixel) in taps.first.iter().zip(weights).zip(output) {
            let mut sums = [1_i32 << (taps.precision - 1); 4];
            for (input, weight) in input[*first as usize..][..taps.each].iter().zip(weights) {
                for (sum, value) in sums.iter_mut().zip(input) {
                    *sum += i32::from(*value) * i32::from(*weight);
                }
            }
            *pixel = sums.map(|sum| (sum >> taps.precision).clamp(0, 255) as u8);
        }
    }

    #[inline(always)]
    fn down(self, rows: &[&[[u8; 4]]], weights: &[i16], precision: u32, output: &mut [[u8; 4]]) {
        for (x, pixel) in output.iter_mut().enumerate() {
            let mut sums = [1_i32 << (precision - 1); 4];
            for (row, weight) in rows.iter().zip(weights) {
                for (sum, value) in sums.iter_mut().zip(row[x]) {
                    *sum += i32::from(value) * i32::from(*weight);
                }
            }
            *pixel = sums.map(|sum| (sum >> precision).clamp(0, 255) as u8);
        }
    }

    #[inline(always)]
    fn apart(self, pixels: &[[u8; 3]], mirrored: bool, rows: [&mut [u8]; 3]) {
        for (channel, row) in rows.into_iter().enumerate() {
            for (at, value) in row.iter_mut().enumerate() {
                let at = if mirrored { pixels.len() - 1 - at } else { at };
                *value = pixels[at][channel];
            }
        }
    }

    #[inline(always)]
    fn together(self, rows: [&[u8]; 3], mirrored: bool, pixels: &mut [[u8; 3]]) {
        let length = pixels.len();
        for (at, pixel) in pixels.iter_mut().enumerate() {
            let at = if mirrored { length - 1 - at } else { at };
            *pixel = rows.map(|row| row[at]);
        }
    }

    #[inline(always)]
    fn mirrored(self, bytes: &[u8], output: &mut [u8]) {
        for (value, byte) in output.iter_mut().zip(bytes.iter().rev()) {
            *value = *byte;
        }
    }

    #[inline(always)]
    fn turned(self, pixels: &[[u8; 3]], output: &mut [[u8; 3]]) {
        for (found, pixel) in output.iter_mut().zip(pixels.iter().rev()) {
            *found = *pixel;
        }
    }

    #[inline(always)]
    fn halves(self, table: &Halves, bytes: &[u8], output: &mut [u16]) {
        table.computed(bytes, output);
    }

    #[inline(always)]
    fn halves_in_turn(self, tables: &[Halves; 3], bytes: &[u8], output: &mut [u16]) {
        Halves::computed_in_turn(tables, bytes, output);
    }

    #[inline(always)]
    fn soon(self, _: &[u8]) {}

    #[inline(always)]
    fn moved(self, shown: &Shown, plane: &[u8], output: &mut [u8]) {
        moved::moved(self, shown, plane, output);
    }

    #[inline(always)]
    fn moved_halves(self, shown: &Shown, plane: &[u8], table: &Halves, output: &mut [u16]) {
        moved::moved_halves(self, shown, plane, table, output);
    }
}

/// Decodes one symbol of each state; returns whether there were enough words.
#[inline(always)]
pub(super) fn turn_of(slots: &[u32; SLOTS], states: &mut [u32], words: &mut &[u8], symbols: &mut [u8]) -> bool {
    const MASK: u32 = (1 << SLOT_BITS) - 1;
    for (state, symbol) in states.iter_mut().zip(symbols) {
        let slot = slots[(*state & MASK) as usize];
        *symbol = slot as u8;
        *state = (slot >> 8 & MASK).wrapping_mul(*state >> SLOT_BITS).wrapping_add(slot >> (8 + SLOT_BITS));
        if *state < 1 << 16 {
            let Some((word, rest)) = words.split_first_chunk() else { return false };
            *state = *state << 16 | u32::from(u16::from_le_bytes(*word));
            *words = rest;
        }
    }
    true
}

/// One direction of the transform over eight values, as `jidctint.c` of libjpeg has it.
fn pass(v: [i16; 8], descale: i32) -> [i16; 8] {
    let wide = v.map(i32::from);
    let even = |a: i32, b: i32| (wide[2] * a).wrapping_add(wide[6] * b);
    let (tmp2, tmp3) = (even(F_0_541, F_0_541 - F_1_847), even(F_0_541 + F_0_765, F_0_541));
    let (tmp0, tmp1) = ((wide[0] + wide[4]) << 13, (wide[0] - wide[4]) << 13);
    let (tmp10, tmp13) = (tmp0.wrapping_add(tmp3), tmp0.wrapping_sub(tmp3));
    let (tmp11, tmp12) = (tmp1.wrapping_add(tmp2), tmp1.wrapping_sub(tmp2));

    let (z3, z4) = (i32::from(v[7].wrapping_add(v[3])), i32::from(v[5].wrapping_add(v[1])));
    let (turned3, turned4) =
        ((z3 * (F_1_175 - F_1_961)).wrapping_add(z4 * F_1_175), (z3 * F_1_175).wrapping_add(z4 * (F_1_175 - F_0_390)));
    let odd =
        |a: usize, by: i32, b: usize, and: i32, z: i32| (wide[a] * by).wrapping_add(wide[b] * and).wrapping_add(z);
    let tmp0 = odd(7, F_0_298 - F_0_899, 1, -F_0_899, turned3);
    let tmp1 = odd(5, F_2_053 - F_2_562, 3, -F_2_562, turned4);
    let tmp2 = odd(3, F_3_072 - F_2_562, 5, -F_2_562, turned3);
    let tmp3 = odd(1, F_1_501 - F_0_899, 7, -F_0_899, turned4);

    let narrow = |value: i32| {
        let rounded = value.wrapping_add(1 << (descale - 1)) >> descale;
        rounded.clamp(i32::from(i16::MIN), i32::from(i16::MAX)) as i16
    };
    let sums = [(tmp10, tmp3), (tmp11, tmp2), (tmp12, tmp1), (tmp13, tmp0)];
    let mut out = [0; 8];
    for (at, (even, odd)) in sums.into_iter().enumerate() {
        out[at] = narrow(even.wrapping_add(odd));
        out[7 - at] = narrow(even.wrapping_sub(odd));
    }
    out
}
