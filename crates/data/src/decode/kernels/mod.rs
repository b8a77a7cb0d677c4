//! The inner loops of decoding and resizing, in two implementations with bit-identical results: portable code, and
//! AVX2.
//!
//! Work that uses them is written once, over any [`Kernels`], and [`run`] selects the implementation at run time. With
//! AVX-512, bytes are moved and looked up 64 at a time. The AVX2 implementation also compiles the surrounding work for
//! such a processor. Read on in `plain`, which defines the results; `avx2` computes them with vector instructions.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod halves;
mod moved;
mod plain;
#[cfg(test)]
mod tests;

pub(crate) use self::halves::{Halves, in_turn, to_bf16};
pub(crate) use self::moved::Shown;
pub(crate) use self::plain::Plain;

/// Blocks that are assembled at a time.
pub(crate) const LANES: usize = 8;
/// States of the entropy coder of packed coefficients.
pub(crate) const STATES: usize = 64;
/// A state of it names a slot with so many bits.
pub(crate) const SLOT_BITS: u32 = 10;
/// Slots that a state may name.
pub(crate) const SLOTS: usize = 1 << SLOT_BITS;

/// Numbers that a pattern of three channels and vectors of eight both divide.
const PERIOD: usize = 24;

/// Coefficients of a block, row by row, and padding that a decoder may write to.
pub(crate) type Block = [i16; 128];

/// Where the samples of one block go.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Target {
    /// Index of the first sample.
    pub at: usize,
    /// Samples from one row to the next.
    pub stride: usize,
}

/// Weights for one direction of a resize; see `crate::transform::resize`.
pub(crate) struct Taps<'a> {
    /// First input of each output.
    pub first: &'a [u32],
    /// Weights, [`Taps::each`] for each output, zero where an output has fewer.
    pub weights: &'a [i16],
    /// Inputs of an output: a multiple of 4.
    pub each: usize,
    /// Weights are integer multiples of 2⁻ᵖʳᵉᶜⁱˢⁱᵒⁿ.
    pub precision: u32,
}

/// The inner loops.
pub(crate) trait Kernels: Copy {
    /// Inverse transform of two blocks with their quantisation steps (row by row) into planes of samples.
    ///
    /// Both targets must lie in `samples`. Results are those of libjpeg-turbo's accurate integer method.
    fn inverse(self, blocks: [&Block; 2], steps: [&[i16; 64]; 2], samples: &mut [u8], targets: [Target; 2]);

    /// Eight blocks, `at` to `at + 7`, from planes of folded bytes, one for each coefficient, that begin at `offsets`; so
    /// many pairs of rows of each block, which leaves the others as they are.
    ///
    /// See `crate::decode::jpeg`'s `packed`; `bytes` must hold eight bytes there in every plane.
    fn gather(self, bytes: &[u8], offsets: &[u32; 64], at: usize, pairs: usize, blocks: &mut [Block; LANES]);

    /// Decodes symbols, one for each byte of `symbols`; the states take turns, beginning with the first.
    ///
    /// See `states` of `crate::decode::jpeg`'s `packed`: `slots` are those of `chances` there, and 16-bit `words` are
    /// consumed as states become small. Returns whether there were enough words; if not, the output is invalid.
    fn symbols(self, slots: &[u32; SLOTS], states: &mut [u32; STATES], words: &mut &[u8], symbols: &mut [u8]) -> bool;

    /// Brightness and two differences to red, green, blue and 255, as JFIF has it.
    fn colour(self, y: &[u8], cb: &[u8], cr: &[u8], pixels: &mut [[u8; 4]]);

    /// One output row from one input row of pixels, weighted along it; outputs are in the order of the taps.
    ///
    /// `input` must reach [`Taps::each`] pixels past the first of every output.
    fn across(self, taps: &Taps<'_>, input: &[[u8; 4]], output: &mut [[u8; 4]]);

    /// One output row from several input rows, each with its weight; both lists are of the same even length.
    fn down(self, rows: &[&[[u8; 4]]], weights: &[i16], precision: u32, output: &mut [[u8; 4]]);

    /// The three bytes of each pixel into three rows, of as many bytes as there are pixels; the last pixel first where
    /// they are `mirrored`.
    fn apart(self, pixels: &[[u8; 3]], mirrored: bool, rows: [&mut [u8]; 3]);

    /// The inverse of `apart`: interleaves three rows into pixels.
    fn together(self, rows: [&[u8]; 3], mirrored: bool, pixels: &mut [[u8; 3]]);

    /// The bytes, the last one first, into as many.
    fn mirrored(self, bytes: &[u8], output: &mut [u8]);

    /// The pixels, the last one first, into as many.
    fn turned(self, pixels: &[[u8; 3]], output: &mut [[u8; 3]]);

    /// Maps each byte through the table.
    fn halves(self, table: &Halves, bytes: &[u8], output: &mut [u16]);

    /// Maps pixels of three channels, each through its table.
    fn halves_in_turn(self, tables: &[Halves; 3], bytes: &[u8], output: &mut [u16]);

    /// Prefetches bytes that are read soon.
    fn soon(self, bytes: &[u8]);

    /// Copies the visible part of a channel into a channel of the same size, with zeros around it.
    fn moved(self, shown: &Shown, plane: &[u8], output: &mut [u8]);

    /// Like `moved`, mapping each byte through the table.
    fn moved_halves(self, shown: &Shown, plane: &[u8], table: &Halves, output: &mut [u16]);
}

/// Work that is generic over the kernels.
pub(crate) trait Work {
    type Output;

    /// Implementations are `#[inline(always)]`, so that they are compiled for the processor that they run on.
    fn run(self, kernels: impl Kernels) -> Self::Output;
}

/// Does the work with the best kernels of this processor.
pub(crate) fn run<W: Work>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = avx2::Avx2::detect() {
        return avx2.run(work);
    }
    work.run(Plain)
}

/// The form of the kernels that this processor gets: `avx2` or `plain`.
pub fn name() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if avx2::Avx2::detect().is_some() {
        return "avx2";
    }
    "plain"
}

/// The constants of the transform (Loeffler, Ligtenberg and Moschytz 1989), times 2¹³, by libjpeg's names.
pub(crate) mod constants {
    /// 0.298631336.
    pub const F_0_298: i32 = 2446;
    /// 0.390180644.
    pub const F_0_390: i32 = 3196;
    /// 0.541196100.
    pub const F_0_541: i32 = 4433;
    /// 0.765366865.
    pub const F_0_765: i32 = 6270;
    /// 0.899976223.
    pub const F_0_899: i32 = 7373;
    /// 1.175875602.
    pub const F_1_175: i32 = 9633;
    /// 1.501321110.
    pub const F_1_501: i32 = 12299;
    /// 1.847759065.
    pub const F_1_847: i32 = 15137;
    /// 1.961570560.
    pub const F_1_961: i32 = 16069;
    /// 2.053119869.
    pub const F_2_053: i32 = 16819;
    /// 2.562915447.
    pub const F_2_562: i32 = 20995;
    /// 3.072711026.
    pub const F_3_072: i32 = 25172;
    /// Bits of the descale after the first direction.
    pub const FIRST: i32 = 11;
    /// Bits of the descale after the second direction.
    pub const SECOND: i32 = 18;
}
