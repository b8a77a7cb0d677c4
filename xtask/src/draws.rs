//! Numbers that follow from a seed: SplitMix64, bits and bytes as in `domain::random`, numbers below a limit by the
//! remainder instead; `xtask` depends on no crate of ours.

/// The draws of one seed, in sequence.
pub struct Draws(u64);

impl Draws {
    /// The draws of `seed`.
    pub fn new(seed: u64) -> Draws {
        Draws(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// The next number below `limit`, a remainder: as even as need be for limits far below 2⁶⁴, and the same storms and files
    /// for a seed as ever.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.bits() % limit
    }

    /// The next `count` bytes, which do not compress.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count.div_ceil(8)).flat_map(|_| self.bits().to_le_bytes()).take(count).collect()
    }
}
